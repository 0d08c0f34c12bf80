//! The report on a trace as a table in the terminal.

use std::time::Duration;

use perdura_media::{Bytes, BytesPerSecond, format_duration};
use perdura_plan::report::{BudgetRow, SizingReport, TraceReport};
use perdura_plan::skew::{Assessment, Class, Figure, Figures};
use perdura_plan::trace::PAGE_BYTES;

use crate::plan::power;
use perdura_terminal::say;

/// How many volumes the table shows; the JSON has all.
const VOLUMES: usize = 20;

/// How many letters of a volume's name the table shows.
const NAME_MAX: usize = 32;

pub fn report(report: &TraceReport) {
    let all = &report.all;
    let volumes: u32 = report.volumes.iter().map(|volume| volume.volumes).sum();
    say(format_args!(
        "\n{}\n{}\n\n{} records over {}; {} volume{}",
        report.trace,
        report.verdict.sentence,
        all.records,
        format_duration(Duration::from_nanos(report.duration_ns)),
        volumes,
        if volumes == 1 { "" } else { "s" },
    ));
    if let Some(resolution) = &report.resolution {
        resolution.notes.iter().for_each(say);
    }
    for file in &report.files {
        if file.skipped_bad + file.ignored > 0 {
            say(format_args!(
                "{}: {} bad records passed over, {} records that are no access",
                file.file, file.skipped_bad, file.ignored
            ));
        }
        file.first_bad.iter().for_each(|bad| say(format_args!("  {bad}")));
    }
    table_of_volumes(report);
    if let Some(sizing) = &report.sizing {
        budgets(sizing);
        power::show(&sizing.power);
    }
    say(format_args!("\n{}", report.verdict.because));
}

fn table_of_volumes(report: &TraceReport) {
    let mut volumes: Vec<_> = report.volumes.iter().collect();
    volumes.sort_by_key(|volume| std::cmp::Reverse(volume.figures.page_writes));
    let shown = &volumes[..volumes.len().min(VOLUMES)];
    let letters = shown.iter().map(|volume| volume.volume.chars().count()).max().unwrap_or(0);
    let width = letters.clamp(16, NAME_MAX);
    let mut head = format!(
        "\n{:<width$} {:>10} {:>10} {:>10} {:>12}",
        "volume", "size", "touched", "written", "page writes"
    );
    for (key, _) in &report.all.worst {
        head += &format!(" {:>17}", format!("worst {}", seconds(key)));
    }
    for (key, _) in &report.all.skew_pages {
        head += &format!(" {:>8}", format!("{key} %"));
    }
    say(format_args!("{head}  kind"));
    for volume in shown {
        row(&fitting(&volume.volume, width), width, &volume.figures, &volume.assessment);
    }
    if volumes.len() > VOLUMES {
        say(format_args!(
            "... and {} volumes that write less; --json has all",
            volumes.len() - VOLUMES
        ));
    }
    if volumes.len() > 1 {
        row("all", width, &report.all, &report.assessment);
    }
    say("worst: the most that is written in any interval so long, as a share of the volume: each \
         write taken for one to a new page / different pages only\n\
         90 % and so on: the fewest pages that take this share of the writes, as a share of the \
         pages touched\n\
         kind: whether little or much is written (low, high), to few pages or to many (skewed, \
         unique)");
}

/// A name in at most so many letters. Its middle is left out, because names differ at their ends.
fn fitting(name: &str, letters_max: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= letters_max {
        return name.to_owned();
    }
    let start = (letters_max - 1) / 3;
    let end = letters.len() - (letters_max - 1 - start);
    letters[..start].iter().chain(&['\u{2026}']).chain(&letters[end..]).collect()
}

fn row(name: &str, width: usize, figures: &Figures, meaning: &Assessment) {
    let pages = |pages: u64| Bytes(pages * PAGE_BYTES).to_string();
    let mut line = format!(
        "{name:<width$} {:>10} {:>10} {:>10} {:>12}",
        pages(meaning.volume_pages),
        bars(&figures.touched_pages),
        bars(&figures.written_pages),
        figures.page_writes
    );
    for worst in &meaning.windows {
        line += &format!(" {:>8.2}/{:>6.2} %", 100.0 * worst.adversarial, 100.0 * worst.unique);
    }
    for skew in &meaning.skew {
        line += &format!(" {:>6.2} %", 100.0 * skew.of_touched);
    }
    let class = meaning.class.map_or("-", Class::name);
    say(format_args!("{line}  {class}"));
}

/// The bytes of pages, with the error of an estimate.
fn bars(figure: &Figure) -> String {
    let bytes = Bytes(figure.pages * PAGE_BYTES);
    match figure.bars {
        Some((low, high)) if figure.pages > 0 => {
            let off = (high - figure.pages).max(figure.pages - low) as f64 / figure.pages as f64;
            format!("{bytes}+-{:.1}%", 100.0 * off)
        }
        _ => bytes.to_string(),
    }
}

fn budgets(sizing: &SizingReport) {
    say(format_args!(
        "\nmodelled: {} of memory, cleaning policy {}, an SSD that writes {}\n{:>12} {:>8} {:>10} \
         {:>9} {:>9} {:>10} \
         {:>10} {:>9} {:>12} {:>10} {:>9}",
        Bytes(sizing.memory_bytes),
        sizing.policy,
        BytesPerSecond(sizing.server.flush_bytes_per_s),
        "budget",
        "memory",
        "stalls",
        "of writes",
        "of time",
        "p99.9",
        "longest",
        "SSD/byte",
        "SSD mean",
        "SSD lasts",
        "flush"
    ));
    for row in &sizing.budgets {
        let is_chosen = row.budget_bytes == sizing.chosen.budget_bytes;
        if row.is_asked || is_chosen {
            budget(row, is_chosen);
        }
    }
    say("budget: bytes that may be dirty, and its share of the memory; stalls: page writes that \
         have to wait, their share of all, and the share of the time that writers wait; p99.9 and \
         longest: the time until a page write is through\n\
         SSD/byte: bytes to the SSD for each byte of the page writes; flush: the time until a \
         whole budget is safe");
    for replaced in &sizing.replaced {
        say(format_args!("{replaced}"));
    }
    say(format_args!("> {}", sizing.choice()));
}

fn budget(row: &BudgetRow, is_chosen: bool) {
    let ns = |ns: u64| format_duration(Duration::from_nanos(ns));
    say(format_args!(
        "{}{:>11} {:>6.2} % {:>10} {:>7.3} % {:>7.3} % {:>10} {:>10} {:>9.3} {:>12} {:>10} {:>7.2} \
         s",
        if is_chosen { ">" } else { " " },
        Bytes(row.budget_bytes).to_string(),
        100.0 * row.share_of_memory,
        row.stalls,
        100.0 * row.stalls_per_write,
        100.0 * row.stalled_share,
        ns(row.write_p999_ns),
        ns(row.stall_max_ns),
        row.device_bytes_per_user_byte,
        BytesPerSecond(row.device_bytes_per_s as u64).to_string(),
        row.endurance_years.map_or("-".into(), |years| format!("{years:.1} y")),
        row.flush_s,
    ));
}

fn seconds(key: &str) -> String {
    let parsed: Option<f64> = key.parse().ok();
    parsed.and_then(|s| Duration::try_from_secs_f64(s).ok()).map_or(key.to_owned(), format_duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(fitting("hm_0", 16), "hm_0");
        let short = fitting("data /usr/lib/python3.11/lib-dynload/_sha512.so", 16);
        assert_eq!((short.as_str(), short.chars().count()), ("data \u{2026}_sha512.so", 16));
    }
}
