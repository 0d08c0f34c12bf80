//! `perdura-lab access compare`: two result files side by side, with a test of whether each
//! difference is more than chance.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use perdura_lab::access::compare::{
    Compared, Comparison, Difference, Pair, Verdict, compare, read,
};

use perdura_terminal::Output;
use perdura_terminal::{all_said, say};

/// Options of `perdura-lab access compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// A result file of `perdura-lab access run` or of the published benchmark.
    #[arg(value_name = "A.json")]
    a: PathBuf,
    /// The result file to compare with the first one.
    #[arg(value_name = "B.json")]
    b: PathBuf,
    /// Also write all results to this file, as JSON; `-`: standard output.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    json: Option<PathBuf>,
}

pub fn run(args: &CompareArgs) -> Result<ExitCode> {
    let json = Output::of("json", args.json.as_deref())?;
    Output::keep_apart(&json.iter().collect::<Vec<_>>(), &[args.a.clone(), args.b.clone()])?;
    let comparison = compare(&read(&args.a)?, &read(&args.b)?);
    if let Some(json) = &json {
        json.write((serde_json::to_string_pretty(&comparison)? + "\n").as_bytes())?;
    }
    if !json.is_some_and(|json| json.is_stdout()) {
        say(format_args!("A: {}\nB: {}", args.a.display(), args.b.display()));
        show(&comparison);
    }
    all_said()?;
    Ok(ExitCode::SUCCESS)
}

/// Longest cell name, in letters, that leaves the figures in their columns.
const NAME_MAX: usize = 72;

fn show(comparison: &Comparison) {
    // Differences of the setting come first: between two machines no ratio says what changed.
    comparison.differences.iter().for_each(difference);
    for cells in comparison.cells.chunk_by(|one, other| one.bm_name == other.bm_name) {
        say(format_args!("\n{}{}", cells[0].bm_name, labels(&cells[0])));
        let width = cells.iter().map(|cell| name(cell).len()).max().unwrap_or(0).min(NAME_MAX);
        cells.iter().for_each(|cell| row(cell, width));
    }
    for (name, only) in [("A", &comparison.only_in_a), ("B", &comparison.only_in_b)] {
        if !only.is_empty() {
            say(format_args!("\nonly in {name}, {}:", only.len()));
            only.iter().for_each(|cell| say(format_args!("  {cell}")));
        }
    }
    for unmatched in &comparison.unmatched_by {
        say(format_args!("no common cell: {unmatched}"));
    }
    verdicts(comparison);
}

fn difference(difference: &Difference) {
    let told = |side: &[String]| match side {
        [] => "not stated".to_owned(),
        some => some.join("; "),
    };
    let Difference { what, a, b } = difference;
    say(format_args!("NOT THE SAME {what}: {} in A, {} in B", told(a), told(b)));
}

/// The label of the figures (measured, modelled, …); both labels where they differ.
fn labels(cell: &Compared) -> String {
    let name = |label: Option<perdura_lab::access::result::Label>| {
        label.map_or("origin not stated", |label| label.name())
    };
    match cell.labels {
        [a, b] if a != b => format!(": {} (A) beside {} (B)", name(a), name(b)),
        [a, _] => format!(": {}", name(a)),
    }
}

fn row(cell: &Compared, width: usize) {
    let (unit, pair) = match (&cell.bandwidth, &cell.ops_per_second) {
        (_, Some(pair)) if cell.settings.contains("custom_operations") => ("op/s", pair),
        (Some(pair), _) => ("GiB/s", pair),
        (None, Some(pair)) => ("op/s", pair),
        (None, None) => {
            return say(format_args!("  {}: no figure in both files", name(cell)));
        }
    };
    let ratio = match pair {
        Pair { ratio: Some(ratio), ci95: Some([low, high]), .. } => {
            format!("{ratio:.3} ({low:.3} to {high:.3})")
        }
        Pair { ratio: Some(ratio), .. } => format!("{ratio:.3}"),
        _ => "-".to_owned(),
    };
    let verdict = match cell.verdict {
        Verdict::Faster => "B is faster",
        Verdict::Slower => "B is slower",
        Verdict::NoDifferenceShown => "no difference shown",
        Verdict::NoTest => "no test",
    };
    let shown =
        |value: f64| if unit == "op/s" { format!("{value:.0}") } else { format!("{value:.3}") };
    say(format_args!(
        "  {:<width$} {:>12} {:>12} {unit:<5}  B/A {ratio:<24} {verdict}{}",
        name(cell),
        shown(pair.a),
        shown(pair.b),
        latency(cell)
    ));
}

fn name(cell: &Compared) -> String {
    match (&cell.part, cell.settings.as_str()) {
        (Some(part), settings) => format!("{part} ({settings})"),
        (None, "") => "all".to_owned(),
        (None, settings) => settings.to_owned(),
    }
}

fn latency(cell: &Compared) -> String {
    let (Some(median), Some(p99)) = (&cell.latency_median_ns, &cell.latency_p99_ns) else {
        return String::new();
    };
    format!("; median {:.0} and {:.0} ns, p99 {:.0} and {:.0} ns", median.a, median.b, p99.a, p99.b)
}

/// Prints how many cells were tested, and how many would differ by chance alone.
fn verdicts(comparison: &Comparison) {
    let count = |verdict| comparison.cells.iter().filter(|cell| cell.verdict == verdict).count();
    let (faster, slower) = (count(Verdict::Faster), count(Verdict::Slower));
    let (alike, untested) = (count(Verdict::NoDifferenceShown), count(Verdict::NoTest));
    let tested = faster + slower + alike;
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for why in comparison.cells.iter().filter_map(|cell| cell.why_no_test.as_deref()) {
        *reasons.entry(why).or_default() += 1;
    }
    say(format_args!(
        "\nB is faster in {faster}, slower in {slower}; no difference shown in {alike}; not \
         tested: {untested}"
    ));
    for (why, count) in reasons {
        say(format_args!("no test of {count}: {why}"));
    }
    if tested > 0 {
        say(format_args!(
            "Welch's test on the repetitions, 95 %: if none of the {tested} tested cells differed, \
             chance alone would show about {:.1} differences.",
            tested as f64 * 0.05
        ));
    }
}
