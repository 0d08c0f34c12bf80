//! `perdura bench grace`: checks the options, runs the gauntlet, prints.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use perdura_bench::grace::{COLUMNS, GraceResult, Kind, Programs, Round, Settings, page};
use perdura_media::{Bytes, BytesPerSecond, format_duration};

use super::args::GraceArgs;
use super::show::rows;
use super::signal::end_at_a_signal;
use perdura_terminal::{LateBar, Outputs, named, optional, say, time};

const DIR: &str = "perdura-bench";
const SIZE_BYTES: u64 = 1 << 30;
const GRACE: Duration = Duration::from_secs(10);
const LOAD: Duration = Duration::from_secs(3);
const RATE: BytesPerSecond = BytesPerSecond(125 << 20);
/// The shortest grace: below it a server spends its time on its end and not on its data.
const GRACE_MIN: Duration = Duration::from_secs(1);

pub fn run(args: &GraceArgs) -> Result<ExitCode> {
    let settings = resolve(args)?;
    let outputs = Outputs::of(args.json.as_deref(), args.html.as_deref(), &[])?;
    let is_over = end_at_a_signal()?;
    let bar = LateBar::new("gauntlet");
    let (result, outcome) = perdura_bench::grace::run(&settings, &is_over, &|what, done, of| {
        bar.step(what, done, of);
    });
    bar.finish();
    if result.rounds.is_empty() {
        outcome?;
        return Ok(ExitCode::SUCCESS);
    }
    outputs.write(&result, || page(&result))?;
    if !outputs.take_stdout() {
        rows(&COLUMNS, &result.table());
    }
    let code = judge(args, &result);
    // What was found in the rounds before stays said.
    outcome.with_context(|| format!("only {} rounds were made", result.rounds.len()))?;
    Ok(code)
}

fn resolve(args: &GraceArgs) -> Result<Settings> {
    let programs = Programs {
        perdura: std::env::current_exe().context("the path of this program")?,
        redis: "redis-server".into(),
        valkey: "valkey-server".into(),
    };
    let kinds = match args.servers.as_slice() {
        [] => Kind::ALL
            .into_iter()
            .filter(|kind| *kind != Kind::RedisNothing && is_there(kind.program(&programs)))
            .collect(),
        names => names.iter().map(|name| kind(name, &programs)).collect::<Result<Vec<_>>>()?,
    };
    let sizes = args.size.iter().map(|size| Ok(named::<Bytes, _>("size", size, size.parse())?.0));
    let mut sizes = sizes.collect::<Result<Vec<_>>>()?;
    if sizes.is_empty() {
        sizes.push(SIZE_BYTES);
    }
    ensure!(sizes.iter().all(|size| *size >= 1 << 20), "--size: expected at least 1 MiB");
    let grace = time("grace", &args.grace)?.unwrap_or(GRACE);
    if grace < GRACE_MIN {
        bail!(
            "--grace {}: expected at least {}",
            format_duration(grace),
            format_duration(GRACE_MIN)
        );
    }
    let BytesPerSecond(rate_bytes_per_s) = optional("rate", &args.rate)?.unwrap_or(RATE);
    let half = BytesPerSecond(rate_bytes_per_s / 2);
    let BytesPerSecond(low_rate_bytes_per_s) =
        optional("low-rate", &args.low_rate)?.unwrap_or(half);
    ensure!(low_rate_bytes_per_s >= 1 << 20, "--low-rate, or half of --rate: at least 1 MiB/s");
    ensure!(low_rate_bytes_per_s <= rate_bytes_per_s, "--low-rate: expected at most --rate");
    Ok(Settings {
        dir: args.dir.clone().unwrap_or_else(|| PathBuf::from(DIR)),
        programs,
        kinds,
        sizes,
        grace,
        load: time("load", &args.load)?.unwrap_or(LOAD),
        rate_bytes_per_s,
        low_rate_bytes_per_s,
        rounds: args.rounds.unwrap_or(1),
        seed: args.seed.unwrap_or(1),
    })
}

fn kind(name: &str, programs: &Programs) -> Result<Kind> {
    let known = Kind::ALL.into_iter().find(|kind| kind.name() == name);
    let kind = known.with_context(|| {
        let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        format!("--servers {name}: expected one of {}", names.join(", "))
    })?;
    let program = kind.program(programs);
    ensure!(is_there(program), "--servers {name}: {} is not installed", program.display());
    Ok(kind)
}

/// Whether a program can be found as a shell finds it.
fn is_there(program: &Path) -> bool {
    if program.components().count() > 1 {
        return program.exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}

/// Names each round in which Perdura broke its promise, and the command that runs it again.
fn judge(args: &GraceArgs, result: &GraceResult) -> ExitCode {
    let is_broken = |round: &&Round| round.server == Kind::Perdura && !round.is_kept();
    let broken: Vec<_> = result.rounds.iter().filter(is_broken).collect();
    for round in &broken {
        let mut again = format!(
            "perdura bench grace --servers perdura --size {} --seed {} --grace {}s",
            round.size_bytes, round.seed, result.grace_s
        );
        if let Some(load) = &args.load {
            again += &format!(" --load {load}");
        }
        again += &format!(
            " --rate {}B/s --low-rate {}B/s",
            result.rate_bytes_per_s, result.low_rate_bytes_per_s
        );
        let late = if round.to_safe_s.is_none() { ", and was late" } else { "" };
        say(format_args!(
            "BROKEN: Perdura lost {} keys, {} are wrong{late}; again: {again}",
            round.found.lost, round.found.wrong
        ));
    }
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
