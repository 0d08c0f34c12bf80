//! `perdura status --guard`: the memory that a guard keeps, and what the power is like.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use perdura_guard::{GuardedRegion, LookedBattery, look};
use perdura_media::{Bytes, format_duration};
use perdura_terminal::say;
use serde_json::json;

/// Exits 0 if no region has more dirty than it may, and all together have no more than the battery
/// has time for; 1 otherwise.
pub fn run(socket: &Path, as_json: bool) -> Result<ExitCode> {
    let looked = look(socket)?;
    let fits = |region: &GuardedRegion| region.dirty_bytes <= region.budget_bytes;
    let fits_battery = looked.battery.is_none_or(|battery| battery.dirty <= battery.total);
    let holds = fits_battery && looked.regions.iter().all(fits);
    if as_json {
        let power = looked.power.as_ref();
        say(json!({
            "holds": holds,
            "power_state": power.map(|reading| reading.state.word()),
            "power_told_by": power.map(|reading| &reading.told_by),
            "battery": looked.battery.map(|battery| json!({
                "flush_s": battery.total.as_secs_f64(),
                "dirty_s": battery.dirty.as_secs_f64(),
                "dirty_max_s": battery.worst.as_secs_f64(),
                "overcommitted_s": battery.debt.as_secs_f64(),
            })),
            "regions": looked.regions.iter().map(as_value).collect::<Vec<_>>(),
        }));
    } else {
        let power = match &looked.power {
            None => "unknown".into(),
            Some(reading) if reading.told_by.is_empty() => reading.state.word().to_owned(),
            Some(reading) => format!("{} ({reading})", reading.state.word()),
        };
        say(format_args!(
            "{}: {} regions; the power: {power}",
            socket.display(),
            looked.regions.len()
        ));
        if let Some(battery) = &looked.battery {
            say(battery_line(battery));
        }
        looked.regions.iter().for_each(|region| say(line(region)));
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn battery_line(battery: &LookedBattery) -> String {
    let time = format_duration;
    let mut line = format!(
        "the battery: {} to flush all that is dirty, at most {} so far, of {}",
        time(battery.dirty),
        time(battery.worst),
        time(battery.total),
    );
    if !battery.debt.is_zero() {
        line += &format!("; shares are {} too long and shrink", time(battery.debt));
    }
    line
}

fn line(region: &GuardedRegion) -> String {
    let server = match (region.pid, region.is_flushing) {
        (Some(pid), _) => format!("process {pid}"),
        (None, true) => "the server is gone; being flushed".into(),
        (None, false) => "the server is gone; kept".into(),
    };
    let share =
        region.share.map_or(String::new(), |share| format!(", share {}", format_duration(share)));
    format!(
        "{}: {} dirty of at most {}, warning {}{share}; user id {}, {server}",
        region.image,
        Bytes(region.dirty_bytes),
        Bytes(region.budget_bytes),
        format_duration(region.grace),
        region.owner,
    )
}

fn as_value(region: &GuardedRegion) -> serde_json::Value {
    json!({
        "image": region.image,
        "user_id": region.owner,
        "pid": region.pid,
        "is_flushing": region.is_flushing,
        "dirty_bytes": region.dirty_bytes,
        "budget_bytes": region.budget_bytes,
        "warning_s": region.grace.as_secs_f64(),
        "share_s": region.share.map(|share| share.as_secs_f64()),
        "flush_rate_bytes_per_s": region.rate_bytes_per_s,
    })
}
