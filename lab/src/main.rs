//! The laboratory's program: parse, resolve, call.

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
