//! The page of `plan trace`: the paper's figures 2 to 5 for the user's traces, its figure 1 as published, and what budgets cost.

use std::fmt::Write;
use std::time::Duration;

use perdura_media::{Bytes, BytesPerSecond, Joules, format_duration};
use perdura_plan::power::Backup;
use perdura_plan::skew::{
    Assessment, Class, Figures, SkewFraction, THETA, WindowFraction, zipf_curve,
};
use perdura_plan::study::{BudgetRow, SizingReport, TraceReport};
use perdura_plan::trace::PAGE_BYTES;

use super::svg::{Chart, Point, Series, Style, escape, short};

const STYLE: &str = include_str!("page.css");
const CLASSES: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];
/// Volumes in a chart: those that write most; the tables have all.
const DRAWN: usize = 10;
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 240.0;

type Written = std::fmt::Result;

/// The page.
pub fn trace_plan_page(reports: &[TraceReport]) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(reports, &mut out);
    out
}

fn write(reports: &[TraceReport], out: &mut String) -> Written {
    write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>How much battery</title>\
         <style>{STYLE}</style></head><body><h1>How much battery: what these traces need</h1>\
         <p class=\"note\">Counted from the traces: pages of 4 KiB, written in the worst interval, and by how few pages. \
         <span class=\"modelled\">Modelled</span>: traces replayed through the region's cleaning policies on a modelled SSD, and what \
         follows for batteries. <span class=\"published\">Published</span>: the Viyojit paper (ISCA 2017).</p><ul>"
    )?;
    for report in reports {
        let answer = if report.verdict.small_battery_will_do {
            "a small battery will do"
        } else {
            "a small battery will not do"
        };
        let because = escape(&report.verdict.because);
        write!(out, "<li><b>{}: {answer}.</b> {because}</li>", escape(&report.trace))?;
    }
    out.push_str("</ul>");
    if reports.len() > 1 {
        let rows: Vec<_> =
            reports.iter().map(|report| Row::of_all(short_name(report), report)).collect();
        out.push_str("<h2>All traces</h2>");
        figures(&rows, out);
        table(&rows, out)?;
    }
    for report in reports {
        trace(report, reports.len() == 1, out)?;
    }
    background(out)?;
    out.push_str("</body></html>\n");
    Ok(())
}

fn trace(report: &TraceReport, is_only: bool, out: &mut String) -> Written {
    let all = &report.all;
    let files: Vec<_> = report
        .files
        .iter()
        .map(|file| format!("{} ({})", escape(&file.file), file.format))
        .collect();
    write!(
        out,
        "<h2>{}</h2><p>{} records over {}; {} touched, {} written, {} page writes. {}</p>",
        escape(&report.trace),
        all.records,
        format_duration(Duration::from_nanos(report.duration_ns)),
        Bytes(all.touched_pages.pages * PAGE_BYTES),
        Bytes(all.written_pages.pages * PAGE_BYTES),
        all.page_writes,
        files.join(", ")
    )?;
    if let Some(resolution) = &report.resolution {
        let notes: Vec<_> = resolution.notes.iter().map(|note| escape(note)).collect();
        write!(out, "<p class=\"note\">{}</p>", notes.join("<br>"))?;
    }
    let rows = rows(report);
    // Of a trace with one volume the charts of all traces say it already.
    if is_only || rows.len() > 1 {
        figures(&rows, out);
        table(&rows, out)?;
    }
    match &report.sizing {
        Some(sizing) => costs(sizing, out),
        None => Ok(()),
    }
}

