//! `perdura-lab media`: words to settings, results to the terminal.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use perdura_block::path::Step;
use perdura_lab::media::page::page;
use perdura_lab::media::result::{Latency, MediaResult, PathResult, Stream};
use perdura_lab::media::{MediaSettings, run as measure};
use perdura_media::Bytes;
use perdura_media::profile::System;

use perdura_terminal::LateBar;
use perdura_terminal::Outputs;
use perdura_terminal::say;
use perdura_terminal::{named, optional};

#[derive(Debug, Args)]
pub struct MediaArgs {
    /// The medium: a built-in profile or the path of a TOML file; an unknown name lists the
    /// built-in ones.
    #[arg(long, value_name = "PROFILE", default_value = "pcm")]
    pub profile: String,
    /// Put the medium behind this link, or behind `none` [default: the profile's own link].
    #[arg(long, value_name = "LINK")]
    pub link: Option<String>,
    /// Steps of the I/O path to compare, separated by commas: base, unscheduled, atomic, spin.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "base,unscheduled,atomic,spin"
    )]
    pub steps: Vec<String>,
    /// Size of the emulated medium, in DRAM [default: 4GiB].
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub size: Option<String>,
    /// Size of the files that the kernel's I/O paths read [default: 1GiB, at most the medium's
    /// size].
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub file_size: Option<String>,
    /// Seconds of measuring, roughly; filling the medium comes on top [default: 24].
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub seconds: Option<f64>,
    /// Folder for the file on the disk that is measured; the file is removed at the end [default:
    /// .].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Seed of all random places [default: 1].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Also write all results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also draw the results: one page, without scripts.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

pub fn run(args: &MediaArgs) -> Result<ExitCode> {
    let settings = resolve(args)?;
    let outputs = Outputs::of(args.json.as_deref(), args.html.as_deref(), &[])?;
    let bar = LateBar::new("media");
    let result = measure(&settings, &|what, done, of| bar.step(what, done, of));
    bar.finish();
    let result = result?;
    outputs.write(&result, || page(&result))?;
    if !outputs.take_stdout() {
        show(&result);
    }
    Ok(ExitCode::SUCCESS)
}

fn resolve(args: &MediaArgs) -> Result<MediaSettings> {
    let mut system = named("profile", &args.profile, System::find(&args.profile))?;
    if let Some(link) = &args.link {
        system = named("link", link, system.with_link(link))?;
    }
    let usual = MediaSettings::usual(system, &args.profile);
    let size = |name: &str, words: &Option<String>, usual: u64| {
        Ok::<_, anyhow::Error>(optional(name, words)?.map_or(usual, |Bytes(bytes)| bytes))
    };
    let size_bytes = size("size", &args.size, usual.size_bytes)?;
    let seconds = args.seconds.unwrap_or(usual.seconds);
    if !(0.1..=3600.0).contains(&seconds) {
        bail!("--seconds {seconds}: expected 0.1 to 3600");
    }
    Ok(MediaSettings {
        steps: steps(&args.steps)?,
        link: args.link.clone(),
        size_bytes,
        file_bytes: size("file-size", &args.file_size, usual.file_bytes.min(size_bytes))?,
        seconds,
        dir: args.dir.clone().unwrap_or_else(|| usual.dir.clone()),
        seed: args.seed.unwrap_or(usual.seed),
        ..usual
    })
}

/// The named steps, each once, in the order in which HASTE took them.
fn steps(names: &[String]) -> Result<Vec<Step>> {
    let chosen = names.iter().map(|name| named("steps", name, name.parse::<Step>()));
    let chosen = chosen.collect::<Result<Vec<_>>>()?;
    Ok(Step::ALL.into_iter().filter(|step| chosen.contains(step)).collect())
}

