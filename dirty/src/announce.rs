//! Writing in barrier mode: a writer holds the lane of the bytes and announces them before it
//! changes them.
//!
//! The order is budget, then the ledger's bit, then the byte: the process may be killed at any
//! instruction, and a power cut may follow. A grain that the closing epoch still has to write is
//! captured (copied into a frame buffer) before it changes.

mod overwrite;

pub use overwrite::Undo;

use std::any::Any;
use std::convert::Infallible;
use std::sync::atomic::Ordering::*;
use std::sync::atomic::fence;

use crate::backing::{Backing, Need};
use crate::budget::Tell;
use crate::extent::{for_words, mask};
use crate::geometry::{BLOCK_BYTES, WORD_GRAINS};
use crate::heat::Heat;
use crate::hints::unit_shift;
use crate::kind::Kind;
use crate::lane_memory::LaneMemory;
use crate::lanes::{LaneId, LaneState};
use crate::planted::Planted;
use crate::schedule::point;
use crate::sys::prefetch_to_store;
use crate::tracked::{CREDIT_CHUNK_BYTES, Tracked};
use crate::waited::WaitedGuard;

/// Most bytes of a range whose cache lines are requested: a record of a kilobyte with its key and
/// header. The processor prefetches the rest of a longer record by itself.
const FILLED_AHEAD_BYTES: u64 = 20 * 64;

/// A held lane: the right to change its blocks.
pub struct LaneGuard<'r> {
    tracked: &'r Tracked,
    backing: &'r dyn Backing,
    lane: LaneId,
    state: WaitedGuard<'r, LaneState>,
    /// Parity of the current epoch. It cannot change while a lane is held, because a cut holds all
    /// lanes.
    parity: u64,
    closing: bool,
    /// The lane was locked after the final flush had begun: it is good for reading only.
    is_closed: bool,
    /// The lane was locked while writers wait: it is good for reading only.
    is_held: bool,
    /// Bytes that became dirty; added to the lane's counter when it is released.
    dirtied_bytes: u64,
    dropped_bytes: u64,
    /// Wakes those who wait for budget, because budget was taken under this hold: once the lane is
    /// free they may clean what became dirty, or take back what is left. Dropped after `state`.
    tell: Tell<'r>,
}

impl<'r> LaneGuard<'r> {
    /// Locks a lane. `backing` is asked only for blocks that are not loaded and for grains that a
    /// closing epoch owes.
    // A guard is large: it is made where it is kept, and not moved there.
    #[inline]
    pub fn new(tracked: &'r Tracked, backing: &'r dyn Backing, lane: LaneId) -> Self {
        let state = tracked.lanes.lock(lane).lock();
        let parity = tracked.memory.parity();
        let closing = tracked.memory.ledger.closing().load(Acquire) != 0;
        // The final flush takes every lane, so it flushes whatever was done under a lane locked
        // before.
        let is_closed = tracked.memory.budget.is_closed();
        let is_held = tracked.memory.budget.is_held();
        let (dirtied_bytes, dropped_bytes) = (0, 0);
        Self {
            tracked,
            backing,
            lane,
            state,
            parity,
            closing,
            is_closed,
            is_held,
            dirtied_bytes,
            dropped_bytes,
            tell: Tell::default(),
        }
    }

