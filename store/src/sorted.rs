//! Reading a sorted set, whichever way it is stored.

use std::ops::Range;

use perdura_slots::Lane;

use crate::entry::Entry;
use crate::fields::find_field;
use crate::packed::members as packed;
use crate::record::{Header, RecordKind};
use crate::tree::{self, Edge, Node, name_of, order_of};
use crate::{members, table};

/// A sorted set as it is found, valid while its shard is held. Members have ranks from 0 on, in the
/// order of their scores, then of their names.
#[derive(Clone, Copy)]
pub struct Sorted<'a> {
    lane: &'a Lane<'a>,
    form: Form<'a>,
}

/// A sorted set as it is stored: its packed members, or the root of its table and the top of its
/// tree.
#[derive(Clone, Copy)]
enum Form<'a> {
    Packed(&'a [u8]),
    Tree { root: u64, top: u64 },
}

impl<'a> Entry<'a> {
    /// The value, if it is a sorted set.
    pub fn sorted(&self) -> Option<Sorted<'a>> {
        let form = match self.header.kind {
            RecordKind::PackedSorted => Form::Packed(self.value()),
            RecordKind::TreeSorted => {
                let root = self.table_root();
                Form::Tree { root, top: members::top(self.lane, root) }
            }
            _ => return None,
        };
        Some(Sorted { lane: self.lane, form })
    }
}

impl Sorted<'_> {
    /// The number of members.
    #[allow(clippy::len_without_is_empty, reason = "a key without members is no key")]
    pub fn len(&self) -> u64 {
        match self.form {
            Form::Packed(packed) => packed::iter(packed).count() as u64,
            Form::Tree { root, .. } => table::stored_len(self.lane, root),
        }
    }

    /// The score of a member; `None` if the set does not have the member.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match self.form {
            Form::Packed(packed) => packed::score(packed, member),
            Form::Tree { root, .. } => {
                let found = find_field(self.lane, root, member)?;
                Some(f64::from_bits(self.lane.load(found.record() + Header::AT_SCORE)))
            }
        }
    }

    /// The rank of a member; `None` if the set does not have the member.
    pub fn rank(&self, member: &[u8]) -> Option<u64> {
        let score = self.score(member)?;
        Some(self.members_before(&Edge::Place { score, member, after: false }))
    }

    /// The number of members before the edge, which is the rank of the first member behind it.
    pub fn members_before(&self, edge: &Edge<'_>) -> u64 {
        match self.form {
            Form::Packed(packed) => packed::members_before(packed, edge),
            Form::Tree { top, .. } => tree::members_before(self.lane, top, edge),
        }
    }

    /// Calls `f` with the members of these ranks and their scores, as far as the set has as many;
    /// from the last to the first if `down`.
    pub fn for_each(&self, ranks: Range<u64>, down: bool, f: &mut dyn FnMut(&[u8], f64)) {
        let end = ranks.end.min(self.len());
        if ranks.start >= end {
            return;
        }
        let (start, count) = (ranks.start, end - ranks.start);
        match self.form {
            Form::Packed(packed) => {
                let members = packed::iter(packed).skip(start as usize).take(count as usize);
                if down {
                    let members: Vec<_> = members.collect();
                    members.iter().rev().for_each(|(score, name)| f(name, *score));
                } else {
                    members.for_each(|(score, name)| f(name, score));
                }
            }
            Form::Tree { top, .. } => {
                let from = if down { end - 1 } else { start };
                tree::walk(self.lane, top, from, count, down, &mut |score, record| {
                    f(name_of(self.lane, record), score);
                });
            }
        }
    }

    /// Calls `f` with about `count` members, or with all of a small set. Cursors are as in
    /// [`crate::Store::scan`].
    pub fn scan(&self, cursor: u64, count: usize, f: &mut dyn FnMut(&[u8], f64)) -> u64 {
        let Form::Tree { root, .. } = self.form else {
            self.for_each(0..u64::MAX, false, f);
            return 0;
        };
        let (mut bucket, mut met) = (cursor, 0);
        while bucket < table::buckets(self.lane, root) {
            if met >= count.max(1) {
                return bucket;
            }
            table::for_each(self.lane, root, bucket, |found| {
                let score = self.lane.load(found.record() + Header::AT_SCORE);
                f(name_of(self.lane, found.record()), f64::from_bits(score));
                met += 1;
            });
            bucket += 1;
        }
        0
    }

    /// Checks every invariant of a large set's table and tree. Tests call this.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn assert_sound(&self) {
        let mut last: Option<(f64, Vec<u8>)> = None;
        let mut members = 0;
        self.for_each(0..u64::MAX, false, &mut |name, score| {
            if let Some((before, other)) = &last {
                let order = order_of(*before, score).then_with(|| other.as_slice().cmp(name));
                assert!(order.is_lt(), "members out of order at {members}");
            }
            assert_eq!(self.score(name).map(f64::to_bits), Some(score.to_bits()));
            assert_eq!(self.rank(name), Some(members));
            last = Some((score, name.to_vec()));
            members += 1;
        });
        assert_eq!(members, self.len(), "members met");
        let Form::Tree { root, top } = self.form else { return };
        let mut entries = 0;
        for bucket in 0..table::buckets(self.lane, root) {
            table::for_each(self.lane, root, bucket, |_| entries += 1);
        }
        assert_eq!(entries, members, "entries of the table");
        let node = Node::load(self.lane, top);
        assert!(node.level() == 0 || node.len() > 1, "a top of one entry");
        assert_eq!(self.assert_node(node), members, "members counted by the top");
    }

    fn assert_node(&self, node: Node) -> u64 {
        assert!(node.is_sound(), "node {:#x}", node.at());
        for (position, item) in node.items(self.lane).enumerate().filter(|_| node.level() > 0) {
            let child = Node::load(self.lane, item.child);
            assert_eq!(child.level() + 1, node.level(), "level of a child");
            let lowest = tree::lowest_of(self.lane, item.child);
            let is_named = (lowest.score, lowest.record) == (item.score, item.record);
            assert!(is_named || position == 0, "lowest");
            // The recursion is as deep as there are levels, which fall by one each time.
            assert_eq!(self.assert_node(child), item.count, "members below");
        }
        node.members(self.lane)
    }
}