fn show(result: &MediaResult) {
    let setup = &result.configuration;
    say(format_args!(
        "{}: {}\n{}\n{} of emulated medium; clock: {}",
        result.profile,
        setup.about,
        result.machine,
        Bytes(setup.size_bytes),
        setup.clock,
    ));
    say(format_args!("\n{}", result.accuracy()));
    result.findings.iter().for_each(say);
    say(format_args!(
        "\n{:<38}{:>9}{:>16}{:>12}{:>12}{:>9}",
        "one at a time (modelled, measured)",
        "length",
        "modelled, ns",
        "p50, ns",
        "p99, ns",
        "error"
    ));
    let accesses = [&result.read, &result.write].into_iter().chain(&result.accesses);
    accesses.for_each(|latency| say(latency_line(latency)));
    say(format_args!(
        "\n{:<38}{:>9}{:>16}{:>12}{:>12}{:>9}",
        "many at a time", "length", "modelled, MB/s", "measured", "not copied", "error"
    ));
    let streams = [&result.read_stream, &result.write_stream].into_iter().chain(&result.streams);
    streams.for_each(|stream| say(stream_line(stream)));
    say(format_args!(
        "\nvirtual clock, one thread: {:.2} million requests/s of 4 KiB, {:.2} of a granule",
        result.modelled_requests_per_s / 1e6,
        result.modelled_requests_per_s_of_a_granule / 1e6,
    ));
    show_paths(result);
}

fn show_paths(result: &MediaResult) {
    say(format_args!(
        "\nreads of 4 KiB: software measured, hardware modelled where it is not real; the steps' \
         medium: {}",
        result.software_medium
    ));
    say(format_args!(
        "{:<22}{:>8}{:>14}{:>20}{:>14}{:>10}{:>10}{:>12}",
        "path", "threads", "software, ns", "slices", "hardware, ns", "p50", "p99", "requests/s"
    ));
    result.paths.iter().for_each(|path| say(path_line(path)));
    say("the steps on a medium that takes no time:");
    result.alone.iter().for_each(|path| say(path_line(path)));
    result.refused.iter().for_each(|refused| say(format_args!("not available here: {refused}")));
    say(
        "\nthe slides (published, their driver and prototype): software 13.4 us in the base, 5 us \
         with spin-waits, hardware 8.2 us",
    );
    let verdicts = result.verdicts_alone.iter().chain(&result.verdicts);
    verdicts.for_each(|verdict| say(&verdict.sentence));
    let direct = &result.direct;
    let [low, high] = direct.above_memcpy_ns_ci95;
    say(format_args!(
        "\ndirect call over {}, {} blocks verified: {:.0} ns, memcpy of the same {:.0} ns: {:.0} \
         ns above it \
         (95 % interval {low:.0} to {high:.0}), {:.0} allowed: {}",
        Bytes(direct.size_bytes),
        direct.blocks,
        direct.direct_ns_p50,
        direct.memcpy_ns_p50,
        direct.above_memcpy_ns,
        direct.target_ns,
        direct.verdict(),
    ));
}

fn latency_line(latency: &Latency) -> String {
    format!(
        "{:<38}{:>9}{:>16.1}{:>12.1}{:>12.1}{:>7.1} %{}",
        format!("{} {} in {}", latency.medium, latency.access, Bytes(latency.range_bytes)),
        Bytes(latency.len_bytes).to_string(),
        latency.target_ns,
        latency.measured_ns_p50,
        latency.measured_ns_p99,
        latency.relative_error * 100.0,
        latency.limited_by.as_ref().map_or(String::new(), |why| format!("  {why}")),
    )
}

fn stream_line(stream: &Stream) -> String {
    format!(
        "{:<38}{:>9}{:>16.0}{:>12.0}{:>12.0}{:>7.1} %{}",
        format!(
            "{} {} {}",
            stream.medium,
            if stream.is_sequential { "sequential" } else { "random" },
            stream.access
        ),
        Bytes(stream.len_bytes).to_string(),
        stream.target_bytes_per_s / 1e6,
        stream.measured_bytes_per_s / 1e6,
        stream.booked_bytes_per_s / 1e6,
        stream.relative_error * 100.0,
        stream.limited_by.as_ref().map_or(String::new(), |why| format!("  {why}")),
    )
}

fn path_line(path: &PathResult) -> String {
    let [low, high] = path.software_ns_range;
    let parts = path.parts_ns.iter().filter(|(_, ns)| **ns >= 0.5);
    let parts: Vec<_> = parts.map(|(name, ns)| format!("{name} {ns:.0}")).collect();
    format!(
        "{:<22}{:>8}{:>14.0}{:>20}{:>14}{:>10.0}{:>10.0}{:>12.0}  {}",
        path.path,
        path.threads,
        path.software_ns,
        format!("{low:.0} to {high:.0}"),
        path.hardware_ns.map_or("real".into(), |ns| format!("{ns:.0}")),
        path.total_ns_p50,
        path.total_ns_p99,
        path.requests_per_s,
        if parts.is_empty() { path.how.clone() } else { parts.join(", ") },
    )
}
