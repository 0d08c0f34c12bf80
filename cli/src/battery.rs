//! `--battery`: a file that describes a battery, and the thread that follows it for a server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use perdura_guard::{BatteryWatch, LOOK_EVERY, Orders};
use perdura_media::battery::BatteryFile;
use perdura_media::{Clock, RealClock, format_duration};
use perdura_server::{BatteryState, Power};

/// The battery of a file that is good now, and the time that it lasts now.
pub fn open(path: &Option<PathBuf>) -> Result<Option<(BatteryFile, Duration)>> {
    let Some(path) = path else { return Ok(None) };
    let file = BatteryFile::new(path);
    let lasts = file.lasts(RealClock.unix_ms()).context("--battery")?;
    Ok(Some((file, lasts.time)))
}

/// Follows a battery, of which at most `most` is counted on, as long as somebody keeps to what it
/// allows.
pub fn follow(
    file: BatteryFile,
    most: Duration,
    orders: Arc<Orders>,
    power: Arc<Power>,
) -> Result<()> {
    let mut watch = BatteryWatch::new(file, most, &RealClock);
    power.set_battery(state(&watch));
    // It may have changed since the promise was made.
    orders.battery(watch.time());
    let follow = move || {
        loop {
            RealClock.sleep_ns(LOOK_EVERY.as_nanos() as u64);
            let changed = watch.look(&RealClock);
            power.set_battery(state(&watch));
            if let Some(time) = changed {
                tracing::info!(time = %format_duration(time), "the battery lasts for another time");
                orders.battery(time);
            }
            if orders.is_over() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("perdura-battery".into())
        .spawn(follow)
        .context("start a thread")?;
    Ok(())
}

fn state(watch: &BatteryWatch) -> BatteryState {
    BatteryState { time: watch.time(), is_lost: watch.is_lost(), lasts: watch.lasts().copied() }
}
