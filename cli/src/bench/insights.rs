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
use crate::say::{all_said, say};

/// Options of `bench insights`.
#[derive(Debug, Args)]
pub struct InsightsArgs {
    /// Measure this folder, too: persistent memory on a DAX file system, memory on tmpfs, the page cache elsewhere.
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Price of all of this machine's DRAM, for euro per GB and per GiB/s [default: not computed].
    #[arg(long, value_name = "EURO", allow_hyphen_values = true)]
    price: Option<f64>,
    /// Price of all the memory that --path lies on, by what its file system holds [default: not computed].
    #[arg(long, value_name = "EURO", allow_hyphen_values = true, requires = "path")]
    path_price: Option<f64>,
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
    all_said()?;
    Ok(ExitCode::SUCCESS)
}

fn resolve(args: &InsightsArgs) -> Result<InsightsSettings> {
    if let Some(path) = &args.path {
        ensure!(path.is_dir(), "--path {}: expected a folder that is there", path.display());
    }
    for (option, price) in [("--price", args.price), ("--path-price", args.path_price)] {
        if let Some(price) = price {
            ensure!(
                price.is_finite() && price > 0.0,
                "{option} {price}: expected euro, more than 0"
            );
        }
    }
    let usual = InsightsSettings::usual(args.dir.clone(), args.quick);
    Ok(InsightsSettings {
        path: args.path.clone(),
        price_euro: args.price,
        path_price_euro: args.path_price,
        ..usual
    })
}

fn show(result: &InsightsResult) {
    say(&result.machine);
    say(&result.settings);
    result.restrictions.iter().for_each(say);
    result.insights.iter().for_each(answer);
    say(
        "\nprice and performance: EUR/GB, then per GiB/s of each pattern (bandwidth, with its threads)",
    );
    let [one, two, three, four] = PerPattern::<f64>::NAMES;
    let rows = &result.prices.rows;
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let head = format!("{:<width$} {:<24}{:>8}", "", "", "EUR/GB");
    say(format_args!("{head}{one:>26}{two:>26}{three:>26}{four:>26}"));
    rows.iter().for_each(|row| price(row, width));
    say("the poster's own columns, published: EUR/GB per GB/s");
    say(format_args!("{:<width$} {:<24}{:>8}{one:>26}{two:>26}{three:>26}{four:>26}", "", "", ""));
    rows.iter().for_each(|row| poster(row, width));
    say(&result.prices.note);
}

fn answer(insight: &Insight) {
    say(format_args!("\n{}. {}", insight.number, insight.question));
    if let Some(why) = &insight.unanswered {
        say(format_args!("   {why}"));
    }
    for answer in &insight.answers {
        say(format_args!("   {}, {}: {}", answer.place, answer.label.name(), answer.sentence));
        say(format_args!("   ({})", answer.how));
    }
    say(format_args!("   published: {}", insight.published));
}

fn told(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.2}"))
}

fn price(row: &PriceRow, width: usize) {
    let bandwidths = row.gib_per_s.all().into_iter().zip(row.threads.all());
    let cell = |((bandwidth, threads), price): ((Option<f64>, Option<u64>), Option<f64>)| {
        let threads = threads.map_or(String::new(), |threads| format!(", {threads} thr."));
        match (bandwidth, price) {
            (None, None) => "-".into(),
            (bandwidth, price) => format!("{} ({} GiB/s{threads})", told(price), told(bandwidth)),
        }
    };
    let cells = bandwidths.zip(row.euro_per_gb_per_s.all()).map(cell);
    let cells: String = cells.map(|cell| format!("{cell:>26}")).collect();
    let label = match row.label == row.price_label {
        true => row.label.clone(),
        false => format!("{}, price {}", row.label, row.price_label),
    };
    say(format_args!("{:<width$} {label:<24}{:>8}{cells}", row.name, told(row.euro_per_gb)));
}

/// What the poster itself divides, where it can be read.
fn poster(row: &PriceRow, width: usize) {
    if row.poster.all().iter().any(Option::is_some) {
        let cells: String =
            row.poster.all().into_iter().map(|value| format!("{:>26}", told(value))).collect();
        say(format_args!("{:<width$} {:<24}{:>8}{cells}", row.name, row.label, ""));
    }
}
