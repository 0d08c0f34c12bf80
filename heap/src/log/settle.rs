//! Settling: after it, no recovery puts the groups so far in place again.
//!
//! The lines that transactions have changed are written back, for all logs, and then one word of
//! the superblock says below which sequence all groups are over. There is one word for all logs,
//! because an older group of one log must not be put over a newer group of another. Until the
//! groups of a chunk are below that word, the chunk is not used again, and nothing is stored past
//! the logs in the groups' places.

use std::sync::atomic::Ordering::*;

use perdura_dirty::Held;

use crate::config::Planted;
use crate::core::Core;
use crate::layout::{AT_SETTLED, sealed};
use crate::log::logger::{Logger, LoggerState};
use crate::sys::{LINE_BYTES, Visit};

/// Settles all groups that have committed. The caller does not use its own log at the time.
pub(crate) fn settle(core: &Core) {
    if core.logs.settled.load(Acquire) >= core.logs.clock.load(SeqCst) {
        return;
    }
    let _alone = core.logs.settling();
    let clock = core.logs.clock.load(SeqCst);
    let mut until = clock;
    let mut homes = Vec::new();
    for logger in core.logs.all() {
        // A logger sets `oldest` before it draws a sequence, so the groups of all other loggers are
        // later.
        if logger.oldest.load(Acquire) < clock {
            // The log's owner waits only for this visit, not until everything is written back.
            until = until.min(take_homes(&logger, &mut logger.visit(), &mut homes));
        }
    }
    finish(core, homes, until);
}

/// Settles the groups that are older than the oldest with lines to be written back in any log,
/// without taking anything from other threads. The caller does not use its own log at the time.
pub(crate) fn advance(core: &Core) {
    // A thread that settles does more than this; and ranges that it has taken from a log, to write
    // them back, are not in that log's `oldest` any more.
    let Some(_alone) = core.logs.try_settling() else { return };
    let clock = core.logs.clock.load(SeqCst);
    // A group that its log has not noted in `oldest` by now is later than the clock.
    let oldest = core.logs.all_held().iter().map(|logger| logger.oldest.load(Acquire)).min();
    say_settled(core, clock.min(oldest.unwrap_or(clock)));
}

