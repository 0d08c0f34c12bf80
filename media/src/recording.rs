//! A recording of a program's requests to a medium, with the computing time between them, and its
//! replay on a model.
//!
//! A recording is a list of [`Step`]s: a think time, then a request. A recording does not depend on
//! the speed of the medium on which it was made, so it can be replayed on any ([`replay`]).
//!
//! Invariants: a step in a file is complete, or is known not to be (its kind is written last). The
//! writer never waits, does not allocate after its creation, and stops at its bound, where it
//! counts the steps that it leaves out. The reader trusts nothing: each field is checked, and a
//! mistake is a typed error that names the step.
//!
//! A recording has no checksum: it is a measurement and no user's data, and it is written by
//! programs that may be killed.

mod format;
mod reader;
mod writer;

use std::io;
use std::path::PathBuf;

use crate::model::{Access, Model};

pub use format::{HEADER_BYTES, STEP_BYTES, STEPS_MAX, VERSION};
pub use reader::Recording;
pub use writer::Recorder;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush: all earlier writes become durable. The step has no bytes.
    Flush,
}

impl From<Access> for Kind {
    fn from(access: Access) -> Self {
        match access {
            Access::Read => Self::Read,
            Access::Write => Self::Write,
        }
    }
}

/// One request, and the computing time before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Time from the end of the request before (or the recording's start) to the beginning of this
    /// one.
    pub think_ps: u64,
    /// Kind of the request.
    pub kind: Kind,
    /// Offset from the medium's start; 0 for a flush.
    pub offset_bytes: u64,
    /// Length; 0 for a flush.
    pub len_bytes: u32,
}

/// Modelled results of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Time from the start of the first step's think time to the end of the last request.
    pub elapsed_ps: u64,
    /// The part of the time in which the program waited for the medium.
    pub medium_ps: u64,
    /// The part of the time in which the program computed.
    pub think_ps: u64,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of flushes.
    pub flushes: u64,
    /// Bytes of the reads.
    pub read_bytes: u64,
    /// Bytes of the writes.
    pub write_bytes: u64,
}

/// Runs the steps on a model, one after the other: each begins when its think time after the end of
/// the one before has passed. A recording of several threads is replayed as if one thread had made
/// its steps in their order (see [`Recording::threads_seen`]). The model must be at least as large
/// as [`Recording::medium_bytes`].
pub fn replay<'a>(steps: impl IntoIterator<Item = &'a Step>, model: &Model) -> Replayed {
    replay_by(steps, |now_ps, step| match step.kind {
        Kind::Read => model.book(now_ps, Access::Read, step.offset_bytes, step.len_bytes.into()),
        Kind::Write => model.book(now_ps, Access::Write, step.offset_bytes, step.len_bytes.into()),
        Kind::Flush => model.flush(now_ps),
    })
}

/// Replays steps. `done` returns the instant at which a request is done that begins at an instant.
fn replay_by<'a>(
    steps: impl IntoIterator<Item = &'a Step>,
    mut done: impl FnMut(u64, &Step) -> u64,
) -> Replayed {
    let mut replayed = Replayed::default();
    for step in steps {
        let begun_ps = replayed.elapsed_ps.saturating_add(step.think_ps);
        // No request ends before it begins.
        let done_ps = done(begun_ps, step).max(begun_ps);
        replayed.think_ps = replayed.think_ps.saturating_add(step.think_ps);
        replayed.medium_ps = replayed.medium_ps.saturating_add(done_ps - begun_ps);
        replayed.elapsed_ps = done_ps;
        match step.kind {
            Kind::Read => {
                replayed.reads += 1;
                replayed.read_bytes += u64::from(step.len_bytes);
            }
            Kind::Write => {
                replayed.writes += 1;
                replayed.write_bytes += u64::from(step.len_bytes);
            }
            Kind::Flush => replayed.flushes += 1,
        }
    }
    replayed
}

