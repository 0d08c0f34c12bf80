//! The dirty ledger: shared memory beside the data that records what is not yet on the SSD.
//!
//! Any process that has the memory, this ledger and the image can flush, because nothing that a
//! flush needs is private to the process that writes. Invariants:
//! - a grain's bit is set before its bytes change, and cleared only after its bytes are in a frame
//!   buffer;
//! - a frame buffer is free only when its frame is durable;
//! - `epoch & 1` names the current bitmap; the other one is the closing epoch's and empty unless
//!   `closing` is set;
//! - a grain of a capacity block has no bit.
//!
//! The layout carries a version, so that another program attaches or refuses and never guesses. A
//! program that attaches also refuses states that it does not know.

mod buffer;
mod kinds;
mod segment;
mod undo;

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::*};

use rustix::io::Errno;

use crate::error::SetupError;
use crate::extent::Extent;
use crate::gathered::Gathered;
use crate::geometry::{BLOCK_BYTES, Geometry, WORD_GRAINS};
use crate::kind::{Kind, KindBits};
use crate::locations::{self, Locations, NO_LOCATION};
use crate::sys::{HUGE_PAGE_BYTES, Mapping, SharedMemory, prefetch};

pub use buffer::{BufferState, FrameBuffer, Packed};
pub(crate) use segment::SegmentEntry;
pub use segment::SegmentState;
pub use undo::UNDO_BYTES_MAX;
use undo::UNDO_TOTAL_BYTES;
pub(crate) use undo::UndoSlot;

const MAGIC: u64 = 0x5045_5244_4c47_5231;
/// Version of this layout; raised with every change once a release has written it.
pub const LIVE_LAYOUT: u64 = 2;
const HEADER_BYTES: u64 = 4096;
const SEGMENT_ENTRY_BYTES: u64 = 32;
const BUFFER_CONTROL_BYTES: u64 = 64;

/// The words of the header, in the order in which they lie.
#[derive(Clone, Copy)]
#[repr(usize)]
enum Word {
    Magic,
    Layout,
    Reserved,
    GrainShift,
    SegmentBytes,
    SegmentsMax,
    Buffers,
    ImageId,
    RegionBytes,
    Epoch,
    Closing,
    NextSeq,
    Segments,
    CommitSeq,
    Commits,
    Incarnation,
    SlotTurn,
    BudgetLimit,
    BudgetUsed,
    BudgetHigh,
    Flushed,
    Syncing,
    Uncounted,
    Loading,
    GroupCommits,
    ShortQueue,
    CommitUnixMs,
    HasKey,
    /// The first of four words.
    Key,
}

/// The mapped ledger.
#[derive(Debug)]
pub struct Ledger {
    memory: SharedMemory,
    map: Mapping,
    geometry: Geometry,
    offsets: Offsets,
}

#[derive(Debug, Clone, Copy)]
struct Offsets {
    bitmaps: [u64; 2],
    location: u64,
    location_bytes: u64,
    segments: u64,
    controls: u64,
    /// Offset of the bytes that hold the kind of each block.
    kinds: u64,
    /// Offset of the threads' undo slots.
    undo: u64,
    tables: u64,
    table_bytes: u64,
    buffers: u64,
    buffer_bytes: u64,
    /// Offset of as many buffers of the same size for the compressed or encrypted form of frames.
    /// While there is none they are not touched, and so take no memory.
    packed: u64,
    total: u64,
}

