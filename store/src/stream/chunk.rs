//! A chunk of a stream: some of its entries, one behind the other, as deltas to the first one's ID
//! and without the names that the first one has.
//!
//! ```text
//! 0   the first word of a record's header    8  bounds: end u32 | live u16 | entries u16
//! 16  ms u64 | seq u64 of the first entry    32 number of names varint | names | entries | room
//! ```
//! The end counts from byte 16 on. Of the last chunk of a stream, the stream's root has the bounds,
//! so that an addition changes the root only, besides the room that nobody sees; a small stream's
//! only chunk lies, from byte 16 on, behind the root in the same record. An entry that is deleted
//! stays with a flag until its chunk goes.

use perdura_slots::Lane;

use super::StreamId;
use super::item::{self, Names, Stored};
use crate::error::Damaged;
use crate::record::{Header, RecordKind};

/// Bytes of a chunk, from its first ID on, that is not of a single entry: with its head, those of a
/// size that the heap has.
pub(crate) const CHUNK_BYTES_MAX: usize = 4096 - HEAD_BYTES as usize;
/// Bytes before the first ID of a chunk that is an object of its own.
pub(crate) const HEAD_BYTES: u64 = 16;
/// Where the bounds lie in a chunk that is an object of its own.
pub(crate) const AT_BOUNDS: u64 = 8;
/// Bytes of the first ID.
const ID_BYTES: usize = 16;
/// Most entries of a chunk, deleted ones included.
pub(crate) const CHUNK_ENTRIES_MAX: u64 = u16::MAX as u64;
/// What the memory is called if a chunk is damaged.
const WHAT: &str = "chunk of a stream";

/// Where the entries of a chunk end, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Bounds {
    /// Bytes from the first ID on.
    pub end: u64,
    /// Number of entries that are not deleted.
    pub live: u64,
    /// Number of entries.
    pub all: u64,
}

impl Bounds {
    pub fn of_word(word: u64) -> Self {
        Self { end: word & 0xffff_ffff, live: word >> 32 & 0xffff, all: word >> 48 }
    }

    pub fn word(&self) -> u64 {
        self.end | self.live << 32 | self.all << 48
    }
}

/// The header of a chunk that has so many bytes from its first ID on.
pub(crate) fn chunk_header(bytes: u64) -> Header {
    part_header(RecordKind::StreamChunk, bytes + HEAD_BYTES - Header::SHORT_BYTES)
}

/// The header of a part of a stream with a value of this length.
pub(crate) fn part_header(kind: RecordKind, value_len: u64) -> Header {
    let (key_len, db, expire_at_ms) = (0, 0, 0);
    Header { value_len: value_len as u32, key_len, db, kind, is_short: true, expire_at_ms }
}

/// Reads the header of a part of a stream of this kind; unwinds with [`Damaged`] if there is none.
pub(crate) fn load_part(lane: &Lane<'_>, at: u64, kind: RecordKind) -> Header {
    let header = Header::load(lane, at);
    if header.kind != kind || !header.is_short || header.key_len != 0 || header.db != 0 {
        Damaged { what: "record's kind", offset: at, value: header.first_word() }.unwind();
    }
    header
}

/// A chunk, with its bounds as they were when it was loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk {
    /// Offset of the first ID.
    pub base: u64,
    /// Offset of the object, if the chunk is one.
    pub object: Option<u64>,
    pub bounds: Bounds,
}

impl Chunk {
    /// Reads the bounds of the chunk that is the object at `at`; unwinds with [`Damaged`] if no
    /// store writes such.
    pub fn load(lane: &Lane<'_>, at: u64) -> Self {
        load_part(lane, at, RecordKind::StreamChunk);
        let bounds = Bounds::of_word(lane.load(at + AT_BOUNDS));
        Self { base: at + HEAD_BYTES, object: Some(at), bounds }.checked(lane, at)
    }

    /// The last chunk of a stream, which is the object at `at`.
    pub fn tail(lane: &Lane<'_>, at: u64, bounds: Bounds) -> Self {
        load_part(lane, at, RecordKind::StreamChunk);
        Self { base: at + HEAD_BYTES, object: Some(at), bounds }.checked(lane, at)
    }

    /// The only chunk of a stream, which lies in the stream's record at `record`.
    pub fn inside(lane: &Lane<'_>, record: u64, base: u64, bounds: Bounds) -> Self {
        Self { base, object: None, bounds }.checked(lane, record)
    }

