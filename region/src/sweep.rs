//! One pass over a dirty bitmap: what is selected of it is copied to frames while its writers are
//! excluded.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::*;

use perdura_image::{Appender, Backed, Refusal};

use parking_lot::MutexGuard;

use perdura_dirty::geometry::{BLOCK_BYTES, WORD_GRAINS};
use perdura_dirty::{LaneId, LaneState};

/// Words copied under one hold of a lane: bounds how long a writer may wait for the cleaner.
const WORDS_PER_HOLD: usize = 16;
/// Dirty words whose memory is asked for before they are copied.
const WORDS_AHEAD: usize = 8;
/// Words whose heat is asked for before they are looked at.
const HEAT_AHEAD: usize = 16;

/// One pass over a bitmap, copying what `select` picks while its writers are excluded.
pub(crate) struct Sweep<'c> {
    backed: &'c Backed,
    parity: u64,
    want_bytes: u64,
    pub copied_bytes: u64,
    pub next: usize,
    /// What is in somebody's hands is left for another time.
    pub may_skip: bool,
    held: Option<(LaneId, MutexGuard<'c, LaneState>, usize)>,
    /// Held as long as a lane is (trap mode: no longer than for a word).
    appender: Option<MutexGuard<'c, Appender>>,
}

impl<'c> Sweep<'c> {
    /// Of at most `want_bytes`, about.
    pub fn new(backed: &'c Backed, parity: u64, want_bytes: u64) -> Self {
        let (held, appender) = (None, None);
        Self {
            backed,
            parity,
            want_bytes,
            copied_bytes: 0,
            next: 0,
            may_skip: false,
            held,
            appender,
        }
    }

    /// Sweeps words `from..to`; afterwards `next` is where to go on.
    pub fn run(
        &mut self,
        from: usize,
        to: usize,
        select: impl Fn(usize, u64) -> u64,
    ) -> Option<Refusal> {
        let backed = self.backed;
        let (mut refusal, mut go_on) = (None, true);
        self.next = to;
        // A few words behind what was asked for: dirty records lie scattered, and their bytes and
        // locations are in no cache. Waiting for them one by one was most of what a cleaned record
        // cost.
        let mut coming = VecDeque::with_capacity(WORDS_AHEAD);
        backed.tracked.for_dirty_words(self.parity, from, to, |word, dirty| {
            backed.memory.hints.heat.prefetch(word + HEAT_AHEAD);
            let victims = select(word, dirty);
            if victims == 0 {
                return true;
            }
            backed.memory.prefetch_grains(word, victims);
            coming.push_back(word);
            if coming.len() == WORDS_AHEAD
                && let Some(word) = coming.pop_front()
            {
                (go_on, refusal) = self.take(word, &select);
            }
            go_on
        });
        while go_on && let Some(word) = coming.pop_front() {
            (go_on, refusal) = self.take(word, &select);
        }
        (self.appender, self.held) = (None, None);
        refusal
    }

    /// Copies what is selected of a word. Returns whether to go on, and why not.
    fn take(&mut self, word: usize, select: impl Fn(usize, u64) -> u64) -> (bool, Option<Refusal>) {
        let (backed, parity) = (self.backed, self.parity);
        if !self.exclude(word) {
            return (true, None);
        }
        let dirty = backed.memory.ledger.dirty_word(parity, word).load(Acquire);
        let mut victims = select(word, dirty);
        if let Some(tracker) = backed.tracked.pages() {
            let closed = tracker.close(word, victims);
            // What is owed is closed already, and no fault locks it.
            assert!(
                parity == backed.memory.parity() || closed == victims,
                "an owed page is locked"
            );
            victims = closed;
        }
        if victims == 0 {
            return (true, None);
        }
        if backed.log.appender.is_waited_for() && self.appender.take().is_some() {
            backed.log.appender.give_way();
        }
        let appender = self.appender.get_or_insert_with(|| backed.log.appender.lock());
        let bytes = (victims.count_ones() as usize) << backed.memory.ledger.geometry().grain_shift;
        let is_barrier = !backed.tracked.is_trapped();
        let (done, refusal) = match is_barrier && appender.leaves_to_captures(bytes) {
            true => (0, Some(Refusal::NoBuffer)),
            false => backed.append_bits(appender, parity, word, victims),
        };
        if let Some(tracker) = backed.tracked.pages() {
            self.appender = None;
            tracker.release(word, victims, victims & !done);
        }
        if backed.memory.hints.recency && parity == backed.memory.parity() {
            backed.memory.hints.heat.cleaned(word, done);
        }
        self.copied_bytes +=
            u64::from(done.count_ones()) << backed.memory.ledger.geometry().grain_shift;
        let go_on = refusal.is_none() && self.copied_bytes < self.want_bytes;
        if !go_on {
            // After a refusal the same word is taken up again.
            self.next = if refusal.is_some() { word } else { word + 1 };
        }
        (go_on, refusal)
    }

    /// Holds the lane of the word's block; several words under one hold, but not too many. False:
    /// it is held, and not waited for. Its holder may have been preempted, by this very thread
    /// where processors are few.
    fn exclude(&mut self, word: usize) -> bool {
        if self.backed.tracked.is_trapped() {
            return true;
        }
        let lanes = &self.backed.tracked.lanes;
        let offset = word as u64 * self.backed.memory.ledger.geometry().word_bytes();
        match &mut self.held {
            Some((held, _, words))
                if *held == lanes.of(offset)
                    && *words < WORDS_PER_HOLD
                    && !lanes.lock(*held).is_waited_for() =>
            {
                *words += 1;
            }
            held => {
                // Released first: never two lanes at once.
                self.appender = None;
                if let Some((lane, guard, _)) = held.take() {
                    drop(guard);
                    lanes.lock(lane).give_way();
                }
                let locked = match self.may_skip {
                    true => lanes.try_lock_owner_of(offset),
                    false => Some(lanes.lock_owner_of(offset)),
                };
                let Some((lane, guard)) = locked else { return false };
                self.held = Some((lane, guard, 1));
            }
        }
        true
    }
}
const _: () = assert!(BLOCK_BYTES == WORD_GRAINS * 64 * WORDS_PER_HOLD as u64);
