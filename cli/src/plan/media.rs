//! `perdura plan media`: which memory to buy for a load.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use perdura_media::recording::Recording;
use perdura_media::{Bytes, System, parse_duration, profile};
use perdura_plan::media::{Candidate, Flip, Locality, MediaPlan, Question, Role, Workload};
use perdura_plan::page::media_page;

use perdura_terminal::Output;
use perdura_terminal::say;
use perdura_terminal::{named, optional};

/// Options of `plan media`.
#[derive(Debug, Args)]
pub struct MediaArgs {
    /// Take data, rate, request, reads and locality from the recording of a program that
    /// `perdura-lab run --record` wrote, unless they are given.
    #[arg(long, value_name = "FILE")]
    recording: Option<std::path::PathBuf>,
    /// Size of the data [default: 500GB].
    #[arg(long, value_name = "SIZE")]
    capacity: Option<String>,
    /// Requests a second that the medium has to take [default: 20000].
    #[arg(long, value_name = "N")]
    iops: Option<f64>,
    /// Size of a request [default: 4KiB].
    #[arg(long, value_name = "SIZE")]
    request: Option<String>,
    /// Share of requests that read [default: two thirds].
    #[arg(long, value_name = "0..1")]
    reads: Option<f64>,
    /// Requests under way on each device at a time.
    #[arg(long, value_name = "N", default_value_t = 16)]
    outstanding: u32,
    /// Time that software takes for a request; the drivers of the HASTE slides took 13.4us and 5us
    /// [default: 5us].
    #[arg(long, value_name = "TIME")]
    software: Option<String>,
    /// Processor cores that run the software.
    #[arg(long, value_name = "N", default_value_t = 8)]
    cores: u32,
    /// Locality, in percent: 90/10 means that 90 % of the requests go to 10 % of the data; 0 is no
    /// locality [default: 90/10].
    #[arg(long, value_name = "REQUESTS/DATA")]
    locality: Option<String>,
    /// For hybrids, in percent: the requests that go to a fixed part of the data (a log, swap), and
    /// that part.
    #[arg(long, value_name = "REQUESTS/DATA", default_value = "40/1")]
    fixed: String,
    /// Media to compare, separated by commas: built-in names or paths of profiles [default: all
    /// built-in whole systems that had a price by the year].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    media: Vec<String>,
    /// The disks behind caches and hybrids. Speed-ups are relative to them alone.
    #[arg(long, value_name = "PROFILE", default_value = "disk-raid0")]
    disks: String,
    /// Year of the prices; a medium without a price of that year has its newest from before.
    #[arg(long, value_name = "YEAR", default_value_t = 2026)]
    year: u16,
    /// Write the plan as JSON, to standard output with `-`.
    #[arg(long, value_name = "FILE")]
    json: Option<std::path::PathBuf>,
    /// Write the plan as a page.
    #[arg(long, value_name = "FILE")]
    html: Option<std::path::PathBuf>,
}

