//! What `perdura top` shows: asked from a guard or from a server, and remembered for a while.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use perdura_guard::{GuardedRegion, Looked, look};
use perdura_watch::{Device, Status, devices as told};

use crate::args::TopArgs;
use crate::client::{Client, PATIENCE};
use crate::connection::{Address, TlsOptions};
use crate::password::password;

use super::devices::{DeviceRow, rows};

/// How many looks are remembered, for the curve.
const PAST_MAX: usize = 600;

/// Who is asked.
pub enum Source {
    Guard(PathBuf),
    Server(Box<AskedServer>),
}

/// A server, and what is known of it from one look to the next.
pub struct AskedServer {
    address: Address,
    tls: TlsOptions,
    password: Option<String>,
    /// `None` after a failure: a later answer would be taken for that of another question.
    client: Option<Client>,
    /// The fields of the devices at the look before, and its time.
    devices: Option<(Instant, Vec<Device>)>,
}

/// The power, as the worst source of warnings says.
#[derive(Debug, Clone, PartialEq)]
pub struct Power {
    pub word: String,
    pub told_by: String,
}

/// One region.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub name: String,
    /// The server's process id, or what became of it.
    pub server: String,
    pub dirty_bytes: u64,
    pub budget_bytes: u64,
    pub to_safe: Duration,
    /// Most time that a flush of it may take: its share of the battery, or its own warning.
    pub allowed: Duration,
    pub rate_bytes_per_s: u64,
}

/// What was seen at one look.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    pub power: Power,
    /// Time to be safe from a warning that comes now.
    pub to_safe: Duration,
    /// Time that there is.
    pub allowed: Duration,
    /// The longest time to be safe that the guard or server knows of.
    pub worst: Option<Duration>,
    pub rows: Vec<Row>,
    /// The devices of a server whose data are larger than memory.
    pub devices: Vec<DeviceRow>,
    /// What is wrong, if anything is.
    pub wrong: Vec<String>,
}

/// What was seen until now.
pub struct Watched {
    title: String,
    view: Option<View>,
    error: Option<String>,
    past: VecDeque<Duration>,
    worst: Duration,
}

impl Source {
    /// Whoever the options name.
    pub fn open(args: &TopArgs) -> Result<Self> {
        if let Some(socket) = &args.asked.guard {
            return Ok(Self::Guard(socket.clone()));
        }
        let password = password(&args.asked.password_file)?;
        Ok(Self::Server(Box::new(AskedServer {
            address: args.asked.tls.only_address("--connect", &args.asked.connect)?,
            tls: args.asked.tls.clone(),
            password,
            client: None,
            devices: None,
        })))
    }

    pub fn title(&self) -> String {
        match self {
            Self::Guard(socket) => format!("guard {}", socket.display()),
            Self::Server(asked) => format!("server {}", asked.address.place),
        }
    }

    pub fn look(&mut self) -> Result<View> {
        match self {
            Self::Guard(socket) => Ok(of_guard(&look(socket)?)),
            Self::Server(asked) => asked.look(),
        }
    }
}

impl AskedServer {
    fn look(&mut self) -> Result<View> {
        let mut open = match self.client.take() {
            Some(open) => open,
            None => Client::connect(&self.address, &self.tls, self.password.clone(), PATIENCE)?,
        };
        let info = open.ask(&["INFO", "perdura", "devices"])?;
        let status = Status::of(&info)?;
        self.client = Some(open);
        let (now, told_now) = (Instant::now(), told(&info));
        let (time, before) = match self.devices.as_ref() {
            Some((at, before)) => (now.duration_since(*at), before.as_slice()),
            None => (Duration::ZERO, [].as_slice()),
        };
        let device_rows = rows(told_now.clone(), before, time);
        self.devices = Some((now, told_now));
        Ok(View { devices: device_rows, ..of_server(&self.address.place, &status) })
    }
}

fn of_guard(looked: &Looked) -> View {
    let power = match &looked.power {
        None => Power { word: "unknown".into(), told_by: String::new() },
        Some(reading) => Power { word: reading.state.word().into(), told_by: reading.to_string() },
    };
    let rows: Vec<_> = looked.regions.iter().map(of_region).collect();
    let mut wrong: Vec<_> = rows
        .iter()
        .filter(|row| row.dirty_bytes > row.budget_bytes)
        .map(|row| format!("{} has more dirty than its budget", row.name))
        .collect();
    let (to_safe, allowed, worst) = match &looked.battery {
        Some(battery) => {
            if battery.dirty > battery.total {
                wrong.push("more is dirty than the battery has time for".into());
            }
            if !battery.debt.is_zero() {
                wrong.push("shares are longer than the battery lasts, and shrink".into());
            }
            (battery.dirty, battery.total, Some(battery.worst))
        }
        // Each has a warning of its own: the one that is nearest to it counts.
        None => {
            let part = |row: &&Row| row.to_safe.as_secs_f64() / row.allowed.as_secs_f64().max(1e-9);
            let nearest = rows.iter().max_by(|a, b| part(a).total_cmp(&part(b)));
            nearest.map_or_else(Default::default, |row| (row.to_safe, row.allowed, None))
        }
    };
    View { power, to_safe, allowed, worst, rows, devices: Vec::new(), wrong }
}

