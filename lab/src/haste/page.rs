//! The page of `perdura-lab haste`: the slides' charts from what was measured and modelled here. One
//! file, no script.

use std::collections::BTreeSet;
use std::fmt::Write;

use perdura_media::Bytes;

use crate::haste::{HasteResult, RawPoint, SIZES, TimeOn};
use perdura_page::{COLOURS, Chart, Point, Series, Style, escape};

/// The page.
pub fn page(result: &HasteResult) -> String {
    perdura_page::page("Fast memories and I/O-intensive work", |out| write(result, out))
}

fn write(result: &HasteResult, out: &mut String) -> std::fmt::Result {
    let machine = &result.machine;
    write!(
        out,
        "<h1>What fast memories do to I/O-intensive work</h1>\
         <p>Scale {:?}, seed {}. Software measured on: {}.</p>\
         <p class=\"note\"><span class=\"modelled\">Modelled</span>: all media. Requests, software and computing are this machine's; \
         what the media would take follows from their profiles. Gains are over {}.</p>",
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
        out.push_str("</div><h2>Bandwidth without a file system (modelled media, measured software)</h2><div class=\"charts\">");
        bandwidths(result, false, out);
        out.push_str(&bus(result));
        out.push_str("</div>");
        if let Some(filesystem) = &result.filesystem {
            write!(
                out,
                "<h2>Bandwidth with {}</h2><p class=\"note\">Measured: {}.</p><div class=\"charts\">",
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
            table(result, &rows, out)?;
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
    let steps: Vec<&str> = ["base", "unscheduled", "atomic", "spin"].into();
    let series = steps.iter().enumerate().map(|(index, step)| Series {
        name: (*step).to_owned(),
        class: COLOURS[index].into(),
        points: result
            .software
            .iter()
            .filter(|point| point.step == *step)
            .filter_map(|point| {
                Some(Point {
                    x: size_of(point.request_bytes)?,
                    y: point.software_ns / 1e3,
                    range: None,
                })
            })
            .collect(),
        style: Style::Line,
    });
    over_sizes("Software of a request, us, by step", "us", series.collect(), false).svg()
}

fn size_of(bytes: u64) -> Option<usize> {
    SIZES.iter().position(|size| *size == bytes)
}

fn over_sizes(title: &str, y_name: &str, series: Vec<Series>, is_log: bool) -> Chart {
    Chart {
        title: title.into(),
        y_name: y_name.into(),
        x_names: size_names(),
        x_name: "bytes a request".into(),
        series,
        is_log,
        width: 535.0,
        height: 260.0,
    }
}

/// The slides' "HASTE Bandwidth", random writes by step.
fn steps(result: &HasteResult) -> String {
    let of_step = |step: &str| {
        let points = result.raw.iter().filter(|point| {
            point.step == step
                && !point.is_read
                && !point.is_sequential
                && !point.with_filesystem
                && is_paced(result, point)
        });
        points
            .filter_map(|point| {
                Some(Point {
                    x: size_of(point.request_bytes)?,
                    y: point.bytes_per_s / 1e6,
                    range: None,
                })
            })
            .collect()
    };
    let series =
        ["base", "unscheduled", "atomic", "spin"].into_iter().enumerate().map(|(index, step)| {
            Series {
                name: step.into(),
                class: COLOURS[index].into(),
                points: of_step(step),
                style: Style::Line,
            }
        });
    over_sizes("Random writes by step, MB/s (modelled medium)", "MB/s", series.collect(), false)
        .svg()
}

/// The steps were taken on one system.
fn is_paced(result: &HasteResult, point: &RawPoint) -> bool {
    let with_steps = result.raw.iter().find(|other| other.step != "spin");
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
            let points = result.raw.iter().filter(|point| {
                point.system == *system
                    && point.step == "spin"
                    && (point.is_read, point.is_sequential, point.with_filesystem)
                        == (is_read, is_sequential, with_filesystem)
            });
            Series {
                name: system.clone(),
                class: COLOURS[index % COLOURS.len()].into(),
                points: points
                    .filter_map(|point| {
                        Some(Point {
                            x: size_of(point.request_bytes)?,
                            y: point.bytes_per_s / 1e6,
                            range: None,
                        })
                    })
                    .collect(),
                style: Style::Line,
            }
        });
        let title = format!("{title}, MB/s");
        out.push_str(&over_sizes(&title, "MB/s", series.collect(), true).svg());
    }
}

