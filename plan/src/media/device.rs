//! One device of a medium under the workload's kind of requests: how many a second, how long each, at what price and power.

use perdura_media::{Access, Model, System};

use super::Workload;

/// A whole device: a card, an array of four disks, a set of modules on their channels.
pub(super) struct Device {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Requests a second, with the workload's number outstanding on this device.
    pub(super) rate_per_s: f64,
    /// One of them, with the wait for others.
    pub(super) latency_ns: f64,
    /// `None`: not known.
    pub(super) eur: Option<f64>,
    pub(super) price_year: Option<u16>,
    pub(super) idle_w: f64,
    pub(super) active_w: f64,
}

impl Device {
    pub(super) fn run(system: &System, workload: &Workload, year: u16) -> Self {
        let bytes = system.capacity().0;
        let (rate_per_s, latency_ns) = closed_loop(system, workload);
        let modules = f64::from(system.modules);
        let (price_year, eur_per_gb) = system.eur_per_gb(year).unzip();
        Self {
            name: system.name.clone(),
            bytes,
            rate_per_s,
            latency_ns,
            eur: eur_per_gb.map(|eur| eur * bytes as f64 / 1e9),
            price_year,
            idle_w: modules * system.power.idle.0,
            active_w: modules * system.power.active.0,
        }
    }

    /// Watts of `devices` of them that together take `rate_per_s`.
    pub(super) fn watts(&self, devices: f64, rate_per_s: f64) -> f64 {
        let busy = (rate_per_s / (devices * self.rate_per_s)).clamp(0.0, 1.0);
        devices * (self.idle_w + busy * (self.active_w - self.idle_w))
    }
}

/// Requests a second and nanoseconds a request, requests all over the device, as many outstanding as the workload has.
fn closed_loop(system: &System, workload: &Workload) -> (f64, f64) {
    let len = workload.request_bytes;
    let places = (system.capacity().0 / len).max(1);
    let model = Model::new(system, system.capacity().0.max(len));
    let mut ready_ps = vec![0u64; workload.outstanding as usize];
    let (mut state, mut waited_ps) = (0x9e37_79b9_7f4a_7c15u64, 0u128);
    for number in 0..REQUESTS {
        // Places and directions from a fixed sequence (splitmix64): the same plan each time.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let is_read = (mixed >> 40) as f64 / (1u64 << 24) as f64 <= workload.read_share
            && workload.read_share > 0.0;
        let access = if is_read { Access::Read } else { Access::Write };
        let slot = number % ready_ps.len();
        let from_ps = ready_ps[slot];
        ready_ps[slot] = model.book(from_ps, access, mixed % places * len, len);
        waited_ps += u128::from(ready_ps[slot] - from_ps);
    }
    let end_ps = ready_ps.iter().copied().max().unwrap_or(1).max(1);
    (REQUESTS as f64 / (end_ps as f64 / 1e12), waited_ps as f64 / REQUESTS as f64 / 1e3)
}

const REQUESTS: usize = 20_000;
