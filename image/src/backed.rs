//! Tracked memory with its image behind it: what cleaning, capturing and compacting work on.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use perdura_dirty::extent::{Extent, mask, runs};
use perdura_dirty::geometry::WORD_GRAINS;
use perdura_dirty::policy::space::Space;
use perdura_dirty::{Backing, Counters, Memory, Need, Tracked};

use crate::append::{Appender, Refusal, Source};
use crate::error::Unreadable;
use crate::loads::{Loads, Place};
use crate::log::{Log, space_of};

/// Memory whose writes are tracked, the log that its dirty part goes to, and what of the image is
/// not in memory yet.
pub struct Backed {
    /// The memory and its account; the same as in `tracked`.
    pub memory: Arc<Memory>,
    /// How writes are noticed.
    pub tracked: Tracked,
    /// Where dirty bytes go.
    pub log: Log,
    /// What was not loaded yet; its blocks are marked so among the lanes.
    pub loads: Loads,
}

impl Backed {
    /// Joins memory, its log, and what is not loaded yet.
    pub fn new(tracked: Tracked, log: Log, loads: Loads) -> Self {
        Self { memory: Arc::clone(&tracked.memory), tracked, log, loads }
    }

    /// Copies grains of a bitmap word to the log and clears their bits there. The caller excludes
    /// their writers. Returns the bits done; the rest met the refusal.
    pub fn append_bits(
        &self,
        appender: &mut Appender,
        parity: u64,
        word: usize,
        bits: u64,
    ) -> (u64, Option<Refusal>) {
        self.append_bits_of((&self.memory.map).into(), appender, parity, word, bits)
    }

    /// As [`Backed::append_bits`], with bytes from elsewhere.
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
                            // Its writers are excluded, and the word lies in one lane's block.
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

    /// The log's sizes that decide about its space.
    pub fn space(&self) -> Space {
        space_of(&self.memory.ledger, &self.log.appender.lock())
    }

    /// Holds the budget to what a drain into the spare segments could take.
    pub fn note_space(&self, appender: &Appender) {
        let spare = appender.spare_segments();
        let space = space_of(&self.memory.ledger, appender);
        self.memory.budget.limit_by_space(space.limit_bytes(spare));
    }

    /// Has a block's bytes in memory when it returns.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn load_block(&self, block: u64) -> Result<(), Unreadable> {
        self.loads.load_block(self.place(), block)
    }

    /// Where loads go.
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
            // Not a mistake of this program: no message, no backtrace.
            std::panic::resume_unwind(Box::new(unreadable));
        }
    }
}