impl Offsets {
    fn of(g: &Geometry) -> Self {
        let page = |bytes: u64| bytes.next_multiple_of(4096);
        let bitmap = page(g.words() as u64 * 8);
        let bitmaps = [HEADER_BYTES, HEADER_BYTES + bitmap];
        let location = bitmaps[1] + bitmap;
        let (location_bytes, buffer_bytes) = (locations::location_bytes(g), g.frame_limit());
        let segments = location + page(g.grains() * location_bytes);
        let controls = segments + page(u64::from(g.segments_max) * SEGMENT_ENTRY_BYTES);
        let kinds = controls + page(u64::from(g.buffers) * BUFFER_CONTROL_BYTES);
        let undo = kinds + page(g.blocks() as u64);
        let tables = undo + page(UNDO_TOTAL_BYTES);
        let table_bytes = page(buffer_bytes / (g.grain_bytes() + 8) * 8 + 8);
        let buffers = tables + table_bytes * u64::from(g.buffers);
        // Buffers begin at a huge page so that huge pages can hold them; small buffers are not
        // worth the gap.
        let buffers_bytes = buffer_bytes * u64::from(g.buffers);
        let buffers = match buffers_bytes < HUGE_PAGE_BYTES as u64 {
            true => buffers,
            false => buffers.next_multiple_of(HUGE_PAGE_BYTES as u64),
        };
        let plain_total = buffers + buffers_bytes;
        let packed = match buffers_bytes < HUGE_PAGE_BYTES as u64 {
            true => plain_total,
            false => plain_total.next_multiple_of(HUGE_PAGE_BYTES as u64),
        };
        let total = packed + buffers_bytes;
        Self {
            bitmaps,
            location,
            location_bytes,
            segments,
            controls,
            kinds,
            undo,
            tables,
            table_bytes,
            buffers,
            buffer_bytes,
            packed,
            total,
        }
    }
}

impl Ledger {
    /// Makes an empty ledger.
    pub fn create(
        geometry: Geometry,
        image_id: u64,
        region_bytes: u64,
    ) -> Result<Self, SetupError> {
        let len_bytes = Self::len_bytes(&geometry);
        let memory = SharedMemory::create("perdura-ledger", len_bytes)
            .map_err(|source| SetupError::Memory { what: "ledger", len_bytes, source })?;
        Self::create_in(memory, geometry, image_id, region_bytes)
    }

    /// Bytes of the ledger of a region with this geometry.
    pub fn len_bytes(geometry: &Geometry) -> u64 {
        Offsets::of(geometry).total
    }

    /// Creates a ledger in `memory`, which is all zeros and has [`Ledger::len_bytes`].
    ///
    /// # Errors
    /// The memory cannot be mapped.
    pub fn create_in(
        memory: SharedMemory,
        geometry: Geometry,
        image_id: u64,
        region_bytes: u64,
    ) -> Result<Self, SetupError> {
        let offsets = Offsets::of(&geometry);
        let refused =
            |source| SetupError::Memory { what: "ledger", len_bytes: offsets.total, source };
        let map = memory.map().map_err(refused)?;
        let ledger = Self { memory, map, geometry, offsets };
        ledger.set(Word::Layout, LIVE_LAYOUT);
        ledger.set(Word::Reserved, geometry.reserved_bytes);
        ledger.set(Word::GrainShift, u64::from(geometry.grain_shift));
        ledger.set(Word::SegmentBytes, geometry.segment_bytes);
        ledger.set(Word::SegmentsMax, u64::from(geometry.segments_max));
        ledger.set(Word::Buffers, u64::from(geometry.buffers));
        ledger.set(Word::ImageId, image_id);
        ledger.set(Word::RegionBytes, region_bytes);
        ledger.set(Word::NextSeq, 1);
        ledger.set(Word::Magic, MAGIC);
        Ok(ledger)
    }

