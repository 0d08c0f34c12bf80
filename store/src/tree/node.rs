//! One node of a sorted set's tree: a head of one grain, then 60 slots.
//!
//! ```text
//! 0   entries u8    1  level u8 (0: leaf)    2  zero u16    4  slot numbers u8 × 60
//! 64  slots: leaf   score f64 | record u64                          16 B each, node 1,024 B
//!            inner  lowest score f64 | its record u64 | child u64 | members below u64
//!                                                                   32 B each, node 1,984 B
//! ```
//! The slot numbers are a permutation of 0..60: the first `entries` of them name the slots in use,
//! in order; the others are free. So an insertion changes the head's grain and that of one slot,
//! whatever the position, and a removal changes the head only. A node has at least one entry.

use std::cmp::Ordering;

use perdura_slots::{Heat, Lane, LaneId, Op, Stop};

use crate::error::Damaged;
use crate::record::Header;

/// Most entries of a node.
pub(super) const SLOTS: usize = 60;
/// More levels than any memory has room for: nodes made by splits have 60 entries and one in turn.
pub(super) const LEVELS_MAX: usize = 24;
const HEAD_BYTES: usize = 64;
const AT_LEVEL: usize = 1;
const AT_ORDER: usize = 4;
const LEAF_WORDS: usize = 2;
const INNER_WORDS: usize = 4;
/// Where the child stands in a slot of an inner node.
const AT_CHILD: u64 = 16;
/// Where the number of members stands in a slot of an inner node.
const AT_COUNT: u64 = 24;
const _: () = assert!(AT_ORDER + SLOTS == HEAD_BYTES);

/// An entry of a node: a member in a leaf; a child with its lowest member in an inner node, whose
/// first entry may have any member.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Item {
    /// Score of the member.
    pub score: f64,
    /// Offset of the member's record.
    pub record: u64,
    /// Offset of the child; 0 in a leaf.
    pub child: u64,
    /// Number of members below the child; 1 in a leaf.
    pub count: u64,
}

impl Item {
    /// The entry of a member in a leaf.
    pub fn of_member(score: f64, record: u64) -> Self {
        Self { score, record, child: 0, count: 1 }
    }

    fn words(&self) -> [u64; INNER_WORDS] {
        [self.score.to_bits(), self.record, self.child, self.count]
    }
}

/// A place between the members of a sorted set, which are ordered by score, then by name.
#[derive(Debug, Clone, Copy)]
pub enum Edge<'a> {
    /// The place before or behind all members of a score.
    Score {
        /// The score, which no member need have.
        score: f64,
        /// Whether the place is behind the members.
        after: bool,
    },
    /// The place before or behind the member of a name, in a set whose members all have the same
    /// score.
    Member {
        /// The name, which no member need have.
        member: &'a [u8],
        /// Whether the place is behind the member.
        after: bool,
    },
    /// The place before or behind the member of a score and a name.
    Place {
        /// The score.
        score: f64,
        /// The name, which no member of this score need have.
        member: &'a [u8],
        /// Whether the place is behind the member.
        after: bool,
    },
}

impl Edge<'_> {
    /// Whether a member lies before the edge. The member's name is looked up only where it counts.
    #[inline]
    pub(crate) fn is_behind<'m>(&self, score: f64, name: impl FnOnce() -> &'m [u8]) -> bool {
        let (order, after) = match *self {
            // Nearly always: then one comparison tells.
            Self::Score { score: at, .. } | Self::Place { score: at, .. } if score != at => {
                return score < at;
            }
            Self::Score { after, .. } => (Ordering::Equal, after),
            Self::Member { member, after } | Self::Place { member, after, .. } => {
                (name().cmp(member), after)
            }
        };
        order == Ordering::Less || (after && order == Ordering::Equal)
    }
}

/// The order of two scores, which are never NaN; 0 and -0 are equal.
pub(crate) fn order_of(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}

/// The name of the member with this record.
pub(crate) fn name_of<'l>(lane: &'l Lane<'_>, record: u64) -> &'l [u8] {
    Header::load_member_name(lane, record)
}

/// A node, with its head as it was when the node was loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    at: u64,
    head: [u8; HEAD_BYTES],
}