/// Settles all groups, for a caller that holds all loggers and [`super::logs::Logs::settling`].
/// Frees that were not durable are durable afterwards.
pub(crate) fn settle_held(core: &Core, all: &mut [(&Logger, Held<Visit<'_, LoggerState>>)]) {
    let mut until = core.logs.clock.load(SeqCst);
    let mut homes = Vec::new();
    for (logger, state) in all {
        state.write_unfenced_back(&core.memory);
        until = until.min(take_homes(logger, state, &mut homes));
    }
    finish(core, homes, until);
}

/// Takes the ranges that a log's groups have changed. Returns the sequence below which these groups
/// are over once the ranges are durable.
fn take_homes(logger: &Logger, state: &mut LoggerState, homes: &mut Vec<(u64, u32)>) -> u64 {
    homes.append(&mut state.homes);
    if state.undoing().is_none() {
        logger.oldest.store(u64::MAX, Release);
    }
    state.undoing().unwrap_or(u64::MAX)
}

/// Makes ranges durable, and forgets them. Lines in another processor's cache cost many times as
/// much as one's own, so owners call this now and then, and leave little to the thread that
/// settles.
pub(crate) fn write_back(core: &Core, homes: &mut Vec<(u64, u32)>) {
    const RECENT: usize = 256;
    // Writing back a line again would wait for the first time. Most lines that come again are found
    // here; finding them all is not needed.
    let mut recent = [u64::MAX; RECENT];
    let mut lines = 0;
    for (offset, len) in homes.drain(..) {
        for line in offset / LINE_BYTES..(offset + u64::from(len)).div_ceil(LINE_BYTES) {
            let seen = &mut recent[line as usize % RECENT];
            if *seen != line && !core.config.planted.is(Planted::SettleUnflushed) {
                core.memory.flush(line * LINE_BYTES, LINE_BYTES);
                (*seen, lines) = (line, lines + 1);
            }
        }
    }
    core.memory.fence();
    core.logs.settled_lines.fetch_add(lines, Relaxed);
}

/// Writes ranges back, and then notes that all groups below a sequence are over.
fn finish(core: &Core, mut homes: Vec<(u64, u32)>, until: u64) {
    write_back(core, &mut homes);
    say_settled(core, until);
}

/// Notes that all groups below `until` are over: their ranges are durable. The caller holds
/// [`super::logs::Logs::settling`].
fn say_settled(core: &Core, until: u64) {
    if until > core.logs.settled.load(Acquire) {
        core.memory.persist_word(AT_SETTLED, sealed(until));
        core.logs.settled.store(until, Release);
        core.logs.settled_lines.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Config;
    use crate::error::HeapError;
    use crate::heap::Heap;
    use crate::memory::{Durability, Memory};

    /// A heap with two loggers, at this time of its clock.
    fn world(clock: u64) -> Result<(Heap, [Arc<Logger>; 2]), HeapError> {
        let heap = Heap::open(Memory::anonymous(2 << 20, Durability::Flushed)?, Config::default())?;
        heap.core.logs.clock.store(clock, Release);
        let logger = || heap.core.logs.acquire().ok_or(HeapError::Busy);
        let loggers = [logger()?, logger()?];
        Ok((heap, loggers))
    }

    fn settled(core: &Core) -> u64 {
        let settled = core.logs.settled.load(Acquire);
        if settled > 0 {
            assert_eq!(core.memory.load(AT_SETTLED), sealed(settled));
        }
        settled
    }

    #[test]
    fn what_is_older_than_the_oldest_group_of_any_log_is_settled_and_stays_so()
    -> Result<(), HeapError> {
        let (heap, [one, other]) = world(100)?;
        for (oldest, expected) in [
            ((40, 30), 30),
            ((35, 60), 35),
            ((20, u64::MAX), 35),
            ((50, u64::MAX), 50),
            ((u64::MAX, 120), 100),
            ((99, u64::MAX), 100),
        ] {
            one.oldest.store(oldest.0, Release);
            other.oldest.store(oldest.1, Release);
            advance(&heap.core);
            assert_eq!(settled(&heap.core), expected, "{oldest:?}");
        }
        let alone = heap.core.logs.settling();
        heap.core.logs.clock.store(200, Release);
        advance(&heap.core);
        assert_eq!(settled(&heap.core), 100, "another thread settles");
        drop(alone);
        one.oldest.store(u64::MAX, Release);
        advance(&heap.core);
        assert_eq!(settled(&heap.core), 200);
        Ok(())
    }

    #[test]
    fn settling_takes_every_range_but_the_groups_of_an_open_undo_transaction_are_not_over()
    -> Result<(), HeapError> {
        for undoing in [None, Some(60)] {
            let (heap, [one, other]) = world(100)?;
            let at = heap.core.layout.first_span() * crate::engine::classes::SPAN_BYTES;
            one.oldest.store(50, Release);
            one.own().homes.extend([(at, 8), (at + 4096, 200)]);
            one.set_undoing(&mut one.own(), undoing);
            // This log has nothing older than the clock.
            other.own().homes.push((at, 8));
            settle(&heap.core);
            assert_eq!(settled(&heap.core), undoing.unwrap_or(100));
            assert!(one.own().homes.is_empty());
            assert_eq!(other.own().homes.len(), 1);
            let oldest = one.oldest.load(Acquire);
            assert_eq!(oldest, if undoing.is_some() { 50 } else { u64::MAX });
            one.set_undoing(&mut one.own(), None);
            settle(&heap.core);
            let lines = || heap.core.logs.settled_lines.load(Relaxed);
            let before = lines();
            settle(&heap.core);
            assert_eq!((settled(&heap.core), lines()), (100, before));
        }
        Ok(())
    }

    #[test]
    fn each_line_of_a_range_is_written_back_once() -> Result<(), HeapError> {
        let (heap, _) = world(1)?;
        let lines = || heap.core.logs.settled_lines.load(Relaxed);
        let at = heap.core.layout.first_span() * crate::engine::classes::SPAN_BYTES;
        let cases: [(&[(u64, u32)], u64); 6] = [
            (&[], 0),
            (&[(at, 1)], 1),
            (&[(at + 60, 4)], 1),
            (&[(at + 60, 5)], 2),
            (&[(at + 63, 130)], 4),
            (&[(at, 64), (at + 64, 64), (at + 8, 8), (at + 100, 30)], 3),
        ];
        for (homes, expected) in cases {
            let (before, mut homes) = (lines(), homes.to_vec());
            write_back(&heap.core, &mut homes);
            assert!(homes.is_empty());
            assert_eq!(lines() - before, expected);
        }
        Ok(())
    }
}
