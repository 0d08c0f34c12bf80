//! One node of the index of a large list: a head of one grain, then slots.
//!
//! ```text
//! 0   entries u8    1  level u8 (0: its children are chunks)    2  zero u16
//! 4   slot numbers u8 × 60                 64  slots: child u64 | elements below u64, 16 B each
//! ```
//! The slot numbers are a permutation of 0..60: the first `entries` of them name the slots in use,
//! in order; the others are free. So an insertion changes the head's grain and that of one slot. A
//! node that has no node above it may have memory for fewer slots: then the numbers of these stand
//! before the others.

use perdura_slots::{Heat, Lane, LaneId, Op, Stop};

use crate::error::Damaged;

/// Most entries of a node.
pub(super) const SLOTS: usize = 60;
/// More levels than any memory has room for: nodes made by splits in the middle have 30 entries,
/// and those made at the ends 60.
pub(super) const LEVELS_MAX: usize = 12;
/// Slots of the smallest node.
const SLOTS_MIN: usize = 4;
const HEAD_BYTES: usize = 64;
const SLOT_BYTES: usize = 16;
const AT_LEVEL: usize = 1;
const AT_ORDER: usize = 4;
const _: () = assert!(AT_ORDER + SLOTS == HEAD_BYTES);

/// An entry of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Item {
    /// Offset of the node or chunk below.
    pub child: u64,
    /// Number of elements below.
    pub count: u64,
}

impl Item {
    fn bytes(&self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        bytes[..8].copy_from_slice(&self.child.to_le_bytes());
        bytes[8..].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }
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
    pub fn load(lane: &Lane<'_>, at: u64) -> Self {
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(lane.bytes(at, HEAD_BYTES));
        let node = Self { at, head };
        if !(1..=SLOTS).contains(&node.len()) || usize::from(node.level()) >= LEVELS_MAX {
            node.damaged(lane).unwind();
        }
        node
    }

    /// The error of a node whose head no store writes.
    #[cold]
    pub fn damaged(&self, lane: &Lane<'_>) -> Damaged {
        Damaged { what: "node of a list", offset: self.at, value: lane.load(self.at) }
    }

    /// Whether the slot numbers are a permutation, and those in use lie in the node's memory.
    pub fn is_sound(&self, lane: &Lane<'_>) -> bool {
        let mut seen = 0u64;
        self.head[AT_ORDER..].iter().for_each(|slot| seen |= 1u64.unbounded_shl((*slot).into()));
        let slots = self.slots(lane);
        let is_inside = |slot: &u8| usize::from(*slot) < slots;
        seen == (1 << SLOTS) - 1 && self.head[AT_ORDER..][..self.len()].iter().all(is_inside)
    }

    pub fn at(&self) -> u64 {
        self.at
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        usize::from(self.head[0])
    }

    /// Level of the node; 0 if its children are chunks.
    pub fn level(&self) -> u8 {
        self.head[AT_LEVEL]
    }

    /// Number of slots that the node has memory for.
    pub fn slots(&self, lane: &Lane<'_>) -> usize {
        (lane.usable_bytes(self.at) as usize).saturating_sub(HEAD_BYTES) / SLOT_BYTES
    }

    /// Whether no entry fits that the node does not have.
    pub fn is_full(&self, lane: &Lane<'_>) -> bool {
        self.len() >= self.slots(lane).min(SLOTS)
    }

    fn slot(&self, position: usize) -> u64 {
        let slot = usize::from(self.head[AT_ORDER + position]);
        self.at + (HEAD_BYTES + slot * SLOT_BYTES) as u64
    }

    /// The entry at `position`.
    pub fn item(&self, lane: &Lane<'_>, position: usize) -> Item {
        let at = self.slot(position);
        Item { child: lane.load(at), count: lane.load(at + 8) }
    }

    /// All entries, in order.
    pub fn items<'n>(&'n self, lane: &'n Lane<'_>) -> impl DoubleEndedIterator<Item = Item> + 'n {
        (0..self.len()).map(|position| self.item(lane, position))
    }

    /// The number of elements below the node.
    pub fn elements(&self, lane: &Lane<'_>) -> u64 {
        self.items(lane).fold(0, |sum, item| sum.saturating_add(item.count))
    }

    /// Makes a node with memory for all slots, to which no reference leads yet.
    pub fn create(op: &mut Op<'_>, id: LaneId, level: u8, items: &[Item]) -> Result<u64, Stop> {
        Self::create_small(op, id, level, items, SLOTS)
    }

    /// Makes a node with memory for some slots, to which no reference leads yet.
    pub fn create_small(
        op: &mut Op<'_>,
        id: LaneId,
        level: u8,
        items: &[Item],
        slots: usize,
    ) -> Result<u64, Stop> {
        let slots = slots.clamp(items.len().max(SLOTS_MIN), SLOTS);
        let at = op.alloc(id, (HEAD_BYTES + slots * SLOT_BYTES) as u64)?;
        let len = HEAD_BYTES + items.len() * SLOT_BYTES;
        let bytes = op.fill(id, at, len, Some(Heat::COLD))?;
        let (head, slots) = bytes.split_at_mut(HEAD_BYTES);
        head.fill(0);
        (head[0], head[AT_LEVEL]) = (items.len() as u8, level);
        (0u8..).zip(&mut head[AT_ORDER..]).for_each(|(slot, byte)| *byte = slot);
        for (slot, item) in slots.chunks_exact_mut(SLOT_BYTES).zip(items) {
            slot.copy_from_slice(&item.bytes());
        }
        Ok(at)
    }

    /// Adds an entry at `position`; there must be room.
    ///
    /// The slot may be one that the same operation has freed, so its old bytes are logged, too.
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
        op.overwrite(id, self.slot(position), &item.bytes())?;
        op.overwrite(id, self.at, &self.head[..=AT_ORDER + len])
    }

    /// Takes out `count` entries from `position` on.
    pub fn remove(
        &mut self,
        op: &mut Op<'_>,
        id: LaneId,
        position: usize,
        count: usize,
    ) -> Result<(), Stop> {
        if count == 0 {
            return Ok(());
        }
        let len = self.len();
        self.head[AT_ORDER + position..AT_ORDER + len].rotate_left(count);
        self.head[0] -= count as u8;
        op.overwrite(id, self.at, &self.head[..AT_ORDER + len])
    }

    /// Changes the entry at `position`.
    pub fn set(
        &self,
        op: &mut Op<'_>,
        id: LaneId,
        position: usize,
        item: &Item,
    ) -> Result<(), Stop> {
        let at = self.slot(position);
        op.store(id, at, item.child)?;
        op.store(id, at + 8, item.count)
    }
}
