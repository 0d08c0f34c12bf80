//! `perdura-lab access insights`: words to settings, results to the terminal.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use perdura_lab::access::insights::page::page;
use perdura_lab::access::insights::price::PriceRow;
use perdura_lab::access::insights::{Insight, InsightsResult, InsightsSettings, run as measure};
use perdura_lab::access::reference::PerPattern;

use super::DIR;
use perdura_terminal::LateBar;
use perdura_terminal::Output;
use perdura_terminal::{all_said, say};

/// Options of `perdura-lab access insights`.
#[derive(Debug, Args)]
pub struct InsightsArgs {
    /// Also measure memory mapped from this folder: persistent memory on a DAX file system, memory
    /// on tmpfs, the page cache elsewhere.
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Price in euro of all of this machine's DRAM, from which euro per GB and per GiB/s follow
    /// [default: not computed].
    #[arg(long, value_name = "EURO", allow_hyphen_values = true)]
    price: Option<f64>,
    /// Price in euro of all the memory on which --path lies, of the size of its file system
    /// [default: not computed].
    #[arg(long, value_name = "EURO", allow_hyphen_values = true, requires = "path")]
    path_price: Option<f64>,
    /// Measure for about a minute only: fewer rounds, fewer operations, a smaller store.
    #[arg(long)]
    quick: bool,
    /// Folder for the store's image, which is removed at the end.
    #[arg(long, value_name = "DIR", default_value = DIR)]
    dir: PathBuf,
    /// Also write all results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the results: one page, without scripts.
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
        html.write(page(&result).as_bytes())?;
    }
    if !outputs.iter().any(|output| output.is_stdout()) {
        show(&result);
    }
    all_said()?;
    Ok(ExitCode::SUCCESS)
}

fn resolve(args: &InsightsArgs) -> Result<InsightsSettings> {
    if let Some(path) = &args.path {
        ensure!(path.is_dir(), "--path {}: expected a folder that exists", path.display());
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
    prices(&result.prices.rows).iter().for_each(say);
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

/// Two tables of prices: one computed in the same way for all systems, and one with the poster's
/// own divisor where that can be read off.
fn prices(rows: &[PriceRow]) -> Vec<String> {
    let name_width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let line = |name: &str, label: &str, first: &str, cells: [String; 4]| {
        let cells = cells.map(|cell| format!("{cell:>27}")).concat();
        format!("{name:<name_width$}  {label:<25}{first:>6}{cells}").trim_end().to_owned()
    };
    let patterns = || PerPattern::<f64>::NAMES.map(str::to_owned);
    let mut lines = vec![
        "\nprice and performance: EUR/GB, then per GiB/s of each pattern (bandwidth, threads)"
            .into(),
        line("", "", "EUR/GB", patterns()),
    ];
    for row in rows {
        let label = match row.label == row.price_label {
            true => row.label.clone(),
            false => format!("{}, price {}", row.label, row.price_label),
        };
        lines.push(line(&row.name, &label, &told(row.euro_per_gb), cells(row)));
    }
    lines.push("the poster's own columns, published: EUR/GB per GB/s".into());
    lines.push(line("", "", "", patterns()));
    for row in rows.iter().filter(|row| row.poster.all().iter().any(Option::is_some)) {
        lines.push(line(&row.name, &row.label, "", row.poster.all().map(told)));
    }
    lines
}

/// The cells of a row: the price divided by each of the four bandwidths, with the bandwidth.
fn cells(row: &PriceRow) -> [String; 4] {
    let (prices, threads) = (row.euro_per_gb_per_s.all(), row.threads.all());
    let bandwidths = row.gib_per_s.all();
    std::array::from_fn(|at| match (bandwidths[at], prices[at]) {
        (None, None) => "-".into(),
        (bandwidth, price) => {
            let threads = threads[at].map_or(String::new(), |threads| format!(", {threads} thr."));
            format!("{} ({} GiB/s{threads})", told(price), told(bandwidth))
        }
    })
}

fn told(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.2}"))
}

#[cfg(test)]
mod tests {
    use perdura_lab::access::insights::price::Prices;
    use perdura_lab::access::reference::References;

    use super::*;

    #[test]
    fn the_posters_own_columns_stand_beside_ours_and_are_published() {
        let own = PriceRow {
            name: "DRAM here".into(),
            label: "measured".into(),
            price_label: "given".into(),
            euro_per_gb: Some(4.0),
            gib_per_s: PerPattern { random_read: Some(8.0), ..PerPattern::default() },
            threads: PerPattern { random_read: Some(2), ..PerPattern::default() },
            euro_per_gb_per_s: PerPattern { random_read: Some(0.5), ..PerPattern::default() },
            poster: PerPattern::default(),
        };
        let published = Prices::of(&[], &References::built_in()).rows;
        let lines = prices(&[vec![own], published].concat());
        let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = lines.iter().map(words).collect();
        let has = |wanted: &str| assert!(lines.iter().any(|line| line == wanted), "{lines:#?}");
        has("DRAM here measured, price given 4.00 - 0.50 (8.00 GiB/s, 2 thr.) - -");
        has("a-dram published 30.62 - - - -");
        has("the poster's own columns, published: EUR/GB per GB/s");
        has("apache-128 published 0.25 0.34 0.78 3.43");
        assert!(lines.iter().any(|line| line.starts_with("apache-128 published 9.21 0.25 (37.00")));
        let own = lines.iter().filter(|line| line.starts_with("DRAM here"));
        assert_eq!(own.count(), 1, "the poster knows nothing of this machine");
    }
}