/// The slides' "DDR Efficiency".
fn bus(result: &HasteResult) -> String {
    let on_bus = result.systems.iter().filter(|(name, _)| {
        result.raw.iter().any(|point| point.system == *name && point.on_memory_bus)
    });
    let series = on_bus.enumerate().map(|(index, (system, _))| {
        let points = result.raw.iter().filter(|point| {
            point.system == *system
                && point.step == "spin"
                && point.is_read
                && !point.is_sequential
                && !point.with_filesystem
        });
        Series {
            name: system.clone(),
            class: COLOURS[index].into(),
            points: points
                .filter_map(|point| {
                    Some(Point {
                        x: size_of(point.request_bytes)?,
                        y: 100.0 * point.link_share?,
                        range: None,
                    })
                })
                .collect(),
            style: Style::Line,
        }
    });
    let mut series: Vec<Series> = series.collect();
    let published = |x| Point { x, y: 11.0, range: None };
    series.push(Series {
        name: "HASTE slides".into(),
        class: "paper".into(),
        points: (0..SIZES.len()).map(published).collect(),
        style: Style::Dashed,
    });
    over_sizes("Share of the memory bus in use, %", "%", series, false).svg()
}

/// How many times faster than the disks.
fn gains(result: &HasteResult, title: &str, rows: &[(&str, &[TimeOn])]) -> String {
    let series = result.systems.iter().filter(|(name, _)| *name != result.disks).enumerate().map(
        |(index, (system, _))| {
            let points = rows.iter().enumerate().filter_map(|(x, (_, times))| {
                let of = |name: &str| {
                    times.iter().find(|time| time.system == *name).map(TimeOn::total_s)
                };
                Some(Point { x, y: of(&result.disks)? / of(system)?, range: None })
            });
            Series {
                name: system.clone(),
                class: COLOURS[index % COLOURS.len()].into(),
                points: points.collect(),
                style: Style::Bars,
            }
        },
    );
    Chart {
        title: format!("{title}: times faster than {}", result.disks),
        y_name: "times".into(),
        x_names: rows.iter().map(|(name, _)| (*name).to_owned()).collect(),
        x_name: String::new(),
        series: series.collect(),
        is_log: true,
        width: 1080.0,
        height: 260.0,
    }
    .svg()
}

fn table(result: &HasteResult, rows: &[(&str, &[TimeOn])], out: &mut String) -> std::fmt::Result {
    out.push_str("<div class=\"wide\"><table><tr><th>s</th><th>computing</th><th>software</th>");
    for (system, _) in &result.systems {
        write!(out, "<th>{}</th>", escape(system))?;
    }
    out.push_str("</tr>");
    for (name, times) in rows {
        let Some(first) = times.first() else { continue };
        write!(
            out,
            "<tr><td>{}</td><td>{:.3}</td><td>{:.3}</td>",
            escape(name),
            first.compute_s,
            first.software_s
        )?;
        for (system, _) in &result.systems {
            match times.iter().find(|time| time.system == *system) {
                Some(time) => write!(out, "<td>{:.3}</td>", time.total_s())?,
                None => out.push_str("<td>-</td>"),
            }
        }
        out.push_str("</tr>");
    }
    out.push_str(
        "</table></div><div class=\"wide\"><table><tr><th>J drawn by the medium (modelled)</th>",
    );
    for (system, _) in &result.systems {
        write!(out, "<th>{}</th>", escape(system))?;
    }
    out.push_str("</tr>");
    for (name, times) in rows {
        write!(out, "<tr><td>{}</td>", escape(name))?;
        for (system, _) in &result.systems {
            let drawn =
                times.iter().find(|time| time.system == *system).and_then(|time| time.medium_j);
            write!(
                out,
                "<td>{}</td>",
                drawn.map_or("-".to_owned(), |joules| format!("{joules:.3}"))
            )?;
        }
        out.push_str("</tr>");
    }
    let ways: BTreeSet<&str> =
        rows.iter().flat_map(|(_, times)| times.iter().map(|time| time.way.as_str())).collect();
    let ways: Vec<&str> = ways.into_iter().collect();
    write!(out, "</table></div><p class=\"note\">How: {}.</p>", escape(&ways.join("; ")))
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
    out.push_str(
        "<h2>Footprints</h2><div class=\"wide\"><table><tr><th></th><th>here</th><th>the slides'</th><th>what</th><th>did</th></tr>",
    );
    for (name, about, here, paper, did) in rows {
        write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td style=\"text-align:left\">{}</td><td style=\"text-align:left\">{}</td></tr>",
            escape(name),
            Bytes(here),
            Bytes(paper),
            escape(&about),
            escape(&did)
        )?;
    }
    out.push_str("</table></div>");
    Ok(())
}

fn checks(result: &HasteResult, out: &mut String) -> std::fmt::Result {
    if result.checks.is_empty() {
        return Ok(());
    }
    out.push_str(
        "<h2>Modelled against measured: the same at real pace</h2><table><tr><th>what</th><th>medium</th><th>modelled s</th>\
         <th>measured s</th><th>error</th></tr>",
    );
    for check in &result.checks {
        write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{:.4}</td><td>{:.4}</td><td>{:+.1} %</td></tr>",
            escape(&check.what),
            escape(&check.system),
            check.modelled_s,
            check.measured_s,
            100.0 * check.error()
        )?;
    }
    out.push_str("</table>");
    Ok(())
}
