//! Reading a stream: entries in the order of their IDs, in chunks, and groups of consumers.
//!
//! The record has the stream's root behind the key, and behind the root the only chunk of a small
//! stream. The last chunk of a larger one is an object of its own, and those before are found by a
//! tree:
//!
//! ```text
//! last ID u64 × 2 | added u64 | length u64 | bounds of the last chunk u64 (`stream/chunk.rs`)
//! | last chunk u64 (0: none; 1: behind the root) | top of the chunks before u64
//! | highest deleted ID u64 × 2 | top of the groups u64
//! ```
//! at the next multiple of 8 behind the key.

pub(crate) mod chunk;
pub(crate) mod group;
mod id;
mod item;
pub(crate) mod node;
pub(crate) mod pieces;
pub(crate) mod tree;

use std::ops::ControlFlow;

use perdura_slots::Lane;

pub use group::{Consumer, Group, Pending};
pub use id::StreamId;
pub use item::Fields;

pub(crate) use item::{DELETED, encode};

use crate::entry::Entry;
use crate::record::RecordKind;
use chunk::{Bounds, Chunk};
use group::walk_all;
use node::{Probe, Tree, Words};
use tree::Path;

/// Words of a root.
const ROOT_WORDS: usize = 10;
/// Bytes of a root.
pub(crate) const ROOT_BYTES: usize = 8 * ROOT_WORDS;
/// The place of the last chunk, if it lies behind the root.
const INSIDE: u64 = 1;

/// The words of a stream in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Root {
    /// Offset of the record.
    pub record: u64,
    /// Offset of the words themselves.
    pub at: u64,
    pub last_id: StreamId,
    /// Number of entries that the stream ever got.
    pub added: u64,
    /// Number of entries.
    pub len: u64,
    /// Bounds of the last chunk.
    pub bounds: Bounds,
    /// Where the last chunk is: 0 for none, 1 for behind the root, or the object's offset.
    pub tail: u64,
    /// Top of the tree of the chunks before the last, or 0.
    pub chunks_top: u64,
    /// The highest ID that was deleted.
    pub max_deleted: StreamId,
    /// Top of the tree of groups, or 0.
    pub groups_top: u64,
}

impl Root {
    /// A stream without entries.
    pub fn empty() -> Self {
        Self {
            record: 0,
            at: 0,
            last_id: StreamId::MIN,
            added: 0,
            len: 0,
            bounds: Bounds::default(),
            tail: 0,
            chunks_top: 0,
            max_deleted: StreamId::MIN,
            groups_top: 0,
        }
    }

    /// The words of the stream at `entry`.
    pub fn of(entry: &Entry<'_>) -> Self {
        let at = entry.at + entry.header.value_at().next_multiple_of(8);
        let word = |index: u64| entry.lane.load(at + 8 * index);
        Self {
            record: entry.at,
            at,
            last_id: StreamId { ms: word(0), seq: word(1) },
            added: word(2),
            len: word(3),
            bounds: Bounds::of_word(word(4)),
            tail: word(5),
            chunks_top: word(6),
            max_deleted: StreamId { ms: word(7), seq: word(8) },
            groups_top: word(9),
        }
    }

    /// The words as they are stored.
    pub fn words(&self) -> [u64; ROOT_WORDS] {
        let (last, deleted) = (self.last_id.words(), self.max_deleted.words());
        let Self { added, len, tail, chunks_top, groups_top, .. } = *self;
        let bounds = self.bounds.word();
        [last[0], last[1], added, len, bounds, tail, chunks_top, deleted[0], deleted[1], groups_top]
    }

    /// Puts the last chunk behind the root.
    pub fn set_inside(&mut self, bounds: Bounds) {
        (self.tail, self.bounds) = (INSIDE, bounds);
    }

    /// Bytes of all chunks.
    pub fn chunks_bytes(&self, lane: &Lane<'_>) -> u64 {
        let mut bytes = self.tail(lane).map_or(0, |tail| tail.bounds.end);
        walk_all(lane, Tree::Chunks, self.chunks_top, &mut |words| {
            bytes += Chunk::load(lane, words[2]).bounds.end;
            ControlFlow::Continue(())
        });
        bytes
    }

    /// The last chunk; `None` if the stream has no entry.
    pub fn tail(&self, lane: &Lane<'_>) -> Option<Chunk> {
        match self.tail {
            0 => None,
            INSIDE => {
                let base = self.at + ROOT_BYTES as u64;
                Some(Chunk::inside(lane, self.record, base, self.bounds))
            }
            at => Some(Chunk::tail(lane, at, self.bounds)),
        }
    }

    /// The object that the last chunk lies in.
    pub fn tail_object(&self) -> u64 {
        if self.tail == INSIDE { self.record } else { self.tail }
    }

    /// The chunk that has an entry of this ID, if any has, or the one with the next lower IDs.
    pub fn chunk_of(&self, lane: &Lane<'_>, id: StreamId) -> Option<Spot> {
        if let Some(tail) = self.tail(lane).filter(|tail| tail.master(lane) <= id) {
            return Some(Spot { chunk: tail, path: None });
        }
        let path = Path::at_or_before(lane, Tree::Chunks, self.chunks_top, Probe::Id(id))?;
        Some(Spot::on(lane, path))
    }

    /// The first chunk.
    pub fn first_chunk(&self, lane: &Lane<'_>) -> Option<Spot> {
        if self.chunks_top == 0 {
            return self.tail(lane).map(|chunk| Spot { chunk, path: None });
        }
        Some(Spot::on(lane, Path::to_end(lane, Tree::Chunks, self.chunks_top, true)))
    }

