//! The result of a measurement as text for a terminal.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use perdura_bench::report::{Causes, SideResult, YcsbResult};
use perdura_media::{Bytes, BytesPerSecond, format_duration};
use perdura_terminal::say;

/// Prints a table.
pub fn rows<const N: usize>(columns: &[&str; N], rows: &[[String; N]]) {
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.chain([columns[at].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..N).map(width).collect();
    let line = |cells: &[&str]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        say(padded.collect::<Vec<_>>().join("  ").trim_end());
    };
    line(columns);
    rows.iter().for_each(|row| line(&row.each_ref().map(String::as_str)));
}

/// A whole result.
pub struct Shown<'r>(pub &'r YcsbResult);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(result) = self;
        let (machine, setup) = (&result.machine, &result.configuration);
        writeln!(
            f,
            "workload {} ({}), {} over {} records of {} ({} of data), seed {}, threads: {}",
            result.workload.to_uppercase(),
            setup.about,
            setup.distribution,
            setup.records,
            Bytes(setup.data_bytes / setup.records.max(1)),
            Bytes(setup.data_bytes),
            setup.seed,
            setup.threads,
        )?;
        writeln!(f, "{}", machine,)?;
        side(f, &result.side)?;
        if let Some(other) = &result.compare {
            side(f, other)?;
        }
        if let Some(without) = &result.without_recency {
            write!(f, "\nwithout the upkeep of recency:")?;
            side(f, without)?;
        }
        if let (Some(ratio), Some([low, high])) = (result.ratio, result.ratio_ci95) {
            write!(
                f,
                "\nratio of throughputs {ratio:.3}, 95 % interval {low:.3} to {high:.3}, {} pairs",
                result.ratio_per_pair.len()
            )?;
        }
        result.causes.as_ref().map_or(Ok(()), |found| causes(f, found))
    }
}

/// The result of one run of a sweep, shown in one line.
pub struct Line<'r>(pub &'r YcsbResult);

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(point) = self;
        let [low, high] = point.ratio_ci95.unwrap_or([f64::NAN; 2]);
        write!(
            f,
            "{} {:>10} at {:>5.1} %: {:>9.0} operations/s, {:.3} of the full budget's ({low:.3} to \
             {high:.3})",
            point.workload.to_uppercase(),
            Bytes(point.configuration.data_bytes).to_string(),
            point.side.budget_percent.unwrap_or(f64::NAN),
            point.side.throughput_ops_per_s,
            point.ratio.unwrap_or(f64::NAN),
        )
    }
}

fn side(f: &mut Formatter<'_>, side: &SideResult) -> fmt::Result {
    writeln!(f, "\n{}", side.target)?;
    if let (Some(percent), Some(budget), Some(dirty)) =
        (side.budget_percent, side.budget_bytes, side.dirty_bytes_max)
    {
        writeln!(
            f,
            "  budget          {} ({percent:.3} % of the data), at most {} dirty",
            Bytes(budget),
            Bytes(dirty),
        )?;
        match side.checkpoint_ns {
            Some(ns) => writeln!(
                f,
                "  checkpoints     every {}",
                format_duration(Duration::from_nanos(ns))
            )?,
            None => writeln!(f, "  checkpoints     off")?,
        }
        if side.is_encrypted {
            writeln!(f, "  image           encrypted (AES-256-GCM)")?;
        }
    }
    writeln!(
        f,
        "  throughput      {:.0} operations/s ({} in {}), {} errors, {} missing",
        side.throughput_ops_per_s,
        side.operations,
        format_duration(Duration::from_nanos(side.elapsed_ns)),
        side.errors,
        side.missing,
    )?;
    if let Some(error) = &side.first_error {
        writeln!(f, "  first error     {error}")?;
    }
    if let (Some(cpu_ns), Some(whose)) = (side.cpu_ns_per_operation, &side.cpu_of) {
        writeln!(f, "  processor time  {:.2} us/operation ({whose})", cpu_ns / 1e3)?;
    }
    let header = ["us", "mean", "p50", "p99", "p99.9", "max"];
    let [us, rest @ ..] = header;
    write!(f, "  {us:<16}")?;
    rest.iter().try_for_each(|name| write!(f, "{name:>10}"))?;
    writeln!(f)?;
    let us = |ns: u64| ns as f64 / 1e3;
    let batch = side.batch_ns.iter().map(|times| ("whole batch", times));
    for (name, times) in side.latency_ns.iter().map(|(name, times)| (&**name, times)).chain(batch) {
        writeln!(
            f,
            "  {name:<18}{:>8.2}{:>10.2}{:>10.2}{:>10.2}{:>10.1}",
            times.mean / 1e3,
            us(times.p50),
            us(times.p99),
            us(times.p99_9),
            us(times.max),
        )?;
    }
    ssd(f, side)
}

