//! Reads a recording and checks each field.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::format::{FINISHED, HEADER_BYTES, MAGIC, STEP_BYTES, STEPS_MAX, VERSION, step, word};
use super::{Kind, RecordingError, Step};

/// A recording that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The requests, in the order in which they began.
    pub steps: Vec<Step>,
    /// Number of threads that made requests. With several threads a think time is the time between
    /// the end of any request and the beginning of the next, and 0 where they overlap; a replay
    /// runs them as one thread.
    pub threads_seen: u32,
    /// Requests after the bound, which were not recorded.
    pub cut_off_steps: u64,
    /// Steps that were begun and not finished, because the program was killed. They are left out.
    pub torn_steps: u64,
    /// Whether the program finished the recording.
    pub is_finished: bool,
    /// End of the step that reaches farthest. A model for a replay must be at least as large.
    pub medium_bytes: u64,
}

impl Recording {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let failed = |op| move |source| RecordingError::Io { path: path.to_owned(), op, source };
        let mut file = File::open(path).map_err(failed("open"))?;
        let file_bytes = file.metadata().map_err(failed("look at"))?.len();
        let mut read = |bytes: &mut [u8]| file.read_exact(bytes).map_err(failed("read"));
        let mut head = [0; HEADER_BYTES as usize];
        if file_bytes < HEADER_BYTES {
            return Err(RecordingError::Short {
                found_bytes: file_bytes,
                expected_bytes: HEADER_BYTES,
            });
        }
        read(&mut head)?;
        let header = Header::check(&head)?;
        let step_bytes = header.present() * STEP_BYTES;
        let expected_bytes = HEADER_BYTES + step_bytes;
        if file_bytes < expected_bytes {
            return Err(RecordingError::Short { found_bytes: file_bytes, expected_bytes });
        }
        // The allocation is at most as large as the file (just checked).
        let mut body = vec![0; step_bytes as usize];
        read(&mut body)?;
        header.recording(&body)
    }

    /// Whether a file with these first bytes is a recording, of any version.
    #[must_use]
    pub fn is_one(begin: &[u8]) -> bool {
        begin.starts_with(&MAGIC)
    }

    /// Parses the bytes of a file.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordingError> {
        let short = |expected_bytes| RecordingError::Short {
            found_bytes: bytes.len() as u64,
            expected_bytes,
        };
        let (head, body) = bytes.split_first_chunk().ok_or(short(HEADER_BYTES))?;
        let header = Header::check(head)?;
        let step_bytes = header.present() * STEP_BYTES;
        let body = body.get(..step_bytes as usize).ok_or(short(HEADER_BYTES + step_bytes))?;
        header.recording(body)
    }
}

struct Header {
    steps_max: u64,
    steps: u64,
    medium_bytes: u64,
    threads_seen: u32,
    is_finished: bool,
}

impl Header {
    fn check(head: &[u8; HEADER_BYTES as usize]) -> Result<Self, RecordingError> {
        let (words, _) = head.as_chunks::<8>();
        if words[0] != MAGIC {
            return Err(RecordingError::Magic { found: words[0] });
        }
        let at = |index: usize| u64::from_le_bytes(words[index]);
        let (version, step_bytes) = (at(word::VERSION) as u32, at(word::VERSION) >> 32);
        if version != VERSION {
            return Err(RecordingError::Version { found: version });
        }
        let wrong = |field, found| Err(RecordingError::Header { field, found });
        if step_bytes != STEP_BYTES {
            return wrong("the size of a step", step_bytes);
        }
        let threads = at(word::THREADS);
        if threads >> 33 != 0 {
            return wrong("the word of threads", threads);
        }
        if !(1..=STEPS_MAX).contains(&at(word::STEPS_MAX)) {
            return wrong("the most steps", at(word::STEPS_MAX));
        }
        if let Some(index) = (word::THREADS + 1..words.len()).find(|index| at(*index) != 0) {
            return wrong("a word kept for later", at(index));
        }
        Ok(Self {
            steps_max: at(word::STEPS_MAX),
            steps: at(word::STEPS),
            medium_bytes: at(word::MEDIUM_BYTES),
            threads_seen: threads as u32,
            is_finished: threads & FINISHED != 0,
        })
    }

    /// Number of steps that the file must have.
    fn present(&self) -> u64 {
        self.steps.min(self.steps_max)
    }

