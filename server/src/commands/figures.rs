//! The figures of the promise, for INFO's `# Persistence` and `# Perdura` and for PERDURA STATS.
//!
//! Every counter of the region is shown, under its own name, so that a new one cannot be forgotten.
//! They count since this process opened the image; CONFIG RESETSTAT leaves them alone, because
//! their sums and ratios are only right over the whole time.

use std::fmt::Write;
use std::time::Duration;

use perdura_media::battery::Lasts;
use perdura_region::{default_reserve, flush_time};
use perdura_warning::{Confidence, Left};

use super::call::Outcome;
use super::context::{Clients, Context, Server};
use crate::power::{BatteryState, Said};
use crate::resp::Args;

/// The figures, by name and in the order in which they are shown.
fn figures(server: &Server<'_>) -> Vec<(&'static str, u64)> {
    let f = &server.facts;
    let mut all = vec![
        ("budget_bytes", f.budget_bytes),
        ("budget_now_bytes", f.budget_now_bytes),
        ("dirty_bytes", f.dirty_bytes),
        ("dirty_bytes_max", f.dirty_bytes_max),
        ("log_bytes", f.log_bytes),
        ("user_bytes", server.shared.user_bytes()),
    ];
    all.extend(f.region.fields());
    all.push(("group_writes", server.shared.stats().group_writes.get()));
    all.push(("latched", u64::from(has_failed(server))));
    all
}

/// Whether the device has failed, in a group commit or under the cleaner.
fn has_failed(server: &Server<'_>) -> bool {
    server.shared.latched.get().is_some() || server.facts.failure.is_some()
}

pub(super) fn backup_section(
    server: &Server<'_>,
    _: Clients,
    out: &mut String,
) -> std::fmt::Result {
    let Some(backup) = &server.config.backup else { return write!(out, "backup_enabled:0\r\n") };
    write!(out, "backup_enabled:1\r\n")?;
    for (name, value) in backup.figures() {
        write!(out, "{name}:{}\r\n", value.replace(['\r', '\n'], " "))?;
    }
    Ok(())
}

pub(super) fn persistence_section(
    server: &Server<'_>,
    _: Clients,
    out: &mut String,
) -> std::fmt::Result {
    let status = |failed| if failed { "err" } else { "ok" };
    let saves = server.shared.saving.report();
    let seconds = |time: Option<u64>| time.map_or(-1, |s| i64::try_from(s).unwrap_or(i64::MAX));
    let since = saves.since_unix_ms.map(|ms| server.unix_ms().saturating_sub(ms) / 1000);
    loading_fields(server, out)?;
    write!(
        out,
        "rdb_changes_since_last_save:{}\r\nrdb_bgsave_in_progress:{}\r\n\
         rdb_last_save_time:{}\r\n\
         rdb_last_bgsave_status:{}\r\nrdb_last_bgsave_time_sec:{}\r\n\
         rdb_current_bgsave_time_sec:{}\r\nrdb_saves:{}\r\naof_enabled:{}\r\n\
         aof_last_write_status:{}\r\n",
        server.shared.changes().saturating_sub(saves.changes_saved),
        u8::from(saves.since_unix_ms.is_some()),
        saves.saved_unix_s,
        status(saves.failed || server.facts.failure.is_some()),
        seconds(saves.took_s),
        seconds(since),
        saves.count,
        u8::from(server.holds_replies()),
        status(has_failed(server)),
    )?;
    NEVER.iter().try_for_each(|(name, value)| write!(out, "{name}:{value}\r\n"))
}

/// Fields with the values of a Redis that has never forked, rewritten an append-only file or run a
/// module, for this server never does.
const NEVER: [(&str, &str); 19] = [
    ("current_cow_peak", "0"),
    ("current_cow_size", "0"),
    ("current_cow_size_age", "0"),
    ("current_fork_perc", "0.00"),
    ("current_save_keys_processed", "0"),
    ("current_save_keys_total", "0"),
    ("rdb_last_cow_size", "0"),
    ("rdb_last_load_keys_expired", "0"),
    ("rdb_last_load_keys_loaded", "0"),
    ("aof_rewrite_in_progress", "0"),
    ("aof_rewrite_scheduled", "0"),
    ("aof_last_rewrite_time_sec", "-1"),
    ("aof_current_rewrite_time_sec", "-1"),
    ("aof_last_bgrewrite_status", "ok"),
    ("aof_rewrites", "0"),
    ("aof_rewrites_consecutive_failures", "0"),
    ("aof_last_cow_size", "0"),
    ("module_fork_in_progress", "0"),
    ("module_fork_last_cow_size", "0"),
];

/// Writes how far loading has come in Redis's fields; commands are answered all the while.
fn loading_fields(server: &Server<'_>, out: &mut String) -> std::fmt::Result {
    let Some(loading) = server.facts.loading.as_ref().filter(|loading| loading.failure.is_none())
    else {
        return write!(out, "loading:0\r\nasync_loading:0\r\n");
    };
    let (loaded, total) = (loading.loaded_bytes, loading.total_bytes);
    let elapsed_ns = server.now_ns.saturating_sub(server.shared.started_ns);
    let left_ns = u128::from(elapsed_ns) * u128::from(total - loaded) / u128::from(loaded.max(1));
    write!(
        out,
        "loading:1\r\nasync_loading:0\r\nloading_start_time:{}\r\nloading_total_bytes:{total}\r\n\
         loading_rdb_used_mem:0\r\n\
         loading_loaded_bytes:{loaded}\r\nloading_loaded_perc:{:.2}\r\nloading_eta_seconds:{}\r\n",
        server.unix_ms().saturating_sub(elapsed_ns / 1_000_000) / 1000,
        loaded as f64 * 100.0 / total.max(1) as f64,
        left_ns / 1_000_000_000,
    )
}

