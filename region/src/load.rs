//! Filling memory from the image: in the log's order, or a block at a time for who needs it first.
//!
//! Recovery reads no payload. From the extent tables it learns which copy of each grain is the
//! newest: that one has *won*, and the grain is *pending* until its bytes are in memory.
//! Invariants:
//! - A pending grain is clean: whoever would write it, or move it, loads its whole block first. Its
//!   segment counts it as live, and is never reused while it is pending.
//! - A grain's home is entered in the ledger with its bytes, not before: until then the ledger says
//!   [`Ledger::loading`], and who takes it over begins anew.
//! - Only copies that won are taken. A payload block is verified before; one that does not verify
//!   fills nothing.
//! - A grain's bytes and its pending bit change under the lock of its part; a block counts as
//!   loaded when none of its grains is pending.

mod compressed;
mod newest;
mod table;
mod window;

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use parking_lot::Mutex;
use perdura_media::Device;

use crate::error::OpenError;
use crate::format::Layout;
use perdura_dirty::apart::Apart;
use perdura_dirty::geometry::{Geometry, WORD_GRAINS};
use perdura_dirty::huge_pages::HugePages;
use perdura_dirty::ledger::Ledger;
use perdura_dirty::planted::Planted;
use perdura_dirty::sys::Mapping;

use newest::{Found, SmallTables, find_all};
pub(crate) use table::{Parts, Table, Tally};
use window::Buffers;

/// Buffers kept for the next reader.
const BUFFERS_KEPT: usize = 4;

/// Where to, and whom to tell.
pub(crate) struct Target<'t> {
    pub device: &'t dyn Device,
    pub ledger: &'t Ledger,
    pub map: &'t Mapping,
    /// Called with each block that is complete.
    pub loaded: &'t (dyn Fn(u64) + Sync),
    /// Gives blocks their memory; `None`: page by page, as it comes.
    pub huge_pages: Option<&'t HugePages>,
}

/// What of an image is not in memory yet.
pub(crate) struct Loading {
    geometry: Geometry,
    layout: Layout,
    planted: Planted,
    parts: Parts,
    /// The newest first.
    tables: Vec<Table>,
    /// Numbers of the tables in each segment, ascending.
    by_segment: Vec<Vec<u32>>,
    /// A bit per grain.
    pending: Box<[AtomicU64]>,
    /// Pending grains of each block, and of each segment.
    blocks_left: Box<[AtomicU32]>,
    segments_left: Box<[AtomicU64]>,
    /// Blocks whose memory has been asked for.
    given: Box<[AtomicBool]>,
    /// By part.
    small: Vec<SmallTables>,
    /// Numbers of the tables that are not small.
    large: Vec<u32>,
    /// Of the parts. Each is locked thousands of times.
    locks: Box<[Apart<Mutex<()>>]>,
    /// Segment to be taken up next.
    next: AtomicUsize,
    bytes_left: AtomicU64,
    total_bytes: u64,
    failure: OnceLock<Arc<OpenError>>,
    buffers: Mutex<Vec<Buffers>>,
    buffers_made: AtomicUsize,
}

/// What is to be loaded of a frame.
#[derive(Debug, Clone, Copy)]
enum Scope {
    All,
    Block(u64),
}

impl Loading {
    /// Finds the newest copy of each grain among `tables`, newest first, and enters in an empty
    /// ledger what the segments hold. Everything is pending then.
    pub fn resolve(
        ledger: &Ledger,
        tables: Vec<Table>,
        parts: Parts,
        region_bytes: u64,
        threads: usize,
        planted: Planted,
    ) -> Self {
        let geometry = *ledger.geometry();
        let words = (region_bytes >> geometry.grain_shift).div_ceil(WORD_GRAINS) as usize;
        let segments = tables.iter().map(|table| table.frame.segment + 1).max().unwrap_or(0);
        let pending: Box<[_]> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let segments_left: Box<[_]> = (0..segments).map(|_| AtomicU64::new(0)).collect();
        let found = find_all(&tables, &parts, &pending, &segments_left, threads);
        let mut blocks_left = Vec::new();
        let of_part = |Found { blocks, small }| {
            blocks_left.extend(blocks.into_iter().map(AtomicU32::new));
            small
        };
        let small = found.into_iter().map(of_part).collect();
        let is_large = |number: &u32| !tables[*number as usize].is_small();
        let large = (0..tables.len() as u32).filter(is_large).collect();
        let mut grains = 0;
        for (number, left) in (0..segments).zip(&segments_left) {
            let left = left.load(Relaxed);
            ledger.segment(number).live_bytes().store(left << geometry.grain_shift, Relaxed);
            grains += left;
        }
        let mut by_segment: Vec<Vec<u32>> = (0..segments).map(|_| Vec::new()).collect();
        for (number, table) in tables.iter().enumerate().rev() {
            by_segment[table.frame.segment as usize].push(number as u32);
        }
        let total_bytes = grains << geometry.grain_shift;
        Self {
            geometry,
            layout: Layout::of(&geometry),
            planted,
            parts,
            tables,
            by_segment,
            pending,
            given: blocks_left.iter().map(|_| AtomicBool::new(false)).collect(),
            blocks_left: blocks_left.into(),
            small,
            large,
            segments_left,
            locks: (0..parts.count).map(|_| Apart::default()).collect(),
            next: AtomicUsize::new(0),
            bytes_left: AtomicU64::new(total_bytes),
            total_bytes,
            failure: OnceLock::new(),
            buffers: Mutex::default(),
            buffers_made: AtomicUsize::new(0),
        }
    }