    fn recording(&self, body: &[u8]) -> Result<Recording, RecordingError> {
        let (records, _) = body.as_chunks::<{ STEP_BYTES as usize }>();
        let mut steps = Vec::with_capacity(records.len());
        let mut torn_steps = 0;
        for (index, record) in (0..).zip(records) {
            let (words, _) = record.as_chunks::<8>();
            let words = [0, 1, 2].map(|at| u64::from_le_bytes(words[at]));
            match step(index, words)? {
                Some(step) => {
                    self.check_range(index, &step)?;
                    steps.push(step);
                }
                None if self.is_finished => {
                    return Err(RecordingError::UnknownKind { index, found: 0 });
                }
                None => torn_steps += 1,
            }
        }
        Ok(Recording {
            steps,
            threads_seen: self.threads_seen,
            cut_off_steps: self.steps - self.present(),
            torn_steps,
            is_finished: self.is_finished,
            medium_bytes: self.medium_bytes,
        })
    }

    fn check_range(&self, index: u64, step: &Step) -> Result<(), RecordingError> {
        let end = step.offset_bytes.checked_add(step.len_bytes.into());
        let is_inside = end.is_some_and(|end| end <= self.medium_bytes);
        let is_right = match step.kind {
            Kind::Flush => step.len_bytes == 0 && step.offset_bytes == 0,
            Kind::Read | Kind::Write => step.len_bytes > 0 && is_inside,
        };
        let Step { offset_bytes, len_bytes, .. } = *step;
        match is_right {
            true => Ok(()),
            false => Err(RecordingError::Range {
                index,
                offset_bytes,
                len_bytes,
                medium_bytes: self.medium_bytes,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::words;
    use super::*;

    fn bytes(header: [u64; 8], steps: &[[u64; 3]]) -> Vec<u8> {
        let words = header.iter().chain(steps.as_flattened());
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    fn header(steps: u64) -> [u64; 8] {
        let version = u64::from(VERSION) | STEP_BYTES << 32;
        [u64::from_le_bytes(MAGIC), version, 4, steps, 1000, 1 | FINISHED, 0, 0]
    }

    fn read(offset_bytes: u64, len_bytes: u32) -> [u64; 3] {
        words(&Step { think_ps: 9, kind: Kind::Read, offset_bytes, len_bytes })
    }

    #[test]
    fn each_field_that_cannot_be_is_named() {
        let two = [read(0, 100), read(900, 100)];
        assert_eq!(Recording::parse(&bytes(header(2), &two)).unwrap().steps.len(), 2);
        let changed = |at: usize, value: u64| {
            let mut words = header(2);
            words[at] = value;
            Recording::parse(&bytes(words, &two)).unwrap_err().to_string()
        };
        for (at, value, said) in [
            (0, 7, "not a recording"),
            (1, 2 | STEP_BYTES << 32, "version 2"),
            (1, 1 | 32 << 32, "size of a step is 32"),
            (2, 0, "most steps is 0"),
            (2, STEPS_MAX + 1, "most steps is 4294967297"),
            (3, 3, "ends after 112 bytes; its header promises 136"),
            (3, u64::MAX, "ends after 112 bytes; its header promises 160"),
            (4, 999, "step 1: 100 bytes at offset 900, on a medium of 999 bytes"),
            (5, 1 << 33, "word of threads"),
            (7, 1, "kept for later is 1"),
        ] {
            let found = changed(at, value);
            assert!(found.contains(said), "{said:?} is missing in {found:?}");
        }
    }

    #[test]
    fn each_step_that_cannot_be_is_named() {
        let wrong = |step| Recording::parse(&bytes(header(2), &[read(0, 1), step])).unwrap_err();
        let flush = words(&Step { think_ps: 0, kind: Kind::Flush, offset_bytes: 0, len_bytes: 1 });
        let kind = |index, found| format!("step {index} is of kind {found}");
        assert!(wrong([0, 0, 4 << 32]).to_string().contains(&kind(1, 4)));
        assert!(wrong([0, 0, 1 << 40 | 1 << 32]).to_string().contains(&kind(1, 257)));
        assert!(wrong([0, 0, 5]).to_string().contains(&kind(1, 0)));
        assert!(wrong([0, 0, 0]).to_string().contains(&kind(1, 0)));
        assert!(matches!(wrong(read(u64::MAX, 5)), RecordingError::Range { index: 1, .. }));
        assert!(matches!(wrong(read(5, 0)), RecordingError::Range { index: 1, .. }));
        assert!(matches!(wrong(flush), RecordingError::Range { index: 1, .. }));
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_read_or_refused_without_a_panic() {
        let whole = bytes(header(2), &[read(0, 100), read(900, 100)]);
        for len in 0..whole.len() {
            Recording::parse(&whole[..len]).unwrap_err();
        }
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(recording) = Recording::parse(&flipped) {
                assert!(recording.steps.len() <= 2, "bit {bit}");
            }
        }
    }
}
