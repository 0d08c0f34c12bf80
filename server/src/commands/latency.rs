//! LATENCY: events that took long, and how long each command takes.

use std::fmt::Write;

use super::call::Outcome;
use super::context::{Clients, Context, Server};
use super::error::CommandError;
use super::options::is;
use crate::resp::{Args, Reply};
use crate::shared::{Event, Stats, Times};

impl Server<'_> {
    /// Notes an event that took long, if it did.
    pub fn note_latency(&self, event: &'static str, ns: u64) {
        let threshold_ms = self.config.latency_threshold_ms;
        let ms = ns / 1_000_000;
        if threshold_ms > 0 && ms >= threshold_ms {
            let unix_s = self.unix_ms() / 1000;
            self.shared.latency().entry(event).or_default().add(unix_s, ms);
        }
    }
}

/// LATENCY LATEST
pub(super) fn latest(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    let events = ctx.server.shared.latency();
    ctx.reply.array(events.len());
    for (name, event) in &*events {
        let (at_s, ms) = event.samples.back().copied().unwrap_or_default();
        ctx.reply.array(4);
        ctx.reply.bulk(name.as_bytes());
        [at_s, ms, event.max_ms].iter().for_each(|number| ctx.reply.len(*number));
    }
    Ok(())
}

/// LATENCY HISTORY event
pub(super) fn history(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let samples = find(ctx, args.get(2)).map_or_else(Vec::new, |(_, event)| event.samples.into());
    ctx.reply.array(samples.len());
    for (at_s, ms) in samples {
        ctx.reply.array(2);
        ctx.reply.len(at_s);
        ctx.reply.len(ms);
    }
    Ok(())
}

fn find(ctx: &Context<'_, '_, '_>, name: &[u8]) -> Option<(&'static str, Event)> {
    let events = ctx.server.shared.latency();
    events.iter().find(|(known, _)| known.as_bytes() == name).map(|(name, e)| (*name, e.clone()))
}

/// LATENCY RESET [event [event ...]]
pub(super) fn reset(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let mut events = ctx.server.shared.latency();
    let before = events.len();
    let is_named = |known: &str| args.from(2).any(|name| name == known.as_bytes());
    events.retain(|known, _| args.len() > 2 && !is_named(known));
    ctx.reply.len((before - events.len()) as u64);
    Ok(())
}

/// Columns and rows of a graph.
const COLUMNS: usize = 80;
const ROWS: usize = 4;

/// LATENCY GRAPH event
pub(super) fn graph(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let Some((name, event)) = find(ctx, args.get(2)) else {
        let name = super::error::text(args.get(2), 128);
        return Err(CommandError::Acl(format!("No samples available for event '{name}'")));
    };
    let text = draw(name, &event, ctx.server.unix_ms() / 1000);
    ctx.reply.verbatim(text.as_bytes());
    Ok(())
}

/// Draws the samples of an event, a column each, with their ages below, to be read downwards.
fn draw(name: &str, event: &Event, now_s: u64) -> String {
    let skipped = event.samples.len().saturating_sub(COLUMNS);
    let samples: Vec<(u64, u64)> = event.samples.iter().skip(skipped).copied().collect();
    let high = samples.iter().map(|(_, ms)| *ms).max().unwrap_or(0);
    let low = samples.iter().map(|(_, ms)| *ms).min().unwrap_or(0);
    let mut text = format!(
        "{name} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        event.max_ms,
        "-".repeat(COLUMNS)
    );
    let steps = (2 * ROWS) as u64;
    for row in (0..ROWS as u64).rev() {
        let cell = |(_, ms): &(u64, u64)| {
            let height = 1 + (ms - low) * (steps - 1) / (high - low).max(1);
            match height.saturating_sub(2 * row) {
                0 => ' ',
                1 => '_',
                _ => '#',
            }
        };
        text.extend(samples.iter().map(cell));
        text.push('\n');
    }
    let age = |at_s: u64| match now_s.saturating_sub(at_s) {
        s @ ..60 => format!("{s}s"),
        s @ ..3600 => format!("{}m", s / 60),
        s @ ..86_400 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    };
    let ages: Vec<Vec<char>> = samples.iter().map(|(at, _)| age(*at).chars().collect()).collect();
    text.push('\n');
    for row in 0..ages.iter().map(Vec::len).max().unwrap_or(0) {
        text.extend(ages.iter().map(|age| age.get(row).copied().unwrap_or(' ')));
        text.push('\n');
    }
    text
}

