//! A medium in one of the three configurations, with as many devices as the load needs.

use std::cmp::Ordering;

use serde::Serialize;

use super::Workload;
use super::device::Device;

/// The use of a medium (HASTE slides, "Power and Cost Analysis").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// All data lie on it.
    Primary,
    /// The medium keeps the hottest data of a disk array.
    Cache,
    /// A fixed part of the data lies on it, and the rest on disks.
    Hybrid,
}

/// A medium in a role. Every figure is modelled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The name of the medium.
    pub medium: String,
    /// The use of the medium.
    pub role: Role,
    /// How many devices of the medium there are.
    pub devices: f64,
    /// How many disk arrays there are beside them.
    pub disk_arrays: f64,
    /// The share of the data on the medium, 0 to 1.
    pub data_share: f64,
    /// The share of the requests that the medium answers, 0 to 1.
    pub request_share: f64,
    /// Whether the load is met.
    pub meets: bool,
    /// The requests a second that it can take.
    pub rate_per_s: f64,
    /// The mean time of a request, software included, nanoseconds.
    pub request_ns: f64,
    /// The price, euro; `None` where that of some part is not known.
    pub eur: Option<f64>,
    /// The year of the medium's price.
    pub price_year: Option<u16>,
    /// The power at the load asked for, or at its own rate if that is less, watts.
    pub watts: f64,
    /// The requests a second for each euro.
    pub rate_per_eur: Option<f64>,
    /// The requests a second for each watt.
    pub rate_per_watt: f64,
    /// How many times the rate is that of as many disks as hold the data.
    pub speed_up: f64,
}

impl Candidate {
    /// Cheapest first, then what has no price; behind them what is too slow, the fastest first.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let eur = |one: &Self| one.eur.unwrap_or(f64::INFINITY);
        let by_price = eur(self).total_cmp(&eur(other));
        match (self.meets, other.meets) {
            (true, true) => by_price,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => other.rate_per_s.total_cmp(&self.rate_per_s).then(by_price),
        }
    }
}

/// The candidate with all data on the medium: as many devices as the data or the rate need.
pub(super) fn primary(device: &Device, disks: &Device, workload: &Workload) -> Candidate {
    let devices = devices_for(device, workload.capacity_bytes as f64, workload.rate_per_s);
    assemble(
        device,
        disks,
        workload,
        Role::Primary,
        Parts { devices, arrays: 0.0, data_share: 1.0, request_share: 1.0 },
    )
}

/// The hottest data on the medium, all of them on disks: the cheapest of several sizes.
pub(super) fn cache(device: &Device, disks: &Device, workload: &Workload) -> Option<Candidate> {
    let sizes = CACHE_SHARES.iter().map(|share| {
        let hits = workload.locality.hit_share(*share);
        let devices =
            devices_for(device, share * workload.capacity_bytes as f64, workload.rate_per_s * hits);
        let arrays =
            devices_for(disks, workload.capacity_bytes as f64, workload.rate_per_s * (1.0 - hits));
        assemble(
            device,
            disks,
            workload,
            Role::Cache,
            Parts { devices, arrays, data_share: *share, request_share: hits },
        )
    });
    sizes.min_by(Candidate::order)
}

/// The candidate with the workload's fixed part on the medium, and the rest on disks.
pub(super) fn hybrid(device: &Device, disks: &Device, workload: &Workload) -> Candidate {
    let (data_share, request_share) = (workload.fixed_data_share, workload.fixed_request_share);
    let (bytes, rate) = (workload.capacity_bytes as f64, workload.rate_per_s);
    let devices = devices_for(device, bytes * data_share, rate * request_share);
    let arrays = devices_for(disks, bytes * (1.0 - data_share), rate * (1.0 - request_share));
    assemble(
        device,
        disks,
        workload,
        Role::Hybrid,
        Parts { devices, arrays, data_share, request_share },
    )
}

/// The number of devices that hold the bytes and take the rate, but no more than [`DEVICES_MAX`]
/// for the rate's sake.
fn devices_for(device: &Device, bytes: f64, rate_per_s: f64) -> f64 {
    let to_hold = (bytes / device.bytes as f64).ceil();
    let to_serve = (rate_per_s / device.rate_per_s).ceil();
    to_hold.max(to_serve.min(DEVICES_MAX)).max(1.0)
}

struct Parts {
    devices: f64,
    arrays: f64,
    data_share: f64,
    request_share: f64,
}

fn assemble(
    device: &Device,
    disks: &Device,
    workload: &Workload,
    role: Role,
    parts: Parts,
) -> Candidate {
    let Parts { devices, arrays, data_share, request_share } = parts;
    let fast = if request_share > 0.0 {
        devices * device.rate_per_s / request_share
    } else {
        f64::INFINITY
    };
    let rest = 1.0 - request_share;
    let slow =
        if rest > 1e-9 && arrays > 0.0 { arrays * disks.rate_per_s / rest } else { f64::INFINITY };
    let processors = processors_rate(workload);
    let rate_per_s = fast.min(slow).min(processors);
    let medium_ns = request_share * device.latency_ns
        + rest * if arrays > 0.0 { disks.latency_ns } else { 0.0 };
    let array_eur = if arrays > 0.0 { disks.eur.map(|eur| eur * arrays) } else { Some(0.0) };
    let eur = device.eur.map(|eur| eur * devices).zip(array_eur).map(|(own, array)| own + array);
    let load = workload.rate_per_s.min(rate_per_s);
    let array_watts = if arrays > 0.0 { disks.watts(arrays, load * rest) } else { 0.0 };
    let watts = device.watts(devices, load * request_share) + array_watts;
    let plain_arrays = (workload.capacity_bytes as f64 / disks.bytes as f64).ceil();
    Candidate {
        medium: device.name.clone(),
        role,
        devices,
        disk_arrays: arrays,
        data_share,
        request_share,
        meets: rate_per_s >= workload.rate_per_s,
        rate_per_s,
        request_ns: medium_ns + workload.software_ns,
        eur,
        price_year: device.price_year,
        watts,
        rate_per_eur: eur.map(|eur| rate_per_s / eur),
        rate_per_watt: rate_per_s / watts,
        speed_up: rate_per_s / (plain_arrays * disks.rate_per_s).min(processors),
    }
}

/// The rate at which the software alone would take requests, requests a second.
fn processors_rate(workload: &Workload) -> f64 {
    if workload.software_ns > 0.0 {
        f64::from(workload.cores) * 1e9 / workload.software_ns
    } else {
        f64::INFINITY
    }
}

/// The sizes of a cache that are tried, as shares of the data.
const CACHE_SHARES: [f64; 9] = [0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5];
/// The most devices that are bought for the sake of speed only.
const DEVICES_MAX: f64 = 10_000.0;