pub fn run(args: &MediaArgs) -> Result<ExitCode> {
    let question = resolve(args)?;
    let json = Output::of("json", args.json.as_deref())?;
    let html = Output::of("html", args.html.as_deref())?;
    let outputs: Vec<_> = [&json, &html].into_iter().flatten().collect();
    Output::keep_apart(&outputs, &[])?;
    let plan = question.answer();
    if !outputs.iter().any(|output| output.is_stdout()) {
        show(&plan);
    }
    if let Some(json) = json {
        json.write((serde_json::to_string_pretty(&plan)? + "\n").as_bytes())?;
    }
    if let Some(html) = html {
        html.write(media_page(&plan).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn resolve(args: &MediaArgs) -> Result<Question> {
    let usual = usual(args)?;
    let size = |name: &str, value: &Option<String>, usual: u64| {
        Ok::<_, anyhow::Error>(optional(name, value)?.map_or(usual, |Bytes(bytes)| bytes))
    };
    let software = args.software.as_ref().map(|text| named("software", text, parse_duration(text)));
    let locality = match &args.locality {
        None => usual.locality.clone(),
        Some(text) => match shares("locality", text)? {
            Some((requests, data)) => Locality::of_shares(data, requests),
            None => Locality::none(),
        },
    };
    let (fixed_request_share, fixed_data_share) =
        shares("fixed", &args.fixed)?.unwrap_or((0.0, 0.0));
    let workload = Workload {
        capacity_bytes: size("capacity", &args.capacity, usual.capacity_bytes)?,
        rate_per_s: args.iops.unwrap_or(usual.rate_per_s),
        request_bytes: size("request", &args.request, usual.request_bytes)?,
        read_share: args.reads.unwrap_or(usual.read_share),
        outstanding: args.outstanding,
        software_ns: software.transpose()?.map_or(usual.software_ns, |span| span.as_nanos() as f64),
        cores: args.cores,
        locality,
        fixed_data_share,
        fixed_request_share,
    };
    workload.validate()?;
    let media = match args.media.as_slice() {
        [] => for_sale(args.year)?,
        names => {
            names.iter().map(|name| System::find(name).context("--media")).collect::<Result<_>>()?
        }
    };
    Ok(Question {
        workload,
        media,
        disks: System::find(&args.disks).context("--disks")?,
        year: args.year,
    })
}

/// The load that fills in for options that are not given: a recording's, or the default.
fn usual(args: &MediaArgs) -> Result<Workload> {
    let usual = Workload::default();
    let Some(path) = &args.recording else { return Ok(usual) };
    let recording =
        Recording::open(path).with_context(|| format!("--recording {}", path.display()))?;
    match Workload::of_recording(&recording, &usual) {
        Some(load) => Ok(load),
        None => bail!("--recording {}: the program read and wrote nothing", path.display()),
    }
}

/// The built-in media that can be bought, which are whole systems with a price by that year.
fn for_sale(year: u16) -> Result<Vec<System>> {
    let all = profile::names().into_iter().map(System::find);
    let all = all.collect::<Result<Vec<_>, _>>()?;
    Ok(all
        .into_iter()
        .filter(|system| system.link.is_some() && system.eur_per_gb(year).is_some())
        .collect())
}

/// Parses `90/10` as (0.9, 0.1), and `0` as none.
fn shares(name: &str, text: &str) -> Result<Option<(f64, f64)>> {
    if text == "0" {
        return Ok(None);
    }
    let parts = text.split_once('/').and_then(|(requests, data)| {
        Some((
            requests.trim().parse::<f64>().ok()? / 100.0,
            data.trim().parse::<f64>().ok()? / 100.0,
        ))
    });
    match parts {
        Some((requests, data)) if requests > 0.0 && requests < 1.0 && data > 0.0 && data < 1.0 => {
            Ok(Some((requests, data)))
        }
        _ => bail!("--{name} {text}: expected two percentages such as 90/10 (requests/data), or 0"),
    }
}

fn show(plan: &MediaPlan) {
    let load = &plan.workload;
    say(format_args!(
        "modelled: {:.0} requests/s of {} over {}, {:.0} % reads, {:.1} us of software; prices of \
         {}",
        load.rate_per_s,
        Bytes(load.request_bytes),
        Bytes(load.capacity_bytes),
        100.0 * load.read_share,
        load.software_ns / 1e3,
        plan.price_year,
    ));
    say(format_args!(
        "\n{:<14} {:<8} {:>8} {:>7} {:>11} {:>6} {:>9} {:>11} {:>10} {:>10} {:>9}",
        "medium",
        "role",
        "devices",
        "disks",
        "EUR",
        "year",
        "watts",
        "requests/s",
        "/s per EUR",
        "/s per W",
        "speed-up"
    ));
    for one in &plan.candidates {
        row(one);
    }
    say(format_args!(
        "\n* does not meet the load.  devices: of the medium; disks: arrays of {}",
        plan.disks
    ));
    flips("capacity", &plan.flips_by_capacity, |value| format!("{:.0} GB", value / 1e9));
    flips("rate", &plan.flips_by_rate, |value| format!("{value:.0}/s"));
    say(format_args!(
        "\nThe slides' conclusions (HASTE, Power and Cost Analysis) at these prices:"
    ));
    for conclusion in &plan.conclusions {
        say(format_args!(
            "- {}: {}.\n  Claim: {}.\n  Here: {}.",
            role(conclusion.role),
            conclusion.verdict,
            conclusion.claim,
            conclusion.because
        ));
    }
}

fn row(one: &Candidate) {
    let money = |value: Option<f64>, digits: usize| {
        value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
    };
    say(format_args!(
        "{:<14} {:<8} {:>8.0} {:>7.0} {:>11} {:>6} {:>9.1} {:>10.0}{} {:>10} {:>10.1} {:>9.1}",
        one.medium,
        role(one.role),
        one.devices,
        one.disk_arrays,
        money(one.eur, 0),
        one.price_year.map_or("-".to_owned(), |year| year.to_string()),
        one.watts,
        one.rate_per_s,
        if one.meets { " " } else { "*" },
        money(one.rate_per_eur, 2),
        one.rate_per_watt,
        one.speed_up,
    ));
}

fn flips(what: &str, flips: &[Flip], shown: impl Fn(f64) -> String) {
    say(format_args!("\nCheapest by {what}:"));
    for flip in flips {
        let choice = match (&flip.medium, flip.role) {
            (Some(medium), Some(of)) => format!("{medium} as {}", role(of)),
            _ => "nothing meets the load".to_owned(),
        };
        say(format_args!("  from {:>12}  {choice}", shown(flip.from)));
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Primary => "primary",
        Role::Cache => "cache",
        Role::Hybrid => "hybrid",
    }
}