fn ssd(f: &mut Formatter<'_>, side: &SideResult) -> fmt::Result {
    let Some(written) = side.ssd_bytes_written else { return Ok(()) };
    let rate = |rate: Option<f64>| BytesPerSecond(rate.unwrap_or(0.0) as u64);
    writeln!(
        f,
        "  to the SSD      {} for {} of the user's: {:.3}; {}",
        Bytes(written),
        Bytes(side.user_bytes_written),
        written as f64 / side.user_bytes_written.max(1) as f64,
        rate(side.write_rate_bytes_per_s),
    )?;
    if let (Some(all), Some(flush_ns)) = (side.ssd_bytes_written_with_flush, side.flush_ns) {
        writeln!(
            f,
            "  with the flush  {}; {}; flushed in {}",
            Bytes(all),
            rate(side.write_rate_with_flush_bytes_per_s),
            format_duration(Duration::from_nanos(flush_ns)),
        )?;
    }
    compressed(f, side)?;
    let count = |value: Option<u64>| value.unwrap_or(0);
    writeln!(
        f,
        "  stalls          {} ({}); {} traps, {} re-protections",
        count(side.stalls),
        format_duration(Duration::from_nanos(count(side.stall_ns))),
        count(side.traps),
        count(side.reprotections),
    )
}

fn compressed(f: &mut Formatter<'_>, side: &SideResult) -> fmt::Result {
    let (Some(before), Some(after), Some(cpu_ns)) =
        (side.compression_in_bytes, side.compression_out_bytes, side.compression_cpu_ns)
    else {
        return Ok(());
    };
    writeln!(
        f,
        "  compressed      {} to {}: {:.3}; {:.2} us/operation of processor time, {}",
        Bytes(before),
        Bytes(after),
        after as f64 / before.max(1) as f64,
        cpu_ns as f64 / side.operations.max(1) as f64 / 1e3,
        BytesPerSecond((u128::from(before) * 1_000_000_000 / u128::from(cpu_ns.max(1))) as u64),
    )
}

fn causes(f: &mut Formatter<'_>, causes: &Causes) -> fmt::Result {
    let waiting = causes.waiting_ns_per_operation;
    write!(
        f,
        "\n{:.0} ns an operation lost: {} waiting for the SSD, {:.0} traps, {:.0} the rest",
        causes.loss_ns_per_operation,
        waiting.map_or("(not timed)".into(), |ns| format!("{ns:.0}")),
        causes.traps_ns_per_operation,
        causes.rest_ns_per_operation,
    )?;
    if let (Some(ratio), Some([low, high])) =
        (causes.without_recency_ratio, causes.without_recency_ci95)
    {
        write!(f, "\nwithout recency {ratio:.3} of the throughput ({low:.3} to {high:.3})")?;
    }
    if let (Some(trap_ns), Some(side), Some(other)) = (
        causes.trap_ns,
        causes.modelled_mmu_throughput_ops_per_s,
        causes.modelled_mmu_compare_throughput_ops_per_s,
    ) {
        write!(
            f,
            "\nMODELLED: an MMU that counts dirty pages ({trap_ns:.0} ns saved a trap): \
             {side:.0} and {other:.0} operations/s, ratio {:.3}",
            side / other
        )?;
    }
    Ok(())
}
