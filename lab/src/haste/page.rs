//! The page of `perdura-lab haste`: the slides' charts, drawn from measured and modelled results.
//! One file without scripts.

use std::collections::BTreeSet;
use std::fmt::Write;

use perdura_block::path::Step;
use perdura_media::Bytes;

use crate::haste::{HasteResult, RawPoint, SIZES, TimeOn};
use perdura_page::{COLOURS, Chart, Series, Style, escape, table};

/// Draws the page.
pub fn page(result: &HasteResult) -> String {
    perdura_page::page("Fast memories and I/O-intensive work", |out| write(result, out))
}

fn write(result: &HasteResult, out: &mut String) -> std::fmt::Result {
    let machine = &result.machine;
    write!(
        out,
        "<h1>Fast memories and I/O-intensive work</h1>\
         <p>Scale {:?}, seed {}. Software measured on: {}.</p>\
         <p class=\"note\"><span class=\"modelled\">Modelled</span>: all media. Requests, software \
         and computing are this machine's; \
         the times of the media follow from their profiles. Gains are relative to {}.</p>",
        result.scale,
        result.seed,
        escape(&machine.to_string()),
        escape(&result.disks)
    )?;
    claims(result, out)?;
    if !result.raw.is_empty() {
        out.push_str("<h2>Software of the I/O path (measured)</h2><div class=\"charts\">");
        out.push_str(&software(result));
        out.push_str(&steps(result));
        out.push_str(
            "</div><h2>Bandwidth without a file system (modelled media, measured software)</h2>\
             <div class=\"charts\">",
        );
        bandwidths(result, false, out);
        out.push_str(&bus(result));
        out.push_str("</div>");
        if let Some(filesystem) = &result.filesystem {
            write!(
                out,
                "<h2>Bandwidth with {} (modelled media, measured software)</h2>\
                 <p class=\"note\">Measured: {}.</p><div class=\"charts\">",
                escape(&filesystem.name),
                escape(&filesystem.how)
            )?;
            bandwidths(result, true, out);
            out.push_str("</div>");
        }
    }
    let programs: Vec<_> =
        result.programs.iter().map(|one| (one.name.as_str(), one.times.as_slice())).collect();
    let kernels: Vec<_> =
        result.kernels.iter().map(|one| (one.name.as_str(), one.times.as_slice())).collect();
    for (title, rows) in [("Databases", programs), ("Memory-hungry applications", kernels)] {
        if !rows.is_empty() {
            write!(
                out,
                "<h2>{title} (computing measured, media modelled)</h2><div class=\"charts\">"
            )?;
            out.push_str(&gains(result, title, &rows));
            out.push_str("</div>");
            on_systems(result, &rows, out)?;
        }
    }
    footprints(result, out)?;
    checks(result, out)?;
    Ok(())
}

fn claims(result: &HasteResult, out: &mut String) -> std::fmt::Result {
    out.push_str("<ul>");
    for claim in &result.claims {
        write!(
            out,
            "<li><span class=\"published\">HASTE slides:</span> {}. Here: {}. <b>{}</b></li>",
            escape(&claim.published),
            escape(&claim.here),
            if claim.holds { "Of that order." } else { "Not so here." }
        )?;
    }
    for left in &result.not_run {
        write!(out, "<li><b>Not run:</b> {}: {}.</li>", escape(&left.what), escape(&left.reason))?;
    }
    out.push_str("</ul>");
    Ok(())
}

fn size_names() -> Vec<String> {
    SIZES.iter().map(|bytes| Bytes(*bytes).to_string().replace(' ', "").replace("iB", "")).collect()
}

fn software(result: &HasteResult) -> String {
    let series = Step::ALL.iter().enumerate().map(|(index, step)| {
        let of = |bytes| {
            let mut points = result.software.iter();
            let point =
                points.find(|point| point.step == step.name() && point.request_bytes == bytes)?;
            Some(point.software_ns / 1e3)
        };
        line(index, step.name(), of)
    });
    over_sizes("Software of a request, us, by step", "us", series.collect(), false).svg()
}

