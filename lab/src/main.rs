//! The program `perdura-lab`: parse the command line, resolve it, call the library.

mod commands;

use std::process::ExitCode;

use clap::Parser;
use commands::Lab;

fn main() -> ExitCode {
    match commands::run(Lab::parse()) {
        Ok(code) => code,
        Err(error) => {
            perdura_terminal::complain("perdura-lab", &error);
            ExitCode::FAILURE
        }
    }
}
