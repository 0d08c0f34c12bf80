//! Simulates a benchmark on a medium by its model: the thread whose instant is earliest takes its
//! turn.
//!
//! The medium takes requests in the order of arrival: so a later request of an access, such as
//! writing lines that had to be fetched first, is a turn of its own. The medium says how long an
//! access takes, its lines overlapping as in the profile (`perdura_media::Model`); `waits` says how
//! much of that the thread waits for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use perdura_media::{Access, Model, System};

use super::part::{Part, Wanted};
use super::waits::{self, Waited, Written};

/// Profile of the DRAM beside a medium whose own profile has none.
const BESIDE: &str = "dram";

/// A thread's turn at an instant; the earliest comes first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    at_ps: u64,
    part: usize,
    thread: usize,
    what: What,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The thread may begin its next access.
    Next,
    /// Lines go back to the medium.
    Write(WriteBack),
}

/// Lines that go back to a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct WriteBack {
    is_dram: bool,
    place: u64,
    bytes: u64,
    is_waited_for: bool,
    is_last: bool,
}

/// A thread's step after its turn.
enum Step {
    /// The next access, at this instant.
    Next(u64),
    /// A write for which the thread waits, at this instant.
    Write(u64, WriteBack),
    /// The next access at the first instant, and a write at the second.
    Beside(u64, u64, WriteBack),
}

/// The medium, and DRAM beside it.
struct Media {
    medium: Model,
    dram: Model,
}

impl Media {
    fn of(&self, is_dram: bool) -> &Model {
        if is_dram { &self.dram } else { &self.medium }
    }
}

/// Runs parts to their ends; returns the energy of the medium, and of DRAM beside it, joules.
///
/// # Panics
/// If the built-in profile of DRAM is missing.
pub(super) fn run(system: &System, parts: &mut [Part<'_>]) -> f64 {
    let memory_bytes = parts.iter().map(|part| part.config().memory_range).sum::<u64>();
    let dram_bytes = parts.iter().map(|part| part.config().dram_memory_range).sum::<u64>();
    let Ok(beside) = System::find(BESIDE) else { unreachable!("a profile that is built in") };
    let model = |system: &System, bytes: u64| Model::new(system, system.capacity().0.max(bytes));
    let media = Media { medium: model(system, memory_bytes), dram: model(&beside, dram_bytes) };
    let mut turns: BinaryHeap<Reverse<Turn>> = BinaryHeap::new();
    for (part, own) in parts.iter().enumerate() {
        let turn = |thread| Reverse(Turn { at_ps: 0, part, thread, what: What::Next });
        turns.extend((0..own.threads()).map(turn));
    }
    // When one part is cut short, all end: figures of the others alone would not be those of
    // running together.
    let mut end_ps = u64::MAX;
    while let Some(Reverse(turn)) = turns.pop() {
        let Turn { at_ps, part, thread, what } = turn;
        let own = &mut parts[part];
        let mut then = |at_ps, what| turns.push(Reverse(Turn { at_ps, part, thread, what }));
        match what {
            What::Next => match begin(own, thread, at_ps, end_ps, &media) {
                Some(Step::Next(next_ps)) => then(next_ps, What::Next),
                Some(Step::Write(at_ps, write)) => then(at_ps, What::Write(write)),
                Some(Step::Beside(next_ps, at_ps, write)) => {
                    then(next_ps, What::Next);
                    then(at_ps, What::Write(write));
                }
                None if own.is_cut() => end_ps = end_ps.min(at_ps),
                None => {}
            },
            What::Write(write) => {
                let medium = media.of(write.is_dram);
                let done_ps = medium.book(at_ps, Access::Write, write.place, write.bytes);
                if write.is_waited_for {
                    then(done(own, thread, write.is_last, done_ps, done_ps), What::Next);
                }
            }
        }
    }
    let joules_beside = if dram_bytes > 0 { media.dram.energy(0).execution.0 } else { 0.0 };
    media.medium.energy(0).execution.0 + joules_beside
}

/// Begins a thread's next access. None: none is left, or the time is up.
fn begin(
    part: &mut Part<'_>,
    thread: usize,
    now_ps: u64,
    end_ps: u64,
    media: &Media,
) -> Option<Step> {
    let is_chain = part.config().custom_operations.is_some();
    let wanted = part.take(thread, now_ps, end_ps)?;
    let Wanted { is_dram, is_read, place, bytes, persist, is_cached, is_last, .. } = wanted;
    let medium = media.of(is_dram);
    let write_back = |is_waited_for| WriteBack { is_dram, place, bytes, is_waited_for, is_last };
    Some(match is_read {
        true => {
            let Waited { done_ps, next_ps } = waits::read(medium, now_ps, place, bytes);
            // The next place of a chain depends on what is read.
            let next_ps = if is_chain { done_ps } else { next_ps };
            Step::Next(done(part, thread, is_last, done_ps, next_ps))
        }
        false => match waits::write(medium, now_ps, place, bytes, persist, is_cached) {
            Written::Waited(Waited { done_ps, next_ps }) => {
                Step::Next(done(part, thread, is_last, done_ps, next_ps))
            }
            Written::Fetched(at_ps) => Step::Write(at_ps, write_back(true)),
            Written::Beside(Waited { done_ps, next_ps }, at_ps) => Step::Beside(
                done(part, thread, is_last, done_ps, next_ps),
                at_ps,
                write_back(false),
            ),
        },
    })
}

/// Ends a thread's access; returns when its next one may begin.
fn done(part: &mut Part<'_>, thread: usize, is_last: bool, done_ps: u64, next_ps: u64) -> u64 {
    if !is_last {
        return next_ps;
    }
    part.ended(thread, part.began_ps(thread), done_ps);
    next_ps.max(part.due_ps(thread))
}