    /// Attaches to a ledger that another process made.
    pub fn attach(memory: SharedMemory) -> Result<Self, SetupError> {
        let len_bytes = memory.len_bytes();
        let refused = |source| SetupError::Memory { what: "ledger", len_bytes, source };
        if len_bytes < HEADER_BYTES {
            return Err(refused(Errno::INVAL));
        }
        let map = memory.map().map_err(refused)?;
        let word = |w: Word| map.words(0, 64)[w as usize].load(Acquire);
        if word(Word::Magic) != MAGIC || word(Word::Layout) != LIVE_LAYOUT {
            return Err(SetupError::LiveLayout {
                found: word(Word::Layout),
                supported: LIVE_LAYOUT,
            });
        }
        let geometry = Geometry {
            reserved_bytes: word(Word::Reserved),
            grain_shift: word(Word::GrainShift) as u32,
            segment_bytes: word(Word::SegmentBytes),
            segments_max: word(Word::SegmentsMax) as u32,
            buffers: word(Word::Buffers) as u32,
        };
        // Whoever made it may be hostile.
        if !geometry.is_possible() || Offsets::of(&geometry).total != len_bytes {
            return Err(refused(Errno::INVAL));
        }
        let offsets = Offsets::of(&geometry);
        let ledger = Self { memory, map, geometry, offsets };
        ledger.check_states()?;
        Ok(ledger)
    }

    /// Refuses unknown states, which a faulty program has left.
    ///
    /// # Errors
    /// [`SetupError::UnknownState`] with the first of them.
    pub fn check_states(&self) -> Result<(), SetupError> {
        for number in 0..self.segments().load(Acquire).min(self.geometry.segments_max.into()) {
            let found = self.segment(number as u32).found_state();
            unknown("segment state", number, SegmentState::of_word(found).err())?;
        }
        for number in 0..self.geometry.buffers {
            let found = self.buffer(number).found_state();
            unknown("buffer state", number.into(), BufferState::of_word(found).err())?;
        }
        let region_bytes = self.region_bytes().load(Acquire);
        let is_possible = region_bytes <= self.geometry.reserved_bytes;
        unknown("size of the region", 0, (!is_possible).then_some(region_bytes))?;
        let blocks = region_bytes / BLOCK_BYTES;
        for (block, bits) in (0..blocks).zip(self.kinds()) {
            let found = KindBits::from_byte(bits.load(Acquire));
            unknown("kind of a block", block, found.err().map(u64::from))?;
        }
        match self.damaged_undo() {
            Some((number, word)) => unknown("undo slot", number, Some(word)),
            None => Ok(()),
        }
    }

    /// Version of the ledger's layout.
    #[inline]
    pub fn layout(&self) -> u64 {
        self.word(Word::Layout).load(Acquire)
    }

    /// The sizes for which the ledger was made.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The ledger's memory file, to be handed to a holder.
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Gives huge pages to the ledger's entries about a block.
    pub(crate) fn gather_for(&self, gathered: &Gathered, block: u64) {
        let grains = BLOCK_BYTES >> self.geometry.grain_shift;
        for bitmap in self.offsets.bitmaps {
            gathered.cover(&self.map, bitmap + block * grains / 8, (grains / 8).max(1));
        }
        let locations_bytes = grains * self.offsets.location_bytes;
        gathered.cover(&self.map, self.offsets.location + block * locations_bytes, locations_bytes);
    }

    /// Puts the frame buffers in huge pages, so that the device is handed larger pieces.
    /// `is_packing`: the buffers of compressed and encrypted frames, too.
    pub fn gather_buffers(&self, is_packing: bool) -> Result<(), Errno> {
        let len_bytes = self.offsets.buffer_bytes * u64::from(self.geometry.buffers);
        if len_bytes < HUGE_PAGE_BYTES as u64 {
            return Err(Errno::INVAL);
        }
        self.map.gather(self.offsets.buffers, len_bytes as usize)?;
        if is_packing {
            self.map.gather(self.offsets.packed, len_bytes as usize)?;
        }
        Ok(())
    }

    /// Keeps the ledger in DRAM; see [`Mapping::lock_in_memory`].
    pub fn lock_in_memory(&self) -> Result<(), Errno> {
        self.map.lock_in_memory()
    }

    /// The dirty bitmap of an epoch; `parity` is the epoch's lowest bit.
    pub fn bitmap(&self, parity: u64) -> &[AtomicU64] {
        self.map.words(self.offsets.bitmaps[(parity & 1) as usize], self.geometry.words())
    }

