//! `perdura completions` and `perdura man`: files that packages and the book have, made from the description of
//! the command line.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::markdown;

const PROGRAM: &str = "perdura";

/// Options of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Options of `man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Directory for the pages; created if missing.
    dir: PathBuf,

    /// Write Markdown, one page for each command with what is below it, and a list of them.
    #[arg(long)]
    markdown: bool,
}

pub fn complete(args: &CompletionsArgs) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), PROGRAM, &mut text);
    std::io::stdout().write_all(&text).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

pub fn write(args: &ManArgs) -> Result<ExitCode> {
    let written = std::fs::create_dir_all(&args.dir).and_then(|()| match args.markdown {
        true => markdown::write(Cli::command(), &args.dir),
        false => clap_mangen::generate_to(Cli::command(), &args.dir),
    });
    written.with_context(|| args.dir.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}