/// A line over the request sizes in the colour of this number.
fn line(index: usize, name: &str, of: impl Fn(u64) -> Option<f64>) -> Series {
    Series::over(name, COLOURS[index % COLOURS.len()], Style::Line, SIZES.map(of))
}

fn over_sizes(title: &str, y_name: &str, series: Vec<Series>, is_log: bool) -> Chart {
    Chart {
        title: title.into(),
        y_name: y_name.into(),
        x_names: size_names(),
        x_name: "bytes a request".into(),
        series,
        is_log,
        ..Chart::half()
    }
}

/// The first of the raw points of this size that `wanted` accepts.
fn raw(
    result: &HasteResult,
    request_bytes: u64,
    wanted: impl Fn(&RawPoint) -> bool,
) -> Option<&RawPoint> {
    result.raw.iter().find(|point| point.request_bytes == request_bytes && wanted(point))
}

/// The slides' chart "HASTE Bandwidth": random writes by step.
fn steps(result: &HasteResult) -> String {
    let series = Step::ALL.iter().enumerate().map(|(index, step)| {
        let wanted = |point: &RawPoint| {
            point.step == step.name()
                && !point.is_read
                && !point.is_sequential
                && !point.with_filesystem
                && is_paced(result, point)
        };
        line(index, step.name(), |bytes| Some(raw(result, bytes, wanted)?.bytes_per_s / 1e6))
    });
    over_sizes("Random writes by step, MB/s (modelled medium)", "MB/s", series.collect(), false)
        .svg()
}

/// Whether a point belongs to the one system on which all steps were measured.
fn is_paced(result: &HasteResult, point: &RawPoint) -> bool {
    let with_steps = result.raw.iter().find(|other| other.step != Step::Spin.name());
    with_steps.is_none_or(|other| other.system == point.system)
}

fn bandwidths(result: &HasteResult, with_filesystem: bool, out: &mut String) {
    for (title, is_read, is_sequential) in [
        ("Random reads", true, false),
        ("Random writes", false, false),
        ("Sequential reads", true, true),
        ("Sequential writes", false, true),
    ] {
        let series = result.systems.iter().enumerate().map(|(index, (system, _))| {
            let wanted = |point: &RawPoint| {
                point.system == *system
                    && point.step == Step::Spin.name()
                    && (point.is_read, point.is_sequential, point.with_filesystem)
                        == (is_read, is_sequential, with_filesystem)
            };
            line(index, system, |bytes| Some(raw(result, bytes, wanted)?.bytes_per_s / 1e6))
        });
        let title = format!("{title}, MB/s (modelled medium)");
        out.push_str(&over_sizes(&title, "MB/s", series.collect(), true).svg());
    }
}

/// The slides' chart "DDR Efficiency".
fn bus(result: &HasteResult) -> String {
    let on_bus = result.systems.iter().filter(|(name, _)| {
        result.raw.iter().any(|point| point.system == *name && point.on_memory_bus)
    });
    let series = on_bus.enumerate().map(|(index, (system, _))| {
        let wanted = |point: &RawPoint| {
            point.system == *system
                && point.step == Step::Spin.name()
                && point.is_read
                && !point.is_sequential
                && !point.with_filesystem
        };
        line(index, system, |bytes| Some(100.0 * raw(result, bytes, wanted)?.link_share?))
    });
    let mut series: Vec<Series> = series.collect();
    let published = SIZES.map(|_| Some(11.0));
    series.push(Series::over("HASTE slides", "paper", Style::Dashed, published));
    over_sizes("Share of the memory bus in use, %", "%", series, false).svg()
}

fn on<'t>(times: &'t [TimeOn], system: &str) -> Option<&'t TimeOn> {
    times.iter().find(|time| time.system == system)
}

