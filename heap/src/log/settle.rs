//! Settling: seeing to it that no recovery puts the groups so far in place again.
//!
//! What transactions changed is written back, of all logs, and then one word of the superblock says below which sequence
//! all groups are over. It is one word for all logs because one log's older group must not come over another's newer
//! one: no chunk is used again, and nothing is stored past the logs, before the groups it concerns are below that word.

use std::sync::atomic::Ordering::*;

use crate::core::Core;
use crate::layout::{AT_SETTLED, sealed};
use crate::log::logger::{Logger, LoggerState};
use crate::sys::Visit;

/// Settles all groups that have committed. The caller uses none of its own logs at the time.
pub(crate) fn settle(core: &Core) {
    if core.logs.settled.load(Acquire) >= core.logs.clock.load(SeqCst) {
        return;
    }
    let _alone = core.logs.settling();
    let clock = core.logs.clock.load(SeqCst);
    let mut until = clock;
    for logger in core.logs.all() {
        // Said before a sequence is drawn: all others' groups are later.
        if logger.oldest.load(Acquire) < clock {
            until = until.min(write_back(core, &logger, &mut logger.visit()));
        }
    }
    core.memory.fence();
    note(core, until);
}

/// As [`settle`], by who holds all loggers and [`super::Logs::settling`]. Frees that were not durable are then.
pub(crate) fn settle_held(core: &Core, all: &mut [(&Logger, Visit<'_, LoggerState>)]) {
    let mut until = core.logs.clock.load(SeqCst);
    for (logger, state) in all {
        state.write_unfenced_back(core);
        until = until.min(write_back(core, logger, state));
    }
    core.memory.fence();
    note(core, until);
}

/// Writes a log's homes back; returns below which sequence its groups are over once that is durable.
fn write_back(core: &Core, logger: &Logger, state: &mut LoggerState) -> u64 {
    state.write_homes_back(core);
    if state.undoing.is_none() {
        logger.oldest.store(u64::MAX, Release);
    }
    state.undoing.unwrap_or(u64::MAX)
}

fn note(core: &Core, until: u64) {
    if until > core.logs.settled.load(Acquire) {
        core.memory.persist_word(AT_SETTLED, sealed(until));
        core.logs.settles.fetch_add(1, Relaxed);
        core.logs.settled.store(until, Release);
    }
}
