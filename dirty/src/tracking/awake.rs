//! Processors are kept from sleeping while faults are frequent.
//!
//! Whoever stores waits for the fault thread, and the fault thread for the next store; so one of
//! two processors is idle all the time. To wake one that sleeps takes some 30 us in a virtual
//! machine, where its sleep is the host's. The kernel's request for latency
//! (`/dev/cpu_dma_latency`, which is root's) lets idle processors poll as long as it is held.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

const REQUEST: &str = "/dev/cpu_dma_latency";
/// The longest time to wake up that is asked for, microseconds: none, so nobody sleeps.
const LATENCY_US: i32 = 0;
/// Time over which faults are counted. A request is held this long at least.
pub(super) const WINDOW: Duration = Duration::from_millis(50);
/// Faults in a window that make them frequent, 500 a second. With fewer, waking takes less than 4 %
/// of the time.
const FREQUENT: usize = 25;

/// The request, held or not.
#[derive(Debug)]
pub(super) struct Awake<'a> {
    place: &'a Path,
    held: Option<File>,
    /// Whether the system refused; it is not asked again.
    is_refused: bool,
    window_began: Duration,
    faults: usize,
}

impl Awake<'static> {
    pub(super) fn new(now: Duration) -> Self {
        Self::at(Path::new(REQUEST), now)
    }
}

impl<'a> Awake<'a> {
    fn at(place: &'a Path, now: Duration) -> Self {
        Self { place, held: None, is_refused: false, window_began: now, faults: 0 }
    }

    /// Whether processors are kept from sleeping, and [`Awake::note`] is to be called within a
    /// window even if no fault comes.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Counts faults, and makes the request or ends it when a window is over. `now` is the time
    /// since any moment.
    pub(super) fn note(&mut self, faults: usize, now: Duration) {
        self.faults += faults;
        if now.saturating_sub(self.window_began) < WINDOW {
            return;
        }
        let are_frequent = self.faults >= FREQUENT;
        (self.window_began, self.faults) = (now, 0);
        if !are_frequent {
            self.held = None;
        } else if self.held.is_none() && !self.is_refused {
            match request(self.place) {
                Ok(file) => self.held = Some(file),
                Err(error) => {
                    self.is_refused = true;
                    let place = self.place.display();
                    tracing::info!("stores that trap wake sleeping processors: {place}: {error}");
                }
            }
        }
    }
}

/// The request is in force until the file is closed, which the kernel does for a process that is
/// killed, too.
fn request(place: &Path) -> io::Result<File> {
    let mut file = File::options().write(true).open(place)?;
    file.write_all(&LATENCY_US.to_ne_bytes())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    fn at_ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn processors_are_kept_awake_only_while_faults_are_frequent() {
        let file = File::from(memfd_create("latency", MemfdFlags::CLOEXEC).unwrap());
        let place = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let mut awake = Awake::at(&place, at_ms(1000));
        awake.note(FREQUENT - 1, at_ms(1050));
        assert!(!awake.is_held(), "{} faults in a window are not many", FREQUENT - 1);
        awake.note(FREQUENT, at_ms(1099));
        assert!(!awake.is_held(), "the window is not over");
        awake.note(0, at_ms(1100));
        assert!(awake.is_held());
        assert_eq!(std::fs::read(&place).unwrap(), 0i32.to_ne_bytes());
        awake.note(FREQUENT, at_ms(1150));
        awake.note(0, at_ms(1199));
        assert!(awake.is_held(), "the window is not over");
        awake.note(0, at_ms(1200));
        assert!(!awake.is_held());
    }

    #[test]
    fn a_system_that_refuses_is_not_asked_again() {
        let mut awake = Awake::at(Path::new("/nowhere/latency"), at_ms(0));
        awake.note(FREQUENT, at_ms(50));
        assert!(!awake.is_held() && awake.is_refused);
        awake.place = Path::new("/dev/null");
        awake.note(FREQUENT, at_ms(100));
        assert!(!awake.is_held());
    }
}
