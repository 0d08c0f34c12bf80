//! Looking at drives and meters, and telling drives to sleep.

use std::path::Path;
use std::time::Duration;

use perdura_media::drives::{
    Asleep, Behind, DriveError, DrivePower, Roots, VIRTUAL, drives_behind,
};
use perdura_media::meters::Meters;

use super::rest::{Order, Rest};
use super::status::{DeviceDrives, DriveStatus, DrivesStatus, Observed, Rested};

/// Time between two questions to a drive about its power state.
const ASK_EVERY_NS: u64 = 1_000_000_000;

/// Whether drives may be told to sleep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sleep {
    /// For how long a drive must have had no request; `None`: drives are left alone.
    pub after: Option<Duration>,
    /// Directories whose drives are left alone in any case: that of the store's image.
    pub never: Vec<String>,
}

/// What lies behind a directory, as a keeper wants it.
pub enum Lookup {
    /// These drives.
    Drives(Vec<Box<dyn DrivePower>>),
    /// No drive of this machine, for certain; in words.
    NoDrive(String),
    /// Nobody tells; why.
    Unknown(String),
}

impl Lookup {
    /// What really lies behind a directory.
    pub fn real(roots: &Roots, place: &str) -> Self {
        match drives_behind(roots, Path::new(place)) {
            Behind::Drives(drives) => {
                let boxed = |drive| -> Box<dyn DrivePower> { Box::new(drive) };
                Self::Drives(drives.into_iter().map(boxed).collect())
            }
            Behind::NoDrive { file_system } => Self::NoDrive(file_system),
            Behind::Unknown { why } => Self::Unknown(why),
        }
    }
}

/// One drive, and what was done with it.
struct Kept {
    power: Box<dyn DrivePower>,
    rest: Rest,
    observed: Observed,
    asked_ns: Option<u64>,
    /// Why it must not be told to sleep.
    is_left_alone: Option<String>,
    /// Why it did not sleep, or was not put back, the last time.
    refusal: Option<String>,
    /// Whether such a refusal was logged.
    is_logged: bool,
    sleeps: u64,
}

/// Keeps the drives of a store's devices. It has no thread: somebody calls [`Keeper::look`].
pub struct Keeper {
    lookup: Box<dyn Fn(&str) -> Lookup + Send>,
    sleep: Sleep,
    meters: Meters,
    /// The devices that the drives were found for.
    devices: Vec<DeviceDrives>,
    drives: Vec<Kept>,
}

impl Keeper {
    /// A keeper of no drives yet. `lookup` says what lies behind a directory.
    pub fn new(
        sleep: Sleep,
        meters: Meters,
        lookup: impl Fn(&str) -> Lookup + Send + 'static,
    ) -> Self {
        Self { lookup: Box::new(lookup), sleep, meters, devices: Vec::new(), drives: Vec::new() }
    }

    /// Takes over which devices there are: number and directory. Drives of devices that have gone
    /// are put back.
    pub fn follow(&mut self, devices: &[(u16, String)]) {
        let known = self.devices.iter().map(|device| (device.number, device.place.as_str()));
        if known.eq(devices.iter().map(|(number, place)| (*number, place.as_str()))) {
            return;
        }
        let mut before = std::mem::take(&mut self.drives);
        let mut found = Vec::new();
        for (number, place) in devices {
            let (words, names) = match (self.lookup)(place) {
                Lookup::NoDrive(what) => (format!("none ({what})"), Vec::new()),
                Lookup::Unknown(why) => (format!("unknown ({why})"), Vec::new()),
                Lookup::Drives(drives) => {
                    let names: Vec<_> = drives.iter().map(|one| one.name().to_owned()).collect();
                    drives.into_iter().for_each(|one| keep(&mut self.drives, &mut before, one));
                    (names.join("+"), names)
                }
            };
            found.push((*number, place.clone(), words, names));
        }
        self.drives.sort_by(|a, b| a.power.name().cmp(b.power.name()));
        let index = |name: &String| self.drives.iter().position(|kept| kept.power.name() == name);
        let device = |(number, place, words, names): (u16, String, String, Vec<String>)| {
            let drives = names.iter().filter_map(index).collect();
            DeviceDrives { number, place, words, drives }
        };
        self.devices = found.into_iter().map(device).collect();
        before.iter_mut().for_each(put_back);
        self.leave_alone();
    }

    /// Finds out which drives must not sleep.
    fn leave_alone(&mut self) {
        if self.sleep.after.is_none() {
            return;
        }
        let mut barred: Vec<(String, String)> = Vec::new();
        let mut all_barred = None;
        for place in &self.sleep.never {
            match (self.lookup)(place) {
                Lookup::Drives(found) => {
                    // What lies below a virtual drive (a volume, a network block device) may be
                    // any of them.
                    if let Some(one) = found.iter().find(|one| one.bus() == VIRTUAL) {
                        let why = format!("{} is virtual", one.name());
                        let why = format!("it may be the one that {place} lies on: {why}");
                        all_barred = Some(why);
                    }
                    let why = format!("the store's own image or memory lies on it ({place})");
                    barred.extend(found.iter().map(|one| (one.name().to_owned(), why.clone())));
                }
                Lookup::NoDrive(_) => {}
                Lookup::Unknown(why) => {
                    let why = format!("it may be the one that {place} lies on: unknown ({why})");
                    all_barred = Some(why);
                }
            }
        }
        for kept in &mut self.drives {
            let name = kept.power.name();
            let own = barred.iter().find(|(barred, _)| barred == name).map(|(_, why)| why);
            let why = own.or(all_barred.as_ref()).cloned();
            if let Some(why) = why.as_ref().filter(|why| kept.is_left_alone.as_ref() != Some(why)) {
                tracing::warn!(drive = name, why, "--device-sleep leaves a drive alone");
            }
            kept.is_left_alone = why;
        }
    }

