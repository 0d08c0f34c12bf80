//! Adding entries to a stream.

use std::sync::atomic::Ordering::Relaxed;

use crate::api::{Expiry, Key};
use crate::error::{StoreError, TxError};
use crate::store::{Place, Store};
use crate::stream::chunk::{
    AT_BOUNDS, Bounds, CHUNK_BYTES_MAX, CHUNK_ENTRIES_MAX, Chunk, chunk_header, first_bytes,
};
use crate::stream::node::{Tree, Words};
use crate::stream::{Root, StreamId, encode, tree};
use crate::tx::{Tx, check_key, check_value};

/// Most bytes of a chunk that lies in the stream's record.
const INSIDE_BYTES_MAX: usize = 1024;
/// Bytes of the room of a chunk in the stream's record, at least.
const ROOM_BYTES_MIN: u64 = 64;

/// When a chunk is full and another one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Most entries of a chunk, deleted ones included; 0 for as many as its bytes have room for.
    pub entries: u64,
    /// Most bytes of a chunk of several entries; 0 for as many as the store allows.
    pub bytes: u64,
}

/// Names and values of an entry.
type Pairs<'p> = &'p [(&'p [u8], &'p [u8])];

impl Default for ChunkLimits {
    /// The limits that Redis has unless it is told others.
    fn default() -> Self {
        Self { entries: 100, bytes: 4096 }
    }
}

impl ChunkLimits {
    /// The limits as the store keeps them.
    pub(crate) fn words(self) -> [u64; 2] {
        [self.entries, self.bytes]
    }

    fn entries_max(&self) -> u64 {
        if self.entries == 0 { CHUNK_ENTRIES_MAX } else { self.entries.min(CHUNK_ENTRIES_MAX) }
    }

    fn bytes_max(&self) -> u64 {
        let most = CHUNK_BYTES_MAX as u64;
        if self.bytes == 0 { most } else { self.bytes.min(most) }
    }
}

impl Store {
    /// When chunks of streams are full, unless an operation says otherwise.
    pub fn chunk_limits(&self) -> ChunkLimits {
        let [entries, bytes] = &self.chunk_limits;
        ChunkLimits { entries: entries.load(Relaxed), bytes: bytes.load(Relaxed) }
    }

    /// Sets when chunks of streams are full from now on. This is not kept when the store closes.
    pub fn set_chunk_limits(&self, limits: ChunkLimits) {
        let words = self.chunk_limits.iter().zip(limits.words());
        words.for_each(|(place, word)| place.store(word, Relaxed));
    }
}