    /// One word of an epoch's dirty bitmap.
    #[inline]
    pub fn dirty_word(&self, parity: u64, word: usize) -> &AtomicU64 {
        debug_assert!(word < self.geometry.words());
        &self.map.words(self.offsets.bitmaps[(parity & 1) as usize] + word as u64 * 8, 1)[0]
    }

    /// Bitmap words that the region uses; the ledger is laid out for the reserve.
    pub fn words_in_use(&self) -> usize {
        let grains = self.region_bytes().load(Acquire) >> self.geometry.grain_shift;
        grains.div_ceil(WORD_GRAINS) as usize
    }

    /// The location of each grain: the log segment of its newest copy.
    pub fn locations(&self) -> Locations<'_> {
        let (at, grains) = (self.offsets.location, self.geometry.grains() as usize);
        match self.offsets.location_bytes {
            2 => Locations::Narrow(self.map.quarter_words(at, grains)),
            _ => Locations::Wide(self.map.half_words(at, grains)),
        }
    }

    /// Bytes of a location in the ledger.
    pub(crate) fn location_bytes(&self) -> u64 {
        self.offsets.location_bytes
    }

    /// Prefetches the locations of these grains.
    #[inline]
    pub fn prefetch_locations(&self, grain: u64, grains: u64) {
        let location = |grain| self.offsets.location + grain * self.offsets.location_bytes;
        prefetch(self.map.base().wrapping_add(location(grain) as usize));
        prefetch(self.map.base().wrapping_add(location(grain + grains) as usize - 1));
    }

    /// Reads the locations as bytes, beginning with their byte `from`.
    pub(crate) fn read_locations(&self, from: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        self.memory.read_at(self.offsets.location + from, bytes)
    }

    /// The kind of each block, as [`KindBits`].
    #[inline]
    pub fn kinds(&self) -> &[AtomicU8] {
        self.map.octets(self.offsets.kinds, self.geometry.blocks())
    }

    /// The kind of a block; persistent for a block that the region does not have.
    #[inline]
    pub fn kind(&self, block: u64) -> Kind {
        match self.kinds().get(block as usize) {
            Some(bits) if KindBits::is_capacity(bits.load(Acquire)) => Kind::Capacity,
            _ => Kind::Persistent,
        }
    }

    /// The entry of a segment.
    #[inline]
    pub fn segment(&self, number: u32) -> SegmentEntry<'_> {
        assert!(number < self.geometry.segments_max, "segment {number} does not exist");
        let at = self.offsets.segments + u64::from(number) * SEGMENT_ENTRY_BYTES;
        SegmentEntry { words: self.map.words(at, 4) }
    }

    /// A frame buffer by its number.
    pub fn buffer(&self, number: u32) -> FrameBuffer<'_> {
        assert!(number < self.geometry.buffers, "buffer {number} does not exist");
        let n = u64::from(number);
        FrameBuffer {
            map: &self.map,
            words: self.map.words(self.offsets.controls + n * BUFFER_CONTROL_BYTES, 8),
            table_at: self.offsets.tables + n * self.offsets.table_bytes,
            table_capacity: (self.offsets.table_bytes / 8) as usize,
            bytes_at: self.offsets.buffers + n * self.offsets.buffer_bytes,
            packed_at: self.offsets.packed + n * self.offsets.buffer_bytes,
            len_bytes: self.offsets.buffer_bytes,
        }
    }

    /// Forgets the dirty grains, locations and states of segments and buffers, so that recovery can
    /// enter them anew. The sequence numbers and the sizes stay.
    pub fn forget_places(&self) {
        let words = self.words_in_use();
        for parity in [0, 1] {
            self.bitmap(parity)[..words].iter().for_each(|bits| bits.store(0, Relaxed));
        }
        let len = self.region_bytes().load(Acquire) >> self.geometry.grain_shift;
        self.locations().set(Extent { grain: 0, len }, NO_LOCATION);
        for number in 0..self.segments().load(Acquire) as u32 {
            let entry = self.segment(number);
            entry.used_bytes().store(0, Relaxed);
            entry.live_bytes().store(0, Relaxed);
            entry.set_state(SegmentState::Free);
        }
        for number in 0..self.geometry.buffers {
            self.buffer(number).set_state(BufferState::Free);
        }
        self.closing().store(0, Release);
        self.budget_used().store(0, Release);
    }

    /// The key with which the image's frames are encrypted, if they are. Whoever has the ledger
    /// has the data, so the key lies where the data lie: in memory.
    pub fn key_words(&self) -> Option<[u64; 4]> {
        let words = self.map.words(0, 64);
        let key = || std::array::from_fn(|at| words[Word::Key as usize + at].load(Relaxed));
        (self.word(Word::HasKey).load(Acquire) != 0).then(key)
    }

    /// Sets the key of an empty ledger.
    pub fn set_key_words(&self, key: [u64; 4]) {
        let words = &self.map.words(0, 64)[Word::Key as usize..];
        for (place, word) in words.iter().zip(key) {
            place.store(word, Relaxed);
        }
        self.set(Word::HasKey, 1);
    }

    fn word(&self, word: Word) -> &AtomicU64 {
        &self.map.words(0, 64)[word as usize]
    }

    fn set(&self, word: Word, value: u64) {
        self.word(word).store(value, Release);
    }
}