pub(super) fn perdura_section(
    server: &Server<'_>,
    _: Clients,
    out: &mut String,
) -> std::fmt::Result {
    write!(
        out,
        "durability:{}\r\nwarning_seconds:{}\r\nmemory_lock:{}\r\ntracking:{}\r\ndevice:{}\r\n\
         compression:{}\r\nencryption:{}\r\n\
         device_bytes_per_user_byte:{:.3}\r\nfailure:{}\r\n",
        server.config.durability.name(),
        warning_s(server),
        server.store.region().describe_memory(),
        server.store.region().describe_tracking(),
        server.store.region().describe_device(),
        server.store.region().compression().name(),
        server.store.region().encryption(),
        server.facts.region.device_bytes as f64 / server.shared.user_bytes().max(1) as f64,
        one_line(server.shared.latched.get().or(server.facts.failure.as_ref())),
    )?;
    promise_fields(server, out)?;
    power_fields(server, out)?;
    battery_fields(server, out)?;
    figures(server).iter().try_for_each(|(name, value)| write!(out, "{name}:{value}\r\n"))
}

/// Writes what the sources of warnings say, and what follows. The time that is left is in seconds,
/// -1 where nobody knows it.
fn power_fields(server: &Server<'_>, out: &mut String) -> std::fmt::Result {
    let Some(power) = &server.config.power else { return Ok(()) };
    let Said { reading, demand, is_met } = power.said();
    let left_s = match reading.left {
        Some(Left::Time(time) | Left::Both(time, _)) => time.as_secs_f64(),
        Some(Left::Energy(_)) | None => -1.0,
    };
    write!(
        out,
        "power_state:{}\r\npower_source_lost:{}\r\npower_left_seconds:{left_s:.0}\r\n\
         power_demand:{}\r\npower_demand_met:{}\r\npower_told_by:{}\r\n",
        reading.state.word(),
        u8::from(reading.confidence == Confidence::Lost),
        demand.word(),
        u8::from(is_met),
        one_line(Some(&reading.told_by)),
    )
}

/// The warning that is counted on now, seconds.
fn warning_s(server: &Server<'_>) -> f64 {
    let battery = server.config.power.as_ref().and_then(|power| power.battery());
    let lasts_s = battery.map_or(f64::INFINITY, |battery| battery.time.as_secs_f64());
    server.config.warning_s.min(lasts_s)
}

/// Writes what is known of the battery, if there is one.
fn battery_fields(server: &Server<'_>, out: &mut String) -> std::fmt::Result {
    let battery = server.config.power.as_ref().and_then(|power| power.battery());
    let Some(BatteryState { time, is_lost, lasts }) = battery else { return Ok(()) };
    write!(
        out,
        "battery_seconds:{:.3}\r\nbattery_lost:{}\r\n",
        time.as_secs_f64(),
        u8::from(is_lost)
    )?;
    let Some(Lasts { usable, load, age_years, temperature_c, .. }) = lasts else { return Ok(()) };
    write!(
        out,
        "battery_usable_joules:{:.0}\r\nbattery_load_watts:{:.1}\r\nbattery_age_years:\
         {age_years:.2}\r\nbattery_temperature_celsius:{temperature_c:.1}\r\n",
        usable.0, load.0,
    )
}

/// Writes the promise, and the time that a flush would take now. Times are in seconds. The age of
/// the last checkpoint is -1 if there was none since the image was opened.
fn promise_fields(server: &Server<'_>, out: &mut String) -> std::fmt::Result {
    let facts = &server.facts;
    let checkpoint_age_s = match facts.region.checkpoint_at_ns {
        0 => -1.0,
        at_ns => server.now_ns.saturating_sub(at_ns) as f64 / 1e9,
    };
    write!(
        out,
        "holder:{}\r\nseccomp:{}\r\nlast_checkpoint_seconds:{checkpoint_age_s:.3}\r\n",
        if server.config.has_holder { "yes" } else { "no" },
        server.config.seccomp,
    )?;
    if let Some(not_after_s) = server.config.tls.not_after_s() {
        write!(out, "tls_certificate_not_after:{not_after_s}\r\n")?;
    }
    let Some(terms) = &server.config.terms else { return Ok(()) };
    let rate = terms.rate_bytes_per_s;
    let flush = |bytes| flush_time(server.store.region().geometry(), rate, bytes).as_secs_f64();
    let warning = Duration::try_from_secs_f64(warning_s(server)).unwrap_or(terms.warning);
    let reserve_s = default_reserve(warning).min(terms.reserve).as_secs_f64();
    write!(
        out,
        "proven_rate_bytes_per_s:{rate}\r\nreserve_seconds:{reserve_s:.3}\r\n\
         promised_seconds:{:.3}\r\ntime_to_safe_seconds:{:.3}\r\n\
         time_to_safe_max_seconds:{:.3}\r\n",
        flush(facts.budget_bytes) + reserve_s,
        flush(facts.dirty_bytes),
        flush(facts.dirty_bytes_max),
    )
}

fn one_line(text: Option<&String>) -> String {
    text.map_or(String::new(), |text| text.replace(['\r', '\n'], " "))
}

/// PERDURA STATS: the figures of INFO perdura as a map of integers
pub(super) fn stats(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    let figures = figures(ctx.server);
    ctx.reply.map(figures.len());
    for (name, value) in figures {
        ctx.reply.bulk(name.as_bytes());
        ctx.reply.len(value);
    }
    Ok(())
}
