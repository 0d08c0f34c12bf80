//! The one binary: parse, resolve, call.

mod args;
mod background;
mod bench;
mod block;
mod check;
mod drill;
mod env_words;
mod file;
mod flush;
mod holder;
mod output;
mod plan;
mod program;
mod progress;
mod run;
mod say;
mod serve;
mod served;
mod settings;
mod sim;
mod sys;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use args::{Cli, Command};
use say::Shown;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("perdura: {}", Shown(once(&error)));
            ExitCode::FAILURE
        }
    }
}

/// The error and its causes, each said once: many errors of the libraries name their cause already.
fn once(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if !text.contains(&cause) {
            if !text.is_empty() {
                text += ": ";
            }
            text += &cause;
        }
    }
    text
}

fn run() -> Result<ExitCode> {
    let cli = with_settings_file(Cli::parse())?;
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("PERDURA_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,fuser=warn")),
        )
        .with_writer(std::io::stderr)
        .init();
    // What `run` becomes has its signals as whoever called has set them.
    if !matches!(cli.command, Command::Run(_)) {
        sys::ignore_file_size_signal();
    }
    // Before any thread is there; and of these two only: the others end as programs do when they
    // are told to.
    let warning = || sys::warning_descriptor().context("signals");
    match cli.command {
        Command::Serve(args) => serve::run(&args, warning()?),
        Command::Drill(args) => drill::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Block(args) => block::run(&args, warning()?),
        Command::Check(args) => Ok(check::run(&args)),
        Command::Flush(args) => flush::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Holder(args) => holder::run(args, warning()?).map(|()| ExitCode::SUCCESS),
    }
}

/// Puts the words of `serve --config FILE` before those of the command line.
fn with_settings_file(cli: Cli) -> Result<Cli> {
    let Command::Serve(args) = &cli.command else { return Ok(cli) };
    let Some(path) = &args.config else { return Ok(cli) };
    let mut words: Vec<std::ffi::OsString> = std::env::args_os().take(2).collect();
    words.extend(file::words(path, "serve")?);
    words.extend(std::env::args_os().skip(2));
    Ok(Cli::try_parse_from(words).unwrap_or_else(|error| error.exit()))
}
