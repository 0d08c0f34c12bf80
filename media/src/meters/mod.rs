//! Meters of energy that this machine has: powercap, hwmon, and a management controller by IPMI.
//!
//! Each figure has its source beside it. Meters are not added up: a processor's package is part of
//! what a power supply delivers, and a core part of its package. What may not be read is told with
//! the system's reason; a meter that is not there is not told of.

mod energy;
mod hwmon;
mod ipmi;
mod powercap;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crate::drives::Roots;
use crate::units::{Joules, Watts};
use energy::Account;

/// Time between two looks at a meter that is a file.
const FILE_EVERY_NS: u64 = 1_000_000_000;

/// What one meter says.
#[derive(Debug, Clone, PartialEq)]
pub struct MeterReading {
    /// Where it comes from: `powercap:package-0`, `hwmon:nvme/power1`, `ipmi:dcmi`.
    pub source: String,
    /// The energy since the meters were found; `None` before there are two looks.
    pub energy: Option<Joules>,
    /// The power between the last two looks.
    pub power: Option<Watts>,
    /// Why it says nothing, or not now.
    pub trouble: Option<String>,
    /// The directory of sysfs of the device that it measures, if it is one device's.
    pub device: Option<PathBuf>,
}

/// A meter, by what it is read with.
trait Meter: Send {
    /// Where the figures come from.
    fn source(&self) -> &str;

    /// The directory of sysfs of the device that it measures, if it is one device's.
    fn device(&self) -> Option<&Path> {
        None
    }

    /// Time between two looks, nanoseconds.
    fn every_ns(&self) -> u64 {
        FILE_EVERY_NS
    }

    /// Looks once.
    fn look(&mut self) -> Result<Look, String>;
}

/// What is seen at one look.
enum Look {
    /// A count of energy that goes up, and from how much on it begins at zero again.
    Counted { microjoules: u64, range: Option<u64> },
    /// The power now.
    Power(Watts),
}

struct Metered {
    meter: Box<dyn Meter>,
    account: Account,
    looked_ns: Option<u64>,
    trouble: Option<String>,
}

/// The machine's meters.
#[derive(Default)]
pub struct Meters {
    all: Vec<Metered>,
    /// What could not even be listed.
    troubles: Vec<MeterReading>,
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meters").field("count", &self.all.len()).finish_non_exhaustive()
    }
}

impl Meters {
    /// The meters that the machine has now.
    pub fn find(roots: &Roots) -> Self {
        let mut meters = Self::default();
        for (kind, found) in [
            ("powercap", powercap::find(&roots.sys)),
            ("hwmon", hwmon::find(&roots.sys)),
            ("ipmi", ipmi::find(&roots.dev)),
        ] {
            match found {
                Ok(found) => found.into_iter().for_each(|meter| meters.add(meter)),
                Err(error) => meters.troubles.push(MeterReading {
                    source: kind.to_owned(),
                    energy: None,
                    power: None,
                    trouble: Some(error.to_string()),
                    device: None,
                }),
            }
        }
        meters
    }

    fn add(&mut self, meter: Box<dyn Meter>) {
        let (account, looked_ns, trouble) = (Account::default(), None, None);
        self.all.push(Metered { meter, account, looked_ns, trouble });
    }

    /// Looks at each meter whose time has come: once a second, or less often.
    pub fn sample(&mut self, now_ns: u64) {
        for one in &mut self.all {
            let is_due = one.looked_ns.is_none_or(|at| now_ns >= at + one.meter.every_ns());
            if !is_due {
                continue;
            }
            one.looked_ns = Some(now_ns);
            match one.meter.look() {
                Ok(look) => {
                    one.trouble = None;
                    one.account.note(now_ns, &look);
                }
                Err(why) => {
                    // The time without a reading is not filled up with a guess.
                    one.account.interrupt();
                    one.trouble = Some(why);
                }
            }
        }
    }

    /// What the meters said at the last looks.
    pub fn readings(&self) -> Vec<MeterReading> {
        let of = |one: &Metered| MeterReading {
            source: one.meter.source().to_owned(),
            energy: one.account.energy(),
            power: one.account.power(),
            trouble: one.trouble.clone(),
            device: one.meter.device().map(Path::to_owned),
        };
        self.all.iter().map(of).chain(self.troubles.iter().cloned()).collect()
    }
}
