//! One node of the trees that a stream is made of: a head of one grain, then slots.
//!
//! ```text
//! 0   entries u8    1  level u8 (0: a leaf)    2  zero u16
//! 4   slot numbers u8 × 60                     64  slots: words
//! ```
//! The slot numbers are a permutation of 0..60: the first `entries` of them name the slots in use,
//! in order; the others are free. So an insertion changes the head's grain and those of one slot. A
//! leaf that has no node above it may have memory for fewer slots: then the numbers of these stand
//! before the others.

use std::cmp::Ordering;

use perdura_slots::{Heat, Lane, LaneId, Op, Stop};

use super::StreamId;
use super::group::name_at;
use crate::error::Damaged;

/// Most entries of a node.
pub(super) const SLOTS: usize = 60;
/// More levels than any memory has room for.
pub(super) const LEVELS_MAX: usize = 12;
/// Slots of the smallest node.
const SLOTS_MIN: usize = 4;
const HEAD_BYTES: usize = 64;
const AT_LEVEL: usize = 1;
const AT_ORDER: usize = 4;
const _: () = assert!(AT_ORDER + SLOTS == HEAD_BYTES);

/// What a tree is of; that decides the words of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tree {
    /// A stream's chunks but the last: first ID, chunk.
    Chunks,
    /// A stream's groups, by name: group.
    Groups,
    /// A group's consumers, by name: consumer.
    Consumers,
    /// A group's pending entries: ID, consumer, time of the last delivery, number of deliveries.
    Pending,
    /// A consumer's pending entries: ID.
    Owned,
}

/// An entry of a node: its key's words, then those of its value, or the offset of the node below.
pub(crate) type Words = [u64; 5];

/// What a tree is searched for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Probe<'p> {
    Id(StreamId),
    Name(&'p [u8]),
}

impl Tree {
    /// Words of a key.
    pub fn key_words(self) -> usize {
        match self {
            Self::Groups | Self::Consumers => 1,
            _ => 2,
        }
    }

    fn words(self, level: u8) -> usize {
        match (self, level) {
            (Self::Chunks, 0) => 3,
            (Self::Pending, 0) => 5,
            (_, 0) => self.key_words(),
            _ => self.key_words() + 1,
        }
    }

    /// The order of an entry and what is searched for.
    pub fn compare(self, lane: &Lane<'_>, words: &Words, probe: Probe<'_>) -> Ordering {
        match probe {
            Probe::Id(id) => id_of(words).cmp(&id),
            Probe::Name(name) => name_at(lane, words[0]).cmp(name),
        }
    }

    /// What finds an entry with these words.
    pub fn probe_of<'l>(self, lane: &'l Lane<'_>, words: &Words) -> Probe<'l> {
        match self {
            Self::Groups | Self::Consumers => Probe::Name(name_at(lane, words[0])),
            _ => Probe::Id(id_of(words)),
        }
    }
}

/// The ID that is the key of an entry.
pub(crate) fn id_of(words: &Words) -> StreamId {
    StreamId { ms: words[0], seq: words[1] }
}

/// A node, with its head as it was when the node was loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    tree: Tree,
    at: u64,
    head: [u8; HEAD_BYTES],
}

impl Node {
    /// Reads the head of the node at `at`; unwinds with [`Damaged`] if no node has as many entries
    /// or as high a level.
    pub fn load(lane: &Lane<'_>, tree: Tree, at: u64) -> Self {
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(lane.bytes(at, HEAD_BYTES));
        let node = Self { tree, at, head };
        if !(1..=SLOTS).contains(&node.len()) || usize::from(node.level()) >= LEVELS_MAX {
            node.damaged(lane).unwind();
        }
        node
    }

    /// The error of a node whose head no store writes.
    #[cold]
    pub fn damaged(&self, lane: &Lane<'_>) -> Damaged {
        Damaged { what: "node of a stream", offset: self.at, value: lane.load(self.at) }
    }

