//! systemd-logind, which ends the machine: it is asked to wait until everything is saved.
//!
//! A *delay lock* (`Inhibit`, systemd's "Inhibitor Locks") makes a shutdown or reboot wait until
//! the lock's descriptor is closed, for `InhibitDelayMaxSec` of logind.conf at most. While it
//! waits, the property `PreparingForShutdown` is true.
//!
//! A lock that is held is let go when the next one is there, and not before: neither a message that
//! fails or is not answered nor the end of the connection takes it back, because logind keeps it
//! through all of them. So a shutdown waits although it may be seen late.

use std::time::Duration;

use zbus::blocking::{Proxy, connection, proxy};
use zbus::proxy::CacheProperties;
use zbus::zvariant::OwnedFd;

use crate::error::WarningError;
use crate::polled::{self, Asker, NoAnswer, Pace};
use crate::reading::{Left, Reading, State};
use crate::source::WarningSource;

/// A shutdown is seen within a fifth of a second; 5 s are logind's default delay.
const PACE: Pace = Pace { every: Duration::from_millis(200), silence_max: Duration::from_secs(15) };
const SERVICE: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const INTERFACE: &str = "org.freedesktop.login1.Manager";
/// What users see in `systemd-inhibit --list`.
const WHO: &str = "perdura";
const WHY: &str = "what is only in memory is being written to the SSD";
/// Errors by which logind says that this user may not have a delay lock.
const FORBIDDEN: [&str; 2] = [
    "org.freedesktop.DBus.Error.AccessDenied",
    "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired",
];
/// The error by which logind says that a shutdown has begun, so that no lock is given any more.
const BEGUN: &str = "org.freedesktop.login1.OperationInProgress";
/// Time for the answer to one message.
const PATIENCE: Duration = Duration::from_secs(2);

/// A logind, on the bus of this address; empty: on the system's.
struct Logind {
    address: String,
    link: Option<Link>,
    /// The newest lock, perhaps of a link before this one. It lasts as long as its descriptor, even
    /// if logind is started again.
    lock: Option<OwnedFd>,
}

/// A connection to a logind, and what is known of it.
struct Link {
    manager: Proxy<'static>,
    /// Whether a lock was given over this connection.
    has_lock: bool,
    /// How long a shutdown waits, as far as it is known.
    waits: Option<Duration>,
}

/// Takes a delay lock, and watches for a shutdown or reboot. `address` is of a D-Bus; empty: the
/// system's.
///
/// # Errors
/// This is no address, or this user may not have a delay lock.
pub(crate) fn open(address: &str) -> Result<Box<dyn WarningSource>, WarningError> {
    polled::start(Logind::on(address), PACE)
}

impl Link {
    fn to(address: &str) -> zbus::Result<Self> {
        let bus = match address {
            "" => connection::Builder::system()?,
            address => connection::Builder::address(address)?,
        };
        let bus = bus.method_timeout(PATIENCE).build()?;
        let manager: Proxy<'static> = proxy::Builder::new(&bus)
            .destination(SERVICE)?
            .path(PATH)?
            .interface(INTERFACE)?
            .cache_properties(CacheProperties::No)
            .build()?;
        Ok(Self { manager, has_lock: false, waits: None })
    }

    fn is_over(&self) -> bool {
        self.manager.connection().is_closed()
    }
}

impl Logind {
    fn on(address: &str) -> Self {
        Self { address: address.to_owned(), link: None, lock: None }
    }

    fn look(&mut self) -> zbus::Result<Reading> {
        let link = match &mut self.link {
            Some(link) if !link.is_over() => link,
            none_or_over => none_or_over.insert(Link::to(&self.address)?),
        };
        if !link.has_lock {
            match link.manager.call("Inhibit", &("shutdown", WHO, WHY, "delay")) {
                Ok(lock) => (self.lock, link.has_lock) = (Some(lock), true),
                Err(zbus::Error::MethodError(name, _, _)) if name.as_str() == BEGUN => {
                    return Ok(self.ending(None));
                }
                Err(error) => return Err(error),
            }
        }
        if link.waits.is_none() {
            // Without an answer the end is seen all the same, and nothing is said of what is left.
            let waits_us = link.manager.get_property("InhibitDelayMaxUSec").ok();
            link.waits = waits_us.map(Duration::from_micros);
        }
        if !link.manager.get_property::<bool>("PreparingForShutdown")? {
            return Ok(Reading::new(State::Steady, "logind: no shutdown"));
        }
        let waits = link.waits;
        Ok(self.ending(waits))
    }

    /// The end, for which logind waits for `waits` after it has begun, if that is known.
    fn ending(&mut self, waits: Option<Duration>) -> Reading {
        // logind goes on when the lock is closed, and what is in memory is saved first: so it is
        // closed by the end of this process, and not before.
        std::mem::forget(self.lock.take());
        // The shutdown may have begun just after the last question.
        let left = waits.map(|waits| Left::Time(waits.saturating_sub(PACE.every)));
        Reading { left, ..Reading::new(State::Ending, "logind: the machine is being shut down") }
    }
}

impl Asker for Logind {
    fn name(&self) -> String {
        "logind".into()
    }

    fn ask(&mut self) -> Result<Reading, NoAnswer> {
        self.look().map_err(|error| match &error {
            zbus::Error::MethodError(name, _, _) if FORBIDDEN.contains(&name.as_str()) => {
                NoAnswer::Refused(WarningError::Refused {
                    name: self.name(),
                    why: format!("{error}; it takes root, or a rule of polkit"),
                })
            }
            zbus::Error::Address(_) => NoAnswer::Refused(WarningError::Argument {
                found: self.address.clone(),
                expected: "the address of a D-Bus, such as unix:path=/run/dbus/system_bus_socket",
            }),
            _ => NoAnswer::Unreached(error.to_string()),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests;
