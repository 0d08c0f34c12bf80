//! One device of a medium under the workload's requests: requests per second, latency, price and
//! power.

use perdura_media::model::ClosedLoop;
use perdura_media::profile::Medium;
use perdura_media::{Picoseconds, System};

use super::Workload;

/// A whole device: a card, an array of four disks, a set of modules on their channels.
pub(super) struct Device {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) bytes: u64,
    /// The requests a second with the workload's number outstanding on this device.
    pub(super) rate_per_s: f64,
    /// The time of one request, with the wait for others, nanoseconds.
    pub(super) latency_ns: f64,
    /// The price, euro; `None` where it is not known.
    pub(super) eur: Option<f64>,
    pub(super) price_year: Option<u16>,
    pub(super) idle_w: f64,
    /// The power at the full rate, watts.
    pub(super) peak_w: f64,
}

/// The kinds of media that the slides' conclusions tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A disk, which moves to where the data are.
    Disk,
    /// Flash, which takes microseconds to its first byte.
    Flash,
    /// Memory that takes less than flash to its first byte.
    Fast,
}

impl Kind {
    fn of(medium: &Medium) -> Self {
        if medium.positioning.1.0 > 0 {
            Self::Disk
        } else if medium.read_latency >= FLASH_FROM {
            Self::Flash
        } else {
            Self::Fast
        }
    }
}

impl Device {
    pub(super) fn run(system: &System, workload: &Workload, year: u16) -> Self {
        let bytes = system.capacity().0;
        let (rate_per_s, latency_ns) = closed_loop(system, workload);
        let modules = f64::from(system.modules);
        let (price_year, eur_per_gb) = system.eur_per_gb(year).unzip();
        Self {
            name: system.name.clone(),
            kind: Kind::of(&system.medium),
            bytes,
            rate_per_s,
            latency_ns,
            eur: eur_per_gb.map(|eur| eur * bytes as f64 / 1e9),
            price_year,
            idle_w: modules * system.power.idle.0,
            peak_w: modules * system.power.peak.0,
        }
    }

    /// The power of `devices` of them that together take `rate_per_s`, watts.
    pub(super) fn watts(&self, devices: f64, rate_per_s: f64) -> f64 {
        let busy = (rate_per_s / (devices * self.rate_per_s)).clamp(0.0, 1.0);
        devices * (self.idle_w + busy * (self.peak_w - self.idle_w))
    }
}

/// Requests a second and nanoseconds a request, requests all over the device. Software is counted
/// elsewhere: it runs on cores that all devices share.
fn closed_loop(system: &System, workload: &Workload) -> (f64, f64) {
    let load = ClosedLoop {
        footprint_bytes: system.capacity().0.max(workload.request_bytes),
        len_bytes: workload.request_bytes,
        read_share: workload.read_share,
        is_sequential: false,
        outstanding: workload.outstanding,
        software_ps: 0,
        cores: 1,
        requests: REQUESTS,
        seed: 1,
    };
    let reached = load.run(system);
    (reached.rate_per_s, reached.medium_ns)
}

/// The fastest flash takes a few microseconds, the slowest other memory less than one.
const FLASH_FROM: Picoseconds = Picoseconds(2_000_000);
const REQUESTS: u32 = 20_000;
