//! The account of one library's jobs: acknowledged, executed, lost.

use std::collections::HashSet;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The account of one library's jobs.
pub struct Account {
    name: &'static str,
    tried: usize,
    acked: usize,
    /// How often a job was carried out, and how many different ones were.
    runs: usize,
    done: usize,
    /// Jobs whose sender had no answer, and that were carried out all the same.
    unsure: usize,
    /// Jobs that the server had given to a worker, and that the library forgot then.
    dropped: usize,
    /// Jobs that the library had said it has, and that were neither carried out nor given out.
    pub lost: Vec<String>,
    /// Jobs that were carried out, and that nobody had sent.
    unknown: Vec<String>,
}

impl Account {
    /// Reads the files that a library's program has written so far.
    pub fn of(name: &'static str, folder: &Path) -> Result<Self> {
        let lines = |file: &str| -> Result<Vec<String>> {
            let path = folder.join(file);
            match fs::read_to_string(&path) {
                Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(vec![]),
                Err(error) => Err(error).with_context(|| path.display().to_string()),
            }
        };
        // A job that is noted meanwhile must not look unknown, so what comes last is read first.
        let (done, given) = (lines("done")?, lines("given")?);
        let (acked, tried) = (lines("acked")?, lines("tried")?);
        Ok(Self::reckon(name, &tried, &acked, &given, &done))
    }

    fn reckon(
        name: &'static str,
        tried: &[String],
        acked: &[String],
        given: &[String],
        done: &[String],
    ) -> Self {
        let set = |jobs: &'_ [String]| jobs.iter().cloned().collect::<HashSet<String>>();
        let (tried, acked, runs, done) = (set(tried), set(acked), done.len(), set(done));
        let open: HashSet<String> = acked.difference(&done).cloned().collect();
        let given = set(given);
        let without = |jobs: &HashSet<String>, others| jobs.difference(others).cloned().collect();
        Self {
            name,
            tried: tried.len(),
            acked: acked.len(),
            runs,
            done: done.len(),
            unsure: done.difference(&acked).count(),
            dropped: open.intersection(&given).count(),
            lost: without(&open, &given),
            unknown: without(&done, &tried),
        }
    }

    /// How many acknowledged jobs may still be carried out.
    pub fn open(&self) -> usize {
        self.lost.len() + self.dropped
    }

    /// Whether every job is accounted for, and there were some.
    pub fn is_sound(&self) -> bool {
        self.acked > 0 && self.lost.is_empty() && self.unknown.is_empty()
    }
}

impl Display for Account {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} jobs sent, {} acknowledged, {} lost, {} dropped by the library, {} carried out \
             ({} more than once, {} without an acknowledgement), {} from nowhere",
            self.name,
            self.tried,
            self.acked,
            self.lost.len(),
            self.dropped,
            self.done,
            self.runs - self.done,
            self.unsure,
            self.unknown.len(),
        )?;
        for (what, jobs) in [("lost", &self.lost), ("from nowhere", &self.unknown)] {
            if !jobs.is_empty() {
                write!(f, "\n  {what}: {}", jobs[..jobs.len().min(20)].join(" "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(tried: &str, acked: &str, done: &str) -> Account {
        given(tried, acked, "", done)
    }

    fn given(tried: &str, acked: &str, given: &str, done: &str) -> Account {
        let jobs = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        Account::reckon("x", &jobs(tried), &jobs(acked), &jobs(given), &jobs(done))
    }

    #[test]
    fn only_jobs_that_were_acknowledged_and_never_ran_are_lost() {
        let found = account("abcd", "abc", "aabcd");
        assert!(found.is_sound());
        assert_eq!((found.runs - found.done, found.unsure), (1, 1));
        assert_eq!(account("abcd", "abc", "ab").lost, ["c"]);
        assert!(!account("abcd", "abc", "abd").is_sound());
        let dropped = given("abc", "abc", "bc", "ac");
        assert_eq!((dropped.dropped, dropped.lost.len()), (1, 0));
        assert_eq!(account("a", "a", "ax").unknown, ["x"]);
        assert!(!account("", "", "").is_sound());
    }
}
