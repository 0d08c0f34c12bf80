//! Writes a recording while the program runs.
//!
//! The file is mapped and has all its room from the start: a step is three stores, by any thread,
//! even in a signal handler. The steps so far survive the program's death. The room that was not
//! used is given back at the end.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use super::format::{FINISHED, HEADER_BYTES, MAGIC, STEP_BYTES, STEPS_MAX, VERSION, word, words};
use super::{RecordingError, Step};
use crate::sys::words::SharedWords;

/// A recording that is being made.
#[derive(Debug)]
pub struct Recorder {
    words: SharedWords,
    path: PathBuf,
    steps_max: u64,
}

impl Recorder {
    /// Creates a file with room for so many steps. The file must not exist yet.
    pub fn create(path: &Path, steps_max: u64) -> Result<Self, RecordingError> {
        if !(1..=STEPS_MAX).contains(&steps_max) {
            return Err(RecordingError::Bound { steps_max });
        }
        let failed = |op| move |source| RecordingError::Io { path: path.to_owned(), op, source };
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(path);
        let file = file.map_err(failed("create"))?;
        let words = SharedWords::reserve(&file, HEADER_BYTES + steps_max * STEP_BYTES)
            .map_err(|errno| failed("reserve")(errno.into()));
        let words = match words {
            Ok(words) => words,
            Err(error) => {
                // The empty file is removed, so that no reader finds it.
                std::fs::remove_file(path).map_err(failed("remove"))?;
                return Err(error);
            }
        };
        words.store(word::VERSION, u64::from(VERSION) | STEP_BYTES << 32);
        words.store(word::STEPS_MAX, steps_max);
        words.store(0, u64::from_le_bytes(MAGIC));
        Ok(Self { words, path: path.to_owned(), steps_max })
    }

    /// Adds a step if there is room. `thread` numbers the program's threads from 0.
    #[inline]
    pub fn record(&self, thread: u32, step: &Step) {
        let index = self.words.add(word::STEPS, 1);
        if index >= self.steps_max {
            return;
        }
        let end_bytes = step.offset_bytes.saturating_add(step.len_bytes.into());
        self.words.raise(word::MEDIUM_BYTES, end_bytes);
        self.words.raise(word::THREADS, u64::from(thread) + 1);
        let at = (HEADER_BYTES + index * STEP_BYTES) as usize / 8;
        let words = words(step);
        self.words.store(at, words[0]);
        self.words.store(at + 1, words[1]);
        // Stored last: a step with a kind is complete.
        self.words.store(at + 2, words[2]);
    }

    /// Number of steps so far, including those beyond the bound.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.words.load(word::STEPS)
    }

    /// Number of steps that were not recorded.
    #[must_use]
    pub fn cut_off_steps(&self) -> u64 {
        self.steps().saturating_sub(self.steps_max)
    }

    /// Marks the recording as finished and gives the unused room back. No thread may still record:
    /// a later step is lost, or looks like one that was never written.
    pub fn finish(&self) -> Result<(), RecordingError> {
        let steps = self.steps().min(self.steps_max);
        let threads = self.words.load(word::THREADS);
        self.words.store(word::THREADS, threads | FINISHED);
        let failed = |source| RecordingError::Io { path: self.path.clone(), op: "shorten", source };
        let file = OpenOptions::new().write(true).open(&self.path).map_err(failed)?;
        file.set_len(HEADER_BYTES + steps * STEP_BYTES).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::drawn;
    use super::super::{Kind, Recording};
    use super::*;

    #[test]
    fn what_is_recorded_is_read_back_while_it_is_made_and_after() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("steps");
        for (seed, count) in [(1, 0), (2, 1), (3, 1000)] {
            let steps = drawn(seed, count);
            let recorder = Recorder::create(&path, 1000).unwrap();
            for (index, step) in steps.iter().enumerate() {
                recorder.record(index as u32 % 3, step);
            }
            let running = Recording::open(&path).unwrap();
            assert_eq!((&running.steps, running.is_finished), (&steps, false), "seed {seed}");
            recorder.finish().unwrap();
            let finished = Recording::open(&path).unwrap();
            assert_eq!(finished, Recording { is_finished: true, ..running }, "seed {seed}");
            assert_eq!(finished.threads_seen as usize, count.min(3), "seed {seed}");
            let ends = steps.iter().map(|step| step.offset_bytes + u64::from(step.len_bytes));
            assert_eq!(finished.medium_bytes, ends.max().unwrap_or(0), "seed {seed}");
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(bytes.len() as u64, HEADER_BYTES + count as u64 * STEP_BYTES);
            assert_eq!(Recording::parse(&bytes).unwrap(), finished, "seed {seed}");
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn at_its_bound_it_stops_and_counts_what_it_leaves_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("steps");
        let steps = drawn(4, 25);
        let recorder = Recorder::create(&path, 20).unwrap();
        steps.iter().for_each(|step| recorder.record(0, step));
        assert_eq!((recorder.steps(), recorder.cut_off_steps()), (25, 5));
        recorder.finish().unwrap();
        let recording = Recording::open(&path).unwrap();
        assert_eq!((recording.steps.as_slice(), recording.cut_off_steps), (&steps[..20], 5));
    }

    #[test]
    fn threads_beside_each_other_lose_no_step() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("steps");
        let recorder = Recorder::create(&path, 4 * 5000).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let recorder = &recorder;
                scope.spawn(move || {
                    for step in drawn(thread, 5000) {
                        recorder.record(thread as u32, &step);
                    }
                });
            }
        });
        recorder.finish().unwrap();
        let recording = Recording::open(&path).unwrap();
        let sorted = |mut steps: Vec<Step>| {
            steps.sort_by_key(|step| (step.think_ps, step.offset_bytes, step.len_bytes));
            steps
        };
        let expected = (0..4).flat_map(|thread| drawn(thread, 5000)).collect();
        assert_eq!(recording.threads_seen, 4);
        assert!(sorted(recording.steps) == sorted(expected), "steps differ");
    }

    #[test]
    fn a_step_whose_program_was_killed_in_it_is_left_out_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("steps");
        let recorder = Recorder::create(&path, 10).unwrap();
        let step = Step { think_ps: 1, kind: Kind::Read, offset_bytes: 2, len_bytes: 3 };
        recorder.record(0, &step);
        // A step that was begun and never written.
        recorder.words.add(word::STEPS, 1);
        recorder.record(0, &step);
        let recording = Recording::open(&path).unwrap();
        assert_eq!((recording.steps.as_slice(), recording.torn_steps), (&[step; 2][..], 1));
        recorder.finish().unwrap();
        let error = Recording::open(&path).unwrap_err();
        assert!(matches!(error, RecordingError::UnknownKind { index: 1, found: 0 }), "{error}");
    }

    #[test]
    fn a_file_that_is_there_is_left_alone_and_bounds_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("steps");
        std::fs::write(&path, "mine").unwrap();
        Recorder::create(&path, 10).unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        for steps_max in [0, STEPS_MAX + 1] {
            let error = Recorder::create(&folder.path().join("new"), steps_max).unwrap_err();
            assert!(matches!(error, RecordingError::Bound { .. }), "{error}");
        }
        assert!(!folder.path().join("new").exists());
    }
}