impl Tx<'_> {
    /// When chunks of streams are full.
    pub fn chunk_limits(&self) -> ChunkLimits {
        self.store.chunk_limits()
    }

    /// Adds an entry of these names and values behind all others of a stream, whose last ID must be
    /// lower. A key that is not there becomes a stream.
    ///
    /// # Errors
    /// The entry is too long; the key holds another kind of value; the attempt is over.
    ///
    /// # Panics
    /// If the stream's last ID is not lower.
    pub fn stream_add(
        &mut self,
        key: Key<'_>,
        id: StreamId,
        pairs: &[(&[u8], &[u8])],
        limits: ChunkLimits,
    ) -> Result<(), TxError> {
        check_key(key.bytes)?;
        check_value(pairs.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum())?;
        let place = self.place(key);
        let found = self.stream_root(key)?;
        let before = found.unwrap_or(Root::empty());
        assert!(id > before.last_id, "entry {id} behind {}", before.last_id);
        let root = Root { last_id: id, added: before.added + 1, len: before.len + 1, ..before };
        if found.is_none() {
            return self.begin_stream(&place, key, root, (id, pairs), false);
        }
        self.touch(key);
        let lane = self.op.lane(place.lane);
        let Some(tail) = before.tail(lane) else {
            return self.begin_stream(&place, key, root, (id, pairs), true);
        };
        let (master, (names, _)) = (tail.master(lane), tail.names(lane));
        let entry = encode(master, &names, id, pairs);
        let end = tail.bounds.end + entry.len() as u64;
        let is_counted_out = tail.bounds.all >= limits.entries_max();
        let capacity = tail.capacity(lane, before.tail_object());
        // A large chunk is not made anew for a few entries more.
        let is_large = tail.object.is_some() && capacity * 4 >= limits.bytes_max() * 3;
        if is_counted_out || end > limits.bytes_max() || (end > capacity && is_large) {
            // The next chunk will likely have entries as long as those of this one.
            let Bounds { end, all, .. } = tail.bounds;
            let likely = match is_counted_out {
                true => end + end / 32,
                false => (limits.bytes_max() * all / end).max(1) * end / all,
            };
            let likely = likely.min(limits.bytes_max());
            return self.begin_chunk(&place, key, &before, root, (&tail, likely), (id, pairs));
        }
        let bounds = Bounds { end, live: tail.bounds.live + 1, all: tail.bounds.all + 1 };
        if end > capacity {
            return self.widen(&place, key, &before, Root { bounds, ..root }, &tail, &entry);
        }
        // First the bytes, which nobody can see; then the root.
        let at = tail.base + tail.bounds.end;
        match self.op.fill(place.lane, at, entry.len(), None) {
            Ok(bytes) => bytes.copy_from_slice(&entry),
            Err(stop) => return Err(self.stop(stop)),
        }
        self.save_stream(place.lane, &before, &Root { bounds, ..root })
    }

    /// Puts the first entry into a stream that has none.
    fn begin_stream(
        &mut self,
        place: &Place,
        key: Key<'_>,
        mut root: Root,
        (id, pairs): (StreamId, Pairs<'_>),
        is_there: bool,
    ) -> Result<(), TxError> {
        let bytes = first_bytes(id, pairs);
        let mut bounds = Bounds { end: chunk_end(&bytes)?, live: 1, all: 1 };
        if bytes.len() <= INSIDE_BYTES_MAX {
            root.set_inside(bounds);
            return match is_there {
                true => self.move_stream(place, key, &root, &bytes, ROOM_BYTES_MIN),
                false => self.put_stream(place, key, &root, &bytes, 0, Expiry::None),
            };
        }
        root.tail = self.write_chunk_of(place, &mut bounds, &bytes, 0)?;
        root.bounds = bounds;
        match is_there {
            true => self.move_stream(place, key, &root, &[], 0),
            false => self.put_stream(place, key, &root, &[], 0, Expiry::None),
        }
    }

    /// Writes a chunk that is an object of its own.
    pub(super) fn write_chunk_of(
        &mut self,
        place: &Place,
        bounds: &mut Bounds,
        bytes: &[u8],
        slack_bytes: u64,
    ) -> Result<u64, TxError> {
        bounds.end = chunk_end(bytes)?;
        let word = bounds.word().to_le_bytes();
        self.write_part(place.lane, chunk_header(bounds.end), &[&word, bytes], slack_bytes)
    }

    /// Begins another chunk with an entry, because the last one is full. It gets memory for so many
    /// bytes as are likely.
    fn begin_chunk(
        &mut self,
        place: &Place,
        key: Key<'_>,
        before: &Root,
        mut root: Root,
        (tail, likely): (&Chunk, u64),
        (id, pairs): (StreamId, Pairs<'_>),
    ) -> Result<(), TxError> {
        let bytes = first_bytes(id, pairs);
        let mut bounds = Bounds { end: 0, live: 1, all: 1 };
        let slack_bytes = likely.saturating_sub(bytes.len() as u64);
        root.tail = self.write_chunk_of(place, &mut bounds, &bytes, slack_bytes)?;
        root.bounds = bounds;
        let lane = self.op.lane(place.lane);
        let master = tail.master(lane);
        let sealed = match tail.object {
            // Memory that is much larger than what it has is not kept.
            Some(at) if lane.usable_bytes(at) * 3 / 4 <= tail.bounds.end + 64 => {
                let word = tail.bounds.word().to_le_bytes();
                let changed = self.op.overwrite(place.lane, at + AT_BOUNDS, &word);
                changed.map_err(|stop| self.stop(stop))?;
                at
            }
            object => {
                let bytes = tail.bytes(lane).to_vec();
                let at = self.write_chunk_of(place, &mut { tail.bounds }, &bytes, 0)?;
                object.into_iter().for_each(|object| self.op.free(object));
                at
            }
        };
        let item: Words = [master.ms, master.seq, sealed, 0, 0];
        let grown = tree::insert(&mut self.op, place.lane, Tree::Chunks, root.chunks_top, item);
        root.chunks_top = grown.map_err(|stop| self.stop(stop))?;
        match tail.object {
            Some(_) => self.save_stream(place.lane, before, &root),
            None => self.move_stream(place, key, &root, &[], 0),
        }
    }

    /// Gives the last chunk, which has no room for an entry, more memory.
    fn widen(
        &mut self,
        place: &Place,
        key: Key<'_>,
        before: &Root,
        mut root: Root,
        tail: &Chunk,
        entry: &[u8],
    ) -> Result<(), TxError> {
        let mut bytes = tail.bytes(self.op.lane(place.lane)).to_vec();
        bytes.extend_from_slice(entry);
        let end = bytes.len() as u64;
        let slack_bytes = (end / 2).max(ROOM_BYTES_MIN).min(CHUNK_BYTES_MAX as u64 - end);
        if tail.object.is_none() && bytes.len() <= INSIDE_BYTES_MAX {
            return self.move_stream(place, key, &root, &bytes, slack_bytes);
        }
        root.tail = self.write_chunk_of(place, &mut root.bounds, &bytes, slack_bytes)?;
        match tail.object {
            Some(at) => {
                self.op.free(at);
                self.save_stream(place.lane, before, &root)
            }
            None => self.move_stream(place, key, &root, &[], 0),
        }
    }
}

/// Where a chunk of these bytes ends.
fn chunk_end(bytes: &[u8]) -> Result<u64, TxError> {
    let max_bytes = u64::from(u32::MAX);
    let len_bytes = bytes.len() as u64;
    match len_bytes <= max_bytes {
        true => Ok(len_bytes),
        false => Err(TxError::Refused(StoreError::ValueTooLarge { len_bytes, max_bytes })),
    }
}