/// The paper's figures 2, 3 and 4.
fn figures(rows: &[Row<'_>], out: &mut String) {
    let window = |of: fn(&WindowFraction) -> f64| {
        move |meaning: &Assessment| -> Vec<(String, f64)> {
            let windows = meaning.windows.iter();
            windows.map(|window| (seconds(&window.window_s), 100.0 * of(window))).collect()
        }
    };
    let skew = |of: fn(&SkewFraction) -> f64| {
        move |meaning: &Assessment| -> Vec<(String, f64)> {
            let named = |skew: &SkewFraction| format!("{} % of writes", skew.share_percent);
            meaning.skew.iter().map(|skew| (named(skew), 100.0 * of(skew))).collect()
        }
    };
    let is_size_given = rows.iter().all(|row| row.meaning.volume_given);
    out.push_str("<div class=\"charts\">");
    let adversarial = window(|window| window.adversarial);
    out.push_str(&bars(
        "Figure 2: written in the worst interval, % of the volume",
        rows,
        &adversarial,
    ));
    let unique = window(|window| window.unique);
    out.push_str(&bars("As figure 2, different pages only, % of the volume", rows, &unique));
    let of_touched = skew(|skew| skew.of_touched);
    out.push_str(&bars(
        "Figure 3: pages that take most writes, % of those touched",
        rows,
        &of_touched,
    ));
    let of_volume = skew(|skew| skew.of_volume);
    out.push_str(&bars("Figure 4: pages that take most writes, % of the volume", rows, &of_volume));
    out.push_str("</div>");
    if !is_size_given {
        out.push_str(
            "<p class=\"note\">No size of the volumes was given (<code>--volume-size</code>): the volume is what is touched of it, \
             so figure 4 is figure 3, and all shares are at their highest. Figure 2 takes each write for one to a new page, as a \
             log-structured file system would make it.</p>",
        );
    }
}

/// A volume, or all, as a row.
struct Row<'r> {
    name: String,
    meaning: &'r Assessment,
    figures: &'r Figures,
}

impl<'r> Row<'r> {
    fn of_all(name: String, report: &'r TraceReport) -> Self {
        Self { name, meaning: &report.assessment, figures: &report.all }
    }
}

/// The file's name without its folder.
fn short_name(report: &TraceReport) -> String {
    let name = report.files.first().map_or(report.trace.as_str(), |file| &file.file);
    let name = name.rsplit('/').next().unwrap_or(name);
    name.split('.').next().unwrap_or(name).to_owned()
}

fn rows(report: &TraceReport) -> Vec<Row<'_>> {
    let mut volumes: Vec<_> = report.volumes.iter().collect();
    volumes.sort_by_key(|volume| std::cmp::Reverse(volume.figures.page_writes));
    let each = volumes.iter().map(|volume| Row {
        name: volume.volume.clone(),
        meaning: &volume.assessment,
        figures: &volume.figures,
    });
    if report.volumes.len() == 1 {
        return each.collect();
    }
    std::iter::once(Row::of_all("all".into(), report)).chain(each).collect()
}

/// A name that does not run into its neighbours under a chart: without its middle, where that is too long.
fn fitting(name: &str, names: usize) -> String {
    const LETTER: f64 = 6.5;
    let room = ((WIDTH - 60.0) / names.max(1) as f64 / LETTER) as usize;
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= room.max(5) {
        return name.to_owned();
    }
    let end = (room.max(5) - 1) / 2;
    let start = room.max(5) - 1 - end;
    let of = |letters: &[char]| letters.iter().collect::<String>();
    format!("{}\u{2026}{}", of(&letters[..start]), of(&letters[letters.len() - end..]))
}