    /// Whether the slot numbers are a permutation, those in use lie in the node's memory, and the
    /// entries ascend.
    pub fn is_sound(&self, lane: &Lane<'_>) -> bool {
        let mut seen = 0u64;
        self.head[AT_ORDER..].iter().for_each(|slot| seen |= 1u64.unbounded_shl((*slot).into()));
        let slots = self.slots(lane);
        let is_inside = |slot: &u8| usize::from(*slot) < slots;
        let is_order =
            seen == (1 << SLOTS) - 1 && self.head[AT_ORDER..][..self.len()].iter().all(is_inside);
        let ascends = |position: usize| {
            let (one, next) = (self.item(lane, position), self.item(lane, position + 1));
            self.tree.compare(lane, &one, self.tree.probe_of(lane, &next)) == Ordering::Less
        };
        is_order && (0..self.len() - 1).all(ascends)
    }

    pub fn at(&self) -> u64 {
        self.at
    }

    pub fn tree(&self) -> Tree {
        self.tree
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        usize::from(self.head[0])
    }

    /// Level of the node; 0 if it is a leaf.
    pub fn level(&self) -> u8 {
        self.head[AT_LEVEL]
    }

    fn slot_bytes(&self) -> usize {
        8 * self.tree.words(self.level())
    }

    /// Number of slots that the node has memory for.
    pub fn slots(&self, lane: &Lane<'_>) -> usize {
        let bytes = (lane.usable_bytes(self.at) as usize).saturating_sub(HEAD_BYTES);
        (bytes / self.slot_bytes()).min(SLOTS)
    }

    fn slot(&self, position: usize) -> u64 {
        let slot = usize::from(self.head[AT_ORDER + position]);
        self.at + (HEAD_BYTES + slot * self.slot_bytes()) as u64
    }

    /// The entry at `position`.
    pub fn item(&self, lane: &Lane<'_>, position: usize) -> Words {
        let (at, mut words) = (self.slot(position), Words::default());
        let used = &mut words[..self.tree.words(self.level())];
        (0..).zip(used).for_each(|(index, word)| *word = lane.load(at + 8 * index));
        words
    }

    /// The node below the entry at `position` of a node that is no leaf.
    pub fn child(&self, lane: &Lane<'_>, position: usize) -> u64 {
        self.item(lane, position)[self.tree.key_words()]
    }

    /// All entries, in order.
    pub fn items<'n>(&'n self, lane: &'n Lane<'_>) -> impl Iterator<Item = Words> + 'n {
        (0..self.len()).map(|position| self.item(lane, position))
    }

    /// The number of entries before `probe` and, if `or_at`, at it.
    pub fn before(&self, lane: &Lane<'_>, probe: Probe<'_>, or_at: bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            let is_before = match self.tree.compare(lane, &self.item(lane, middle), probe) {
                Ordering::Less => true,
                Ordering::Equal => or_at,
                Ordering::Greater => false,
            };
            if is_before { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn bytes_of(&self, words: &Words) -> Vec<u8> {
        words[..self.tree.words(self.level())].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Makes a node with memory for so many slots, to which no reference leads yet.
    pub fn create(
        op: &mut Op<'_>,
        id: LaneId,
        (tree, level): (Tree, u8),
        items: &[Words],
        slots: usize,
    ) -> Result<u64, Stop> {
        let words = tree.words(level);
        let slots = slots.clamp(items.len().max(SLOTS_MIN), SLOTS);
        let at = op.alloc(id, (HEAD_BYTES + slots * 8 * words) as u64)?;
        let len = HEAD_BYTES + items.len() * 8 * words;
        let bytes = op.fill(id, at, len, Some(Heat::COLD))?;
        let (head, slots) = bytes.split_at_mut(HEAD_BYTES);
        head.fill(0);
        (head[0], head[AT_LEVEL]) = (items.len() as u8, level);
        (0u8..).zip(&mut head[AT_ORDER..]).for_each(|(slot, byte)| *byte = slot);
        for (slot, item) in slots.chunks_exact_mut(8 * words).zip(items) {
            let (places, _) = slot.as_chunks_mut::<8>();
            places.iter_mut().zip(item).for_each(|(place, word)| *place = word.to_le_bytes());
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
        item: &Words,
    ) -> Result<(), Stop> {
        let len = self.len();
        assert!(len < SLOTS && position <= len, "entry {position} of {len}");
        self.head[AT_ORDER + position..=AT_ORDER + len].rotate_right(1);
        self.head[0] += 1;
        op.overwrite(id, self.slot(position), &self.bytes_of(item))?;
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
        item: &Words,
    ) -> Result<(), Stop> {
        op.overwrite(id, self.slot(position), &self.bytes_of(item))
    }
}
