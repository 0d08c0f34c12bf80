//! A guard as its server sees it: a source of warnings, which is low when the guard is lost.
//!
//! A server without its guard must save everything and stop writing: nobody would flush for it if
//! it died, and nobody would tell it that the power goes. A guard that says what the server does
//! not know, as one of another version may, could be telling it just that, so it counts as lost
//! until it says something that is known.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use perdura_region::holder::Listener;
use perdura_warning::{Confidence, Reading, State, WarningError, WarningSource};
use rustix::event::{EventfdFlags, eventfd};

use crate::readings;
use crate::watch::Orders;

/// Most characters of an unknown line that are shown to people.
const UNKNOWN_MAX_CHARS: usize = 80;

/// What a server's guard says of the power, and whether it is there.
#[derive(Debug)]
pub struct Guarded {
    shared: Arc<Shared>,
}

/// The ear of [`Guarded`], for [`perdura_region::holder::Supervisor::tell`].
#[derive(Debug)]
pub struct GuardEar {
    shared: Arc<Shared>,
    orders: Arc<Orders>,
}

impl GuardEar {
    /// Where the guard's orders arrive, for [`crate::Watch`].
    pub fn orders(&self) -> Arc<Orders> {
        Arc::clone(&self.orders)
    }
}

#[derive(Debug)]
struct Shared {
    socket: PathBuf,
    said: Mutex<Said>,
    /// Readable when there is something new.
    news: OwnedFd,
}

#[derive(Debug)]
struct Said {
    is_there: bool,
    /// The last line of the guard that this version knows.
    power: Reading,
    /// The beginning of a line that came since, if this version does not know it.
    unknown: Option<String>,
}

impl Guarded {
    /// A source for a server whose guard listens at `socket`, and the ear for its link.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn new(socket: PathBuf) -> Result<(Self, GuardEar), WarningError> {
        let news = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| WarningError::system("event descriptor", errno))?;
        let power = Reading::new(State::Steady, format!("the guard at {}", socket.display()));
        let said = Mutex::new(Said { is_there: true, power, unknown: None });
        let shared = Arc::new(Shared { socket, said, news });
        Ok((Self { shared: Arc::clone(&shared) }, GuardEar { shared, orders: Arc::default() }))
    }
}

impl WarningSource for Guarded {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.news.as_fd()
    }

    fn take(&mut self) -> Result<Option<Reading>, WarningError> {
        match rustix::io::read(&self.shared.news, &mut [0; 8]) {
            Ok(_) => Ok(Some(self.shared.reading())),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(errno) => Err(WarningError::system("event descriptor", errno)),
        }
    }
}

impl Listener for GuardEar {
    fn warned(&self, reading: &str) {
        self.shared.change(|said| match readings::decode(reading) {
            Some(known) => (said.power, said.unknown) = (known, None),
            None => said.unknown = Some(reading.chars().take(UNKNOWN_MAX_CHARS).collect()),
        });
    }

    fn shared(&self, serial: u64, share: Option<Duration>) {
        self.orders.share(serial, share);
    }

    fn drill(&self, fills: bool) {
        self.orders.drill(fills);
    }

    fn held(&self, is_held: bool) {
        self.shared.change(|said| said.is_there = is_held);
    }
}

impl Shared {
    fn reading(&self) -> Reading {
        let said = self.lock();
        let why = match (said.is_there, &said.unknown) {
            _ if said.power.state == State::Ending => return said.power.clone(),
            (false, _) => "is gone".to_owned(),
            (true, Some(unknown)) => format!(
                "says {unknown:?}, which this version does not know: let guard and server be of \
                 one version"
            ),
            (true, None) => return said.power.clone(),
        };
        let told_by = format!("the guard at {} {why}", self.socket.display());
        Reading { confidence: Confidence::Lost, ..Reading::new(State::Low, told_by) }
    }

    fn change(&self, change: impl FnOnce(&mut Said)) {
        change(&mut self.lock());
        // A counter at its limit is readable already.
        let _ = rustix::io::write(&self.news, &1u64.to_ne_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use super::*;

    #[test]
    fn a_lost_guard_is_low_and_one_that_is_there_again_says_what_the_power_is_like() {
        let (mut guarded, ear) = Guarded::new("/run/guard.sock".into()).unwrap();
        assert_eq!(guarded.take().unwrap(), None, "it is steady, and has said nothing");
        ear.warned("fresh on-battery 5000ms the ups: OB");
        let on_battery = guarded.take().unwrap().unwrap();
        assert_eq!((on_battery.state, &*on_battery.told_by), (State::OnBattery, "the ups: OB"));
        ear.held(false);
        let lost = guarded.take().unwrap().unwrap();
        assert_eq!((lost.state, lost.confidence), (State::Low, Confidence::Lost));
        assert_eq!(lost.told_by, "the guard at /run/guard.sock is gone");
        ear.held(true);
        assert_eq!(guarded.take().unwrap(), Some(on_battery));
        assert_eq!(guarded.take().unwrap(), None);
    }

    #[test]
    fn an_end_is_not_taken_back_by_the_end_of_the_guard_or_by_what_is_not_known() {
        let (mut guarded, ear) = Guarded::new("/run/guard.sock".into()).unwrap();
        ear.warned("fresh ending - SIGTERM");
        ear.held(false);
        assert_eq!(guarded.take().unwrap().unwrap().state, State::Ending);
        ear.held(true);
        ear.warned("fresh splendid - SIGTERM");
        assert_eq!(guarded.take().unwrap().unwrap().state, State::Ending);
    }

    #[test]
    fn a_guard_that_says_what_is_not_known_is_lost_until_it_says_what_is() {
        let (mut guarded, ear) = Guarded::new("/run/guard.sock".into()).unwrap();
        for unknown in ["fresh splendid - x", "fresh steady -5J x", "steady", "", &"x".repeat(9999)]
        {
            ear.warned("fresh steady - the ups: OL");
            assert_eq!(guarded.take().unwrap().unwrap().state, State::Steady);
            ear.warned(unknown);
            let lost = guarded.take().unwrap().unwrap();
            assert_eq!((lost.state, lost.confidence), (State::Low, Confidence::Lost));
            let said = format!("{:?}", unknown.chars().take(80).collect::<String>());
            assert!(lost.told_by.contains(&said) && lost.told_by.len() < 300, "{lost}");
            // Another guard may be as new as that one.
            ear.held(false);
            ear.held(true);
            assert_eq!(guarded.take().unwrap(), Some(lost));
        }
    }
}