fn bars(title: &str, rows: &[Row<'_>], of: &dyn Fn(&Assessment) -> Vec<(String, f64)>) -> String {
    let drawn = &rows[..rows.len().min(DRAWN)];
    let values: Vec<_> = drawn.iter().map(|row| of(row.meaning)).collect();
    let kinds = values.first().map_or(0, Vec::len);
    let series = (0..kinds).map(|kind| Series {
        name: values[0][kind].0.clone(),
        class: CLASSES[kind % CLASSES.len()].into(),
        points: values
            .iter()
            .enumerate()
            .map(|(x, list)| Point { x, y: list[kind].1, range: None })
            .collect(),
        style: Style::Bars,
    });
    let chart = Chart {
        title: title.into(),
        y_name: "%".into(),
        x_names: drawn.iter().map(|row| fitting(&row.name, drawn.len())).collect(),
        series: series.collect(),
        width: WIDTH,
        height: HEIGHT,
        ..Chart::default()
    };
    chart.svg()
}

fn table(rows: &[Row<'_>], out: &mut String) -> Written {
    out.push_str(
        "<div class=\"wide\"><table><tr><th>volume</th><th>size</th><th>records</th><th>touched</th><th>written</th>\
         <th>page writes</th>",
    );
    let Some(first) = rows.first() else { return Ok(()) };
    for (key, _) in &first.figures.worst {
        write!(out, "<th>worst {0}: writes</th><th>pages</th>", seconds(key))?;
    }
    for (key, _) in &first.figures.skew_pages {
        write!(out, "<th>pages for {key} %</th>")?;
    }
    out.push_str("<th>kind</th></tr>");
    for row in rows {
        let figures = row.figures;
        write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
            escape(&row.name),
            Bytes(row.meaning.volume_pages * PAGE_BYTES),
            figures.records,
            figures.touched_pages.pages,
            figures.written_pages.pages,
            figures.page_writes
        )?;
        for (_, worst) in &figures.worst {
            let sliding = &worst.sliding;
            write!(
                out,
                "<td>{}</td><td>{}</td>",
                sliding.adversarial_pages, sliding.unique_pages.pages
            )?;
        }
        for (_, pages) in &figures.skew_pages {
            write!(out, "<td>{}</td>", pages.pages)?;
        }
        write!(out, "<td>{}</td></tr>", row.meaning.class.map_or("-", Class::name))?;
    }
    out.push_str("</table></div>");
    Ok(())
}

fn costs(sizing: &SizingReport, out: &mut String) -> Written {
    let is_chosen = |row: &BudgetRow| row.budget_bytes == sizing.chosen.budget_bytes;
    // Those on the way to the smallest are in the JSON.
    let rows: Vec<_> = sizing.budgets.iter().filter(|row| row.is_asked || is_chosen(row)).collect();
    let drawn = |title: &str, y_name: &str, of: &dyn Fn(&BudgetRow) -> f64| {
        let points = rows.iter().enumerate();
        let points = points.map(|(x, row)| Point { x, y: of(row), range: None }).collect();
        let series =
            Series { name: sizing.policy.into(), class: "c0".into(), points, ..Series::default() };
        let chart = Chart {
            title: title.into(),
            y_name: y_name.into(),
            x_name: "budget, % of the memory".into(),
            x_names: rows.iter().map(|row| short(100.0 * row.share_of_memory)).collect(),
            series: vec![series],
            width: WIDTH,
            height: HEIGHT,
            ..Chart::default()
        };
        chart.svg()
    };
    out.push_str("<h3><span class=\"modelled\">Modelled</span>: what budgets cost</h3><div class=\"charts\">");
    out.push_str(&drawn("Modelled: page writes that wait", "%", &|row| {
        100.0 * row.stalls_per_write
    }));
    out.push_str(&drawn("Modelled: bytes to the SSD for a byte written", "", &|row| {
        row.device_bytes_per_user_byte
    }));
    out.push_str("</div><div class=\"wide\"><table><tr><th>budget</th><th>of memory</th><th>stalls</th><th>of writes</th><th>of time</th>\
                  <th>99.9 % of writes within</th><th>longest wait</th><th>to the SSD</th><th>a byte written</th><th>mean a second</th>\
                  <th>worst second</th><th>SSD lasts</th><th>flush</th></tr>");
    for row in &rows {
        let years = row.endurance_years.map_or("-".into(), |years| format!("{years:.1} years"));
        write!(
            out,
            "<tr><td>{}{}</td><td>{:.2} %</td><td>{}</td><td>{:.3} %</td><td>{:.3} %</td><td>{}</td><td>{}</td><td>{}</td><td>{:.3}</td><td>{}</td>\
             <td>{}</td><td>{years}</td><td>{:.2} s</td></tr>",
            if is_chosen(row) { "\u{25b8} " } else { "" },
            Bytes(row.budget_bytes),
            100.0 * row.share_of_memory,
            row.stalls,
            100.0 * row.stalls_per_write,
            100.0 * row.stalled_share,
            format_duration(Duration::from_nanos(row.write_p999_ns)),
            format_duration(Duration::from_nanos(row.stall_max_ns)),
            Bytes(row.device_bytes),
            row.device_bytes_per_user_byte,
            Bytes(row.device_bytes_per_s as u64),
            Bytes(row.device_bytes_worst_second),
            row.flush_s
        )?;
    }
    write!(
        out,
        "</table></div><p class=\"note\">\u{25b8} the budget chosen: the smallest in which at most {} % of the page writes wait, or \
         what the warning or battery given allows.</p><h3><span class=\"modelled\">Modelled</span>: all memory against a budget of {}</h3>\
         <p>A machine of {:.0} W that flushes {}; cells discharged by {:.0} % at most, for {} years.</p>\
         <table><tr><th></th><th>all memory</th><th>the budget</th></tr>",
        100.0 * sizing.stalls_max,
        Bytes(sizing.chosen.budget_bytes),
        sizing.server.watts,
        BytesPerSecond(sizing.server.flush_bytes_per_s),
        100.0 * sizing.cells.depth_of_discharge,
        sizing.cells.years
    )?;
    let mut line = |name: &str, of: &dyn Fn(&Backup) -> String| {
        let (all, some) = (of(&sizing.power.all_memory), of(&sizing.power.budget));
        write!(out, "<tr><td>{name}</td><td>{all}</td><td>{some}</td></tr>")
    };
    line("to flush", &|one| Bytes(one.dirty_bytes).to_string())?;
    line("shutdown", &|one| format!("{:.1} s", one.flush_s))?;
    line("energy", &|one| Joules(one.battery.needed_joules).to_string())?;
    line("battery, rated", &|one| Joules(one.battery.rated_joules).to_string())?;
    line("volume", &|one| format!("{:.4} l", one.battery.litres))?;
    line("in phone cells", &|one| format!("{:.2}", one.battery.phone_cells))?;
    line("price", &|one| format!("{:.2} USD", one.battery.usd))?;
    out.push_str("</table>");
    Ok(())
}

/// What the paper says of the world, and what Zipf says of growth.
fn background(out: &mut String) -> Written {
    out.push_str("<h2>Why it pays</h2><div class=\"charts\">");
    let ends = |first: f64, last: f64| {
        vec![Point { x: 0, y: first, range: None }, Point { x: 1, y: last, range: None }]
    };
    let published = Chart {
        title: "Figure 1, published: growth in 25 years".into(),
        y_name: "times".into(),
        x_names: vec!["25 years before".into(), "the paper, 2017".into()],
        series: vec![
            Series {
                name: "DRAM a rack unit: more than 50,000".into(),
                class: "paper".into(),
                points: ends(1.0, 50_000.0),
                ..Series::default()
            },
            Series {
                name: "battery, joules a volume: 3.3".into(),
                class: "base".into(),
                points: ends(1.0, 3.3),
                ..Series::default()
            },
        ],
        is_log: true,
        width: WIDTH,
        height: HEIGHT,
        ..Chart::default()
    };
    out.push_str(&published.svg());
    const FOOTPRINTS: [u64; 6] =
        [10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];
    let series = [0.90, 0.95, 0.99].iter().enumerate().map(|(at, share)| Series {
        name: format!("{:.0} % of writes", 100.0 * share),
        class: CLASSES[at].into(),
        points: zipf_curve(&FOOTPRINTS, *share, THETA)
            .iter()
            .enumerate()
            .map(|(x, point)| Point { x, y: 100.0 * point.fraction, range: None })
            .collect(),
        ..Series::default()
    });
    let zipf = Chart {
        title: format!(
            "Figure 5, computed: pages that take most writes, % of all, for Zipf ({THETA})"
        ),
        y_name: "%".into(),
        x_name: "pages".into(),
        x_names: FOOTPRINTS.iter().map(|pages| short(*pages as f64)).collect(),
        series: series.collect(),
        width: WIDTH,
        height: HEIGHT,
        ..Chart::default()
    };
    out.push_str(&zipf.svg());
    out.push_str("</div>");
    Ok(())
}

/// `60` as `1m`, by the key of a window.
fn seconds(key: &str) -> String {
    let parsed: Option<f64> = key.parse().ok();
    parsed.and_then(|s| Duration::try_from_secs_f64(s).ok()).map_or(key.to_owned(), format_duration)
}
