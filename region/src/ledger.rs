//! The dirty ledger: what is not yet on the SSD, in shared memory beside the data.
//!
//! Any process that has the memory, this ledger and the image can flush: nothing that a flush needs
//! is private to the process that writes. Invariants:
//! - a grain's bit is set before its bytes change, and cleared only after its bytes are in a frame
//!   buffer;
//! - a frame buffer is free only when its frame is durable;
//! - `epoch & 1` names the current bitmap; the other one is the closing epoch's and empty unless
//!   `closing` is set.
//!
//! - a grain of a capacity block has no bit: see [`crate::kinds`].
//!
//! The layout carries a version: a newer program attaches or refuses, never guesses.

mod buffer;

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::*};

use rustix::io::Errno;

use crate::error::OpenError;
use crate::format::Extent;
use crate::gathered::Gathered;
use crate::geometry::{BLOCK_BYTES, Geometry, WORD_GRAINS};
use crate::homes::{self, Homes, NO_HOME};
use crate::sys::{HUGE_PAGE_BYTES, Mapping, SharedMemory, prefetch};

pub use buffer::{FrameBuffer, Packed};

const MAGIC: u64 = 0x5045_5244_4c47_5231;
/// Version of this layout; raised with every change.
pub const LIVE_LAYOUT: u64 = 6;
/// The one before: without the kinds of blocks, so all are persistent.
const LIVE_LAYOUT_UNKINDED: u64 = 5;
/// The one before that: homes of four bytes, and frame buffers of whole segments. Memory keeps the
/// layout it was made with.
const LIVE_LAYOUT_WIDE: u64 = 4;
/// The one before that: without room for compressed frames, so they are not.
const LIVE_LAYOUT_PLAIN: u64 = 3;
/// One that differs from that only in header words which are zero there.
const LIVE_LAYOUT_OLDEST: u64 = 2;
const HEADER_BYTES: u64 = 4096;
const SEGMENT_ENTRY_BYTES: u64 = 32;
const BUFFER_CONTROL_BYTES: u64 = 64;
/// In a segment's first word: its state below, whether it was ever written, and behind that how
/// much of it since it was begun. A hint, which older programs leave alone.
const WRITTEN_BLOCKS_SHIFT: u32 = 33;

/// Words of the header.
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
    Life,
    SlotTurn,
    BudgetLimit,
    BudgetUsed,
    BudgetHigh,
    Flushed,
    Syncing,
    Uncounted,
    Loading,
}

/// State of a log segment.
pub const SEGMENT_FREE: u64 = 0;
/// Holds frames, or is being filled.
pub const SEGMENT_USED: u64 = 1;
/// Would be free, but gets zeros (`ahead`).
pub const SEGMENT_ZEROED: u64 = 2;

/// State of a frame buffer.
pub const BUFFER_FREE: u64 = 0;
/// Extents are being appended.
pub const BUFFER_FILLING: u64 = 1;
/// Header, table and checksums are in place; written or to be written.
pub const BUFFER_SEALED: u64 = 2;

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
    home: u64,
    home_bytes: u64,
    segments: u64,
    controls: u64,
    /// A byte a block.
    kinds: Option<u64>,
    tables: u64,
    table_bytes: u64,
    buffers: u64,
    buffer_bytes: u64,
    /// Of the same sizes, for what they become when compressed. Untouched, and so no memory, while
    /// nothing is.
    packed: Option<u64>,
    total: u64,
}

