//! What becomes of a region when a thread panics in its cleaner.
//!
//! A panic there is a mistake of this program, and the cleaner's work may be half done. Memory and
//! ledger are as a kill at that instant would leave them, so nothing that completed is lost as long
//! as nobody commits any more. Therefore:
//!
//! - in barrier mode the panic latches as the region's failure. Writers get a typed error, reads go
//!   on, and no checkpoint or group commit reports success;
//! - in trap mode the process aborts. A store cannot return an error, so it would wait for ever: at
//!   the gate that the panic left shut, or for budget. The abort is a process crash, which the
//!   fault model covers: the holder keeps memory and ledger for the next process.

use std::io::Write;

use perdura_image::Backed;

/// What writers are told.
const CAUSE: &str = "a thread panicked in the cleaner: this is a bug, please report it; start \
                     the program again, which completes what was begun";

/// Watches for a panic of the thread that holds it.
pub(crate) struct PanicWatch<'r> {
    backed: &'r Backed,
    /// The thread unwinds already, so a later look tells nothing new.
    was_panicking: bool,
}

impl<'r> PanicWatch<'r> {
    pub(crate) fn new(backed: &'r Backed) -> Self {
        Self { backed, was_panicking: std::thread::panicking() }
    }
}

impl Drop for PanicWatch<'_> {
    fn drop(&mut self) {
        if self.was_panicking || !std::thread::panicking() {
            return;
        }
        tracing::error!("{CAUSE}");
        if self.backed.tracked.is_trapped() {
            // Written to the descriptor itself: the process ends before any log is flushed. If
            // that fails, there is nobody left to tell.
            let told = "perdura: aborting, because stores that are trapped would wait for ever";
            let _ = writeln!(std::io::stderr(), "{told}: {CAUSE}");
            std::process::abort();
        }
        self.backed.memory.fail(CAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::sync::Arc;

    use perdura_dirty::geometry::BLOCK_BYTES;
    use perdura_dirty::{RegionError, TrackingKind, TrapKind};
    use perdura_media::{RealClock, SimDevice};

    use crate::testing::write;
    use crate::{Config, LaneId, Region};

    fn open(tracking: TrackingKind) -> Region {
        let config = Config {
            lanes: Some(1),
            checkpoint_every: None,
            tracking,
            ..Config::new(64 * BLOCK_BYTES, 8 * BLOCK_BYTES)
        };
        Region::open(Arc::new(SimDevice::new(0, 1)), Arc::new(RealClock), config).unwrap()
    }

    fn panic_in_the_cleaner(region: &Region) {
        let panicked = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let _cleaner = region.running().any_cleaner();
                panic!("planted");
            });
            thread.join().is_err()
        });
        assert!(panicked);
    }

    #[test]
    fn after_a_panic_in_the_cleaner_nothing_is_committed_and_what_is_there_can_be_read() {
        let region = open(TrackingKind::Barrier);
        write(&region, 0, &[1; 100]);
        region.checkpoint().unwrap();
        panic_in_the_cleaner(&region);
        for refused in [region.checkpoint(), region.commit_group()] {
            let Err(RegionError::Latched { cause }) = refused else { panic!("{refused:?}") };
            assert!(cause.contains("panicked in the cleaner"), "{cause}");
        }
        assert_eq!(region.lock(LaneId(0)).bytes(0, 100), [1; 100]);
    }

    #[test]
    fn a_thread_that_unwinds_already_may_use_the_cleaner() {
        struct Checkpoints<'r>(&'r Region);
        impl Drop for Checkpoints<'_> {
            fn drop(&mut self) {
                self.0.checkpoint().unwrap();
            }
        }
        let region = open(TrackingKind::Barrier);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let _last = Checkpoints(&region);
                panic!("planted");
            });
            assert!(thread.join().is_err());
        });
        region.checkpoint().unwrap();
    }

    /// The test runs itself in another process, which aborts.
    #[test]
    fn where_stores_are_trapped_a_panic_in_the_cleaner_ends_the_process_at_once() {
        const INSIDE: &str = "PERDURA_TEST_PANICS_INSIDE";
        if std::env::var_os(INSIDE).is_some() {
            let region = open(TrackingKind::Trap(TrapKind::Mprotect));
            panic_in_the_cleaner(&region);
            // Not reached. The process that looks sees an exit and no signal.
            std::process::exit(0);
        }
        let name = "panics::tests::where_stores_are_trapped_a_panic_in_the_cleaner_ends_the_\
                    process_at_once";
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(INSIDE, "1")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{:?}: {said}", output.status);
        assert!(said.contains("stores that are trapped would wait for ever"), "{said}");
    }
}
