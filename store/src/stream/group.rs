//! Consumer groups and their consumers: what is read of them.
//!
//! ```text
//! group      0  header word    8  last ID u64 × 2 | entries read i64 (-1: unknown) | pending u64
//!                                 | top of the pending u64 | top of the consumers u64 | name
//! consumer   0  header word    8  seen ms u64 | active ms u64 (all bits: never) | pending u64
//!                                 | top of its pending u64 | name
//! ```
//! A group's pending entries are a tree by ID, each with the consumer that has it; a consumer has a
//! second tree with the IDs only.

use std::ops::ControlFlow;

use perdura_slots::Lane;

use super::StreamId;
use super::chunk::load_part;
use super::node::{Probe, Tree, Words, id_of};
use super::tree::{self, Path};
use crate::record::{Header, RecordKind};

/// Words before the name.
pub(crate) const GROUP_WORDS: usize = 6;
pub(crate) const CONSUMER_WORDS: usize = 4;
/// Where the words lie.
pub(crate) const AT_WORDS: u64 = Header::SHORT_BYTES;
/// No number of entries.
const UNKNOWN: u64 = u64::MAX;

/// The name of the group or consumer at `at`.
pub(crate) fn name_at<'l>(lane: &'l Lane<'_>, at: u64) -> &'l [u8] {
    let (kind, words) = match Header::load(lane, at).kind {
        RecordKind::StreamConsumer => (RecordKind::StreamConsumer, CONSUMER_WORDS),
        _ => (RecordKind::StreamGroup, GROUP_WORDS),
    };
    let header = load_part(lane, at, kind);
    let skipped = 8 * words as u64;
    lane.bytes(
        at + AT_WORDS + skipped,
        (u64::from(header.value_len)).saturating_sub(skipped) as usize,
    )
}

/// The words of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupWords {
    pub last_id: StreamId,
    /// Number of the stream's entries up to the last ID, if that is known.
    pub entries_read: Option<u64>,
    /// Number of entries that are pending.
    pub pending: u64,
    pub pending_top: u64,
    pub consumers_top: u64,
}

impl GroupWords {
    pub fn load(lane: &Lane<'_>, at: u64) -> Self {
        load_part(lane, at, RecordKind::StreamGroup);
        let word = |index: u64| lane.load(at + AT_WORDS + 8 * index);
        Self {
            last_id: StreamId { ms: word(0), seq: word(1) },
            entries_read: Some(word(2)).filter(|read| *read != UNKNOWN),
            pending: word(3),
            pending_top: word(4),
            consumers_top: word(5),
        }
    }

    pub fn words(&self) -> [u64; GROUP_WORDS] {
        let StreamId { ms, seq } = self.last_id;
        let read = self.entries_read.unwrap_or(UNKNOWN);
        [ms, seq, read, self.pending, self.pending_top, self.consumers_top]
    }
}

/// The words of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConsumerWords {
    pub seen_ms: u64,
    pub active_ms: Option<u64>,
    /// Number of entries that are pending.
    pub pending: u64,
    pub pending_top: u64,
}

impl ConsumerWords {
    pub fn load(lane: &Lane<'_>, at: u64) -> Self {
        load_part(lane, at, RecordKind::StreamConsumer);
        let word = |index: u64| lane.load(at + AT_WORDS + 8 * index);
        let active_ms = Some(word(1)).filter(|ms| *ms != UNKNOWN);
        Self { seen_ms: word(0), active_ms, pending: word(2), pending_top: word(3) }
    }

    pub fn words(&self) -> [u64; CONSUMER_WORDS] {
        [self.seen_ms, self.active_ms.unwrap_or(UNKNOWN), self.pending, self.pending_top]
    }
}

/// A consumer group, valid while its shard is held.
#[derive(Clone, Copy)]
pub struct Group<'a> {
    pub(super) lane: &'a Lane<'a>,
    pub(crate) at: u64,
    pub(crate) words: GroupWords,
}

/// A consumer of a group.
#[derive(Clone, Copy)]
pub struct Consumer<'a> {
    lane: &'a Lane<'a>,
    at: u64,
    words: ConsumerWords,
}

/// An entry that was delivered and not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending<'a> {
    /// ID of the entry.
    pub id: StreamId,
    /// Name of the consumer that has it.
    pub consumer: &'a [u8],
    /// When it was delivered last, in milliseconds since 1970.
    pub delivered_ms: u64,
    /// How often it was delivered.
    pub deliveries: u64,
}

impl<'a> Group<'a> {
    pub(super) fn load(lane: &'a Lane<'a>, at: u64) -> Self {
        Self { lane, at, words: GroupWords::load(lane, at) }
    }