impl Node {
    /// Reads the head of the node at `at`; unwinds with [`Damaged`] if no node has as many entries
    /// or as high a level.
    #[inline(always)]
    pub fn load(lane: &Lane<'_>, at: u64) -> Self {
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(lane.bytes(at, HEAD_BYTES));
        let node = Self { at, head };
        if node.len() > SLOTS || usize::from(node.level()) >= LEVELS_MAX {
            node.damaged(lane).unwind();
        }
        node
    }

    /// The error of a node whose head no store writes.
    #[cold]
    pub fn damaged(&self, lane: &Lane<'_>) -> Damaged {
        let (offset, value) = (self.at, lane.load(self.at));
        Damaged { what: "node of a sorted set", offset, value }
    }

    /// Whether the node has entries, and its slot numbers are a permutation.
    pub fn is_sound(&self) -> bool {
        let mut seen = 0u64;
        self.head[AT_ORDER..].iter().for_each(|slot| seen |= 1u64.unbounded_shl((*slot).into()));
        (1..=SLOTS).contains(&self.len()) && seen == (1 << SLOTS) - 1
    }

    /// Offset of the node.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        usize::from(self.head[0])
    }

    /// Level of the node; 0 for a leaf.
    pub fn level(&self) -> u8 {
        self.head[AT_LEVEL]
    }

    /// Offset of the slot of the entry at `position`.
    fn slot(&self, position: usize) -> u64 {
        let width = words_of(self.level()) * 8;
        self.at + HEAD_BYTES as u64 + u64::from(self.head[AT_ORDER + position]) * width as u64
    }

    /// The words of the entry at `position`.
    #[inline(always)]
    fn words<'l>(&self, lane: &'l Lane<'_>, position: usize) -> &'l [[u8; 8]] {
        lane.bytes(self.slot(position), words_of(self.level()) * 8).as_chunks().0
    }

    /// The entry at `position`.
    #[inline]
    pub fn item(&self, lane: &Lane<'_>, position: usize) -> Item {
        let words = self.words(lane, position);
        let word = |index: usize| u64::from_le_bytes(words[index]);
        let (score, record) = (f64::from_bits(word(0)), word(1));
        if self.level() == 0 {
            return Item::of_member(score, record);
        }
        Item { score, record, child: word(2), count: word(3) }
    }

    /// Offset of the child at `position`.
    #[inline]
    pub fn child(&self, lane: &Lane<'_>, position: usize) -> u64 {
        lane.load(self.slot(position) + AT_CHILD)
    }

    /// The number of members below the child at `position`.
    #[inline]
    pub fn count(&self, lane: &Lane<'_>, position: usize) -> u64 {
        lane.load(self.slot(position) + AT_COUNT)
    }

    /// All entries, in order.
    pub fn items<'n>(&'n self, lane: &'n Lane<'_>) -> impl DoubleEndedIterator<Item = Item> + 'n {
        (0..self.len()).map(|position| self.item(lane, position))
    }

    /// The number of members at and below the node.
    pub fn members(&self, lane: &Lane<'_>) -> u64 {
        self.members_before(lane, self.len())
    }

    /// The number of members at and below the entries before `position`.
    pub fn members_before(&self, lane: &Lane<'_>, position: usize) -> u64 {
        if self.level() == 0 {
            return position as u64;
        }
        (0..position).map(|position| self.count(lane, position)).sum()
    }

    /// The number of entries before the edge; of an inner node the first entry always counts.
    pub fn entries_before(&self, lane: &Lane<'_>, edge: &Edge<'_>) -> usize {
        let width = words_of(self.level());
        // Taken once: a search reads a few words of each of many entries.
        let slots = lane.bytes(self.at + HEAD_BYTES as u64, SLOTS * width * 8).as_chunks::<8>().0;
        let (mut low, mut high) = (usize::from(self.level() > 0).min(self.len()), self.len());
        while low < high {
            let middle = (low + high) / 2;
            let at = usize::from(self.head[AT_ORDER + middle]) * width;
            let Some([score, record, ..]) = slots.get(at..) else { self.damaged(lane).unwind() };
            let name = || name_of(lane, u64::from_le_bytes(*record));
            if edge.is_behind(f64::from_bits(u64::from_le_bytes(*score)), name) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Makes a node to which no reference leads yet, and returns its offset.
    pub fn create(op: &mut Op<'_>, id: LaneId, level: u8, items: &[Item]) -> Result<u64, Stop> {
        let words = words_of(level);
        let at = op.alloc(id, (HEAD_BYTES + SLOTS * words * 8) as u64)?;
        let bytes = op.fill(id, at, HEAD_BYTES + items.len() * words * 8, Some(Heat::COLD))?;
        let (head, slots) = bytes.split_at_mut(HEAD_BYTES);
        head.fill(0);
        (head[0], head[AT_LEVEL]) = (items.len() as u8, level);
        (0u8..).zip(&mut head[AT_ORDER..]).for_each(|(slot, byte)| *byte = slot);
        for (slot, item) in slots.chunks_exact_mut(words * 8).zip(items) {
            for (bytes, word) in slot.chunks_exact_mut(8).zip(item.words()) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
        }
        Ok(at)
    }

    /// Adds an entry at `position`; there must be room.
    pub fn insert(
        &mut self,
        op: &mut Op<'_>,
        id: LaneId,
        position: usize,
        item: &Item,
    ) -> Result<(), Stop> {
        let len = self.len();
        assert!(len < SLOTS && position <= len, "entry {position} of {len}");
        self.head[AT_ORDER + position..=AT_ORDER + len].rotate_right(1);
        self.head[0] += 1;
        self.write(op, id, position, item)?;
        op.overwrite(id, self.at, &self.head[..=AT_ORDER + len])
    }

    /// Adds entries behind the others; there must be room.
    pub fn extend(&mut self, op: &mut Op<'_>, id: LaneId, items: &[Item]) -> Result<(), Stop> {
        let len = self.len();
        assert!(len + items.len() <= SLOTS, "{} entries behind {len}", items.len());
        for (position, item) in (len..).zip(items) {
            self.write(op, id, position, item)?;
        }
        self.head[0] += items.len() as u8;
        // The order of the slots stays as it is.
        op.overwrite(id, self.at, &self.head[..AT_ORDER])
    }

    /// Takes out `count` entries from `position` on.
    pub fn remove(
        &mut self,
        op: &mut Op<'_>,
        id: LaneId,
        position: usize,
        count: usize,
    ) -> Result<(), Stop> {
        let len = self.len();
        self.head[AT_ORDER + position..AT_ORDER + len].rotate_left(count);
        self.head[0] -= count as u8;
        op.overwrite(id, self.at, &self.head[..AT_ORDER + len])
    }

    /// Takes out all entries but the first `len`.
    pub fn truncate(&mut self, op: &mut Op<'_>, id: LaneId, len: usize) -> Result<(), Stop> {
        self.head[0] = len as u8;
        op.overwrite(id, self.at, &self.head[..AT_ORDER])
    }

    /// Changes the number of members below the child at `position`.
    pub fn recount(
        &self,
        op: &mut Op<'_>,
        id: LaneId,
        position: usize,
        count: u64,
    ) -> Result<(), Stop> {
        op.store(id, self.slot(position) + AT_COUNT, count)
    }

    /// Changes the entry of the child at `position` to the child's lowest member and the number of
    /// members below.
    pub fn rename(
        &self,
        op: &mut Op<'_>,
        id: LaneId,
        position: usize,
        lowest: Item,
        count: u64,
    ) -> Result<(), Stop> {
        let before = self.item(op.lane(id), position);
        if (before.score.to_bits(), before.record) == (lowest.score.to_bits(), lowest.record) {
            return self.recount(op, id, position, count);
        }
        let item = Item { score: lowest.score, record: lowest.record, count, ..before };
        self.write(op, id, position, &item)
    }

    /// Writes the slot of the entry at `position`.
    ///
    /// The slot may be one that the same operation has freed, so its old bytes are kept, too.
    fn write(&self, op: &mut Op<'_>, id: LaneId, position: usize, item: &Item) -> Result<(), Stop> {
        let mut bytes = [0; INNER_WORDS * 8];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(item.words()) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        op.overwrite(id, self.slot(position), &bytes[..words_of(self.level()) * 8])
    }

    /// Gives the entry at `position` of a leaf another score, with which the entry keeps its
    /// position.
    pub fn rescore(
        &self,
        op: &mut Op<'_>,
        id: LaneId,
        position: usize,
        score: f64,
    ) -> Result<(), Stop> {
        op.store(id, self.slot(position), score.to_bits())
    }
}

fn words_of(level: u8) -> usize {
    if level == 0 { LEAF_WORDS } else { INNER_WORDS }
}
