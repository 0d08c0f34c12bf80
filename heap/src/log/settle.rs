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