/// The mistakes in a recording, or why one cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The system refused an operation.
    #[error("{}: cannot {op} it: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The operation: `create`, `map`, `read`, …
        op: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The number of steps is not allowed.
    #[error("a recording of {steps_max} steps: it may have 1 to {STEPS_MAX}")]
    Bound {
        /// Steps that were asked for.
        steps_max: u64,
    },
    /// The file is not a recording.
    #[error("not a recording: it begins with {found:02x?}, not with PERDSTEP")]
    Magic {
        /// First bytes of the file.
        found: [u8; 8],
    },
    /// The recording has another version.
    #[error("a recording of version {found}; this build reads version {VERSION}")]
    Version {
        /// Version in the header.
        found: u32,
    },
    /// A field of the header has an impossible value.
    #[error("the recording's header: {field} is {found}")]
    Header {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        found: u64,
    },
    /// The file is too short.
    #[error("the recording ends after {found_bytes} bytes; its header promises {expected_bytes}")]
    Short {
        /// Bytes of the file.
        found_bytes: u64,
        /// Bytes that the header promises.
        expected_bytes: u64,
    },
    /// The kind of a step is unknown. Kind 0 means that the step was never written, though the
    /// recording was finished.
    #[error("step {index} is of kind {found}: 1 is a read, 2 a write, 3 a flush")]
    UnknownKind {
        /// Number of the step, from 0.
        index: u64,
        /// Kind in the file.
        found: u64,
    },
    /// A step ends beyond the recording's medium, or a flush has bytes.
    #[error(
        "step {index}: {len_bytes} bytes at offset {offset_bytes}, on a medium of {medium_bytes} \
         bytes"
    )]
    Range {
        /// Number of the step, from 0.
        index: u64,
        /// Offset of the step.
        offset_bytes: u64,
        /// Length of the step.
        len_bytes: u32,
        /// End of the medium, as the header has it.
        medium_bytes: u64,
    },
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Random steps of any kind on a medium of a mebibyte.
    pub(super) fn drawn(seed: u64, count: usize) -> Vec<Step> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut step = |_| {
            let kind = [Kind::Read, Kind::Write, Kind::Flush][random.random_range(0..3)];
            let len_bytes = if kind == Kind::Flush { 0 } else { random.random_range(1..70_000) };
            let offset_bytes = match kind {
                Kind::Flush => 0,
                _ => random.random_range(0..(1 << 20) - u64::from(len_bytes)),
            };
            Step { think_ps: random.random_range(0..5_000_000), kind, offset_bytes, len_bytes }
        };
        (0..count).map(&mut step).collect()
    }

    #[test]
    fn a_replay_adds_up_as_one_does_by_hand() {
        let step = |think_ps, kind, len_bytes| Step { think_ps, kind, offset_bytes: 0, len_bytes };
        let steps = [step(5, Kind::Read, 10), step(0, Kind::Write, 20), step(100, Kind::Flush, 0)];
        // The medium is busy for a picosecond a byte, and flushes in 7.
        let replayed = replay_by(&steps, |now_ps, step| match step.kind {
            Kind::Flush => now_ps + 7,
            _ => now_ps + u64::from(step.len_bytes),
        });
        let expected = Replayed {
            elapsed_ps: 5 + 10 + 20 + 100 + 7,
            medium_ps: 10 + 20 + 7,
            think_ps: 105,
            reads: 1,
            writes: 1,
            flushes: 1,
            read_bytes: 10,
            write_bytes: 20,
        };
        assert_eq!(replayed, expected);
    }

    #[test]
    fn a_replay_agrees_with_a_queue_simulated_event_by_event() {
        for seed in 1..=50 {
            let steps = drawn(seed, 300);
            // The medium is one server that is busy for half a microsecond after each request. The
            // oracle keeps a list of all events, and looks through all of them each time.
            let mut busy_until_ps = 0;
            let replayed = replay_by(&steps, |now_ps, step| {
                let done_ps = now_ps.max(busy_until_ps) + 1_000 + u64::from(step.len_bytes) * 10;
                busy_until_ps = done_ps + 500_000;
                done_ps
            });
            let mut events: Vec<(u64, u64)> = Vec::new();
            for step in &steps {
                let ready = events.last().map_or(0, |(_, end)| *end) + step.think_ps;
                let free = events.iter().map(|(_, end)| end + 500_000).max().unwrap_or(0);
                let begin = ready.max(free);
                events.push((ready, begin + 1_000 + u64::from(step.len_bytes) * 10));
            }
            let waited: u64 = events.iter().map(|(ready, end)| end - ready).sum();
            let thought: u64 = steps.iter().map(|step| step.think_ps).sum();
            assert_eq!(replayed.elapsed_ps, events.last().unwrap().1, "seed {seed}");
            assert_eq!(replayed.medium_ps, waited, "seed {seed}");
            assert_eq!(replayed.think_ps, thought, "seed {seed}");
            assert_eq!(replayed.elapsed_ps, waited + thought, "seed {seed}");
        }
    }

    #[test]
    fn a_replay_on_a_model_is_what_booking_by_hand_gives() {
        let system = crate::System::find("pcie-pcm").unwrap();
        let steps = drawn(7, 500);
        let by_hand = Model::new(&system, 1 << 20);
        let mut now_ps = 0;
        for step in &steps {
            now_ps += step.think_ps;
            let (offset_bytes, len_bytes) = (step.offset_bytes, step.len_bytes.into());
            now_ps = match step.kind {
                Kind::Read => by_hand.book(now_ps, Access::Read, offset_bytes, len_bytes),
                Kind::Write => by_hand.book(now_ps, Access::Write, offset_bytes, len_bytes),
                Kind::Flush => by_hand.flush(now_ps),
            };
        }
        let replayed = replay(&steps, &Model::new(&system, 1 << 20));
        assert_eq!(replayed.elapsed_ps, now_ps);
        assert_eq!(replayed.elapsed_ps, replayed.medium_ps + replayed.think_ps);
    }

    #[test]
    fn a_replay_without_steps_takes_no_time() {
        assert_eq!(replay_by(&[], |now_ps, _| now_ps + 1), Replayed::default());
    }
}