impl Offsets {
    fn of(g: &Geometry, layout: u64) -> Self {
        let page = |bytes: u64| bytes.next_multiple_of(4096);
        let bitmap = page(g.words() as u64 * 8);
        let bitmaps = [HEADER_BYTES, HEADER_BYTES + bitmap];
        let home = bitmaps[1] + bitmap;
        let (home_bytes, buffer_bytes) = match layout {
            ..=LIVE_LAYOUT_WIDE => (4, g.segment_bytes),
            _ => (homes::home_bytes(g), g.frame_limit()),
        };
        let segments = home + page(g.grains() * home_bytes);
        let controls = segments + page(u64::from(g.segments_max) * SEGMENT_ENTRY_BYTES);
        let behind_controls = controls + page(u64::from(g.buffers) * BUFFER_CONTROL_BYTES);
        let kinds = (layout > LIVE_LAYOUT_UNKINDED).then_some(behind_controls);
        let tables = behind_controls + kinds.map_or(0, |_| page(g.blocks() as u64));
        let table_bytes = page(buffer_bytes / (g.grain_bytes() + 8) * 8 + 8);
        let buffers = tables + table_bytes * u64::from(g.buffers);
        // Huge pages can hold what begins where one does; small buffers are not worth the gap.
        let buffers_bytes = buffer_bytes * u64::from(g.buffers);
        let buffers = match buffers_bytes < HUGE_PAGE_BYTES as u64 {
            true => buffers,
            false => buffers.next_multiple_of(HUGE_PAGE_BYTES as u64),
        };
        let plain_total = buffers + buffers_bytes;
        let packed = (layout > LIVE_LAYOUT_PLAIN).then(|| match plain_total - buffers {
            small if small < HUGE_PAGE_BYTES as u64 => plain_total,
            _ => plain_total.next_multiple_of(HUGE_PAGE_BYTES as u64),
        });
        let total = packed.map_or(plain_total, |packed| packed + buffers_bytes);
        Self {
            bitmaps,
            home,
            home_bytes,
            segments,
            controls,
            kinds,
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
    /// A new, empty ledger.
    pub fn create(geometry: Geometry, image_id: u64, region_bytes: u64) -> Result<Self, OpenError> {
        Self::create_as(LIVE_LAYOUT, geometry, image_id, region_bytes)
    }

    fn create_as(
        layout: u64,
        geometry: Geometry,
        image_id: u64,
        region_bytes: u64,
    ) -> Result<Self, OpenError> {
        let offsets = Offsets::of(&geometry, layout);
        let refused =
            |source| OpenError::Memory { what: "ledger", len_bytes: offsets.total, source };
        let memory = SharedMemory::create("perdura-ledger", offsets.total).map_err(refused)?;
        let map = memory.map().map_err(refused)?;
        let ledger = Self { memory, map, geometry, offsets };
        ledger.set(Word::Layout, layout);
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

    /// Attaches to the ledger another process made.
    pub fn attach(memory: SharedMemory) -> Result<Self, OpenError> {
        let len_bytes = memory.len_bytes();
        let refused = |source| OpenError::Memory { what: "ledger", len_bytes, source };
        if len_bytes < HEADER_BYTES {
            return Err(refused(Errno::INVAL));
        }
        let map = memory.map().map_err(refused)?;
        let word = |w: Word| map.words(0, 64)[w as usize].load(Acquire);
        let layouts = LIVE_LAYOUT_OLDEST..=LIVE_LAYOUT;
        if word(Word::Magic) != MAGIC || !layouts.contains(&word(Word::Layout)) {
            return Err(OpenError::LiveLayout {
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
        let offsets = Offsets::of(&geometry, word(Word::Layout));
        if offsets.total != len_bytes {
            return Err(refused(Errno::INVAL));
        }
        let ledger = Self { memory, map, geometry, offsets };
        if ledger.word(Word::Layout).load(Acquire) == LIVE_LAYOUT_OLDEST {
            // Who wrote it did not say when the counts could be relied on.
            ledger.set(Word::Uncounted, 1);
            ledger.set(Word::Layout, LIVE_LAYOUT_PLAIN);
        }
        Ok(ledger)
    }

    /// The sizes the ledger was made for.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The memory file, to be handed to a holder.
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Gives what is kept here about a block its memory, in huge pages.
    pub(crate) fn gather_for(&self, gathered: &Gathered, block: u64) {
        let grains = BLOCK_BYTES >> self.geometry.grain_shift;
        for bitmap in self.offsets.bitmaps {
            gathered.cover(&self.map, bitmap + block * grains / 8, (grains / 8).max(1));
        }
        let homes_bytes = grains * self.offsets.home_bytes;
        gathered.cover(&self.map, self.offsets.home + block * homes_bytes, homes_bytes);
    }

    /// Puts the frame buffers in huge pages, for the device's sake; see [`Mapping::gather`].
    /// `is_compressing`: the frames that leave are the compressed ones, too.
    pub fn gather_buffers(&self, is_compressing: bool) -> Result<(), Errno> {
        let len_bytes = self.offsets.buffer_bytes * u64::from(self.geometry.buffers);
        if len_bytes < HUGE_PAGE_BYTES as u64 {
            return Err(Errno::INVAL);
        }
        self.map.gather(self.offsets.buffers, len_bytes as usize)?;
        match self.offsets.packed.filter(|_| is_compressing) {
            Some(packed) => self.map.gather(packed, len_bytes as usize),
            None => Ok(()),
        }
    }

    /// Whether frames can be compressed here: not in memory laid out by a program that could not.
    pub fn can_pack(&self) -> bool {
        self.offsets.packed.is_some()
    }

    /// Keeps the ledger in DRAM; see [`Mapping::lock_in_memory`].
    pub fn lock_in_memory(&self) -> Result<(), Errno> {
        self.map.lock_in_memory()
    }

    /// One epoch's dirty bitmap: `epoch & 1`.
    pub fn bitmap(&self, parity: u64) -> &[AtomicU64] {
        self.map.words(self.offsets.bitmaps[(parity & 1) as usize], self.geometry.words())
    }

    /// One word of a dirty bitmap.
    #[inline]
    pub fn dirty_word(&self, parity: u64, word: usize) -> &AtomicU64 {
        debug_assert!(word < self.geometry.words());
        &self.map.words(self.offsets.bitmaps[(parity & 1) as usize] + word as u64 * 8, 1)[0]
    }

    /// Bitmap words of the region in use; the ledger is laid out for the reserve.
    pub fn words_in_use(&self) -> usize {
        let grains = self.region_bytes().load(Acquire) >> self.geometry.grain_shift;
        grains.div_ceil(WORD_GRAINS) as usize
    }

    /// Log segment of each grain's newest copy.
    pub fn homes(&self) -> Homes<'_> {
        let (at, grains) = (self.offsets.home, self.geometry.grains() as usize);
        match self.offsets.home_bytes {
            2 => Homes::Narrow(self.map.quarter_words(at, grains)),
            _ => Homes::Wide(self.map.half_words(at, grains)),
        }
    }

    /// Bytes of a home.
    pub fn home_bytes(&self) -> u64 {
        self.offsets.home_bytes
    }

    /// Asks for the homes of these grains.
    pub fn prefetch_homes(&self, grain: u64, grains: u64) {
        let home = |grain| self.offsets.home + grain * self.offsets.home_bytes;
        prefetch(self.map.base().wrapping_add(home(grain) as usize));
        prefetch(self.map.base().wrapping_add(home(grain + grains) as usize - 1));
    }

    /// Reads homes as bytes, from byte `from` of them on.
    pub fn read_homes(&self, from: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        self.memory.read_at(self.offsets.home + from, bytes)
    }

    /// The kind of each block; `None` in memory laid out by a program that knew only one.
    #[inline]
    pub fn kinds(&self) -> Option<&[AtomicU8]> {
        self.offsets.kinds.map(|at| self.map.octets(at, self.geometry.blocks()))
    }

    /// One segment's entry.
    pub fn segment(&self, number: u32) -> SegmentEntry<'_> {
        assert!(number < self.geometry.segments_max, "segment {number} does not exist");
        let at = self.offsets.segments + u64::from(number) * SEGMENT_ENTRY_BYTES;
        SegmentEntry { words: self.map.words(at, 4) }
    }

    /// One frame buffer.
    pub fn buffer(&self, number: u32) -> FrameBuffer<'_> {
        assert!(number < self.geometry.buffers, "buffer {number} does not exist");
        let n = u64::from(number);
        FrameBuffer {
            map: &self.map,
            words: self.map.words(self.offsets.controls + n * BUFFER_CONTROL_BYTES, 8),
            table_at: self.offsets.tables + n * self.offsets.table_bytes,
            table_capacity: (self.offsets.table_bytes / 8) as usize,
            bytes_at: self.offsets.buffers + n * self.offsets.buffer_bytes,
            packed_at: self.offsets.packed.map(|at| at + n * self.offsets.buffer_bytes),
            len_bytes: self.offsets.buffer_bytes,
        }
    }

    /// Forgets where everything is, so that recovery can tell it anew. The sequence numbers and the
    /// sizes stay.
    pub fn forget_places(&self) {
        let words = self.words_in_use();
        for parity in [0, 1] {
            self.bitmap(parity)[..words].iter().for_each(|bits| bits.store(0, Relaxed));
        }
        let len = self.region_bytes().load(Acquire) >> self.geometry.grain_shift;
        self.homes().set(Extent { grain: 0, len }, NO_HOME);
        for number in 0..self.segments().load(Acquire) as u32 {
            let entry = self.segment(number);
            entry.used_bytes().store(0, Relaxed);
            entry.live_bytes().store(0, Relaxed);
            entry.set_state(SEGMENT_FREE);
        }
        for number in 0..self.geometry.buffers {
            self.buffer(number).state().store(BUFFER_FREE, Release);
        }
        self.closing().store(0, Release);
        self.budget_used().store(0, Release);
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
            $($(#[$doc])* pub fn $name(&self) -> &AtomicU64 { self.word(Word::$word) })*
        }
    };
}

header_words! {
    /// Identity of the image these data belong to.
    image_id => ImageId;
    /// Bytes of the region in use (it grows online).
    region_bytes => RegionBytes;
    /// Number of the current epoch.
    epoch => Epoch;
    /// 1 while the closing epoch's bitmap may hold bits.
    closing => Closing;
    /// Sequence number of the next frame.
    next_seq => NextSeq;
    /// Segments the log has now.
    segments => Segments;
    /// Sequence number covered by the last committed slot.
    commit_seq => CommitSeq;
    /// Commits so far; the higher one counts.
    commits => Commits;
    /// How often the image has been opened: frames of an earlier life never count as tail frames.
    life => Life;
    /// Which commit slot is written next: 0 or 1.
    slot_turn => SlotTurn;
    /// Budget in force, bytes.
    budget_limit => BudgetLimit;
    /// Credit + dirty + copied and not yet durable, bytes.
    budget_used => BudgetUsed;
    /// Largest `budget_used` since the limit was last set, bytes.
    budget_high => BudgetHigh;
    /// 1 from a final commit until the ledger has noted it: memory is just what the image holds,
    /// though bits are set and homes are old.
    flushed => Flushed;
    /// 1 while a flush waits for the device to make all of it durable: nothing else moves then.
    syncing => Syncing;
    /// 1 while homes move and the segments' live bytes do not agree with them.
    uncounted => Uncounted;
    /// 1 while parts of memory are not yet loaded from the image: only what is dirty is surely
    /// there.
    loading => Loading;
}

/// One log segment, as the ledger knows it.
pub struct SegmentEntry<'l> {
    words: &'l [AtomicU64],
}

impl<'l> SegmentEntry<'l> {
    /// [`SEGMENT_FREE`], [`SEGMENT_USED`] or [`SEGMENT_ZEROED`].
    pub fn state(&self) -> u64 {
        self.words[0].load(Acquire) & 0xffff_ffff
    }
    /// Sets the state.
    pub fn set_state(&self, state: u64) {
        // One owner changes the state at a time: who takes it, who frees it. Another may be
        // counting what is written.
        let _ =
            self.words[0].fetch_update(AcqRel, Relaxed, |word| Some(word & !0xffff_ffff | state));
    }
    /// Whether its space on the device has been written at least once (not only reserved).
    pub fn was_written(&self) -> bool {
        self.words[0].load(Acquire) >> 32 & 1 == 1
    }
    /// Remembers that its space has been written.
    pub fn set_written(&self) {
        self.words[0].fetch_or(1 << 32, AcqRel);
    }
    /// It is filled anew: nothing is counted of what was written to it.
    pub fn begin_writing(&self) {
        self.words[0].fetch_and((1 << WRITTEN_BLOCKS_SHIFT) - 1, AcqRel);
    }
    /// So much of it has been written, once it was begun: at three quarters it counts as written.
    pub fn count_written(&self, bytes: u64, segment_bytes: u64) {
        let word = self.words[0].fetch_add((bytes / 4096) << WRITTEN_BLOCKS_SHIFT, AcqRel);
        let written_bytes = (word >> WRITTEN_BLOCKS_SHIFT) * 4096 + bytes;
        if written_bytes * 4 >= segment_bytes * 3 {
            self.set_written();
        }
    }
    /// Bytes of frames in it, from its start.
    pub fn used_bytes(&self) -> &'l AtomicU64 {
        &self.words[1]
    }
    /// Sequence number of its first frame.
    pub fn first_seq(&self) -> &'l AtomicU64 {
        &self.words[2]
    }
    /// Bytes of grains whose newest copy it holds.
    pub fn live_bytes(&self) -> &'l AtomicU64 {
        &self.words[3]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::GRAIN_SHIFT_BARRIER;

    fn attached(ledger: &Ledger) -> Result<Ledger, OpenError> {
        let fd = ledger.memory().fd().try_clone_to_owned().unwrap();
        Ledger::attach(SharedMemory::from_fd(fd).unwrap())
    }

    #[test]
    fn memory_laid_out_by_older_programs_is_taken_over_without_room_for_compressed_frames() {
        let geometry = Geometry::new(BLOCK_BYTES, GRAIN_SHIFT_BARRIER, None, 4).unwrap();
        for layout in LIVE_LAYOUT_OLDEST..=LIVE_LAYOUT {
            let ledger = Ledger::create_as(layout, geometry, 7, BLOCK_BYTES).unwrap();
            // Once the most bytes of a frame.
            let word = &ledger.buffer(0).words[7];
            if layout <= LIVE_LAYOUT_PLAIN {
                word.store(geometry.segment_bytes, Relaxed);
            }
            let found = attached(&ledger).unwrap();
            let homes = Extent { grain: 5, len: 3 };
            ledger.homes().set(homes, 9);
            assert_eq!((found.homes().of(7), found.homes().alike(homes)), (9, 3));
            let is_narrow = layout > LIVE_LAYOUT_WIDE;
            assert_eq!(found.home_bytes(), if is_narrow { 2 } else { 4 });
            assert_eq!(found.kinds().is_some(), layout > LIVE_LAYOUT_UNKINDED);
            assert_eq!(found.can_pack(), layout > LIVE_LAYOUT_PLAIN);
            assert_eq!(found.uncounted().load(Relaxed), u64::from(layout == LIVE_LAYOUT_OLDEST));
            let buffer = found.buffer(0);
            assert_eq!(buffer.packed(), None, "layout {layout}");
            buffer.set_packed(None);
            assert_eq!(attached(&found).unwrap().can_pack(), layout > LIVE_LAYOUT_PLAIN);
        }
        let unknown = Ledger::create_as(LIVE_LAYOUT + 1, geometry, 7, BLOCK_BYTES).unwrap();
        assert!(matches!(attached(&unknown), Err(OpenError::LiveLayout { .. })));
    }
}
