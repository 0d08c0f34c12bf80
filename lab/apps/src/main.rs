//! `perdura-apps`: reads the command line, measures, and writes results to the terminal and to a
//! file.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use perdura_apps::args::Args;
use perdura_apps::measure::{Measured, measure};
use perdura_apps::pages::PageLatency;
use perdura_apps::{pages, show};
use perdura_bench::machine::Machine;
use serde::Serialize;

/// The contents of the file that --json names.
#[derive(Debug, Serialize)]
struct Found {
    kind: &'static str,
    machine: Machine,
    size: String,
    seed: u64,
    rounds: usize,
    apps: Vec<Measured>,
    pages: usize,
    page_latencies: Vec<PageLatency>,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("perdura-apps: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let args = Args::parse();
    let (apps, settings) = args.resolve()?;
    // Opened before the measurement: a result that cannot be kept should not take minutes first.
    let json = args
        .json
        .as_ref()
        .map(|path| File::create(path).with_context(|| format!("--json {}", path.display())));
    let json = json.transpose()?;
    let _folders = settings
        .ways
        .iter()
        .any(|way| way.is_in_files())
        .then(|| Folders([settings.places.ram_dir.clone(), settings.places.disk_dir.clone()]));
    let mut found = Found {
        kind: "apps",
        machine: Machine::here(),
        size: args.size.clone(),
        seed: args.seed,
        rounds: args.rounds,
        apps: Vec::new(),
        pages: args.pages,
        page_latencies: Vec::new(),
    };
    say(&show::head(&found.machine, &args.size, args.rounds, args.seed));
    for app in apps {
        let measured = measure(&*app, &settings).with_context(|| app.name())?;
        say(&show::app(&measured));
        found.apps.push(measured);
    }
    if args.pages > 0 {
        let (ways, places) = (&settings.ways, &settings.places);
        found.page_latencies =
            pages::measure(ways, places, args.pages, args.rounds, args.seed).context("pages")?;
        say(&show::pages(args.pages, &found.page_latencies));
    }
    if let Some(mut file) = json {
        let text = serde_json::to_string_pretty(&found).context("--json")?;
        writeln!(file, "{text}").context("--json")?;
    }
    Ok(())
}

/// Ignores a closed pipe, which must not end a run in its middle.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Removes the two folders at the end. Each way has removed its own files by then.
struct Folders([PathBuf; 2]);

impl Drop for Folders {
    fn drop(&mut self) {
        let remove = |dir: &Path| match std::fs::remove_dir(dir) {
            Err(error) if dir.exists() => {
                eprintln!("perdura-apps: {} stays: {error}", dir.display())
            }
            _ => {}
        };
        self.0.iter().for_each(|dir| remove(dir));
    }
}
