//! `perdura status`: the promise of a running store, its state, and whether the promise holds.

use std::process::ExitCode;

use anyhow::{Context, Result};
use perdura_media::{Bytes, BytesPerSecond};
use perdura_terminal::{complain, say};
use serde::Serialize;

use crate::args::StatusArgs;
use crate::client::{Client, PATIENCE};
use crate::guard_status;
use crate::password::password;

/// Exit code if the store could not be asked, which says nothing about its promise.
const NOT_ASKED: u8 = 2;

/// The promise and the state of a store. The names of the fields are those of the JSON and stay.
#[derive(Debug, PartialEq, Serialize)]
pub struct Status {
    /// Whether the promise holds.
    pub holds: bool,
    /// The reasons for which the promise does not hold.
    pub broken_by: Vec<String>,
    /// When a write is acknowledged: `warned`, `fsync` or `none`.
    pub durability: String,
    /// Bytes that are not on the SSD yet.
    pub dirty_bytes: u64,
    /// Bytes that may be dirty.
    pub budget_bytes: u64,
    /// Time that a flush of the dirty bytes would take, seconds.
    pub time_to_safe_s: f64,
    /// The longest time to flush that there was since the start, seconds.
    pub time_to_safe_max_s: f64,
    /// Most time that a flush of a full budget takes, with the reserve, seconds.
    pub promised_s: f64,
    /// The part of that time that is kept back for all but the writing, seconds.
    pub reserve_s: f64,
    /// The warning that the store gets, seconds.
    pub warning_s: f64,
    /// Proven rate of a flush, bytes a second.
    pub proven_rate_bytes_per_s: u64,
    /// Time since the last checkpoint, seconds; `None`: there was none since the image was opened.
    pub last_checkpoint_s: Option<f64>,
    /// Whether another process keeps the memory if the server dies.
    pub holder: bool,
    /// The error with which the SSD failed, if it did.
    pub failure: Option<String>,
    /// What the power is like: `steady`, `on-battery`, `low` or `ending`.
    pub power_state: String,
    /// The source that says so.
    pub power_told_by: String,
}

/// Exits 0 if the promise holds, 1 if it does not, 2 if the store could not be asked.
pub fn run(args: &StatusArgs) -> ExitCode {
    if let Some(socket) = &args.asked.guard {
        return guard_status::run(socket, args.json).unwrap_or_else(|error| {
            complain("perdura", &error);
            ExitCode::from(NOT_ASKED)
        });
    }
    let status = match ask(args) {
        Ok(status) => status,
        Err(error) => {
            complain("perdura", &error);
            return ExitCode::from(NOT_ASKED);
        }
    };
    if args.json {
        say(serde_json::json!(status));
    } else {
        show(&args.asked.connect, &status);
    }
    if status.holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn ask(args: &StatusArgs) -> Result<Status> {
    let password = password(&args.asked.password_file)?;
    let mut client = Client::connect(&args.asked.connect, password, PATIENCE)?;
    Status::of(&client.ask(&["INFO", "perdura"])?).with_context(|| args.asked.connect.clone())
}

impl Status {
    /// Reads the text of INFO perdura.
    pub fn of(info: &str) -> Result<Self> {
        let text = |name: &str| {
            let mut lines = info.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.map(str::trim).with_context(|| {
                format!("INFO has no field {name}: this is no Perdura server, or an older one")
            })
        };
        let seconds = |name: &str| -> Result<f64> {
            text(name)?.parse().with_context(|| format!("{name} of the server"))
        };
        let count = |name: &str| -> Result<u64> {
            text(name)?.parse().with_context(|| format!("{name} of the server"))
        };
        let failure = Some(text("failure")?.to_owned()).filter(|text| !text.is_empty());
        let mut status = Self {
            holds: false,
            broken_by: Vec::new(),
            durability: text("durability")?.to_owned(),
            dirty_bytes: count("dirty_bytes")?,
            budget_bytes: count("budget_bytes")?,
            time_to_safe_s: seconds("time_to_safe_seconds")?,
            time_to_safe_max_s: seconds("time_to_safe_max_seconds")?,
            promised_s: seconds("promised_seconds")?,
            reserve_s: seconds("reserve_seconds")?,
            warning_s: seconds("warning_seconds")?,
            proven_rate_bytes_per_s: count("proven_rate_bytes_per_s")?,
            last_checkpoint_s: Some(seconds("last_checkpoint_seconds")?).filter(|age| *age >= 0.0),
            holder: text("holder")? == "yes",
            failure,
            power_state: text("power_state")?.to_owned(),
            power_told_by: text("power_told_by")?.to_owned(),
        };
        status.judge();
        Ok(status)
    }

    fn judge(&mut self) {
        let Self { dirty_bytes, budget_bytes, promised_s, warning_s, .. } = *self;
        if let Some(failure) = &self.failure {
            self.broken_by.push(format!("the SSD failed: {failure}"));
        }
        if dirty_bytes > budget_bytes {
            let (dirty, budget) = (Bytes(dirty_bytes), Bytes(budget_bytes));
            self.broken_by.push(format!("{dirty} are dirty, the budget is {budget}"));
        }
        if promised_s > warning_s {
            let why = format!("a flush takes {promised_s:.3} s, the warning is {warning_s:.3} s");
            self.broken_by.push(why);
        }
        self.holds = self.broken_by.is_empty();
    }
}

fn show(address: &str, status: &Status) {
    match status.broken_by.as_slice() {
        [] => say(format_args!("{address}: the promise holds")),
        why => say(format_args!("{address}: THE PROMISE IS BROKEN: {}", why.join("; "))),
    }
    say(format_args!(
        "dirty            {} of a budget of {}; safe {:.3} s after a warning that came now",
        Bytes(status.dirty_bytes),
        Bytes(status.budget_bytes),
        status.time_to_safe_s,
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
    say(format_args!("durability       {}", status.durability));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(dirty: u64, promised: &str, failure: &str) -> String {
        format!(
            "# Perdura\r\ndurability:warned\r\nwarning_seconds:30\r\nfailure:{failure}\r\n\
             holder:yes\r\nlast_checkpoint_seconds:-1.000\r\n\
             proven_rate_bytes_per_s:1000000000\r\nreserve_seconds:2.000\r\n\
             promised_seconds:{promised}\r\ntime_to_safe_seconds:0.100\r\n\
             time_to_safe_max_seconds:0.200\r\npower_state:steady\r\npower_told_by:\r\n\
             budget_bytes:1000\r\ndirty_bytes:{dirty}\r\n"
        )
    }

    #[test]
    fn the_promise_holds_within_the_budget_and_the_warning_on_a_sound_ssd() {
        let status = Status::of(&info(1000, "2.300", "")).unwrap();
        assert!(status.holds && status.holder, "{status:?}");
        assert_eq!((status.last_checkpoint_s, status.failure), (None, None));
    }

    #[test]
    fn each_way_to_break_the_promise_is_named() {
        for (text, why) in [
            (info(1001, "2.300", ""), "the budget is 1000"),
            (info(1, "30.500", ""), "a flush takes 30.500 s, the warning is 30.000 s"),
            (info(1, "2.300", "write at 4096: EIO"), "the SSD failed: write at 4096: EIO"),
        ] {
            let status = Status::of(&text).unwrap();
            assert!(!status.holds && status.broken_by[0].contains(why), "{status:?}");
        }
    }

    #[test]
    fn what_is_no_perdura_server_is_said_to_be_none() {
        let error = Status::of("# Server\r\nredis_version:7.2.4\r\n").unwrap_err();
        assert!(error.to_string().contains("no Perdura server"), "{error}");
    }
}