fn of_region(region: &GuardedRegion) -> Row {
    let server = match (region.pid, region.is_flushing) {
        (Some(pid), _) => pid.to_string(),
        (None, true) => "flushing".into(),
        (None, false) => "gone".into(),
    };
    let to_safe = region.dirty_bytes as f64 / region.rate_bytes_per_s.max(1) as f64;
    Row {
        name: region.image.strip_suffix("/image.perdura").unwrap_or(&region.image).to_owned(),
        server,
        dirty_bytes: region.dirty_bytes,
        budget_bytes: region.budget_bytes,
        to_safe: Duration::from_secs_f64(to_safe),
        allowed: region.share.unwrap_or(region.grace),
        rate_bytes_per_s: region.rate_bytes_per_s,
    }
}

fn of_server(address: &str, status: &Status) -> View {
    let seconds = |s: f64| Duration::try_from_secs_f64(s).unwrap_or_default();
    let row = Row {
        name: address.to_owned(),
        server: if status.holder { "held" } else { "not held" }.to_owned(),
        dirty_bytes: status.dirty_bytes,
        budget_bytes: status.budget_bytes,
        to_safe: seconds(status.time_to_safe_s),
        allowed: seconds(status.warning_s),
        rate_bytes_per_s: status.proven_rate_bytes_per_s,
    };
    View {
        power: Power { word: status.power_state.clone(), told_by: status.power_told_by.clone() },
        to_safe: row.to_safe,
        allowed: row.allowed,
        worst: Some(seconds(status.time_to_safe_max_s)),
        rows: vec![row],
        devices: Vec::new(),
        wrong: status.broken_by.clone(),
    }
}

impl Watched {
    pub fn new(title: String) -> Self {
        Self { title, view: None, error: None, past: VecDeque::new(), worst: Duration::ZERO }
    }

    /// Notes the outcome of a look. After a failed one, what was seen last stays, with the error.
    pub fn note(&mut self, looked: Result<View>) {
        match looked {
            Err(error) => self.error = Some(format!("{error:#}")),
            Ok(view) => {
                self.error = None;
                self.worst = self.worst.max(view.to_safe).max(view.worst.unwrap_or_default());
                self.past.push_back(view.to_safe);
                if self.past.len() > PAST_MAX {
                    self.past.pop_front();
                }
                self.view = Some(view);
            }
        }
    }

    pub fn title(&self) -> &str {
        &self.title
    }

    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The time to be safe at each look, the newest last.
    pub fn past(&self) -> impl DoubleEndedIterator<Item = Duration> {
        self.past.iter().copied()
    }

    /// The longest time to be safe that is known of.
    pub fn worst(&self) -> Duration {
        self.worst
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
pub mod tests {
    use perdura_guard::LookedBattery;
    use perdura_warning::{Reading, State};

    use super::*;

    fn region(image: &str, dirty_bytes: u64, share: Option<u64>) -> GuardedRegion {
        GuardedRegion {
            image: format!("{image}/image.perdura"),
            owner: 0,
            pid: Some(42),
            is_flushing: false,
            dirty_bytes,
            budget_bytes: 1_000_000,
            grace: Duration::from_secs(2),
            rate_bytes_per_s: 1_000_000,
            share: share.map(Duration::from_millis),
        }
    }

    /// A guard with a battery of a second.
    fn looked() -> Looked {
        let ms = Duration::from_millis;
        Looked {
            power: Some(Reading::new(State::OnBattery, "nut:ups@localhost: OB")),
            battery: Some(LookedBattery {
                total: ms(1_000),
                debt: ms(0),
                dirty: ms(600),
                worst: ms(900),
            }),
            regions: vec![
                region("/srv/a", 500_000, Some(800)),
                GuardedRegion { pid: None, ..region("/srv/b", 100_000, Some(100)) },
            ],
        }
    }

    pub fn view() -> View {
        of_guard(&looked())
    }

    #[test]
    fn a_guards_battery_counts_or_the_region_that_is_nearest_to_its_own_warning() {
        let view = of_guard(&looked());
        assert_eq!((view.to_safe.as_millis(), view.allowed.as_millis()), (600, 1_000));
        assert_eq!((view.rows[0].name.as_str(), view.rows[1].server.as_str()), ("/srv/a", "gone"));
        assert!(view.wrong.is_empty());
        let mut alone = Looked { battery: None, ..looked() };
        alone.regions.iter_mut().for_each(|region| region.share = None);
        let alone = of_guard(&alone);
        assert_eq!((alone.to_safe.as_millis(), alone.worst), (500, None));
        let none = Looked { battery: None, regions: Vec::new(), power: None };
        assert_eq!(of_guard(&none).power.word, "unknown");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let mut broken = looked();
        broken.regions[0].dirty_bytes = 2_000_000;
        broken.battery.as_mut().unwrap().dirty = Duration::from_secs(2);
        broken.battery.as_mut().unwrap().debt = Duration::from_secs(1);
        assert_eq!(of_guard(&broken).wrong.len(), 3);
    }

    #[test]
    fn what_was_seen_last_stays_when_nobody_answers_and_the_worst_is_kept() {
        let mut watched = Watched::new("guard".into());
        watched.note(Ok(of_guard(&looked())));
        watched.note(Err(anyhow::anyhow!("nobody answers")));
        assert_eq!(watched.error(), Some("nobody answers"));
        assert_eq!(watched.view().unwrap().rows.len(), 2);
        watched.note(Ok(View { worst: None, ..of_guard(&looked()) }));
        assert_eq!((watched.worst().as_millis(), watched.error()), (900, None));
        (0..2 * PAST_MAX).for_each(|_| watched.note(Ok(of_guard(&looked()))));
        assert_eq!(watched.past().count(), PAST_MAX);
    }
}