    /// The next chunk or, if `down`, the one before.
    pub fn next_chunk(&self, lane: &Lane<'_>, spot: &Spot, down: bool) -> Option<Spot> {
        let Some(mut path) = spot.path else {
            let is_before = down && self.chunks_top != 0;
            let last = || Path::to_end(lane, Tree::Chunks, self.chunks_top, false);
            return is_before.then(|| Spot::on(lane, last()));
        };
        if path.step(lane, down) {
            return Some(Spot::on(lane, path));
        }
        self.tail(lane).filter(|_| !down).map(|chunk| Spot { chunk, path: None })
    }
}

/// A chunk, and the way to it if it is not the last one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    pub chunk: Chunk,
    pub path: Option<Path>,
}

impl Spot {
    fn on(lane: &Lane<'_>, path: Path) -> Self {
        Self { chunk: Chunk::load(lane, path.item(lane)[2]), path: Some(path) }
    }
}

/// A stream as it is found, valid while its shard is held.
#[derive(Clone, Copy)]
pub struct Stream<'a> {
    pub(crate) lane: &'a Lane<'a>,
    pub(crate) root: Root,
}

impl<'a> Entry<'a> {
    /// The value, if it is a stream.
    pub fn stream(&self) -> Option<Stream<'a>> {
        let is_stream = self.header.kind == RecordKind::Stream;
        is_stream.then(|| Stream { lane: self.lane, root: Root::of(self) })
    }
}

impl<'a> Stream<'a> {
    /// Number of entries, which may be 0.
    #[allow(clippy::len_without_is_empty, reason = "nothing asks whether there are none")]
    pub fn len(&self) -> u64 {
        self.root.len
    }

    /// The ID of the entry added last, which may be gone.
    pub fn last_id(&self) -> StreamId {
        self.root.last_id
    }

    /// Number of entries that the stream ever got.
    pub fn entries_added(&self) -> u64 {
        self.root.added
    }

    /// The highest ID of an entry that was deleted by its ID.
    pub fn max_deleted(&self) -> StreamId {
        self.root.max_deleted
    }

    /// The lowest ID of an entry; 0-0 if there is none.
    pub fn first_id(&self) -> StreamId {
        self.end_id(false)
    }

    /// The highest ID of an entry; 0-0 if there is none.
    pub fn last_valid_id(&self) -> StreamId {
        self.end_id(true)
    }

    fn end_id(&self, down: bool) -> StreamId {
        let mut found = StreamId::MIN;
        self.walk(StreamId::MIN, StreamId::MAX, down, &mut |id, _| {
            found = id;
            ControlFlow::Break(())
        });
        found
    }

    /// Whether there is an entry of this ID.
    pub fn has(&self, id: StreamId) -> bool {
        let mut is_found = false;
        self.walk(id, id, false, &mut |_, _| {
            is_found = true;
            ControlFlow::Break(())
        });
        is_found
    }

    /// Number of chunks, and of the leaves of the tree that leads to them. Looks at every leaf.
    pub fn chunks_len(&self) -> u64 {
        let before = tree::count(self.lane, Tree::Chunks, self.root.chunks_top);
        before + u64::from(self.root.tail != 0)
    }

    /// Calls `f` with the entries of the IDs from `from` to `to`, both included; from the last to
    /// the first if `down`; until it breaks.
    pub fn walk(
        &self,
        from: StreamId,
        to: StreamId,
        down: bool,
        f: &mut dyn FnMut(StreamId, &Fields<'_>) -> ControlFlow<()>,
    ) {
        let (lane, root) = (self.lane, &self.root);
        let begin = if down { to } else { from };
        let mut next = match root.chunk_of(lane, begin) {
            Some(spot) => Some(spot),
            None if down => None,
            None => root.first_chunk(lane),
        };
        while let Some(spot) = next {
            let entries = spot.chunk.entries(lane);
            if down {
                let all: Vec<_> = entries.take_while(|entry| entry.id <= to).collect();
                for entry in all.iter().rev() {
                    if entry.id < from {
                        return;
                    }
                    if !entry.is_deleted && f(entry.id, &entry.fields()).is_break() {
                        return;
                    }
                }
            } else {
                for entry in entries.skip_while(|entry| entry.id < from) {
                    if entry.id > to {
                        return;
                    }
                    if !entry.is_deleted && f(entry.id, &entry.fields()).is_break() {
                        return;
                    }
                }
            }
            next = root.next_chunk(lane, &spot, down);
        }
    }

    /// The group of this name.
    pub fn group(&self, name: &[u8]) -> Option<Group<'a>> {
        let top = self.root.groups_top;
        let found = tree::find(self.lane, Tree::Groups, top, Probe::Name(name))?;
        Some(Group::load(self.lane, found.item(self.lane)[0]))
    }

    /// Calls `f` with every group, in the order of their names.
    pub fn groups(&self, f: &mut dyn FnMut(&Group<'a>)) {
        walk_all(self.lane, Tree::Groups, self.root.groups_top, &mut |words: &Words| {
            f(&Group::load(self.lane, words[0]));
            ControlFlow::Continue(())
        });
    }

    /// Number of groups. Looks at every leaf of their tree.
    pub fn groups_len(&self) -> u64 {
        tree::count(self.lane, Tree::Groups, self.root.groups_top)
    }

    /// Checks every invariant of a stream. Tests call this.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn assert_sound(&self) {
        let problem = pieces::problem(self.lane, &self.root);
        assert!(problem.is_none(), "{problem:?}");
    }
}
