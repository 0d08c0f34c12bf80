//! Settling: seeing to it that no recovery puts the groups so far in place again.
//!
//! What transactions changed is written back, of all logs, and then one word of the superblock says
//! below which sequence all groups are over. It is one word for all logs because one log's older
//! group must not come over another's newer one: no chunk is used again, and nothing is stored past
//! the logs, before the groups it concerns are below that word.

use std::sync::atomic::Ordering::*;

use crate::config::Planted;
use crate::core::Core;
use crate::layout::{AT_SETTLED, sealed};
use crate::log::logger::{Logger, LoggerState};
use crate::sys::{LINE_BYTES, Visit};

/// Settles all groups that have committed. The caller uses none of its own logs at the time.
pub(crate) fn settle(core: &Core) {
    if core.logs.settled.load(Acquire) >= core.logs.clock.load(SeqCst) {
        return;
    }
    let _alone = core.logs.settling();
    let clock = core.logs.clock.load(SeqCst);
    let mut until = clock;
    let mut homes = Vec::new();
    for logger in core.logs.all() {
        // Said before a sequence is drawn: all others' groups are later.
        if logger.oldest.load(Acquire) < clock {
            // Its owner waits only for this, not until all is written back.
            until = until.min(take_homes(&logger, &mut logger.visit(), &mut homes));
        }
    }
    finish(core, homes, until);
}

/// Settles what can be without taking anything from other threads: the groups before the oldest
/// that any log has left to write back. The caller uses none of its own logs at the time.
pub(crate) fn advance(core: &Core) {
    // Who settles does more; and what is taken from a log to be written back is not in its `oldest`
    // any more.
    let Some(_alone) = core.logs.try_settling() else { return };
    let clock = core.logs.clock.load(SeqCst);
    // What a log had not said by now is later than the clock.
    let oldest = core.logs.all_held().iter().map(|logger| logger.oldest.load(Acquire)).min();
    say_settled(core, clock.min(oldest.unwrap_or(clock)));
}

/// As [`settle`], by who holds all loggers and [`super::Logs::settling`]. Frees that were not
/// durable are then.
pub(crate) fn settle_held(core: &Core, all: &mut [(&Logger, Visit<'_, LoggerState>)]) {
    let mut until = core.logs.clock.load(SeqCst);
    let mut homes = Vec::new();
    for (logger, state) in all {
        state.write_unfenced_back(core);
        until = until.min(take_homes(logger, state, &mut homes));
    }
    finish(core, homes, until);
}

/// Takes the home ranges of a log's groups; returns below which sequence these are over once the
/// homes are durable.
fn take_homes(logger: &Logger, state: &mut LoggerState, homes: &mut Vec<(u64, u32)>) -> u64 {
    homes.append(&mut state.homes);
    if state.undoing().is_none() {
        logger.oldest.store(u64::MAX, Release);
    }
    state.undoing().unwrap_or(u64::MAX)
}

/// Makes home ranges durable, and forgets them. Lines in another processor's cache cost many times
/// as much as one's own, so owners do it themselves now and then, and leave little to who settles.
pub(crate) fn write_back(core: &Core, homes: &mut Vec<(u64, u32)>) {
    const RECENT: usize = 256;
    // A line that was written back just now would be waited for. Most that come again are found
    // here; it is a hint.
    let mut recent = [u64::MAX; RECENT];
    let mut lines = 0;
    for (offset, len) in homes.drain(..) {
        for line in offset / LINE_BYTES..(offset + u64::from(len)).div_ceil(LINE_BYTES) {
            let seen = &mut recent[line as usize % RECENT];
            if *seen != line && core.config.planted != Planted::SettleUnflushed {
                core.memory.flush(line * LINE_BYTES, LINE_BYTES);
                (*seen, lines) = (line, lines + 1);
            }
        }
    }
    core.memory.fence();
    core.logs.settled_lines.fetch_add(lines, Relaxed);
}

/// Writes the homes back and says that all groups below a sequence are over.
fn finish(core: &Core, mut homes: Vec<(u64, u32)>, until: u64) {
    write_back(core, &mut homes);
    say_settled(core, until);
}

/// By who holds [`super::Logs::settling`]; the homes of the groups below `until` are durable.
fn say_settled(core: &Core, until: u64) {
    if until > core.logs.settled.load(Acquire) {
        core.memory.persist_word(AT_SETTLED, sealed(until));
        core.logs.settled.store(until, Release);
        core.logs.settled_lines.fetch_add(1, Relaxed);
    }
}