    /// The group's name.
    pub fn name(&self) -> &'a [u8] {
        name_at(self.lane, self.at)
    }

    /// The ID up to which entries were delivered.
    pub fn last_id(&self) -> StreamId {
        self.words.last_id
    }

    /// How many of the entries that the stream ever got were delivered; `None` if that is unknown.
    pub fn entries_read(&self) -> Option<u64> {
        self.words.entries_read
    }

    /// Number of entries that are pending.
    pub fn pending_len(&self) -> u64 {
        self.words.pending
    }

    /// Number of consumers. Looks at every leaf of their tree.
    pub fn consumers_len(&self) -> u64 {
        tree::count(self.lane, Tree::Consumers, self.words.consumers_top)
    }

    /// Calls `f` with every consumer, in the order of their names, until it breaks.
    pub fn consumers(&self, f: &mut dyn FnMut(&Consumer<'a>) -> ControlFlow<()>) {
        walk_all(self.lane, Tree::Consumers, self.words.consumers_top, &mut |words| {
            f(&Consumer::load(self.lane, words[0]))
        });
    }

    /// The consumer of this name.
    pub fn consumer(&self, name: &[u8]) -> Option<Consumer<'a>> {
        let top = self.words.consumers_top;
        let found = tree::find(self.lane, Tree::Consumers, top, Probe::Name(name))?;
        Some(Consumer::load(self.lane, found.item(self.lane)[0]))
    }

    /// The pending entry of this ID.
    pub fn pending(&self, id: StreamId) -> Option<Pending<'a>> {
        let top = self.words.pending_top;
        let found = tree::find(self.lane, Tree::Pending, top, Probe::Id(id))?;
        Some(pending_of(self.lane, &found.item(self.lane)))
    }

    /// Calls `f` with the pending entries from an ID on, in their order, until it breaks.
    pub fn pending_from(&self, from: StreamId, f: &mut dyn FnMut(&Pending<'a>) -> ControlFlow<()>) {
        walk_from(self.lane, Tree::Pending, self.words.pending_top, from, &mut |words| {
            f(&pending_of(self.lane, words))
        });
    }

    /// The lowest and the highest ID of the pending entries.
    pub fn pending_ends(&self) -> Option<(StreamId, StreamId)> {
        let top = self.words.pending_top;
        let end =
            |front| id_of(&Path::to_end(self.lane, Tree::Pending, top, front).item(self.lane));
        (top != 0).then(|| (end(true), end(false)))
    }
}

fn pending_of<'a>(lane: &'a Lane<'a>, words: &Words) -> Pending<'a> {
    let consumer = name_at(lane, words[2]);
    Pending { id: id_of(words), consumer, delivered_ms: words[3], deliveries: words[4] }
}

impl<'a> Consumer<'a> {
    fn load(lane: &'a Lane<'a>, at: u64) -> Self {
        Self { lane, at, words: ConsumerWords::load(lane, at) }
    }

    /// The consumer's name.
    pub fn name(&self) -> &'a [u8] {
        name_at(self.lane, self.at)
    }

    /// When the consumer asked for something last, in milliseconds since 1970.
    pub fn seen_ms(&self) -> u64 {
        self.words.seen_ms
    }

    /// When the consumer got something last, in milliseconds since 1970; `None` for never.
    pub fn active_ms(&self) -> Option<u64> {
        self.words.active_ms
    }

    /// Number of entries that are pending.
    pub fn pending_len(&self) -> u64 {
        self.words.pending
    }

    /// Calls `f` with the IDs of the pending entries from one on, in their order, until it breaks.
    pub fn pending_from(&self, from: StreamId, f: &mut dyn FnMut(StreamId) -> ControlFlow<()>) {
        walk_from(self.lane, Tree::Owned, self.words.pending_top, from, &mut |w| f(id_of(w)));
    }
}

/// Calls `f` with every entry of a tree until it breaks.
pub(super) fn walk_all(
    lane: &Lane<'_>,
    tree: Tree,
    top: u64,
    f: &mut dyn FnMut(&Words) -> ControlFlow<()>,
) {
    let path = (top != 0).then(|| Path::to_end(lane, tree, top, true));
    walk_on(lane, path, f);
}

fn walk_from(
    lane: &Lane<'_>,
    tree: Tree,
    top: u64,
    from: StreamId,
    f: &mut dyn FnMut(&Words) -> ControlFlow<()>,
) {
    walk_on(lane, Path::at_or_behind(lane, tree, top, Probe::Id(from)), f);
}

fn walk_on(lane: &Lane<'_>, mut path: Option<Path>, f: &mut dyn FnMut(&Words) -> ControlFlow<()>) {
    while let Some(at) = &mut path {
        if f(&at.item(lane)).is_break() || !at.step(lane, false) {
            return;
        }
    }
}
