//! One pass over a dirty bitmap, which copies selected grains to frames while their writers are
//! excluded.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::*;

use perdura_image::{Appender, Backed, Refusal};

use perdura_dirty::geometry::{BLOCK_BYTES, WORD_GRAINS};
use perdura_dirty::planted::Planted;
use perdura_dirty::schedule::point;
use perdura_dirty::{LaneId, LaneState, WaitedGuard};

/// Words that are copied under one hold of a lane. This bounds how long a writer waits for the
/// cleaner.
const WORDS_PER_HOLD: usize = 16;
/// Dirty words whose memory is prefetched before they are copied.
const WORDS_AHEAD: usize = 8;
/// Words whose heat is prefetched before they are looked at.
const HEAT_AHEAD: usize = 16;

/// One pass over a bitmap, which copies the grains that `select` picks while their writers are
/// excluded.
pub(crate) struct Sweep<'c> {
    backed: &'c Backed,
    parity: u64,
    want_bytes: u64,
    pub copied_bytes: u64,
    pub next: usize,
    /// Whether grains of a lane that is held are skipped.
    pub may_skip: bool,
    held: Option<(LaneId, WaitedGuard<'c, LaneState>, usize)>,
    /// Locked for as long as a lane is held; in trap mode, for one word at a time.
    appender: Option<WaitedGuard<'c, Appender>>,
}

impl<'c> Sweep<'c> {
    /// A pass that ends after about `want_bytes`.
    pub(crate) fn new(backed: &'c Backed, parity: u64, want_bytes: u64) -> Self {
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

    /// Sweeps words `from..to`. Afterwards `next` is the word to go on from.
    pub(crate) fn run(
        &mut self,
        from: usize,
        to: usize,
        select: impl Fn(usize, u64) -> u64,
    ) -> Option<Refusal> {
        let backed = self.backed;
        let (mut refusal, mut go_on) = (None, true);
        self.next = to;
        // Words are copied a few words after their memory was prefetched. Dirty records lie
        // scattered, and neither their bytes nor their locations are in a cache: waiting for them
        // one by one was most of the cost of a cleaned record.
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

    /// Copies the selected grains of a word. Returns whether to go on, and why not.
    fn take(&mut self, word: usize, select: impl Fn(usize, u64) -> u64) -> (bool, Option<Refusal>) {
        let (backed, parity) = (self.backed, self.parity);
        if !self.exclude(word) {
            return (true, None);
        }
        let dirty = backed.memory.ledger.dirty_word(parity, word).load(Acquire);
        let mut victims = select(word, dirty);
        if let Some(tracker) = backed.tracked.pages() {
            let closed = tracker.close(word, victims);
            // Grains of the closing epoch are closed already, and no fault locks them.
            assert!(
                parity == backed.memory.parity() || closed == victims,
                "an owed page is locked"
            );
            victims = closed;
        }
        if victims == 0 {
            return (true, None);
        }
        if backed.memory.planted.is(Planted::ReleaseBeforeCopy) {
            (self.appender, self.held) = (None, None);
        }
        point();
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
            tracker.release(word, victims, !done);
            if backed.memory.planted.is(Planted::ClearAfterRelease) {
                backed.memory.ledger.dirty_word(parity, word).fetch_and(!done, AcqRel);
            }
        }
        if backed.memory.hints.recency && parity == backed.memory.parity() {
            backed.memory.hints.heat.cleaned(word, done);
        }
        self.copied_bytes +=
            u64::from(done.count_ones()) << backed.memory.ledger.geometry().grain_shift;
        let go_on = refusal.is_none() && self.copied_bytes < self.want_bytes;
        if !go_on {
            // After a refusal, the pass goes on with the same word.
            self.next = if refusal.is_some() { word } else { word + 1 };
        }
        (go_on, refusal)
    }

    /// Locks the lane of the word's block, and keeps it locked for a bounded number of words.
    /// Returns false if the lane is held and the pass may skip: the lane's owner may have been
    /// preempted, by this very thread where processors are few.
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
                // Released before the next lane is locked: a pass never holds two.
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
