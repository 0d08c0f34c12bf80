//! `perdura drill`: a flush for real, and its time beside the promise.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use perdura_guard::{drill, look};
use perdura_media::{Bytes, BytesPerSecond, RealClock, format_duration};
use perdura_region::directory::Directory;
use perdura_region::holder::Holders;

use crate::args::DrillArgs;
use crate::client::{Client, PATIENCE_OF_DRILL};
use crate::password::password;
use crate::settings;
use perdura_terminal::LateBar;
use perdura_terminal::say;

/// The result of a drill, in this process or in a running server.
struct Outcome {
    budget_bytes: u64,
    used_bytes: u64,
    device_bytes: u64,
    elapsed: Duration,
    promised: Duration,
}

pub fn run(args: &DrillArgs) -> Result<ExitCode> {
    match (&args.guard, &args.connect) {
        (Some(socket), _) => drill_guarded(socket, !args.no_fill),
        (None, Some(address)) => Ok(judge(&drill_running(address, args)?)),
        (None, None) => drill_stopped(args),
    }
}

/// Lets all servers of a guard drill at the same time, and judges them together.
fn drill_guarded(socket: &Path, fills: bool) -> Result<ExitCode> {
    let looked = look(socket)?;
    let outcome = drill(socket, fills)?;
    let (mut is_broken, mut is_full) = (!outcome.failed.is_empty(), !outcome.drilled.is_empty());
    for drilled in &outcome.drilled {
        let region = looked.regions.iter().find(|region| region.image == drilled.image);
        let promised = match (&looked.battery, region) {
            (Some(battery), _) => battery.total,
            (None, Some(region)) => region.grace,
            (None, None) => Duration::ZERO,
        };
        is_broken |= drilled.elapsed > promised;
        is_full &= is_filled(drilled.used_bytes, drilled.budget_bytes);
        say(format_args!(
            "{}: flushed {} of a budget of {} ({} written) in {}; promised {}",
            drilled.image,
            Bytes(drilled.used_bytes),
            Bytes(drilled.budget_bytes),
            Bytes(drilled.device_bytes),
            format_duration(drilled.elapsed),
            format_duration(promised),
        ));
    }
    outcome.failed.iter().for_each(|why| say(format_args!("NOT DRILLED: {why}")));
    Ok(verdict(is_broken, is_full))
}

fn is_filled(used_bytes: u64, budget_bytes: u64) -> bool {
    used_bytes >= budget_bytes / 100 * 98
}

fn verdict(is_broken: bool, is_full: bool) -> ExitCode {
    if is_broken {
        say("BROKEN: a flush took longer than promised, or none was made");
        ExitCode::FAILURE
    } else if !is_full {
        say("kept, but the budget was not full: this drill proves less than the promise");
        ExitCode::SUCCESS
    } else {
        say("PASS");
        ExitCode::SUCCESS
    }
}

fn judge(outcome: &Outcome) -> ExitCode {
    let seconds = outcome.elapsed.as_secs_f64().max(1e-9);
    say(format_args!(
        "flushed {} of a budget of {} ({} written) in {} at {}; promised {}",
        Bytes(outcome.used_bytes),
        Bytes(outcome.budget_bytes),
        Bytes(outcome.device_bytes),
        format_duration(outcome.elapsed),
        BytesPerSecond((outcome.device_bytes as f64 / seconds) as u64),
        format_duration(outcome.promised),
    ));
    verdict(outcome.elapsed > outcome.promised, is_filled(outcome.used_bytes, outcome.budget_bytes))
}

fn drill_stopped(args: &DrillArgs) -> Result<ExitCode> {
    let place = settings::place(&args.place, None)?;
    settings::check_memory(&place.config)?;
    let threads = place.threads;
    let bar = LateBar::new("proving the flush rate");
    let clock = Arc::new(RealClock);
    let directory = Directory::open(place, clock, &|done, of| bar.bytes(done, of));
    bar.finish();
    let Directory { region, promise, supervisor, link, .. } = directory?;
    let mut holders = Holders::watch(supervisor, link)?;
    let report = region.drill(!args.no_fill, threads)?;
    region.close(threads)?;
    let code = judge(&Outcome {
        budget_bytes: report.budget_bytes,
        used_bytes: report.used_bytes,
        device_bytes: report.flush.device_bytes,
        elapsed: Duration::from_nanos(report.elapsed_ns),
        promised: promise.flush_time,
    });
    holders.let_go().context("everything is on the SSD, but the holder did not go")?;
    Ok(code)
}

/// Lets a running server drill itself, because it alone may use its region.
fn drill_running(address: &str, args: &DrillArgs) -> Result<Outcome> {
    let place = args.tls.only_address("--connect", address)?;
    let password = password(&args.password_file)?;
    let mut client = Client::connect(&place, &args.tls, password, PATIENCE_OF_DRILL)?;
    let words: &[&str] =
        if args.no_fill { &["PERDURA", "DRILL", "NOFILL"] } else { &["PERDURA", "DRILL"] };
    let text = client.ask(words)?;
    let field = |name: &str| -> Result<u64> {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .and_then(|value| value.trim().parse().ok())
            .with_context(|| format!("{} answered without {name}: {text:?}", place.place))
    };
    Ok(Outcome {
        budget_bytes: field("budget_bytes")?,
        used_bytes: field("used_bytes")?,
        device_bytes: field("device_bytes")?,
        elapsed: Duration::from_nanos(field("elapsed_ns")?),
        promised: Duration::from_nanos(field("promised_ns")?),
    })
}