/// A chart of how many times faster each system is than the disks.
fn gains(result: &HasteResult, title: &str, rows: &[(&str, &[TimeOn])]) -> String {
    let others = result.systems.iter().filter(|(name, _)| *name != result.disks);
    let series = others.enumerate().map(|(index, (system, _))| {
        let gains = rows.iter().map(|(_, times)| {
            Some(on(times, &result.disks)?.total_s() / on(times, system)?.total_s())
        });
        Series::over(system, COLOURS[index % COLOURS.len()], Style::Bars, gains)
    });
    Chart {
        title: format!("{title}: times faster than {}", result.disks),
        y_name: "times".into(),
        x_names: rows.iter().map(|(name, _)| (*name).to_owned()).collect(),
        series: series.collect(),
        is_log: true,
        ..Chart::whole()
    }
    .svg()
}

/// Tables of the times and of the energy on each system.
fn on_systems(
    result: &HasteResult,
    rows: &[(&str, &[TimeOn])],
    out: &mut String,
) -> std::fmt::Result {
    let systems = || result.systems.iter().map(|(system, _)| system.as_str());
    let told = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
    let times = rows.iter().filter_map(|(name, times)| {
        let first = times.first()?;
        let head = [(*name).to_owned(), told(Some(first.compute_s)), told(Some(first.software_s))];
        let totals = systems().map(|system| told(on(times, system).map(TimeOn::total_s)));
        Some(head.into_iter().chain(totals).collect::<Vec<_>>())
    });
    let headings: Vec<&str> = ["s", "computing", "software"].into_iter().chain(systems()).collect();
    table(out, &headings, times)?;
    let drawn = rows.iter().map(|(name, times)| {
        let joules = systems().map(|system| told(on(times, system).and_then(|time| time.medium_j)));
        std::iter::once((*name).to_owned()).chain(joules).collect::<Vec<_>>()
    });
    let headings: Vec<&str> =
        std::iter::once("J drawn by the medium (modelled)").chain(systems()).collect();
    table(out, &headings, drawn)?;
    let ways: BTreeSet<&str> =
        rows.iter().flat_map(|(_, times)| times.iter().map(|time| time.way.as_str())).collect();
    let ways: Vec<&str> = ways.into_iter().collect();
    write!(out, "<p class=\"note\">How: {}.</p>", escape(&ways.join("; ")))
}

fn footprints(result: &HasteResult, out: &mut String) -> std::fmt::Result {
    let programs = result.programs.iter().map(|one| {
        let [reads, writes, flushes] = one.requests;
        let did = format!("{reads} reads, {writes} writes, {flushes} flushes; said {}", one.answer);
        (&one.name, one.about.clone(), one.footprint_bytes, one.paper_footprint_bytes, did)
    });
    let kernels = result.kernels.iter().map(|one| {
        let did = format!("{} units in, {} out; {}", one.page_ins, one.page_outs, one.verified);
        let about = format!("{} of it in DRAM at most", Bytes(one.resident_bytes));
        (&one.name, about, one.footprint_bytes, one.paper_footprint_bytes, did)
    });
    let rows: Vec<_> = programs.chain(kernels).collect();
    if rows.is_empty() {
        return Ok(());
    }
    out.push_str("<h2>Footprints</h2>");
    let cells = rows.into_iter().map(|(name, about, here, paper, did)| {
        [name.clone(), Bytes(here).to_string(), Bytes(paper).to_string(), about, did]
    });
    table(out, &["", "here", "the slides'", "what", "did"], cells)
}

fn checks(result: &HasteResult, out: &mut String) -> std::fmt::Result {
    if result.checks.is_empty() {
        return Ok(());
    }
    out.push_str("<h2>Modelled against measured: the same at real pace</h2>");
    let rows = result.checks.iter().map(|check| {
        [
            check.what.clone(),
            check.system.clone(),
            format!("{:.4}", check.modelled_s),
            format!("{:.4}", check.measured_s),
            format!("{:+.1} %", 100.0 * check.error()),
        ]
    });
    table(out, &["what", "medium", "modelled s", "measured s", "error"], rows)
}
