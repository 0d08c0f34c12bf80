//! systemd-logind, which ends the machine: it is asked to wait until everything is saved.
//!
//! A *delay lock* (`Inhibit`, systemd's "Inhibitor Locks") makes a shutdown or reboot wait until
//! the lock's descriptor is closed, for `InhibitDelayMaxSec` of logind.conf at most. While it
//! waits, the property `PreparingForShutdown` is true.

use std::time::Duration;

use zbus::blocking::{Connection, Proxy, connection, proxy};
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

/// A logind, on the bus of this address; empty: on the system's.
struct Logind {
    address: String,
    agreed: Option<Agreed>,
}

/// A logind that will wait.
struct Agreed {
    manager: Proxy<'static>,
    /// The lock lasts as long as its descriptor, even if logind is started again.
    lock: OwnedFd,
    waits: Duration,
}

/// Takes a delay lock, and watches for a shutdown or reboot. `address` is of a D-Bus; empty: the
/// system's.
///
/// # Errors
/// This is no address, or this user may not have a delay lock.
pub(crate) fn open(address: &str) -> Result<Box<dyn WarningSource>, WarningError> {
    polled::start(Logind { address: address.to_owned(), agreed: None }, PACE)
}

impl Agreed {
    fn ask_to_wait(address: &str) -> zbus::Result<Self> {
        let bus = match address {
            "" => Connection::system()?,
            address => connection::Builder::address(address)?.build()?,
        };
        let manager: Proxy<'static> = proxy::Builder::new(&bus)
            .destination(SERVICE)?
            .path(PATH)?
            .interface(INTERFACE)?
            .cache_properties(CacheProperties::No)
            .build()?;
        let lock = manager.call("Inhibit", &("shutdown", WHO, WHY, "delay"))?;
        let waits_us: u64 = manager.get_property("InhibitDelayMaxUSec")?;
        Ok(Self { manager, lock, waits: Duration::from_micros(waits_us) })
    }
}

impl Logind {
    fn look(&mut self) -> zbus::Result<Reading> {
        let agreed = match self.agreed.take() {
            Some(agreed) => agreed,
            None => Agreed::ask_to_wait(&self.address)?,
        };
        let is_ending: bool = agreed.manager.get_property("PreparingForShutdown")?;
        if !is_ending {
            self.agreed = Some(agreed);
            return Ok(Reading::new(State::Steady, "logind: no shutdown"));
        }
        // logind goes on when the lock is closed, and what is in memory is saved first: so it is
        // closed by the end of this process, and not before.
        std::mem::forget(agreed.lock);
        // The shutdown may have begun just after the last question.
        let left = Left::Time(agreed.waits.saturating_sub(PACE.every));
        let told_by = "logind: the machine is being shut down";
        Ok(Reading { left: Some(left), ..Reading::new(State::Ending, told_by) })
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