macro_rules! header_words {
    ($($(#[$doc:meta])* $name:ident => $word:ident;)*) => {
        impl Ledger {
            $(
                $(#[$doc])*
                #[inline]
                pub fn $name(&self) -> &AtomicU64 { self.word(Word::$word) }
            )*
        }
    };
}

header_words! {
    /// Identity of the image to which these data belong.
    image_id => ImageId;
    /// Bytes of the region in use. They may grow at run time.
    region_bytes => RegionBytes;
    /// Number of the current epoch.
    epoch => Epoch;
    /// 1 while the closing epoch's bitmap may hold bits.
    closing => Closing;
    /// Sequence number of the next frame.
    next_seq => NextSeq;
    /// Segments that the log has now.
    segments => Segments;
    /// Sequence number of the last frame that the last commit slot covers.
    commit_seq => CommitSeq;
    /// Number of the last commit. Of two commit slots the one with the higher number counts.
    commits => Commits;
    /// How often the image has been opened: frames of an earlier incarnation never count as tail
    /// frames.
    incarnation => Incarnation;
    /// Which commit slot is written next: 0 or 1.
    slot_turn => SlotTurn;
    /// Budget in force, bytes.
    budget_limit => BudgetLimit;
    /// Bytes of the budget in use: credit, dirty grains, and grains copied but not yet durable.
    budget_used => BudgetUsed;
    /// Largest `budget_used` since the limit was last set, bytes.
    budget_high => BudgetHigh;
    /// 1 from a final commit until the ledger has noted it. Meanwhile memory and image agree,
    /// though dirty bits are set and locations are old.
    flushed => Flushed;
    /// 1 while a flush waits for the device flush; nothing else in the ledger changes meanwhile.
    syncing => Syncing;
    /// 1 while locations change and the segments' live bytes do not agree with them.
    uncounted => Uncounted;
    /// 1 while parts of memory are not yet loaded from the image: only dirty grains are surely in
    /// memory.
    loading => Loading;
    /// Group commits that writers have waited for: a guard sees by it who waits for the device.
    group_commits => GroupCommits;
    /// 1 while a guard asks for a short queue: other regions wait for group commits on the same
    /// device, behind what this one's cleaner has given it.
    short_queue => ShortQueue;
    /// Time of the last commit, milliseconds since 1970. It never falls, whatever the clock does.
    commit_unix_ms => CommitUnixMs;
}

fn unknown(what: &'static str, index: u64, value: Option<u64>) -> Result<(), SetupError> {
    match value {
        Some(value) => Err(SetupError::UnknownState { what, index, value }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