    /// Looks at all drives and meters once. Drives are asked for their power states if `asks`.
    pub fn look(&mut self, now_ns: u64, asks: bool) {
        self.meters.sample(now_ns);
        let after_ns = self.sleep.after.map(|after| after.as_nanos() as u64);
        for kept in &mut self.drives {
            kept.look(now_ns, after_ns);
            if asks {
                kept.ask(now_ns);
            }
        }
    }

    /// Whether a drive sleeps in a state that does requests slowly, so that somebody should look
    /// often.
    pub fn has_slow_drive(&self) -> bool {
        self.drives.iter().any(|kept| kept.rest.is_slow())
    }

    /// Puts all drives back.
    pub fn end(&mut self) {
        self.drives.iter_mut().for_each(put_back);
    }

    /// What is known.
    pub fn status(&self) -> DrivesStatus {
        let meters = self.meters.readings();
        let of = |kept: &Kept| DriveStatus {
            name: kept.power.name().to_owned(),
            bus: kept.power.bus(),
            runtime: kept.power.runtime(),
            observed: kept.observed.clone(),
            rested: kept.rested(self.sleep.after.is_some()),
            sleeps: kept.sleeps,
            meters: (0..meters.len())
                .filter(|n| meters[*n].device.as_ref().is_some_and(|one| kept.power.owns(one)))
                .collect(),
        };
        let drives = self.drives.iter().map(of).collect();
        DrivesStatus { drives, devices: self.devices.clone(), meters }
    }
}

/// Adds a drive, with what is known of it, unless it is among `drives` already.
fn keep(drives: &mut Vec<Kept>, before: &mut Vec<Kept>, power: Box<dyn DrivePower>) {
    let is_it = |kept: &Kept| kept.power.name() == power.name();
    if drives.iter().any(is_it) {
        return;
    }
    drives.push(match before.iter().position(is_it) {
        Some(index) => Kept { power, ..before.swap_remove(index) },
        None => Kept {
            power,
            rest: Rest::default(),
            observed: Observed::NotYet,
            asked_ns: None,
            is_left_alone: None,
            refusal: None,
            is_logged: false,
            sleeps: 0,
        },
    });
}

fn put_back(kept: &mut Kept) {
    if let Some(number) = kept.rest.end() {
        kept.restore(number);
    }
}

impl Kept {
    fn look(&mut self, now_ns: u64, after_ns: Option<u64>) {
        // A drive that is gone has no counts. Its device says so by itself.
        let Ok(requests) = self.power.requests() else { return };
        let was_asleep = self.rest.is_asleep();
        let after_ns = after_ns.filter(|_| self.is_left_alone.is_none());
        match self.rest.look(now_ns, requests, after_ns) {
            Order::Nothing => {}
            Order::Restore(number) => self.restore(number),
            Order::Sleep => match self.power.sleep() {
                Ok(Asleep { reading, restores, was }) => {
                    self.rest.slept(restores, was);
                    self.observed = Observed::Answer { reading, at_ns: now_ns };
                    self.refusal = None;
                    self.sleeps += 1;
                }
                // The kernel was faster; it may wake the drive again.
                Err(DriveError::Suspended) => {}
                Err(error) => {
                    self.rest.refused();
                    self.note(&error, "a drive was told to sleep and did not");
                }
            },
        }
        if was_asleep && !self.rest.is_asleep() {
            // What it answered as it fell asleep is no longer true.
            (self.observed, self.asked_ns) = (Observed::NotYet, None);
        }
    }

    /// Asks for the power state, unless that was just done, or the drive was told to sleep: then
    /// what it answered is still true, and a question could cost power.
    fn ask(&mut self, now_ns: u64) {
        let is_new = self.asked_ns.is_some_and(|at| now_ns.saturating_sub(at) < ASK_EVERY_NS);
        if is_new || self.rest.is_asleep() {
            return;
        }
        self.asked_ns = Some(now_ns);
        self.observed = match self.power.observe() {
            Ok(reading) => Observed::Answer { reading, at_ns: now_ns },
            Err(error) => Observed::No(error.to_string()),
        };
    }

    fn restore(&mut self, number: u8) {
        if let Err(error) = self.power.restore(number) {
            self.note(&error, "a drive was not put back into its power state");
        }
    }

    /// Notes what failed, and logs it the first time.
    fn note(&mut self, error: &DriveError, what: &'static str) {
        let why = error.to_string();
        if !std::mem::replace(&mut self.is_logged, true) {
            tracing::warn!(drive = self.power.name(), why, "{what}");
        }
        self.refusal = Some(why);
    }

    fn rested(&self, may_sleep: bool) -> Rested {
        match (&self.is_left_alone, &self.refusal) {
            _ if !may_sleep => Rested::Off,
            (Some(why), _) => Rested::LeftAlone(why.clone()),
            _ if self.rest.is_asleep() => Rested::Asleep,
            (None, Some(why)) => Rested::Refused(why.clone()),
            (None, None) => Rested::Awake,
        }
    }
}
