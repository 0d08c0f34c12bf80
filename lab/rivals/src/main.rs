//! `perdura-rivals`: reads the command line, runs the contests, and writes results to the terminal
//! and to a file.

use std::fs::File;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use perdura_bench::machine::Machine;
use perdura_bench::report::Configuration;
use perdura_rivals::args::Args;
use perdura_rivals::contest::{Duel, duel};
use perdura_rivals::pages::{HugePages, ask};
use perdura_rivals::show;
use serde::Serialize;

/// The contents of the file that --json names.
#[derive(Debug, Serialize)]
struct Found {
    kind: &'static str,
    machine: Machine,
    huge_pages: HugePages,
    durability: String,
    budget_percent_or_bytes: String,
    workloads: Vec<FoundWorkload>,
}

#[derive(Debug, Serialize)]
struct FoundWorkload {
    workload: char,
    configuration: Configuration,
    duels: Vec<Duel>,
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("perdura-rivals: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let args = Args::parse();
    let resolved = args.resolve()?;
    let huge_pages = ask();
    // Both are checked before the measurement: a result that cannot be kept should not take an hour
    // first.
    let at = || format!("--dir {}", args.dir.display());
    std::fs::create_dir_all(&args.dir).with_context(at)?;
    let json = args
        .json
        .as_ref()
        .map(|path| File::create(path).with_context(|| format!("--json {}", path.display())));
    let json = json.transpose()?;
    let mut found = Found {
        kind: "rivals",
        machine: Machine::here(),
        huge_pages,
        durability: args.durability.clone(),
        budget_percent_or_bytes: args.budget.clone(),
        workloads: Vec::new(),
    };
    for contest in &resolved.contests {
        say(&show::head(contest, &found.machine, &found.huge_pages));
        let mut duels = Vec::new();
        for rival in &resolved.rivals {
            if contest.ycsb.workload.scans() && !rival.scans {
                say(&show::absent(rival));
                continue;
            }
            let result = duel(contest, rival).with_context(|| rival.name())?;
            say(&show::line(&result));
            duels.push(result);
        }
        say(&show::tails(&duels));
        found.workloads.push(FoundWorkload {
            workload: contest.ycsb.workload.name,
            configuration: contest.ycsb.configuration(),
            duels,
        });
    }
    if let Some(mut file) = json {
        let text = serde_json::to_string_pretty(&found).context("--json")?;
        writeln!(file, "{text}").context("--json")?;
    }
    let duels = found.workloads.iter().flat_map(|workload| &workload.duels);
    Ok(judge(duels.map(Duel::failures).sum()))
}

/// Exit status 1 if an operation failed: a figure with failures in it is not valid.
fn judge(failures: u64) -> ExitCode {
    if failures == 0 {
        return ExitCode::SUCCESS;
    }
    eprintln!("perdura-rivals: {failures} operations failed or did not find their record");
    ExitCode::FAILURE
}

/// A reader that has gone away must not end a run in its middle.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