    #[inline(always)]
    fn memory(&self) -> LaneMemory<'_> {
        LaneMemory { tracked: self.tracked, backing: self.backing, lane: self.lane }
    }

    /// The lane that is held.
    pub fn lane(&self) -> LaneId {
        self.lane
    }

    /// Adds budget bytes that were obtained by `Region::satisfy` or [`LaneGuard::withdraw`].
    pub fn deposit(&mut self, bytes: u64) {
        if bytes > 0 {
            self.state.credit_bytes += bytes;
            self.tell.lane_waiters(&self.tracked.memory.budget);
        }
    }

    /// Takes the lane's unspent budget bytes out, to be deposited in another held lane. An
    /// operation over several lanes pays from one sum this way.
    #[must_use = "bytes that are not deposited again are lost to the budget"]
    pub fn withdraw(&mut self) -> u64 {
        std::mem::take(&mut self.state.credit_bytes)
    }

    /// The lane user's volatile state, put there by [`LaneGuard::set_user`].
    pub fn user<T: 'static>(&mut self) -> Option<&mut T> {
        self.state.user.as_mut()?.downcast_mut()
    }

    /// Replaces the lane user's volatile state.
    pub fn set_user<T: Send + 'static>(&mut self, user: T) {
        self.state.user = Some(Box::new(user));
    }

    /// Takes the user's state out while the lane is held, so that it can be changed beside the
    /// lane's memory; [`LaneGuard::restore_user`] puts it back before the lane is released.
    pub fn take_user(&mut self) -> Option<Box<dyn Any + Send>> {
        self.state.user.take()
    }

    /// Puts back the state that [`LaneGuard::take_user`] took.
    #[inline]
    pub fn restore_user(&mut self, user: Box<dyn Any + Send>) {
        self.state.user = Some(user);
    }

    /// The lane user's state, and at the same time the right to read the lane's memory.
    pub fn split<T: 'static>(&mut self) -> (Option<&mut T>, LaneMemory<'_>) {
        let user = self.state.user.as_mut().and_then(|user| user.downcast_mut());
        let memory = LaneMemory { tracked: self.tracked, backing: self.backing, lane: self.lane };
        (user, memory)
    }

    /// Gives an unused block to this lane.
    pub fn adopt_block(&mut self, block: u64) {
        self.tracked.hand_out(block, self.lane);
    }

    /// Reads bytes of the region, which must belong to this lane.
    #[inline]
    pub fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        self.own(offset, len as u64);
        // SAFETY: the range belongs to this lane, which nobody changes while `self` is borrowed.
        unsafe { self.tracked.memory.map.bytes(offset, len) }
    }

    /// Reads the 8-byte word at `offset`, which is a multiple of 8.
    #[inline(always)]
    pub fn load(&self, offset: u64) -> u64 {
        // An aligned word lies in one block.
        if !self.tracked.lanes.is_ready(offset, self.lane) {
            self.own_slowly(offset, 8);
        }
        self.tracked.memory.map.words(offset, 1)[0].load(Acquire)
    }

    /// Notes for the next start that the data at `offset` were read. Writes are noted by
    /// [`LaneGuard::announced_mut`].
    #[inline]
    pub fn note_access(&self, offset: u64) {
        let number = self.tracked.lanes.count_access(self.lane);
        self.tracked.memory.block_heat.note(offset, number);
    }

    /// Announces and changes the 8-byte word at `offset`, a multiple of 8, in one store: after a
    /// kill the change is whole or absent.
    #[inline]
    pub fn store(&mut self, offset: u64, value: u64) -> Result<(), Need> {
        self.announce(offset, 8)?;
        self.tracked.memory.map.words(offset, 1)[0].store(value, Release);
        Ok(())
    }

    /// Changes an 8-byte word as [`LaneGuard::store`] does. The word was announced under this same
    /// hold, so the store cannot fail.
    pub fn store_announced(&mut self, offset: u64, value: u64) {
        let is_trapped = self.tracked.is_trapped();
        let is_free = is_trapped || self.is_dirty(offset, 8) || self.is_capacity(offset);
        assert!(is_free, "the word at {offset} is not announced");
        self.own(offset, 8);
        self.tracked.memory.map.words(offset, 1)[0].store(value, Release);
    }

    /// Announces bytes and changes them in place. A kill may leave a mixture of old and new bytes,
    /// so an undo log must cover data that are reachable.
    #[inline]
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Need> {
        if self.tracked.memory.planted.is(Planted::BytesBeforeBits) {
            self.own(offset, bytes.len() as u64);
            // SAFETY: as in `announced_mut`.
            unsafe { self.tracked.memory.map.bytes_mut(offset, bytes.len()) }
                .copy_from_slice(bytes);
            point();
        }
        self.announced_mut(offset, bytes.len(), None)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Announces a range and returns it to be filled. `heat` is [`LaneGuard::heat_of_successor`] of
    /// the data that the new ones replace; with `None` they replace the bytes at the same place.
    pub fn announced_mut(
        &mut self,
        offset: u64,
        len: usize,
        heat: Option<Heat>,
    ) -> Result<&mut [u8], Need> {
        self.announce_as(offset, len as u64, heat)?;
        self.note_access(offset);
        // SAFETY: the range belongs to this lane (asserted by `announce_as`), whose lock we hold
        // exclusively (`&mut self`); the cleaner only reads it, under the same lock.
        Ok(unsafe { self.tracked.memory.map.bytes_mut(offset, len) })
    }

    /// Announces `len` bytes at `offset`: enters them in the ledger, so that they may be changed
    /// while this lane is held.
    ///
    /// # Errors
    /// The budget or the frame buffers are used up. The caller releases every lane, passes the need
    /// to `Region::satisfy`, and tries again. Nothing is lost; some of the range may be entered
    /// already. While writers are held nothing can be announced, and `Region::satisfy` waits. After
    /// the final flush has begun nothing can be announced, and `Region::satisfy` refuses with
    /// `RegionError::Closed`.
    #[inline]
    pub fn announce(&mut self, offset: u64, len: u64) -> Result<(), Need> {
        self.announce_as(offset, len, None).map(drop)
    }

    /// Announces a range as [`LaneGuard::announce`] does. Returns false if it has capacity memory,
    /// of which nothing is entered.
    fn announce_as(&mut self, offset: u64, len: u64, heat: Option<Heat>) -> Result<bool, Need> {
        if len == 0 {
            return Ok(true);
        }
        self.own(offset, len);
        if self.tracked.is_trapped() {
            // In trap mode the store itself announces: it traps.
            return Ok(true);
        }
        if self.is_closed || self.is_held {
            return Err(Need::Room { bytes: len });
        }
        let shift = self.tracked.memory.ledger.geometry().grain_shift;
        let (first, last) = (offset >> shift, (offset + len - 1) >> shift);
        // Nearly always one word of the bitmap has all of the grains.
        let is_entered = if first / WORD_GRAINS == last / WORD_GRAINS {
            let grains = mask(first % WORD_GRAINS, last - first + 1);
            self.open_word((first / WORD_GRAINS) as usize, grains, heat)?
        } else {
            self.open_words(first, last, heat)?
        };
        // The ledger's bits are visible to any process before the bytes they cover change.
        fence(Release);
        point();
        Ok(is_entered)
    }

    #[inline(never)]
    fn open_words(&mut self, first: u64, last: u64, heat: Option<Heat>) -> Result<bool, Need> {
        let mut is_entered = true;
        for_words(first, last + 1, |word, mask| {
            is_entered &= self.open_word(word, mask, heat)?;
            Ok(())
        })?;
        Ok(is_entered)
    }

    #[inline(always)]
    fn open_word(&mut self, word: usize, mask: u64, heat: Option<Heat>) -> Result<bool, Need> {
        let memory = &*self.tracked.memory;
        if self.closing {
            self.capture_owed(word, mask)?;
        }
        let dirty = memory.ledger.dirty_word(self.parity, word).load(Relaxed);
        let new = mask & !dirty;
        if new != 0 && !self.enter(word, dirty, new)? {
            return Ok(false);
        }
        if memory.hints.recency {
            memory.hints.heat.written(word, mask, dirty, heat);
        }
        if memory.hints.has_marks() && (memory.hints.recency || new != 0) {
            self.mark_units(word, mask, dirty);
        }
        Ok(true)
    }

    /// Copies the grains that the closing epoch still has to write, before they change.
    #[cold]
    fn capture_owed(&self, word: usize, mask: u64) -> Result<(), Need> {
        let ledger = &self.tracked.memory.ledger;
        match ledger.dirty_word(self.parity ^ 1, word).load(Relaxed) & mask {
            0 => Ok(()),
            owed => self.backing.capture(self.parity ^ 1, word, owed),
        }
    }

    /// Enters clean grains as dirty, and pays for them. Returns false for capacity memory.
    #[inline(never)]
    fn enter(&mut self, word: usize, dirty: u64, new: u64) -> Result<bool, Need> {
        let memory = &*self.tracked.memory;
        if memory.ledger.is_capacity_word(word) {
            return Ok(false);
        }
        let cost_bytes = u64::from(new.count_ones()) << memory.ledger.geometry().grain_shift;
        if memory.planted.is(Planted::OpenBeforeAccounting) && word % 7 == 3 {
            return Ok(false);
        }
        self.spend(cost_bytes)?;
        memory.ledger.dirty_word(self.parity, word).store(dirty | new, Release);
        if dirty == 0 {
            memory.summary(self.parity).mark_held(word);
        }
        self.dirtied_bytes += cost_bytes;
        Ok(true)
    }

    fn spend(&mut self, cost_bytes: u64) -> Result<(), Need> {
        let state = &mut self.state;
        if state.credit_bytes < cost_bytes {
            let memory = &*self.tracked.memory;
            let short = cost_bytes - state.credit_bytes;
            let chunk = short.max(CREDIT_CHUNK_BYTES.min(self.tracked.credit_keep_bytes()));
            if memory.budget.try_take(&memory.ledger, chunk) {
                state.credit_bytes += chunk;
            } else if memory.budget.try_take(&memory.ledger, short) {
                state.credit_bytes += short;
            } else {
                return Err(Need::Room { bytes: cost_bytes.max(CREDIT_CHUNK_BYTES) });
            }
            self.tell.lane_waiters(&memory.budget);
        }
        state.credit_bytes -= cost_bytes;
        Ok(())
    }

    fn mark_units(&self, word: usize, written: u64, dirty: u64) {
        let shift = self.tracked.memory.ledger.geometry().grain_shift;
        let per_unit = 1u64 << (unit_shift(shift) - shift);
        let mut at = 0;
        while at < WORD_GRAINS {
            let bits = mask(at, per_unit);
            if written & bits != 0 {
                let unit = (word as u64 * WORD_GRAINS + at) / per_unit;
                self.tracked.memory.hints.mark_written(unit, dirty & bits != 0);
            }
            at += per_unit;
        }
    }

    /// Makes whole grains inside the range clean without writing them, because their contents no
    /// longer matter to the newest state. A cut taken earlier is not affected.
    pub fn drop_dirty(&mut self, offset: u64, len: u64) {
        // A block that is not loaded has no dirty grains, so it is not loaded here either.
        self.memory().own_blocks(offset, len);
        if self.tracked.is_trapped() || self.is_closed {
            // In trap mode the page is open, so the next store to it would not be entered again.
            // After a failed final flush, dirty grains must stay dirty.
            return;
        }
        let geometry = self.tracked.memory.ledger.geometry();
        // A grain at either end may be shared with other data, which must stay dirty.
        let mut first = offset.div_ceil(geometry.grain_bytes());
        let mut last = (offset + len) >> geometry.grain_shift;
        if self.tracked.memory.planted.is(Planted::DropNeighbours) {
            first = offset >> geometry.grain_shift;
            last = (offset + len).div_ceil(geometry.grain_bytes());
        }
        let mut bytes = 0;
        let Ok(()) = for_words(first, last, |word, mask| {
            let bits = self.tracked.memory.ledger.dirty_word(self.parity, word);
            let before = bits.load(Relaxed);
            let dropped = before & mask;
            if dropped != 0 {
                bits.store(before & !dropped, Release);
                bytes += u64::from(dropped.count_ones()) << geometry.grain_shift;
            }
            Ok::<(), Infallible>(())
        });
        self.state.credit_bytes += bytes;
        self.dropped_bytes += bytes;
    }

    /// Prefetches the ledger's words about the grain at `offset`: a hint before the grain is
    /// announced or dropped.
    #[inline]
    pub fn prefetch_entry(&self, offset: u64) {
        let word = (offset >> self.tracked.memory.ledger.geometry().grain_shift) / WORD_GRAINS;
        self.tracked.memory.prefetch_entry(self.parity, word as usize);
    }

    /// Prefetches a range that is about to be filled, and the ledger's words about it.
    #[inline]
    pub fn prefetch_filled(&self, offset: u64, len: u64) {
        self.prefetch_entry(offset);
        for line in (offset..offset + len.min(FILLED_AHEAD_BYTES)).step_by(64) {
            prefetch_to_store(self.tracked.memory.map.base().wrapping_add(line as usize));
        }
    }

    /// The heat of data that replace those at `offset` but are stored elsewhere: how likely they
    /// will soon be replaced again.
    pub fn heat_of_successor(&self, offset: u64) -> Heat {
        let grain = offset >> self.tracked.memory.ledger.geometry().grain_shift;
        let (word, bit) = ((grain / WORD_GRAINS) as usize, 1 << (grain % WORD_GRAINS));
        let dirty = self.tracked.memory.ledger.dirty_word(self.parity, word).load(Relaxed);
        self.tracked.memory.hints.heat.successor_of(word, bit, dirty & bit != 0)
    }

    /// Whether any grain of the range is dirty in the current epoch.
    pub fn is_dirty(&self, offset: u64, len: u64) -> bool {
        let shift = self.tracked.memory.ledger.geometry().grain_shift;
        let (first, last) = (offset >> shift, (offset + len.max(1) - 1) >> shift);
        let ledger = &self.tracked.memory.ledger;
        // `Err` ends the walk at the first dirty word.
        let walked = for_words(first, last + 1, |word, mask| {
            let dirty = ledger.dirty_word(self.parity, word).load(Relaxed) & mask;
            if dirty == 0 { Ok(()) } else { Err(()) }
        });
        walked.is_err()
    }

    fn is_capacity(&self, offset: u64) -> bool {
        self.tracked.memory.ledger.kind(offset / BLOCK_BYTES) == Kind::Capacity
    }

    #[inline]
    fn own(&self, offset: u64, len: u64) {
        if !self.tracked.lanes.is_range_ready(offset, len, self.lane) {
            self.own_slowly(offset, len);
        }
    }

    /// Asserts what [`LaneMemory::own`] does, where one look does not tell. To make a
    /// [`LaneMemory`] for each read took 3 % of the instructions of a SET.
    #[cold]
    #[inline(never)]
    fn own_slowly(&self, offset: u64, len: u64) {
        self.memory().own(offset, len);
    }
}

impl Drop for LaneGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.tracked.lanes.count_written(self.lane, self.dirtied_bytes, self.dropped_bytes);
        if self.state.credit_bytes == 0 {
            return;
        }
        if self.is_closed {
            // The final flush has closed the account, so there is nothing to give back to.
            self.state.credit_bytes = 0;
            return;
        }
        let surplus = self.state.credit_bytes.saturating_sub(self.tracked.credit_keep_bytes());
        self.state.credit_bytes -= surplus;
        self.tracked.memory.budget.give_back(&self.tracked.memory.ledger, surplus);
    }
}

#[cfg(test)]
mod tests;
