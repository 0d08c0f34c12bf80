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

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use perdura_terminal::LogFormat;
use perdura_warning::Warnings;
use tracing::level_filters::LevelFilter;

use args::{Cli, Command};
use file::SettingsFile;

/// The exit code of a command whose options are wrong, as of clap.
const WRONG_OPTIONS: u8 = 2;

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
    let (cli, file) = match with_settings_file(Cli::parse()) {
        Ok(found) => found,
        Err(error) => {
            // The code is that of a mistake on the command line, which no further start would mend.
            perdura_terminal::complain("perdura", &error);
            return Ok(ExitCode::from(WRONG_OPTIONS));
        }
    };
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
            .map_err(|error| match file {
                Some(file) => file.locate(error, &given()),
                None => error,
            })
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
fn with_settings_file(cli: Cli) -> Result<(Cli, Option<SettingsFile>)> {
    let Command::Serve(args) = &cli.command else { return Ok((cli, None)) };
    let mut words: Vec<OsString> = std::env::args_os().take(2).collect();
    if let Some(path) = &args.redis_conf {
        words.extend(redis_conf::words(path)?);
    }
    let file = args.config.as_ref().map(|path| SettingsFile::read(path, "serve")).transpose()?;
    words.extend(file.iter().flat_map(SettingsFile::words));
    words.extend(given());
    let cli = Cli::try_parse_from(words).unwrap_or_else(|error| {
        let places = file.as_ref().and_then(|file| file.places(&error.to_string(), &given()));
        if let Some(places) = places {
            eprintln!("perdura: {places}");
        }
        error.exit()
    });
    Ok((cli, file))
}

/// The words of the command line after the subcommand.
fn given() -> Vec<OsString> {
    std::env::args_os().skip(2).collect()
}
