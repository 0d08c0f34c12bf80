//! Commits that calls of several threads share: [`Durability::Fsync`].
//!
//! A call that has changed memory asks for a commit that began after its change. While one commit
//! is on its way, the calls that end meanwhile wait, and the first of them makes one commit for all
//! of them.
//!
//! - A commit has a number, which is drawn before the commit begins.
//! - `done` is the highest number of a commit that succeeded; it only grows.
//!
//! [`Durability::Fsync`]: crate::Durability::Fsync

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;
use perdura_region::{Region, RegionError};

/// The commits of one region.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    /// Number of the last commit that has begun.
    begun: AtomicU64,
    done: Mutex<u64>,
}

impl Commits {
    /// Returns when everything that this thread has changed is on the SSD.
    pub fn wait(&self, region: &Region) -> Result<(), RegionError> {
        self.wait_for(|| region.commit_group())
    }

    fn wait_for<E>(&self, commit: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        // A commit of a higher number begins after this read, and so after the caller's change.
        let before = self.begun.load(SeqCst);
        let mut done = self.done.lock();
        if *done > before {
            return Ok(());
        }
        let number = self.begun.fetch_add(1, SeqCst) + 1;
        commit()?;
        *done = number;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// Threads change a counter and ask for a commit; the naive oracle is a copy of the counter
    /// that each commit makes when it begins.
    fn run(threads: u64, changes: u64, commits: &Commits) -> (u64, u64) {
        let (counter, durable, made) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..changes {
                        let mine = counter.fetch_add(1, SeqCst) + 1;
                        let outcome = commits.wait_for(|| {
                            let seen = counter.load(SeqCst);
                            std::thread::yield_now();
                            durable.fetch_max(seen, SeqCst);
                            made.fetch_add(1, SeqCst);
                            Ok::<(), ()>(())
                        });
                        assert_eq!(outcome, Ok(()));
                        let durable = durable.load(SeqCst);
                        assert!(durable >= mine, "change {mine} returned, {durable} are durable");
                    }
                });
            }
        });
        (durable.into_inner(), made.into_inner())
    }

    #[test]
    fn no_call_returns_before_a_commit_that_began_after_its_change() {
        let commits = Commits::default();
        let (durable, made) = run(8, 500, &commits);
        assert_eq!(durable, 8 * 500);
        assert!(made <= 8 * 500, "{made} commits");
    }

    #[test]
    fn a_commit_that_fails_counts_for_nobody() {
        let commits = Commits::default();
        assert_eq!(commits.wait_for(|| Err("full")), Err("full"));
        let mut is_made = false;
        let outcome = commits.wait_for(|| {
            is_made = true;
            Ok::<(), &str>(())
        });
        assert_eq!((outcome, is_made), (Ok(()), true));
    }
}