    fn checked(self, lane: &Lane<'_>, object: u64) -> Self {
        let Bounds { end, live, all } = self.bounds;
        let most = (object + lane.usable_bytes(object)).saturating_sub(self.base);
        if end > most || end <= ID_BYTES as u64 || live > all || all == 0 {
            self.damaged().unwind();
        }
        self
    }

    /// The error of a chunk whose entries no store writes.
    #[cold]
    pub fn damaged(&self) -> Damaged {
        Damaged { what: WHAT, offset: self.base, value: self.bounds.word() }
    }

    /// Bytes for entries that the chunk has memory for, from the first ID on.
    pub fn capacity(&self, lane: &Lane<'_>, object: u64) -> u64 {
        object + lane.usable_bytes(object) - self.base
    }

    /// All bytes, from the first ID on.
    pub fn bytes<'l>(&self, lane: &'l Lane<'_>) -> &'l [u8] {
        lane.bytes(self.base, self.bounds.end as usize)
    }

    /// The ID of the first entry, deleted or not.
    pub fn master(&self, lane: &Lane<'_>) -> StreamId {
        let word = |at: usize| {
            let bytes = lane.bytes(self.base + at as u64, 8).first_chunk::<8>();
            bytes.map_or(0, |word| u64::from_le_bytes(*word))
        };
        StreamId { ms: word(0), seq: word(8) }
    }

    /// The names that the entries need not repeat, and the entries' bytes.
    pub fn names<'l>(&self, lane: &'l Lane<'_>) -> (Names<'l>, &'l [u8]) {
        let mut rest = &self.bytes(lane)[ID_BYTES..];
        match item::take_names(&mut rest) {
            Some(names) => (names, rest),
            None => self.damaged().unwind(),
        }
    }

    /// All entries in order, deleted ones included, and where their flags are from the first ID on.
    pub fn entries<'l>(&self, lane: &'l Lane<'_>) -> Entries<'l> {
        let (names, rest) = self.names(lane);
        let (master, left) = (self.master(lane), self.bounds.all);
        Entries { chunk: *self, names, rest, master, left }
    }

    /// The last of the entries, deleted or not.
    pub fn last_id(&self, lane: &Lane<'_>) -> StreamId {
        self.entries(lane).last().map_or(StreamId::MIN, |entry| entry.id)
    }

    /// Whether the entries are as the bounds say, and ascend.
    pub fn is_sound(&self, lane: &Lane<'_>) -> bool {
        let (mut last, mut live, mut is_whole) = (None, 0, true);
        for entry in self.entries(lane) {
            is_whole &= entry.fields().for_each(&mut |_, _| {});
            is_whole &= last.is_none_or(|last| last < entry.id);
            last = Some(entry.id);
            live += u64::from(!entry.is_deleted);
        }
        is_whole && live == self.bounds.live && self.entries(lane).behind() == 0
    }
}

/// The entries of a chunk.
#[derive(Debug, Clone)]
pub(crate) struct Entries<'l> {
    chunk: Chunk,
    names: Names<'l>,
    rest: &'l [u8],
    master: StreamId,
    left: u64,
}

impl Entries<'_> {
    /// The bytes behind the last entry.
    fn behind(mut self) -> usize {
        while self.next().is_some() {}
        self.rest.len()
    }
}

impl<'l> Iterator for Entries<'l> {
    type Item = Stored<'l>;

    fn next(&mut self) -> Option<Stored<'l>> {
        self.left = self.left.checked_sub(1)?;
        let at = self.chunk.bounds.end as usize - self.rest.len();
        match item::take_entry(&mut self.rest, at, self.master, &self.names) {
            Some(entry) => Some(entry),
            // The bounds say that there are more.
            None => self.chunk.damaged().unwind(),
        }
    }
}

/// The bytes of a chunk, from the first ID on, of one entry.
pub(crate) fn first_bytes(id: StreamId, pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&id.ms.to_le_bytes());
    bytes.extend_from_slice(&id.seq.to_le_bytes());
    let mut names = Vec::new();
    item::push_names(&mut names, pairs);
    if let Some(names) = item::take_names(&mut &names[..]) {
        let entry = item::encode(id, &names, id, pairs);
        item::push_names(&mut bytes, pairs);
        bytes.extend_from_slice(&entry);
    }
    bytes
}
