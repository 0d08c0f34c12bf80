//! The bytes of a recording (docs/format.md): a header of 64 B, then steps of 24 B, little-endian.

use super::{Kind, RecordingError, Step};

/// The version that this build writes and reads.
pub const VERSION: u32 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: u64 = 64;
/// Bytes of a step.
pub const STEP_BYTES: u64 = 24;
/// Most steps of a recording.
pub const STEPS_MAX: u64 = 1 << 32;

pub(super) const MAGIC: [u8; 8] = *b"PERDSTEP";

/// Indices of the header's words, which have 8 B each.
pub(super) mod word {
    /// The version, and above it the bytes of a step.
    pub const VERSION: usize = 1;
    /// The number of steps that have room.
    pub const STEPS_MAX: usize = 2;
    /// The number of steps made, including those without room.
    pub const STEPS: usize = 3;
    /// The end of the step that reaches farthest.
    pub const MEDIUM_BYTES: usize = 4;
    /// The number of threads that made steps; above it 1 if the recording was finished.
    pub const THREADS: usize = 5;
}

pub(super) const FINISHED: u64 = 1 << 32;

/// The words of a step. The last one marks the step as complete, and must be stored last.
pub(super) fn words(step: &Step) -> [u64; 3] {
    let kind: u64 = match step.kind {
        Kind::Read => 1,
        Kind::Write => 2,
        Kind::Flush => 3,
    };
    [step.think_ps, step.offset_bytes, u64::from(step.len_bytes) | kind << 32]
}

/// The step of three words; `None` if it was never written.
pub(super) fn step(index: u64, words: [u64; 3]) -> Result<Option<Step>, RecordingError> {
    let kind = match words[2] >> 32 {
        0 if words[2] == 0 => return Ok(None),
        1 => Kind::Read,
        2 => Kind::Write,
        3 => Kind::Flush,
        found => return Err(RecordingError::UnknownKind { index, found }),
    };
    let len_bytes = words[2] as u32;
    Ok(Some(Step { think_ps: words[0], kind, offset_bytes: words[1], len_bytes }))
}

const _: () = assert!(STEP_BYTES as usize == size_of::<[u64; 3]>());
const _: () = assert!(HEADER_BYTES as usize == size_of::<[u64; 8]>());
const _: () = assert!(word::THREADS < HEADER_BYTES as usize / 8);
// The writer stores words as they are in memory.
const _: () = assert!(cfg!(target_endian = "little"));
