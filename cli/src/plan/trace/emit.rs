//! The settings of `perdura serve` that follow from a plan.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;
use perdura_media::{Bytes, BytesPerSecond};
use perdura_plan::power::Limit;
use perdura_plan::report::SizingReport;

use super::resolve::{RateIs, Resolved};

/// How many times slower the server may prove the SSD to be where the time of a flush was not
/// limited. A rate that was measured a minute later, over less of the SSD, was down to half.
const OPEN_MARGIN: f64 = 2.0;

/// The plan from which the settings of the server follow.
pub struct Provision<'p> {
    pub trace: &'p str,
    pub sizing: &'p SizingReport,
    pub resolved: &'p Resolved,
}

impl Provision<'_> {
    /// The settings as the text of a file.
    pub fn toml(&self) -> Result<String> {
        let Self { trace, sizing, resolved } = self;
        let (machine, chosen) = (&resolved.machine, &sizing.chosen);
        let rate = BytesPerSecond(machine.flush_bytes_per_s);
        let rate_is = match resolved.rate_is {
            RateIs::Measured => "measured here",
            RateIs::Given => "as given",
            RateIs::Assumed => "assumed: --measure DIR measures it",
        };
        let mut out = String::new();
        writeln!(
            out,
            "# For `perdura serve --config`, planned by `perdura plan trace` from\n#   {}\n\
             # Flush rate {rate} ({rate_is}). Modelled: a flush of the whole budget takes {:.3} s, \
             reserve included;\n\
             # `perdura drill --connect 127.0.0.1:6379` measures it.",
            trace.escape_debug(),
            chosen.flush_s
        )?;
        if sizing.is_limited() || sizing.smallest.is_none() {
            writeln!(
                out,
                "# The target is missed: {}. Modelled, {:.3} % of the page writes wait with this \
                 budget, and writers {:.3} % of the time.",
                sizing.choice(),
                100.0 * chosen.stalls_per_write,
                100.0 * chosen.stalled_share
            )?;
        }
        writeln!(out, "memory = \"{}\"", exact(sizing.memory_bytes))?;
        writeln!(out, "budget = \"{}\"", exact(chosen.budget_bytes))?;
        match machine.limit {
            Limit::Grace(grace_s) => writeln!(out, "grace = \"{}\"", span(grace_s))?,
            Limit::Battery(rated_joules) => writeln!(
                out,
                "# The reliable part (modelled) of a battery rated at {rated_joules} J.\n\
                 joules = \"{:.3}J\"\nwatts = \"{}W\"",
                (machine.cells.reliable_joules(rated_joules)? * 1e3).floor() / 1e3,
                machine.watts
            )?,
            Limit::Open => {
                let margin = machine.rate_margin.max(OPEN_MARGIN);
                let needed_s = (chosen.flush_s - machine.reserve_s) * margin + machine.reserve_s;
                writeln!(
                    out,
                    "# The time of the flush (modelled) at a rate {margin} times slower: the \
                     server refuses\n# a budget that does not fit the rate that it proves.\n\
                     grace = \"{}\"",
                    millis(needed_s)
                )?;
            }
        }
        writeln!(out, "reserve = \"{}\"", span(machine.reserve_s))?;
        writeln!(out, "policy = \"{}\"", sizing.policy)?;
        match sizing.checkpoint_ns.map(Duration::from_nanos) {
            Some(every) => writeln!(out, "checkpoint = \"{}\"", span(every.as_secs_f64()))?,
            None => writeln!(out, "checkpoint = \"off\"")?,
        }
        Ok(out)
    }
}

fn exact(bytes: u64) -> String {
    let shown = Bytes(bytes).to_string().replace(' ', "");
    if shown.parse() == Ok(Bytes(bytes)) { shown } else { format!("{bytes}B") }
}

/// A time as it was given, to the nanosecond, so that the server computes with the same value.
fn span(seconds: f64) -> String {
    let ns = (seconds * 1e9).round() as u64;
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    match units.iter().find(|(_, unit_ns)| ns.is_multiple_of(*unit_ns)) {
        Some((name, unit_ns)) => format!("{}{name}", ns / unit_ns),
        None => format!("{ns}ns"),
    }
}

/// A computed time, rounded up to milliseconds.
fn millis(seconds: f64) -> String {
    format!("{}ms", (seconds * 1e3).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use perdura_media::parse_duration;

    use super::*;

    #[test]
    fn times_are_written_so_that_they_are_read_as_they_are() {
        for (text, shown) in [
            ("2000100us", "2000100us"),
            ("2001ms", "2001ms"),
            ("1500us", "1500us"),
            ("2s", "2s"),
            ("1500ns", "1500ns"),
            ("0s", "0s"),
        ] {
            let given = parse_duration(text).unwrap();
            assert_eq!(span(given.as_secs_f64()), shown);
            assert_eq!(parse_duration(shown).unwrap(), given);
        }
    }

    #[test]
    fn sizes_are_written_so_that_they_are_read_as_they_are() {
        for bytes in [1 << 30, (3 << 20) + 4096, 131_072, 123_456_789] {
            assert_eq!(exact(bytes).parse(), Ok(Bytes(bytes)), "{}", exact(bytes));
        }
    }
}