/// LATENCY DOCTOR
pub(super) fn doctor(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    let mut text = String::new();
    let threshold_ms = ctx.server.config.latency_threshold_ms;
    if threshold_ms == 0 {
        text.push_str(
            "Events are not noted: CONFIG SET latency-monitor-threshold MS does. What each command \
             takes is in LATENCY HISTOGRAM and in INFO latencystats.\n",
        );
    }
    for (name, event) in &*ctx.server.shared.latency() {
        let count = event.samples.len() as u64;
        let mean = event.samples.iter().map(|(_, ms)| ms).sum::<u64>() / count.max(1);
        let what = match *name {
            "command" => {
                "SLOWLOG GET shows which commands; large values and walks over all keys \
                          take long, and so does a write that waits for the cleaner (INFO perdura)"
            }
            "fast-command" => {
                "such a command is fast by itself: it waited for a shard, for the \
                               processor, or, if it writes, for the cleaner (INFO perdura)"
            }
            _ => "many keys, or large ones, expired at the same time",
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{name}: {count} seconds with such events, {mean} ms on average, {} ms at the most: \
             {what}.",
            event.max_ms
        );
    }
    if text.is_empty() {
        let _ = writeln!(text, "Nothing took {threshold_ms} ms or longer.");
    }
    text.push_str("Writers that wait for the cleaner are counted in INFO perdura.");
    ctx.reply.verbatim(text.as_bytes());
    Ok(())
}

/// LATENCY HISTOGRAM [command [command ...]]
pub(super) fn histogram(ctx: &mut Context<'_, '_, '_>, args: Args<'_>) -> Outcome {
    let (stats, specs) = (ctx.server.shared.stats(), ctx.server.index.specs());
    let mut rows: Vec<usize> = Vec::new();
    if args.len() == 2 {
        rows.extend(0..specs.len());
    }
    for name in args.from(2) {
        let of_container = |known: &str| known.split_once('|').is_some_and(|(of, _)| is(name, of));
        let fits = |row: &usize| is(name, specs[*row].name) || of_container(specs[*row].name);
        rows.extend((0..specs.len()).filter(fits));
    }
    rows.retain(|row| times(&stats, *row).is_some());
    ctx.reply.map(rows.len());
    for row in rows {
        ctx.reply.bulk(specs[row].name.as_bytes());
        if let Some(times) = times(&stats, row) {
            describe(ctx.reply, times);
        }
    }
    Ok(())
}

/// The times of the command in a row, if it was called.
fn times(stats: &Stats, row: usize) -> Option<&Times> {
    stats.by_command[row].times.get().filter(|times| times.count() > 0)
}

fn describe(reply: &mut Reply<'_>, times: &Times) {
    let doublings = times.doublings();
    reply.map(2);
    reply.bulk(b"calls");
    reply.len(times.count());
    reply.bulk(b"histogram_usec");
    reply.map(doublings.len());
    for (us, count) in doublings {
        reply.len(us);
        reply.len(count);
    }
}

/// LATENCY HELP
pub(super) fn help(ctx: &mut Context<'_, '_, '_>, _args: Args<'_>) -> Outcome {
    super::introspect::help(ctx, "latency");
    Ok(())
}

/// INFO latencystats
pub(super) fn latencystats(server: &Server<'_>, _: Clients, out: &mut String) -> std::fmt::Result {
    let stats = server.shared.stats();
    for (row, spec) in server.index.specs().iter().enumerate() {
        let Some(times) = times(&stats, row) else { continue };
        write!(out, "latency_percentiles_usec_{}:", spec.name)?;
        for (at, percent) in server.config.latency_percentiles.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let us = times.percentile(*percent) as f64 / 1000.0;
            write!(out, "{comma}p{percent}={us:.3}")?;
        }
        out.push_str("\r\n");
    }
    Ok(())
}

/// INFO errorstats
pub(super) fn errorstats(server: &Server<'_>, _: Clients, out: &mut String) -> std::fmt::Result {
    server.shared.errors().iter().try_for_each(|(word, count)| {
        // What INFO separates its fields by stands in no name.
        let is_mark = |mark: char| matches!(mark, '#' | ':' | '\r' | '\n');
        let name = String::from_utf8_lossy(word).replace(is_mark, "_");
        write!(out, "errorstat_{name}:count={count}\r\n")
    })
}
