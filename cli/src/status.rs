//! `perdura status`: the promise of a running store, its state, and whether the promise holds.

use std::process::ExitCode;

use anyhow::{Context, Result};
use perdura_media::{Bytes, BytesPerSecond};
use perdura_terminal::{complain, say};
use perdura_watch::Status;

use crate::args::StatusArgs;
use crate::client::{Client, PATIENCE};
use crate::guard_status;
use crate::password::password;

/// Exit code if the store could not be asked, which says nothing about its promise.
const NOT_ASKED: u8 = 2;

/// Exits 0 if the promise holds, 1 if it does not, 2 if the store could not be asked.
pub fn run(args: &StatusArgs) -> ExitCode {
    if let Some(socket) = &args.asked.guard {
        return guard_status::run(socket, args.json).unwrap_or_else(|error| {
            complain("perdura", &error);
            ExitCode::from(NOT_ASKED)
        });
    }
    let (address, status) = match ask(args) {
        Ok(answer) => answer,
        Err(error) => {
            complain("perdura", &error);
            return ExitCode::from(NOT_ASKED);
        }
    };
    if args.json {
        say(serde_json::json!(status));
    } else {
        show(&address, &status);
    }
    if status.holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The address that was asked, and what it says.
fn ask(args: &StatusArgs) -> Result<(String, Status)> {
    let address = args.asked.tls.only_address("--connect", &args.asked.connect)?;
    let password = password(&args.asked.password_file)?;
    let mut client = Client::connect(&address, &args.asked.tls, password, PATIENCE)?;
    let status = Status::of(&client.ask(&["INFO", "perdura", "backup"])?);
    status.with_context(|| address.place.clone()).map(|status| (address.place, status))
}

fn show(address: &str, status: &Status) {
    match status.broken_by.as_slice() {
        [] => say(format_args!("{address}: the promise holds")),
        why => say(format_args!("{address}: THE PROMISE IS BROKEN: {}", why.join("; "))),
    }
    say(format_args!(
        "dirty            {} of a budget of {}; time to be safe {:.3} s, at most {:.3} s so far",
        Bytes(status.dirty_bytes),
        Bytes(status.budget_bytes),
        status.time_to_safe_s,
        status.time_to_safe_max_s,
    ));
    say(format_args!(
        "promised         a full budget is flushed in {:.3} s, {:.3} s of them kept back; the \
         warning is {:.3} s",
        status.promised_s, status.reserve_s, status.warning_s,
    ));
    say(format_args!("proven rate      {}", BytesPerSecond(status.proven_rate_bytes_per_s)));
    say(match status.last_checkpoint_s {
        Some(age) => format!("last checkpoint  {age:.3} s ago"),
        None => "last checkpoint  none since the image was opened".to_owned(),
    });
    say(match status.holder {
        true => "holder           keeps the memory if the server dies",
        false => "holder           none: memory dies with the server",
    });
    say(match status.seccomp.as_deref() {
        Some("on") => "system calls     only those that a server needs are possible (seccomp)",
        Some("partly") => "system calls     those that no program needs are refused (seccomp)",
        _ => "system calls     none is refused",
    });
    say(format_args!(
        "power            {}{}",
        status.power_state,
        match status.power_told_by.as_str() {
            "" | "no warning" => String::new(),
            told_by => format!(" ({told_by})"),
        }
    ));
    say(format_args!("durability       {}", status.durability));
    match (&status.backup_state, status.backup_lag_s) {
        (None, _) => {}
        (Some(state), None) => say(format_args!("backup           {state}: no restore point yet")),
        (Some(state), Some(lag)) => {
            say(format_args!("backup           {state}: {lag:.3} s behind"))
        }
    }
}
