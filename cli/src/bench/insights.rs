//! `perdura bench insights`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use perdura_bench::access::insights::price::PriceRow;
use perdura_bench::access::insights::{Insight, InsightsResult, InsightsSettings, run as measure};
use perdura_bench::access::reference::PerPattern;
use perdura_bench::report::insights_page;

use super::ycsb::DIR;
use crate::output::Output;
use crate::progress::LateBar;
use crate::say::say;

/// Options of `bench insights`.
#[derive(Debug, Args)]
pub struct InsightsArgs {
    /// Measure this folder, too: persistent memory on a DAX file system, memory on tmpfs, the page cache elsewhere.
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Price of this machine's whole memory, for euro per GB and per GB/s [default: not computed].
    #[arg(long, value_name = "EURO", allow_hyphen_values = true)]
    price: Option<f64>,
    /// About a minute: fewer rounds, fewer operations, a smaller store.
    #[arg(long)]
    quick: bool,
    /// Folder of the store's image; it is removed at the end.
    #[arg(long, value_name = "DIR", default_value = DIR)]
    dir: PathBuf,
    /// Also write everything found to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw it: one page, no script.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(args: &InsightsArgs) -> Result<ExitCode> {
    let settings = resolve(args)?;
    let json = Output::of("json", args.json.as_deref())?;
    let html = Output::of("html", args.html.as_deref())?;
    let outputs: Vec<&Output> = json.iter().chain(&html).collect();
    Output::keep_apart(&outputs, &[])?;
    let bar = LateBar::new("insights");
    let result = measure(&settings, &|what, done, of| bar.step(what, done, of));
    bar.finish();
    let result = result?;
    if let Some(json) = &json {
        json.write((serde_json::to_string_pretty(&result)? + "\n").as_bytes())?;
    }
    if let Some(html) = &html {
        html.write(insights_page(&result).as_bytes())?;
    }
    if !outputs.iter().any(|output| output.is_stdout()) {
        show(&result);
    }
    Ok(ExitCode::SUCCESS)
}

fn resolve(args: &InsightsArgs) -> Result<InsightsSettings> {
    if let Some(path) = &args.path {
        ensure!(path.is_dir(), "--path {}: expected a folder that is there", path.display());
    }
    if let Some(price) = args.price {
        ensure!(price.is_finite() && price > 0.0, "--price {price}: expected euro, more than 0");
    }
    let usual = InsightsSettings::usual(args.dir.clone(), args.quick);
    Ok(InsightsSettings { path: args.path.clone(), price_euro: args.price, ..usual })
}

fn show(result: &InsightsResult) {
    say(&result.machine);
    result.insights.iter().for_each(answer);
    say("\nprice and performance: EUR/GB, then per GiB/s of each pattern");
    let [one, two, three, four] = PerPattern::<f64>::NAMES;
    say(format_args!("{:<14}{:<11}{:>8}{one:>22}{two:>22}{three:>22}{four:>22}", "", "", "EUR/GB"));
    result.prices.rows.iter().for_each(price);
    say(&result.prices.note);
}

fn answer(insight: &Insight) {
    say(format_args!("\n{}. {}", insight.number, insight.question));
    if let Some(why) = &insight.unanswered {
        say(format_args!("   {why}"));
    }
    for answer in &insight.answers {
        say(format_args!("   {}, measured: {}", answer.place, answer.sentence));
        say(format_args!("   ({})", answer.how));
    }
    say(format_args!("   published: {}", insight.published));
}

fn price(row: &PriceRow) {
    let told = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
    let cell = |(bandwidth, price): (Option<f64>, Option<f64>)| match (bandwidth, price) {
        (None, None) => "-".into(),
        (bandwidth, price) => format!("{} ({} GiB/s)", told(price), told(bandwidth)),
    };
    let pairs = row.gib_per_s.all().into_iter().zip(row.euro_per_gb_per_s.all());
    let cells: Vec<String> = pairs.map(cell).collect();
    say(format_args!(
        "{:<14}{:<11}{:>8}{:>22}{:>22}{:>22}{:>22}",
        row.name,
        row.label,
        told(row.euro_per_gb),
        cells[0],
        cells[1],
        cells[2],
        cells[3]
    ));
}
