//! `perdura bench energy`: computes, prints, writes.

use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, Result, bail, ensure};
use perdura_bench::dist::Distribution;
use perdura_bench::energy::{
    CHOICE_COLUMNS, COLUMNS, DRAM_COLUMNS, EnergyResult, Mode, Motivation, Pace, Scale, Setup,
    Systems, motivation_page, page,
};
use perdura_media::clock::RealClock;
use perdura_terminal::{LateBar, Outputs, named, say};

use super::args::EnergyArgs;
use super::show::rows;
use super::signal::end_at_a_signal;

/// The module that Sprint-AEP measured.
const PROFILE: &str = "aep";
const SCALE: &str = "small";
/// The paper's clients are YCSB-C's, whose zipfian has as many ranks as there are records.
const DISTRIBUTION: &str = "plain-zipfian";
const DRAM_PERCENT: u64 = 10;
const CLOCK: &str = "virtual";

pub fn run(args: &EnergyArgs) -> Result<ExitCode> {
    let profile = args.profile.as_deref().unwrap_or(PROFILE);
    let systems = named("profile", profile, Systems::find(profile))?;
    let outputs = Outputs::of(args.json.as_deref(), args.html.as_deref(), &[])?;
    if args.motivation {
        let result = Motivation::of(profile, &systems.modules);
        outputs.write(&result, || motivation_page(&result))?;
        if !outputs.take_stdout() {
            show_motivation(&result);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let name = args.scale.as_deref().unwrap_or(SCALE);
    let scale = Scale::parse(name)
        .with_context(|| format!("--scale {name}: expected tiny, small or large"))?;
    let setup = Setup {
        systems: &systems,
        scale,
        is_global: args.global,
        distribution: distribution(args.distribution.as_deref().unwrap_or(DISTRIBUTION))?,
        dram_percent: args.dram.unwrap_or(DRAM_PERCENT),
        pace: pace(args.clock.as_deref().unwrap_or(CLOCK))?,
    };
    let ended = end_at_a_signal()?;
    let bar = LateBar::new("modelled runs");
    let progress = |what: &str, done, of| bar.step(what, done, of);
    let is_over = || ended.load(Relaxed);
    let result = EnergyResult::of(profile, &setup, &progress, &is_over);
    bar.finish();
    ensure!(!is_over(), "interrupted");
    outputs.write(&result, || page(&result))?;
    if !outputs.take_stdout() {
        show(&result);
    }
    Ok(ExitCode::SUCCESS)
}

fn distribution(name: &str) -> Result<Distribution> {
    Distribution::parse(name).with_context(|| {
        let known = Distribution::ALL.map(Distribution::name).join(", ");
        format!("--distribution {name}: expected one of {known}")
    })
}

fn pace(name: &str) -> Result<Pace<'static>> {
    match name {
        "virtual" => Ok(Pace::Virtual),
        "real" => Ok(Pace::Real(&RealClock)),
        _ => bail!("--clock {name}: expected virtual or real"),
    }
}

fn show(result: &EnergyResult) {
    say("modelled, not measured; rates, reads, time and delay beside the standard");
    rows(&COLUMNS, &result.table());
    say("\na battery-backed DRAM before all modules");
    rows(&DRAM_COLUMNS, &result.dram_table());
    say("\nnumber of primaries: energy x delay beside four, and what trials find");
    rows(&CHOICE_COLUMNS, &result.choice_table());
    if result.is_real_clock {
        let late_us = result.outcomes.iter().map(|it| it.late_us).fold(0.0, f64::max);
        say(format_args!("the machine was behind the model's clock by {late_us:.1} us at most"));
    }
}

fn show_motivation(result: &Motivation) {
    say("modelled, not measured; one thread, requests of 4 KiB");
    let row = |run: &perdura_bench::energy::Interval| {
        [
            format!("{:.1}", run.interval_ms),
            format!("{:.0}", run.requests_per_s),
            format!("{:.2}", run.watts),
            format!("{:.0}", run.requests_per_joule),
        ]
    };
    let table: Vec<_> = result.of_mode(Mode::RandomWrite).map(row).collect();
    rows(&["interval (ms)", "random writes/s", "power (W)", "writes/J"], &table);
}
