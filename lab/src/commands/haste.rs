//! `perdura-lab haste`: words to settings, results to the terminal.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use perdura_lab::haste::page::page;
use perdura_lab::haste::{HastePart, HasteResult, HasteSettings, Scale, TimeOn, run as measure};
use perdura_media::{Bytes, System};

use perdura_terminal::LateBar;
use perdura_terminal::Outputs;
use perdura_terminal::one_of;
use perdura_terminal::say;

/// Options of `perdura-lab haste`.
#[derive(Debug, Args)]
pub struct HasteArgs {
    /// Size of the data: tiny (for tests), small (minutes), medium, paper (as in the slides)
    /// [default: small].
    #[arg(long, value_name = "SCALE")]
    scale: Option<String>,
    /// Systems to compare, separated by commas: built-in names or paths of profiles.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "disk-raid0,flash-raid0,pcie-flash,pcie-pcm,pcie-sttm,ddr-pcm,ddr-sttm"
    )]
    media: Vec<String>,
    /// The disks with which the other systems are compared; one of --media.
    #[arg(long, value_name = "PROFILE", default_value = "disk-raid0")]
    disks: String,
    /// A fast system on which runs are repeated at real pace, to check the model.
    #[arg(long, value_name = "PROFILE", default_value = "pcie-pcm")]
    paced: String,
    /// Parts to run, separated by commas: raw, programs, kernels.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "raw,programs,kernels"
    )]
    parts: Vec<String>,
    /// Folder for files during the run; best in memory.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    dir: PathBuf,
    /// Seed of all random places and data.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Also write all results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the slides' charts with these results: one page, without scripts.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(args: &HasteArgs) -> Result<ExitCode> {
    let settings = resolve(args)?;
    let outputs = Outputs::of(args.json.as_deref(), args.html.as_deref(), &[])?;
    let bar = LateBar::new("haste");
    let result = measure(&settings, &|what, done, of| bar.step(what, done, of));
    bar.finish();
    let result = result?;
    outputs.write(&result, || page(&result))?;
    if !outputs.take_stdout() {
        show(&result);
    }
    Ok(ExitCode::SUCCESS)
}

fn resolve(args: &HasteArgs) -> Result<HasteSettings> {
    let scales = [
        ("small", Scale::Small),
        ("tiny", Scale::Tiny),
        ("medium", Scale::Medium),
        ("paper", Scale::Paper),
    ];
    let parts = [
        ("raw", HastePart::Raw),
        ("programs", HastePart::Programs),
        ("kernels", HastePart::Kernels),
    ];
    let systems = args.media.iter().map(|name| System::find(name).context("--media"));
    let systems: Vec<System> = systems.collect::<Result<_>>()?;
    if !systems.iter().any(|system| system.name == args.disks) {
        bail!("--disks {}: expected one of --media, {}", args.disks, args.media.join(","));
    }
    if !args.dir.is_dir() {
        bail!("--dir {}: not a directory", args.dir.display());
    }
    let part = |name: &String| one_of("parts", &Some(name.clone()), &parts);
    Ok(HasteSettings {
        scale: one_of("scale", &args.scale, &scales)?,
        systems,
        disks: args.disks.clone(),
        paced: System::find(&args.paced).context("--paced")?,
        parts: args.parts.iter().map(part).collect::<Result<_>>()?,
        dir: args.dir.clone(),
        program: std::env::current_exe().context("the path of this program")?,
        seed: args.seed,
    })
}

fn show(result: &HasteResult) {
    say(&result.machine);
    say("media are modelled; software and computing are measured here\n");
    say(format_args!(
        "{:<22} {:>12} {:>14}   s, media modelled and computing measured",
        "footprint", "here", "the slides'"
    ));
    let programs = result
        .programs
        .iter()
        .map(|one| (&one.name, one.footprint_bytes, one.paper_footprint_bytes, &one.times));
    let kernels = result
        .kernels
        .iter()
        .map(|one| (&one.name, one.footprint_bytes, one.paper_footprint_bytes, &one.times));
    for (name, here, paper, times) in programs.chain(kernels) {
        let seconds = |time: &TimeOn| format!("{} {:.3}", time.system, time.total_s());
        let seconds: Vec<String> = times.iter().map(seconds).collect();
        say(format_args!(
            "{name:<22} {:>12} {:>14}   {}",
            Bytes(here).to_string(),
            Bytes(paper).to_string(),
            seconds.join("  ")
        ));
    }
    say("\nthe same at real pace, against the model:");
    for check in &result.checks {
        say(format_args!(
            "  {:<50} {:<10} modelled {:.4} s, measured {:.4} s: {:+.1} %",
            check.what,
            check.system,
            check.modelled_s,
            check.measured_s,
            100.0 * check.error()
        ));
    }
    say("\nthe slides' figures (published):");
    for claim in &result.claims {
        say(format_args!(
            "- {}. Here: {}. {}",
            claim.published,
            claim.here,
            if claim.holds { "Of that order." } else { "Not so here." }
        ));
    }
    for left in &result.not_run {
        say(format_args!("not run: {}: {}", left.what, left.reason));
    }
}
