//! Feeds the same trace to a real region, with which a replay is compared.
//!
//! The region is in trap mode, with its own thread, traps and log. On a virtual clock and a device
//! of modelled time each run is the same. On the machine's clock and a real device a run shows the
//! effects that the model leaves out.

use std::sync::Arc;

use hdrhistogram::Histogram;
use perdura_dirty::{Stats, TrackingKind, TrapKind};
use perdura_media::{Clock, Device, RealClock, TimedDevice, TurnClock};
use perdura_region::{Config, Region};

use super::config::{Loop, ReplayConfig};
use super::engine::QUIET_NS;
use super::numbering::PageWrite;
use super::outcome::Writer;
use super::{Outcome, SizingError};
use crate::trace::PAGE_BYTES;

/// How exactly the trace begins after a round of the region's thread, nanoseconds.
const PHASE_NS: u64 = 1_000;
/// Waits for less than this are spun away, since sleeping takes longer, nanoseconds.
const SPUN_NS: u64 = 200_000;
/// A store that took less did not wait for the cleaner: a device flush takes longer.
const STALL_NS_MIN: u64 = 4_000;

/// The result of feeding a trace to a real region.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The page writes.
    pub page_writes: u64,
    /// The bytes written to the device, less those that opening the region wrote.
    pub device_bytes: u64,
    /// The bytes cleaned ahead of need, or for a writer that waited.
    pub cleaned_bytes: u64,
    /// The bytes that checkpoints wrote.
    pub checkpoint_bytes: u64,
    /// The bytes moved so that space came free.
    pub compacted_bytes: u64,
    /// The bytes that became dirty.
    pub dirtied_bytes: u64,
    /// The number of checkpoints.
    pub checkpoints: u64,
    /// The number of device flushes.
    pub device_flushes: u64,
    /// How many writes had to wait.
    pub stalls: u64,
    /// How long each of the writes that had to wait did so, nanoseconds.
    pub stall_ns: Histogram<u64>,
    /// The sum of all waits, nanoseconds.
    pub stalled_ns: u64,
    /// The most bytes in use at once.
    pub used_max_bytes: u64,
    /// The time until the last write was through, nanoseconds.
    pub run_ns: u64,
}

impl Measured {
    /// How far a prediction is off, as a part of what was measured: bytes on the device, stalls,
    /// time stalled.
    #[must_use]
    pub fn off(&self, predicted: &Outcome) -> [f64; 3] {
        let off = |predicted: u64, measured: u64| {
            (predicted as f64 - measured as f64) / (measured as f64).max(1.0)
        };
        [
            off(predicted.device.total(), self.device_bytes),
            off(predicted.stalls, self.stalls),
            off(predicted.stalled_ns, self.stalled_ns),
        ]
    }
}

/// Feeds a region on a virtual clock and a device of the configured timing, deterministically.
///
/// # Errors
/// The region cannot be opened, for example where neither userfaultfd nor `mprotect` traps stores.
pub fn measure_virtual(
    config: &ReplayConfig,
    writes: &[PageWrite],
) -> Result<Measured, SizingError> {
    let clock = Arc::new(TurnClock::default());
    let device = Arc::new(TimedDevice::new(clock.clone(), config.device));
    let region = Region::open(device, clock.clone(), region_config(config))?;
    // Only its cleaner runs beside this thread.
    clock.begin(1);
    // As a replay begins: after a while, when the region's thread has just looked.
    let quiet = config.checkpoint_every.map_or(0, |every| every.as_nanos() as u64);
    clock.sleep_ns(quiet.max(QUIET_NS));
    let epochs = region.stats().epochs;
    while region.stats().epochs == epochs {
        clock.sleep_ns(PHASE_NS);
    }
    let began_ns = clock.now_ns();
    let measured = feed(&region, &*clock, 1, config.pacing, writes, |at_ns| {
        clock.sleep_until_ns(began_ns + at_ns);
    });
    clock.end();
    Ok(measured)
}

/// Feeds a region on this device, in real time.
///
/// # Errors
/// The errors of [`measure_virtual`].
pub fn measure(
    config: &ReplayConfig,
    device: Arc<dyn Device>,
    writes: &[PageWrite],
) -> Result<Measured, SizingError> {
    let region = Region::open(device, Arc::new(RealClock), region_config(config))?;
    // As a replay begins: open for so long that the next checkpoint is due with the first write.
    RealClock.sleep_ns(config.checkpoint_every.map_or(0, |every| every.as_nanos() as u64));
    let began_ns = RealClock.now_ns();
    Ok(feed(&region, &RealClock, STALL_NS_MIN, config.pacing, writes, |at_ns| {
        while let Some(left_ns) = (began_ns + at_ns).checked_sub(RealClock.now_ns() + 1) {
            match left_ns.checked_sub(SPUN_NS) {
                Some(asleep_ns) => RealClock.sleep_ns(asleep_ns),
                None => std::hint::spin_loop(),
            }
        }
    }))
}

fn region_config(config: &ReplayConfig) -> Config {
    Config {
        reserved_bytes: config.reserved_bytes,
        segment_bytes: config.segment_bytes,
        log_percent: config.log_percent,
        tracking: TrackingKind::Trap(TrapKind::Auto),
        policy: config.policy,
        recency: config.recency,
        checkpoint_every: config.checkpoint_every,
        epoch: config.epoch,
        seed: config.seed,
        ..Config::new(config.region_bytes, config.budget_bytes)
    }
}

fn feed(
    region: &Region,
    clock: &dyn Clock,
    stall_ns_min: u64,
    pacing: Loop,
    writes: &[PageWrite],
    sleep_until: impl Fn(u64),
) -> Measured {
    let Some(memory) = region.trapped() else { unreachable!("opened in trap mode") };
    let before = region.stats();
    let (mut writer, mut shift_ns, mut stalls) = (Writer::new(), 0, before.stalls);
    let began_ns = clock.now_ns();
    for (number, write) in (1u64..).zip(writes) {
        sleep_until(write.time_ns + shift_ns);
        let stored_ns = clock.now_ns();
        memory.write(u64::from(write.page) * PAGE_BYTES, &number.to_le_bytes());
        let took_ns = clock.now_ns() - stored_ns;
        // All counters are read only where there may be something to see.
        if took_ns >= stall_ns_min && region.stats().stalls > stalls {
            stalls = region.stats().stalls;
            writer.stalled(took_ns);
            shift_ns += if pacing == Loop::Closed { took_ns } else { 0 };
        }
    }
    let run_ns = clock.now_ns() - began_ns;
    let after = region.stats();
    let since = |counter: fn(&Stats) -> u64| counter(&after) - counter(&before);
    Measured {
        page_writes: writes.len() as u64,
        device_bytes: since(|stats| stats.device_bytes),
        cleaned_bytes: since(|stats| stats.cleaned_bytes),
        checkpoint_bytes: since(|stats| stats.drained_bytes + stats.captured_bytes),
        compacted_bytes: since(|stats| stats.compacted_bytes),
        dirtied_bytes: since(|stats| stats.dirtied_bytes),
        checkpoints: since(|stats| stats.checkpoints),
        device_flushes: since(|stats| stats.device_flushes),
        stalls: after.stalls - before.stalls,
        stall_ns: writer.stall_ns,
        stalled_ns: writer.stalled_ns,
        used_max_bytes: region.used_bytes_max(),
        run_ns,
    }
}
