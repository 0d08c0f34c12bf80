//! The program `perdura`: it parses the command line, resolves it and calls a library.

mod args;
mod background;
mod backup;
mod banner;
mod battery;
mod bench;
mod check;
mod client;
mod connection;
mod devices;
mod drill;
mod export;
mod file;
mod first_start;
mod flush;
mod guard;
mod guard_status;
mod holder;
mod import;
mod key;
mod listen;
mod markdown;
mod pages;
mod password;
mod plan;
mod privacy;
mod redis_conf;
mod run;
mod seccomp;
mod serve;
mod serve_args;
mod service_manager;
mod settings;
mod ship;
mod sim;
mod status;
mod surroundings;
mod tenants;
mod tls_args;
mod top;
mod watch;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use perdura_terminal::LogFormat;
use perdura_warning::Warnings;
use tracing::level_filters::LevelFilter;

use args::{Cli, Command};

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            perdura_terminal::complain("perdura", &error);
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let cli = with_settings_file(Cli::parse())?;
    let log_format = match &cli.command {
        Command::Serve(args) => &args.log.log_format,
        Command::Guard(args) => &args.log.log_format,
        Command::Holder(args) | Command::StartHolders(args) => &args.log.log_format,
        _ => &None,
    };
    // What simulated machines log of the failures they are made for would bury the result.
    let is_simulated = matches!(cli.command, Command::Sim(_));
    let level = if is_simulated { LevelFilter::OFF } else { LevelFilter::INFO };
    perdura_terminal::log_to_stderr(level, LogFormat::of(log_format)?);
    // The program that `run` becomes gets its signals as the caller has set them.
    if !matches!(cli.command, Command::Run(_)) {
        perdura_terminal::ignore_file_size_signal();
    }
    // Called before any thread is started, and by these commands only: a signal ends the
    // others as it ends any program.
    let warnings = Warnings::by_signals;
    match cli.command {
        Command::Serve(args) => serve::run(&args, warnings()?)
            .inspect_err(|_| service_manager::pause_before_another_start()),
        Command::Drill(args) => drill::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Check(args) => Ok(check::run(&args)),
        Command::Top(args) => top::run(&args),
        Command::Status(args) => Ok(status::run(&args)),
        Command::Flush(args) => flush::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Key(args) => key::run(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Run(args) => run::run(&args),
        Command::Guard(args) => guard::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Completions(args) => pages::complete(&args),
        Command::Man(args) => pages::write(&args),
        Command::StartHolders(_) => holder::start_holders().map(|()| ExitCode::SUCCESS),
        Command::Holder(args) => holder::run(args, warnings()?).map(|()| ExitCode::SUCCESS),
    }
}

/// Puts the words of `serve REDIS_CONF` and of `serve --config FILE` before those of the command
/// line.
fn with_settings_file(cli: Cli) -> Result<Cli> {
    let Command::Serve(args) = &cli.command else { return Ok(cli) };
    let mut words: Vec<std::ffi::OsString> = std::env::args_os().take(2).collect();
    if let Some(path) = &args.redis_conf {
        words.extend(redis_conf::words(path)?);
    }
    if let Some(path) = &args.config {
        words.extend(file::words(path, "serve")?);
    }
    words.extend(std::env::args_os().skip(2));
    Ok(Cli::try_parse_from(words).unwrap_or_else(|error| error.exit()))
}
