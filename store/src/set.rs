//! Reading a set, whichever way it is stored.

use std::collections::BTreeSet;

use perdura_slots::Lane;

use crate::entry::Entry;
use crate::fields::find_field;
use crate::packed::{ints, names};
use crate::record::{Header, RecordKind};
use crate::table;

/// A set as it is found, valid while its shard is held.
#[derive(Clone, Copy)]
pub struct Set<'a> {
    lane: &'a Lane<'a>,
    form: Form<'a>,
}

/// The ways in which a set is stored: they are those of Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetForm {
    /// Integers in order, in one record.
    Ints,
    /// Names, in one record.
    Packed,
    /// A table with a record for each member.
    Table,
}

/// The bytes of a small set, or the root of the table of members.
#[derive(Clone, Copy)]
enum Form<'a> {
    Ints(&'a [u8]),
    Packed(&'a [u8]),
    Table(u64),
}

impl<'a> Entry<'a> {
    /// The value, if it is a set.
    pub fn set(&self) -> Option<Set<'a>> {
        let form = match self.header.kind {
            RecordKind::IntSet => Form::Ints(self.value()),
            RecordKind::PackedSet => Form::Packed(self.value()),
            RecordKind::TableSet => Form::Table(self.table_root()),
            _ => return None,
        };
        Some(Set { lane: self.lane, form })
    }
}

impl Set<'_> {
    /// The way in which the set is stored.
    pub fn form(&self) -> SetForm {
        match self.form {
            Form::Ints(_) => SetForm::Ints,
            Form::Packed(_) => SetForm::Packed,
            Form::Table(_) => SetForm::Table,
        }
    }

    /// The number of members.
    #[allow(clippy::len_without_is_empty, reason = "a key without members is no key")]
    pub fn len(&self) -> u64 {
        match self.form {
            Form::Ints(packed) => ints::len(packed) as u64,
            Form::Packed(packed) => names::iter(packed).count() as u64,
            Form::Table(root) => table::stored_len(self.lane, root),
        }
    }

    /// Whether the set has a member.
    pub fn has(&self, member: &[u8]) -> bool {
        match self.form {
            Form::Ints(packed) => {
                ints::parse(member).is_some_and(|int| ints::search(packed, int).is_ok())
            }
            Form::Packed(packed) => names::has(packed, member),
            Form::Table(root) => find_field(self.lane, root, member).is_some(),
        }
    }

    /// Calls `f` with every member.
    pub fn for_each(&self, f: &mut dyn FnMut(&[u8])) {
        let mut cursor = 0;
        loop {
            cursor = self.scan(cursor, usize::MAX, f);
            if cursor == 0 {
                return;
            }
        }
    }

    /// Calls `f` with about `count` members, or with all of a small set. Cursors are as in
    /// [`crate::Store::scan`].
    pub fn scan(&self, cursor: u64, count: usize, f: &mut dyn FnMut(&[u8])) -> u64 {
        let root = match self.form {
            Form::Ints(packed) => {
                ints::iter(packed).for_each(|int| ints::with_name(int, &mut *f));
                return 0;
            }
            Form::Packed(packed) => {
                names::iter(packed).for_each(f);
                return 0;
            }
            Form::Table(root) => root,
        };
        let (mut bucket, mut met) = (cursor, 0);
        while bucket < table::buckets(self.lane, root) {
            if met >= count.max(1) {
                return bucket;
            }
            table::for_each(self.lane, root, bucket, |found| {
                f(name_of(self.lane, found.record(), found.head_bytes()));
                met += 1;
            });
            bucket += 1;
        }
        0
    }

    /// Calls `f` with a member drawn at random, each with the same chance. `draw(n)` draws a number
    /// below `n`. The time does not grow with the set, unless it has lost most of its members.
    pub fn pick(&self, draw: &mut dyn FnMut(u64) -> u64, f: &mut dyn FnMut(&[u8])) {
        if let Some(place) = self.draw_place(draw) {
            self.at_place(place, f);
        }
    }

    /// Calls `f` with `count` members drawn at random, or with all if there are no more: no member
    /// twice, each choice with the same chance. `draw(n)` draws a number below `n`.
    pub fn pick_distinct(
        &self,
        count: u64,
        draw: &mut dyn FnMut(u64) -> u64,
        f: &mut dyn FnMut(&[u8]),
    ) {
        let len = self.len();
        if count >= len {
            return self.for_each(f);
        }
        // Few of many: drawn until there are enough.
        if count < len / 3 {
            let mut drawn = BTreeSet::new();
            while (drawn.len() as u64) < count
                && let Some(place) = self.draw_place(draw)
            {
                if drawn.insert(place) {
                    self.at_place(place, f);
                }
            }
            return;
        }
        // The first `count` steps of a shuffle.
        let mut all = self.places();
        for at in 0..(count as usize).min(all.len()) {
            let other = at + draw((all.len() - at) as u64) as usize;
            all.swap(at, other);
            self.at_place(all[at], f);
        }
    }

    /// A place drawn at random: the member's position, or the word of its entry.
    fn draw_place(&self, draw: &mut dyn FnMut(u64) -> u64) -> Option<u64> {
        match self.form {
            Form::Table(root) => table::pick::pick(self.lane, root, draw).map(|found| found.entry),
            _ => Some(self.len()).filter(|len| *len > 0).map(draw),
        }
    }

    /// The places of all members.
    fn places(&self) -> Vec<u64> {
        let Form::Table(root) = self.form else { return (0..self.len()).collect() };
        let mut places = Vec::new();
        for bucket in 0..table::buckets(self.lane, root) {
            table::for_each(self.lane, root, bucket, |found| places.push(found.entry));
        }
        places
    }

    fn at_place(&self, place: u64, f: &mut dyn FnMut(&[u8])) {
        match self.form {
            Form::Ints(packed) => ints::with_name(ints::at(packed, place as usize), f),
            Form::Packed(packed) => names::iter(packed).nth(place as usize).into_iter().for_each(f),
            Form::Table(_) => {
                f(name_of(self.lane, table::record_of(place), table::head_of(place)));
            }
        }
    }

    /// Checks every invariant of a large set's table. Tests call this.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn assert_sound(&self) {
        let mut members = 0;
        self.for_each(&mut |name| {
            assert!(self.has(name), "a member that is not found");
            members += 1;
        });
        assert_eq!(members, self.len(), "members met");
    }
}

/// The name in the record of a member.
pub(crate) fn name_of<'l>(lane: &'l Lane<'_>, record: u64, head_bytes: u64) -> &'l [u8] {
    let header = Header::load(lane, record);
    lane.bytes(record + head_bytes, usize::from(header.key_len))
}
