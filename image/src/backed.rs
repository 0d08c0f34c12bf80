//! Tracked memory with its image behind it, for cleaning, capturing and compacting.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use perdura_dirty::extent::{Extent, mask, runs};
use perdura_dirty::geometry::WORD_GRAINS;
use perdura_dirty::policy::space::Space;
use perdura_dirty::{Backing, Counters, Memory, Need, Tracked};

use crate::append::{Appender, Refusal, Source};
use crate::error::Unreadable;
use crate::loads::{Loads, Place};
use crate::log::Log;

/// Memory whose writes are tracked, the log for its dirty grains, and the part of the image that is
/// not loaded yet.
pub struct Backed {
    /// The memory and its account, which `tracked` has as well.
    pub memory: Arc<Memory>,
    /// The means by which writes are noticed.
    pub tracked: Tracked,
    /// The log to which dirty grains are written.
    pub log: Log,
    /// The part of the image that is not loaded yet; its blocks are marked in the lanes.
    pub loads: Loads,
}

impl Backed {
    /// Joins memory, its log, and the loads that are left.
    pub fn new(tracked: Tracked, log: Log, loads: Loads) -> Self {
        Self { memory: Arc::clone(&tracked.memory), tracked, log, loads }
    }

    /// Copies grains of a bitmap word to the log and clears their bits in the bitmap. The caller
    /// excludes their writers. Returns the bits that were copied, and why the others were not.
    pub fn append_bits(
        &self,
        appender: &mut Appender,
        parity: u64,
        word: usize,
        bits: u64,
    ) -> (u64, Option<Refusal>) {
        self.append_bits_of((&self.memory.map).into(), appender, parity, word, bits)
    }

    /// Appends grains as [`Backed::append_bits`] does, with bytes from `source`.
    pub fn append_bits_of(
        &self,
        source: Source<'_>,
        appender: &mut Appender,
        parity: u64,
        word: usize,
        bits: u64,
    ) -> (u64, Option<Refusal>) {
        let ledger = &self.memory.ledger;
        let bitmap = ledger.dirty_word(parity, word);
        debug_assert!(
            self.tracked.are_writers_out(word, bits),
            "grains of word {word} are copied while their writers may change them"
        );
        let spare_before = appender.spare_segments();
        let mut done = 0;
        for mut run in runs(word, bits) {
            while run.len > 0 {
                match appender.append(ledger, source, run, true) {
                    Ok(len) => {
                        let bits = mask(run.grain % WORD_GRAINS, len);
                        if self.tracked.is_trapped() {
                            // Other bits of the word may be set by fault handlers at this moment.
                            bitmap.fetch_and(!bits, AcqRel);
                        } else {
                            // Writers are excluded, and the word lies in one lane's block.
                            bitmap.store(bitmap.load(Relaxed) & !bits, Release);
                        }
                        done |= bits;
                        run = Extent { grain: run.grain + len, len: run.len - len };
                    }
                    Err(refusal) => return (done, Some(refusal)),
                }
            }
        }
        if appender.spare_segments() != spare_before {
            self.note_space(appender);
        }
        (done, None)
    }

    /// The sizes of the log that decide when space is made.
    pub fn space(&self) -> Space {
        self.space_of(&self.log.appender.lock())
    }

    fn space_of(&self, appender: &Appender) -> Space {
        let ledger = &self.memory.ledger;
        Space {
            segment_bytes: ledger.geometry().segment_bytes,
            segments: ledger.segments().load(Relaxed) as u32,
            reserve_segments: appender.reserve_segments,
            budget_bytes: self.log.sized_for(ledger.budget_limit().load(Relaxed)),
        }
    }

    /// Limits the budget to the bytes that a drain into the spare segments could take.
    pub fn note_space(&self, appender: &Appender) {
        let spare = appender.spare_segments();
        let space = self.space_of(appender);
        self.memory.budget.limit_by_space(space.limit_bytes(spare));
    }

    /// Loads a block if it is not in memory.
    ///
    /// # Errors
    /// The block cannot be read.
    pub fn load_block(&self, block: u64) -> Result<(), Unreadable> {
        self.loads.load_block(self.place(), block)
    }

    /// The memory and device of loads.
    pub fn place(&self) -> Place<'_> {
        Place { memory: &self.memory, lanes: &self.tracked.lanes, device: &*self.log.device }
    }
}

impl Backing for Backed {
    fn capture(&self, parity: u64, word: usize, bits: u64) -> Result<(), Need> {
        let mut appender = self.log.appender.lock();
        let (done, refusal) = self.append_bits(&mut appender, parity, word, bits);
        let bytes = u64::from(done.count_ones()) << self.memory.ledger.geometry().grain_shift;
        Counters::add(&self.memory.stats.captured_bytes, bytes);
        match refusal {
            None => Ok(()),
            Some(_) => Err(Need::Buffer),
        }
    }

    #[cold]
    fn load_or_unwind(&self, block: u64) {
        if let Err(unreadable) = self.load_block(block) {
            // The image or device is at fault and not this program, so there is no message or
            // backtrace.
            std::panic::resume_unwind(Box::new(unreadable));
        }
    }
}
