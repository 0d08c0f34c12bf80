//! What a program asked of a medium, with the time it computed in between; and how long it would
//! take on a model.
//!
//! A recording is a list of [`Step`]s: think so long, then ask for this. It says nothing of how
//! fast the medium was that it was recorded on, so it can be replayed on any ([`replay`]).
//!
//! Invariants: a step in a file is whole or is seen not to be (its kind is written last). The
//! writer never waits, never allocates once it is made, and stops at its bound, counting what it
//! leaves out. The reader believes nothing: each field is checked, and what is wrong is a typed
//! error that names the step.
//!
//! A recording has no checksum: it is a measurement, not somebody's data, and is written by
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

/// What is asked of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// All that was written is to be durable; the step has no bytes.
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

/// One request, and what came before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// From the end of the request before (or the recording's start) to the beginning of this one.
    pub think_ps: u64,
    /// What is asked.
    pub kind: Kind,
    /// Where, from the medium's start; 0 for a flush.
    pub offset_bytes: u64,
    /// How much; 0 for a flush.
    pub len_bytes: u32,
}

/// What a replay took, modelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// From the first step's thinking to the last one's end.
    pub elapsed_ps: u64,
    /// Of that, waiting for the medium.
    pub medium_ps: u64,
    /// And thinking.
    pub think_ps: u64,
    /// Requests by kind.
    pub reads: u64,
    /// Requests by kind.
    pub writes: u64,
    /// Requests by kind.
    pub flushes: u64,
    /// Bytes of the reads.
    pub read_bytes: u64,
    /// Bytes of the writes.
    pub write_bytes: u64,
}

/// Runs the steps on a model, one after the other: each begins when the program has thought about
/// the end of the one before. A recording of several threads is replayed as if one had made its
/// steps in their order (see [`Recording::threads_seen`]). The model must be as large as the
/// recording reaches ([`Recording::medium_bytes`]).
pub fn replay<'a>(steps: impl IntoIterator<Item = &'a Step>, model: &Model) -> Replayed {
    replay_by(steps, |now_ps, step| match step.kind {
        Kind::Read => model.book(now_ps, Access::Read, step.offset_bytes, step.len_bytes.into()),
        Kind::Write => model.book(now_ps, Access::Write, step.offset_bytes, step.len_bytes.into()),
        Kind::Flush => model.flush(now_ps),
    })
}

/// `done` says when a request is done that begins at a time.
fn replay_by<'a>(
    steps: impl IntoIterator<Item = &'a Step>,
    mut done: impl FnMut(u64, &Step) -> u64,
) -> Replayed {
    let mut replayed = Replayed::default();
    for step in steps {
        let begun_ps = replayed.elapsed_ps.saturating_add(step.think_ps);
        // A medium that is faster than no time at all is none.
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

/// What is wrong with a recording, or with making one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The system refused.
    #[error("{}: cannot {op} it: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// `create`, `map`, `read`, …
        op: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The bound asked for is none.
    #[error("a recording of {steps_max} steps: it may have 1 to {STEPS_MAX}")]
    Bound {
        /// Steps asked for.
        steps_max: u64,
    },
    /// Not a recording.
    #[error("not a recording: it begins with {found:02x?}, not with PERDSTEP")]
    Magic {
        /// What the file begins with.
        found: [u8; 8],
    },
    /// Of another version.
    #[error("a recording of version {found}; this build reads version {VERSION}")]
    Version {
        /// What the header says.
        found: u32,
    },
    /// A field of the header that cannot be.
    #[error("the recording's header: {field} is {found}")]
    Header {
        /// Which.
        field: &'static str,
        /// What it says.
        found: u64,
    },
    /// It ends too early.
    #[error("the recording ends after {found_bytes} bytes; its header promises {expected_bytes}")]
    Short {
        /// What is there.
        found_bytes: u64,
        /// What must be there.
        expected_bytes: u64,
    },
    /// A step of a kind that there is not. 0: it was never written, though the recording was
    /// finished.
    #[error("step {index} is of kind {found}: 1 is a read, 2 a write, 3 a flush")]
    UnknownKind {
        /// Which step, from 0.
        index: u64,
        /// What it says.
        found: u64,
    },
    /// A step that reaches beyond the recording's medium, or a flush with bytes.
    #[error(
        "step {index}: {len_bytes} bytes at offset {offset_bytes}, on a medium of {medium_bytes} bytes"
    )]
    Range {
        /// Which step, from 0.
        index: u64,
        /// Where.
        offset_bytes: u64,
        /// How much.
        len_bytes: u32,
        /// As far as the header says that steps reach.
        medium_bytes: u64,
    },
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Steps of any kind on a medium of a mebibyte.
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
        // A medium that is busy for a picosecond a byte, and flushes in 7.
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
            // The medium: one server that goes on for half a microsecond after each request. The
            // oracle keeps a list of all events and looks each time through all of them.
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
