//! The tables of results.

use std::fmt::Write as _;

use perdura_bench::machine::Machine;
use perdura_media::{Bytes, format_duration};

use crate::contest::{ContestSettings, Duel, Side};
use crate::engines::Rival;
use crate::pages::HugePages;

/// The text above the table: all facts needed to read it.
pub fn head(settings: &ContestSettings, machine: &Machine, pages: &HugePages) -> String {
    let ycsb = &settings.ycsb;
    let budget_bytes = ycsb.side.budget.bytes_of(ycsb.data_bytes());
    let checkpoints = match ycsb.side.checkpoint_every {
        Some(every) => format!("checkpoints every {}", format_duration(every)),
        None => "no checkpoints".into(),
    };
    let survives = if settings.commit_each {
        "each write is committed to the SSD before it is done: survives power loss"
    } else {
        "survives a crash of the process where a holder keeps its memory (`perdura serve` starts \
         one; none runs here) and loss of power with a warning; without a warning it is back at \
         the last checkpoint"
    };
    format!(
        "workload {} ({}), {} over {} records of 16 B + {} ({} of data), seed {}, threads: {}, {} \
         pairs of slices\n\
         {}\n\
         Perdura: budget {}, {checkpoints}; {survives}\n\
         bytes written for each of the user's until all is on the SSD, Perdura's by its own count, \
         the rival's as what is left of two: the device's, which holds all that other programs \
         write, and this process's (write_bytes of /proc/self/io), which counts a page of the page \
         cache when it gets dirty\n\
         memory: {}\n\n\
         {:<20}{:>14}{:>12}{:>12}{:>9}{:>20}{:>9}{:>9}{:>11}",
        ycsb.workload.name.to_uppercase(),
        ycsb.workload.about,
        ycsb.distribution().name(),
        ycsb.records,
        Bytes((ycsb.layout.fields * ycsb.layout.field_bytes) as u64),
        Bytes(ycsb.data_bytes()),
        ycsb.seed,
        ycsb.threads,
        ycsb.pairs,
        machine,
        Bytes(budget_bytes),
        pages.about,
        "rival",
        "survives",
        "ops/s",
        "Perdura",
        "ratio",
        "95 %",
        "device",
        "process",
        "Perdura's",
    )
}

/// A rival's results in one line.
pub fn line(duel: &Duel) -> String {
    let [low, high] = duel.ratio_ci95.unwrap_or([f64::NAN; 2]);
    format!(
        "{:<20}{:>14}{:>12.0}{:>12.0}{:>9.3}{:>20}{:>9}{:>9}{:>11}",
        format!("{} {}", duel.engine, duel.mode),
        duel.survives,
        duel.rival.throughput_ops_per_s,
        duel.perdura.throughput_ops_per_s,
        duel.ratio.unwrap_or(f64::NAN),
        format!("{low:.3} to {high:.3}"),
        per_user_byte(&duel.rival, duel.rival.ssd_bytes_written),
        per_user_byte(&duel.rival, duel.rival.process_bytes_written),
        per_user_byte(&duel.perdura, duel.perdura.ssd_bytes_written),
    )
}

/// The line of a rival that cannot do the workload.
pub fn absent(rival: &Rival) -> String {
    format!(
        "{:<20}{:>14}  has no order of keys, and so no scans",
        rival.name(),
        rival.survives.to_string()
    )
}

/// Latencies, and errors, of all rivals.
pub fn tails(duels: &[Duel]) -> String {
    let mut text = format!(
        "\n{:<20}{:<18}{:>10}{:>10}{:>10}{:>13}{:>10}{:>10}\n",
        "us", "", "p50", "p99", "p99.9", "Perdura p50", "p99", "p99.9"
    );
    for duel in duels {
        let name = format!("{} {}", duel.engine, duel.mode);
        for (kind, theirs) in &duel.rival.latency_ns {
            let us = |ns: u64| format!("{:.2}", ns as f64 / 1e3);
            let ours = duel.perdura.latency_ns.get(kind);
            let ours = ours.map_or(Default::default(), |ours| [ours.p50, ours.p99, ours.p99_9]);
            let [p50, p99, p99_9] = ours.map(us);
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{name:<20}{kind:<18}{:>10}{:>10}{:>10}{p50:>13}{p99:>10}{p99_9:>10}",
                us(theirs.p50),
                us(theirs.p99),
                us(theirs.p99_9),
            );
        }
        for (name, side) in [("Perdura", &duel.perdura), (&name, &duel.rival)] {
            if side.errors + side.missing > 0 {
                let _ = writeln!(
                    text,
                    "{name}: {} errors, {} missing; {}",
                    side.errors,
                    side.missing,
                    side.first_error.as_deref().unwrap_or("no error said")
                );
            }
        }
    }
    text
}

fn per_user_byte(side: &Side, bytes: Option<u64>) -> String {
    match bytes {
        Some(bytes) if side.user_bytes_written > 0 => {
            format!("{:.3}", bytes as f64 / side.user_bytes_written as f64)
        }
        _ => "-".into(),
    }
}