    /// Blocks with pending grains.
    pub fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        let left = self.blocks_left.iter().enumerate();
        left.filter(|(_, left)| left.load(Relaxed) > 0).map(|(block, _)| block as u64)
    }

    /// Bytes in memory, of how many.
    pub fn progress(&self) -> (u64, u64) {
        (self.total_bytes - self.bytes_left.load(Acquire), self.total_bytes)
    }

    /// Whether nothing is pending.
    pub fn is_complete(&self) -> bool {
        self.bytes_left.load(Acquire) == 0
    }

    /// The first thing that could not be read.
    pub fn failure(&self) -> Option<&Arc<OpenError>> {
        self.failure.get()
    }

    fn fail(&self, error: OpenError) -> Arc<OpenError> {
        let error = Arc::new(error);
        let _ = self.failure.set(Arc::clone(&error));
        error
    }

    /// Loads the next segment that nobody has taken up. False: there is none; others may still be
    /// at work. After an error the segments behind it can be loaded all the same.
    pub fn load_next(&self, to: &Target<'_>) -> Result<bool, Arc<OpenError>> {
        loop {
            let segment = self.next.fetch_add(1, Relaxed);
            let Some(left) = self.segments_left.get(segment) else { return Ok(false) };
            if left.load(Acquire) > 0 {
                let loaded = self.with_buffers(|own| self.load_segment(to, segment, own));
                return loaded.map(|()| true).map_err(|error| self.fail(error));
            }
        }
    }

    /// Loads everything, with nobody else at work; the first error ends it.
    pub fn load_all(self, to: &Target<'_>, threads: usize) -> Result<(), OpenError> {
        let load = || {
            while self.failure.get().is_none() && self.load_next(to).is_ok_and(|more| more) {}
        };
        let load = &load;
        std::thread::scope(|scope| {
            for _ in 1..threads {
                if std::thread::Builder::new().spawn_scoped(scope, load).is_err() {
                    break;
                }
            }
            load();
        });
        let is_complete = self.is_complete();
        match self.failure.into_inner().map(Arc::into_inner) {
            None => {
                assert!(is_complete, "memory is not made of what the tables say");
                Ok(())
            }
            Some(Some(error)) => Err(error),
            Some(None) => unreachable!("an error that somebody else holds, too"),
        }
    }

    fn load_segment(
        &self,
        to: &Target<'_>,
        segment: usize,
        buffers: &mut Buffers,
    ) -> Result<(), OpenError> {
        let mut numbers = self.by_segment[segment].iter();
        numbers.try_for_each(|number| {
            self.load_from(to, &self.tables[*number as usize], Scope::All, buffers)
        })
    }

    /// Loads one block, whoever else is at work.
    pub fn load_block(&self, to: &Target<'_>, block: u64) -> Result<(), Arc<OpenError>> {
        let Some(left) = self.blocks_left.get(block as usize) else { return Ok(()) };
        let part = self.parts.of_block(block);
        let load = |buffers: &mut Buffers| {
            let small = self.small[part].of(self.parts.portion_of_block(block));
            for number in self.large.iter().chain(small) {
                let table = &self.tables[*number as usize];
                if !table.share(part).may_have(block) {
                    continue;
                }
                self.load_from(to, table, Scope::Block(block), buffers)?;
                if self.planted.is(Planted::LoadedTooEarly) {
                    (to.loaded)(block);
                    break;
                }
            }
            Ok(())
        };
        self.with_buffers(load).map_err(|error| self.fail(error))?;
        let is_whole = left.load(Acquire) == 0 || self.planted.is(Planted::LoadedTooEarly);
        assert!(is_whole, "block {block} is not made of what the tables say");
        Ok(())
    }

    fn with_buffers(
        &self,
        f: impl FnOnce(&mut Buffers) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let kept = self.buffers.lock().pop();
        let mut own = match kept {
            Some(own) => own,
            None => {
                let number = self.buffers_made.fetch_add(1, Relaxed);
                // Each begins with another part: they stand in one another's way less, and give
                // different parts their memory.
                let first_part = number % BUFFERS_KEPT * self.parts.count / BUFFERS_KEPT;
                Buffers::new(self.geometry.segment_bytes as usize, first_part)?
            }
        };
        let outcome = f(&mut own);
        let mut buffers = self.buffers.lock();
        if buffers.len() < BUFFERS_KEPT {
            buffers.push(own);
        }
        outcome
    }
}
