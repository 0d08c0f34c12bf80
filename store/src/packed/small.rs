//! A set that fits in one record, as it grows: of integers first, then of names.

use super::{ints, names};
use crate::record::RecordKind;

/// The bytes of a small set, and what they are.
pub(crate) struct Small {
    pub kind: RecordKind,
    pub packed: Vec<u8>,
}

/// The most that a small set has: what is larger has a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmallSets {
    /// Members of a set of integers, up to [`SmallSets::MOST`].
    pub ints: u16,
    /// Members of another set.
    pub names: u16,
    /// Bytes of the longest member of another set.
    pub name_bytes: u8,
}

impl SmallSets {
    /// The largest limits: a change of a small set goes through all of it.
    pub const MOST: Self = Self { ints: 4096, names: 1024, name_bytes: u8::MAX };
}

/// Redis' limits.
impl Default for SmallSets {
    fn default() -> Self {
        Self { ints: 512, names: 128, name_bytes: 64 }
    }
}

impl SmallSets {
    fn have_names(self, len: usize, member: &[u8]) -> bool {
        len < usize::from(self.names) && member.len() <= usize::from(self.name_bytes)
    }
}

/// What became of a member that was to be added.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// The member is new.
    New,
    /// The set had the member.
    Known,
    /// The set would no longer be small, and is as it was.
    TooLarge,
}

impl Small {
    /// A set without members.
    pub fn empty() -> Self {
        Self { kind: RecordKind::IntSet, packed: Vec::new() }
    }

    /// The set in the value of such a record; `None` if no small set has records of this kind.
    pub fn of(kind: RecordKind, value: &[u8]) -> Option<Self> {
        let is_small = matches!(kind, RecordKind::IntSet | RecordKind::PackedSet);
        is_small.then(|| Self { kind, packed: value.to_vec() })
    }

    /// Adds a member, if the set stays within the limits.
    pub fn add(&mut self, member: &[u8], limits: SmallSets) -> Added {
        if self.kind == RecordKind::IntSet {
            let is_wanted = limits.ints > 0 || !self.packed.is_empty();
            if let Some(int) = ints::parse(member).filter(|_| is_wanted) {
                return self.add_int(int, limits);
            }
            if !limits.have_names(ints::len(&self.packed), member) {
                return Added::TooLarge;
            }
            let mut packed = Vec::with_capacity(self.packed.len() * 2 + member.len());
            for int in ints::iter(&self.packed) {
                ints::with_name(int, |name| names::push(&mut packed, name));
            }
            *self = Self { kind: RecordKind::PackedSet, packed };
        }
        let (mut len, mut is_known) = (0, false);
        for name in names::iter(&self.packed) {
            (len, is_known) = (len + 1, is_known || name == member);
        }
        if is_known {
            return Added::Known;
        }
        if !limits.have_names(len, member) {
            return Added::TooLarge;
        }
        names::push(&mut self.packed, member);
        Added::New
    }

    fn add_int(&mut self, int: i64, limits: SmallSets) -> Added {
        match ints::search(&self.packed, int) {
            Ok(_) => Added::Known,
            Err(_) if ints::len(&self.packed) >= usize::from(limits.ints) => Added::TooLarge,
            Err(index) => {
                ints::insert(&mut self.packed, index, int);
                Added::New
            }
        }
    }

    /// Takes a member out. Returns whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        if self.kind == RecordKind::PackedSet {
            return names::remove(&mut self.packed, member);
        }
        let found = ints::parse(member).and_then(|int| ints::search(&self.packed, int).ok());
        if let Some(index) = found {
            ints::remove(&mut self.packed, index);
        }
        found.is_some()
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        match self.kind {
            RecordKind::IntSet => ints::len(&self.packed) == 0,
            _ => self.packed.is_empty(),
        }
    }

    /// Calls `f` with every member's name.
    pub fn for_each(&self, f: &mut dyn FnMut(&[u8])) {
        match self.kind {
            RecordKind::IntSet => {
                ints::iter(&self.packed).for_each(|int| ints::with_name(int, &mut *f))
            }
            _ => names::iter(&self.packed).for_each(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(set: &mut Small, member: &[u8]) -> Added {
        set.add(member, SmallSets::default())
    }

    fn names_of(set: &Small) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        set.for_each(&mut |name| all.push(name.to_vec()));
        all
    }

    #[test]
    fn integers_become_names_with_the_first_other_member() {
        let mut set = Small::empty();
        for name in ["10", "-3", "10"] {
            add(&mut set, name.as_bytes());
        }
        assert_eq!((set.kind, names_of(&set).len()), (RecordKind::IntSet, 2));
        assert_eq!(add(&mut set, b"01"), Added::New);
        assert_eq!((set.kind, add(&mut set, b"10")), (RecordKind::PackedSet, Added::Known));
        assert_eq!(names_of(&set), [&b"-3"[..], b"10", b"01"]);
        assert!(set.remove(b"-3") && set.remove(b"10") && !set.is_empty());
        assert!(set.remove(b"01") && !set.remove(b"01") && set.is_empty());
    }

    #[test]
    fn limits_are_those_of_redis() {
        let mut set = Small::empty();
        (0..512)
            .for_each(|int: i32| assert_eq!(add(&mut set, int.to_string().as_bytes()), Added::New));
        assert_eq!((add(&mut set, b"511"), add(&mut set, b"512")), (Added::Known, Added::TooLarge));
        assert_eq!((add(&mut set, b"x"), names_of(&set).len()), (Added::TooLarge, 512));
        assert!(!set.remove(b"x") && set.remove(b"7"));
        let mut set = Small::empty();
        (0..127)
            .for_each(|int: i32| assert_eq!(add(&mut set, int.to_string().as_bytes()), Added::New));
        assert_eq!((add(&mut set, &[b'x'; 65]), set.kind), (Added::TooLarge, RecordKind::IntSet));
        assert_eq!((add(&mut set, &[b'x'; 64]), set.kind), (Added::New, RecordKind::PackedSet));
        assert_eq!((add(&mut set, b"5"), add(&mut set, b"200")), (Added::Known, Added::TooLarge));
    }

    #[test]
    fn limits_can_be_set() {
        let limits = SmallSets { ints: 0, names: 2, name_bytes: 3 };
        let mut set = Small::empty();
        assert_eq!((set.add(b"1", limits), set.kind), (Added::New, RecordKind::PackedSet));
        assert_eq!(
            (set.add(b"1", limits), set.add(b"long", limits)),
            (Added::Known, Added::TooLarge)
        );
        assert_eq!((set.add(b"abc", limits), set.add(b"2", limits)), (Added::New, Added::TooLarge));
        let mut set = Small::empty();
        let limits = SmallSets::MOST;
        assert_eq!(
            (set.add(&[b'x'; 255], limits), set.add(&[b'x'; 256], limits)),
            (Added::New, Added::TooLarge)
        );
        assert_eq!(names_of(&set), [vec![b'x'; 255]]);
    }
}
