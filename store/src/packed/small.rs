//! A set that fits in one record, as it grows: of integers first, then of names.

use super::{ints, names};
use crate::record::RecordKind;

/// The bytes of a small set, and what they are.
pub(crate) struct Small {
    pub kind: RecordKind,
    pub packed: Vec<u8>,
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

    /// Adds a member.
    pub fn add(&mut self, member: &[u8]) -> Added {
        if self.kind == RecordKind::IntSet {
            if let Some(int) = ints::parse(member) {
                return self.add_int(int);
            }
            if ints::len(&self.packed) >= names::NAMES_MAX || member.len() > names::NAME_BYTES_MAX {
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
        if len >= names::NAMES_MAX || member.len() > names::NAME_BYTES_MAX {
            return Added::TooLarge;
        }
        names::push(&mut self.packed, member);
        Added::New
    }

    fn add_int(&mut self, int: i64) -> Added {
        match ints::search(&self.packed, int) {
            Ok(_) => Added::Known,
            Err(_) if ints::len(&self.packed) >= ints::INTS_MAX => Added::TooLarge,
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

    fn names_of(set: &Small) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        set.for_each(&mut |name| all.push(name.to_vec()));
        all
    }

    #[test]
    fn integers_become_names_with_the_first_other_member() {
        let mut set = Small::empty();
        for name in ["10", "-3", "10"] {
            set.add(name.as_bytes());
        }
        assert_eq!((set.kind, names_of(&set).len()), (RecordKind::IntSet, 2));
        assert_eq!(set.add(b"01"), Added::New);
        assert_eq!((set.kind, set.add(b"10")), (RecordKind::PackedSet, Added::Known));
        assert_eq!(names_of(&set), [&b"-3"[..], b"10", b"01"]);
        assert!(set.remove(b"-3") && set.remove(b"10") && !set.is_empty());
        assert!(set.remove(b"01") && !set.remove(b"01") && set.is_empty());
    }

    #[test]
    fn limits_are_those_of_redis() {
        let mut set = Small::empty();
        (0..512).for_each(|int: i32| assert_eq!(set.add(int.to_string().as_bytes()), Added::New));
        assert_eq!((set.add(b"511"), set.add(b"512")), (Added::Known, Added::TooLarge));
        assert_eq!((set.add(b"x"), names_of(&set).len()), (Added::TooLarge, 512));
        assert!(!set.remove(b"x") && set.remove(b"7"));
        let mut set = Small::empty();
        (0..127).for_each(|int: i32| assert_eq!(set.add(int.to_string().as_bytes()), Added::New));
        assert_eq!((set.add(&[b'x'; 65]), set.kind), (Added::TooLarge, RecordKind::IntSet));
        assert_eq!((set.add(&[b'x'; 64]), set.kind), (Added::New, RecordKind::PackedSet));
        assert_eq!((set.add(b"5"), set.add(b"200")), (Added::Known, Added::TooLarge));
    }
}
