//! The page of `plan trace`: figures 2 to 5 of the Viyojit paper for the user's traces, figure 1 as
//! published, and the effect of budgets.

use std::fmt::Write;
use std::time::Duration;

use perdura_media::{Bytes, BytesPerSecond, Joules, format_duration};
use perdura_page::{COLOURS, Chart, Point, Series, Style, escape, short};

use crate::power::Backup;
use crate::report::{BudgetRow, SizingReport, TraceReport};
use crate::skew::{
    Assessment, Class, Figure, Figures, MostFigures, SkewFraction, THETA, WindowFraction,
    zipf_curve,
};
use crate::trace::PAGE_BYTES;

/// The most rows in a chart: those that write most; the tables have all.
const DRAWN: usize = 10;
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 240.0;

type Written = std::fmt::Result;

/// The title of a chart, and which share it draws.
type Drawn<T> = (&'static str, fn(&T) -> f64);

/// The page of `perdura plan trace`.
pub fn trace_page(reports: &[TraceReport]) -> String {
    perdura_page::page("How much battery", |out| write(reports, out))
}

fn write(reports: &[TraceReport], out: &mut String) -> Written {
    let names = short_names(reports);
    out.push_str("<h1>How much battery these traces need</h1><ul>");
    for (report, name) in reports.iter().zip(&names) {
        let (sentence, because) = (&report.verdict.sentence, &report.verdict.because);
        let (name, sentence, because) = (escape(name), escape(sentence), escape(because));
        write!(out, "<li>{name}: <b>{sentence}</b> {because}</li>")?;
    }
    out.push_str(
        "</ul><p class=\"note\">Counted from the traces: pages of 4 KiB that are written in the \
         worst interval, and how few pages take most writes. \
         <span class=\"modelled\">Modelled</span>: traces replayed through the region's cleaning \
         policies on a modelled SSD, and what follows for batteries. <span \
         class=\"published\">Published</span>: the Viyojit paper (ISCA 2017).</p>",
    );
    if reports.len() > 1 {
        let rows = reports.iter().zip(&names);
        let rows: Vec<_> = rows.map(|(report, name)| Row::of_all(name.clone(), report)).collect();
        out.push_str("<h2>All traces</h2>");
        figures(&rows, out);
        table("trace", &rows, out)?;
    }
    for (report, name) in reports.iter().zip(&names) {
        trace(report, name, reports.len() == 1, out)?;
    }
    background(out)
}

fn trace(report: &TraceReport, name: &str, is_only: bool, out: &mut String) -> Written {
    let all = &report.all;
    let files: Vec<_> = report
        .files
        .iter()
        .map(|file| {
            let bad = match file.skipped_bad {
                0 => String::new(),
                count => format!("; {count} bad records passed over"),
            };
            format!("{} ({}{bad})", escape(&file.file), file.format)
        })
        .collect();
    write!(
        out,
        "<h2>{}</h2><p>{} records over {}; {} touched, {} written, {} page writes. {}</p>",
        escape(name),
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
        table("volume", &rows, out)?;
    }
    match &report.sizing {
        Some(sizing) => costs(sizing, out),
        None => Ok(()),
    }
}

/// Draws the paper's figures 2, 3 and 4.
fn figures(rows: &[Row<'_>], out: &mut String) {
    let drawn = most_writing(rows);
    out.push_str("<div class=\"charts\">");
    let windows: [Drawn<WindowFraction>; 2] = [
        ("Figure 2: written in the worst interval, % of the volume", |window| window.adversarial),
        ("As figure 2, different pages only, % of the volume", |window| window.unique),
    ];
    for (title, of) in windows {
        out.push_str(&bars(title, &drawn, |meaning| {
            let windows = meaning.windows.iter();
            windows.map(|window| (seconds(&window.window_s), 100.0 * of(window))).collect()
        }));
    }
    // Where no volume's size is known its share is that of what is touched: the same figure twice.
    let with_sizes = rows.iter().any(|row| row.meaning.volume_given);
    let skews: [Drawn<SkewFraction>; 2] = [
        ("Figure 3: pages that take most writes, % of those touched", |skew| skew.of_touched),
        ("Figure 4: pages that take most writes, % of the volume", |skew| skew.of_volume),
    ];
    for (title, of) in skews.into_iter().take(1 + usize::from(with_sizes)) {
        out.push_str(&bars(title, &drawn, |meaning| {
            let named = |skew: &SkewFraction| format!("{} % of writes", skew.share_percent);
            meaning.skew.iter().map(|skew| (named(skew), 100.0 * of(skew))).collect()
        }));
    }
    out.push_str("</div><p class=\"note\">");
    if drawn.len() < rows.len() {
        let (drawn, all) = (drawn.len(), rows.len());
        out.push_str(&format!(
            "Drawn are the {drawn} of {all} that write most; the table has all. "
        ));
    }
    out.push_str(
        "Figure 2 takes each write for one to a new page, as a log-structured file system would \
         make it. Intervals slide, so none is worse; the paper cuts them from the trace's \
         beginning on, and the JSON has both.",
    );
    if rows.iter().any(|row| row.figures.touched_pages.bars.is_some()) {
        out.push_str(
            " Pages are estimated from a sample, but for those of each write: in brackets stand \
             the bounds between which they lie in 95 of 100 cases.",
        );
    }
    if rows.iter().any(|row| !row.meaning.volume_given) {
        out.push_str(
            " No size of the volumes was given (<code>--volume-size</code>): a volume counts as \
             what is touched of it, so all shares are at their highest. Figure 4, shares of the \
             volume, would repeat figure 3 and is left out.",
        );
    }
    out.push_str("</p>");
}

/// The rows that a chart has room for: those that write most, in their order.
fn most_writing<'r, 's>(rows: &'s [Row<'r>]) -> Vec<&'s Row<'r>> {
    let mut places: Vec<usize> = (0..rows.len()).collect();
    places.sort_by_key(|&at| std::cmp::Reverse(rows[at].figures.page_writes));
    places.truncate(DRAWN);
    places.sort_unstable();
    places.into_iter().map(|at| &rows[at]).collect()
}

/// A volume, or all of them, as a row.
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

/// Names for titles and charts: the files' names without folders and endings, of several files as
/// one trace the first one's. Where that does not tell traces apart they have the names given.
fn short_names(reports: &[TraceReport]) -> Vec<String> {
    const PACKED: [&str; 4] = [".gz", ".zst", ".bz2", ".xz"];
    let short = |report: &TraceReport| {
        let name = report.files.first().map_or(report.trace.as_str(), |file| &file.file);
        let name = name.rsplit('/').next().unwrap_or(name);
        let name = PACKED.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
        let stem = match name.rsplit_once('.') {
            Some((stem, _)) if !stem.is_empty() => stem,
            _ => name,
        };
        match report.files.len() {
            0 | 1 => stem.to_owned(),
            files => format!("{stem} and {} more", files - 1),
        }
    };
    let names: Vec<String> = reports.iter().map(short).collect();
    let is_unique = |name: &String| names.iter().filter(|other| *other == name).count() == 1;
    let of = |(name, report): (&String, &TraceReport)| {
        if is_unique(name) { name.clone() } else { report.trace.clone() }
    };
    names.iter().zip(reports).map(of).collect()
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

/// A name that does not run into its neighbours under a chart: without its middle, where that is
/// too long.
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

fn bars(title: &str, rows: &[&Row<'_>], of: impl Fn(&Assessment) -> Vec<(String, f64)>) -> String {
    let values: Vec<_> = rows.iter().map(|row| of(row.meaning)).collect();
    let kinds = values.first().map_or(0, Vec::len);
    let series = (0..kinds).map(|kind| Series {
        name: values[0][kind].0.clone(),
        class: COLOURS[kind % COLOURS.len()].into(),
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
        x_names: rows.iter().map(|row| fitting(&row.name, rows.len())).collect(),
        series: series.collect(),
        width: WIDTH,
        height: HEIGHT,
        ..Chart::default()
    };
    chart.svg()
}

fn table(what: &str, rows: &[Row<'_>], out: &mut String) -> Written {
    write!(
        out,
        "<div class=\"wide\"><table><tr><th>{what}</th><th>kind</th><th>size</th><th>records</th>\
         <th>pages touched</th><th>written</th><th>page writes</th>"
    )?;
    let Some(first) = rows.first() else { return Ok(()) };
    for (key, _) in &first.figures.worst {
        write!(out, "<th>worst {0}: writes</th><th>pages</th>", seconds(key))?;
    }
    for (key, _) in &first.figures.skew_pages {
        write!(out, "<th>pages for {key} %</th>")?;
    }
    out.push_str("</tr>");
    for row in rows {
        let figures = row.figures;
        write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
            escape(&row.name),
            row.meaning.class.map_or("-", Class::name),
            Bytes(row.meaning.volume_pages * PAGE_BYTES),
            figures.records,
            cell(&figures.touched_pages),
            cell(&figures.written_pages),
            figures.page_writes
        )?;
        for (_, worst) in &figures.worst {
            let MostFigures { adversarial_pages, unique_pages } = &worst.sliding;
            write!(out, "<td>{adversarial_pages}</td><td>{}</td>", cell(unique_pages))?;
        }
        for (_, pages) in &figures.skew_pages {
            write!(out, "<td>{}</td>", cell(pages))?;
        }
        out.push_str("</tr>");
    }
    out.push_str("</table></div>");
    Ok(())
}

/// Pages; of a sample, with the ends between which they are in 95 of 100 cases.
fn counted(figure: &Figure) -> String {
    match figure.bars {
        None => figure.pages.to_string(),
        Some((low, high)) => format!("{} ({low} to {high})", figure.pages),
    }
}

/// Pages in a cell of a table, which the ends of an estimate do not widen.
fn cell(figure: &Figure) -> String {
    counted(figure).replacen(" (", "<br>(", 1)
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
    out.push_str(
        "<h3><span class=\"modelled\">Modelled</span>: what budgets cost</h3><div \
         class=\"charts\">",
    );
    out.push_str(&drawn("Modelled: page writes that wait", "%", &|row| {
        100.0 * row.stalls_per_write
    }));
    out.push_str(&drawn("Modelled: bytes to the SSD for a byte of the page writes", "", &|row| {
        row.device_bytes_per_user_byte
    }));
    out.push_str(
        "</div><div class=\"wide\"><table><tr><th>budget</th><th>of memory</th>\
         <th>writes that wait</th><th>of writes</th><th>of time</th><th>99.9 % of writes \
         within</th>\
         <th>longest wait</th><th>to the SSD</th><th>for a byte of page writes</th>\
         <th>mean a second</th><th>worst second</th><th>SSD lasts</th><th>flush</th></tr>",
    );
    for row in &rows {
        let years = row.endurance_years.map_or("-".into(), |years| format!("{years:.1} years"));
        write!(
            out,
            "<tr><td>{}{}</td><td>{:.2} %</td><td>{}</td><td>{:.3} %</td><td>{:.3} \
             %</td><td>{}</td>\
             <td>{}</td><td>{}</td><td>{:.3}</td><td>{}</td><td>{}</td><td>{years}</td>\
             <td>{:.2} s</td></tr>",
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
            BytesPerSecond(row.device_bytes_per_s as u64),
            Bytes(row.device_bytes_worst_second),
            row.flush_s
        )?;
    }
    out.push_str("</table></div>");
    for replaced in &sizing.replaced {
        write!(out, "<p class=\"note\">{replaced}.</p>")?;
    }
    write!(
        out,
        "<p class=\"note\">\u{25b8} the budget chosen: {}.</p>\
         <h3><span class=\"modelled\">Modelled</span>: all memory against a budget of {}</h3>\
         <p>A machine of {:.0} W that flushes {}; cells discharged by {:.0} % at most, for {} \
         years.</p><table><tr><th></th><th>all memory</th><th>the budget</th></tr>",
        escape(&sizing.choice()),
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
    line("time to flush", &|one| format!("{:.3} s", one.flush_s))?;
    line("energy to flush", &|one| Joules(one.battery.needed_joules).to_string())?;
    line("battery, rated", &|one| Joules(one.battery.rated_joules).to_string())?;
    line("battery, volume", &|one| format!("{:.4} l", one.battery.litres))?;
    line("battery, phone cells", &|one| format!("{:.2}", one.battery.phone_cells))?;
    line("battery, price", &|one| format!("{:.2} USD", one.battery.usd))?;
    write!(
        out,
        "</table><p class=\"note\">Modelled: a restart loads all memory in {:.3} s either way; \
         Perdura answers before it has loaded.</p>",
        sizing.power.load_s
    )
}

/// Draws the paper's figure 1 as published, and its figure 5 as Zipf's law gives it.
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
        class: COLOURS[at].into(),
        points: zipf_curve(&FOOTPRINTS, *share, THETA)
            .iter()
            .enumerate()
            .map(|(x, point)| Point { x, y: 100.0 * point.fraction, range: None })
            .collect(),
        ..Series::default()
    });
    let zipf = Chart {
        title: format!("Figure 5, computed for Zipf ({THETA}): % of pages that take most writes"),
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

/// The key of a window as people write it: `60` as `1m`.
fn seconds(key: &str) -> String {
    let parsed: Option<f64> = key.parse().ok();
    parsed.and_then(|s| Duration::try_from_secs_f64(s).ok()).map_or(key.to_owned(), format_duration)
}

#[cfg(test)]
mod tests {
    use crate::report::FileReport;
    use crate::skew::{Analyzer, Options};
    use crate::trace::{Op, Record};

    use super::*;

    /// The report on a trace that writes so many pages, one after another.
    fn report(path: &str, pages: u64) -> TraceReport {
        let options = Options::default();
        let mut analyzer = Analyzer::new(&options, 0).unwrap();
        let record = |at| Record {
            time_ns: at,
            offset_bytes: at * PAGE_BYTES,
            len_bytes: PAGE_BYTES,
            volume: 0,
            op: Op::Write,
        };
        analyzer.add(&(0..pages).map(record).collect::<Vec<_>>()).unwrap();
        let all = analyzer.finish().unwrap().all().unwrap();
        let (file, first_bad) = (path.to_owned(), Vec::new());
        let files = vec![FileReport {
            file,
            format: "msr",
            skipped_bad: 0,
            first_bad,
            ignored: 0,
            looks: None,
        }];
        TraceReport::of_parts(path, files, &[], &all, &options, None).unwrap()
    }

    #[test]
    fn of_many_traces_those_that_write_most_are_drawn_and_all_are_in_the_table() {
        let reports: Vec<_> =
            (1..=12).map(|n| report(&format!("day{n}/hm_{n}.csv.gz"), n)).collect();
        let page = trace_page(&reports);
        assert!(page.contains("Drawn are the 10 of 12 that write most"));
        // Three charts name those drawn; the table has a row for each, and so have the titles.
        assert_eq!(page.matches(">hm_3<").count(), 5);
        assert_eq!(page.matches(">hm_2<").count(), 2);
        assert!(!page.contains("Figure 4:"), "it would repeat figure 3");
        assert!(!page.contains("NaN") && !page.contains("inf"));
        assert!(!trace_page(&reports[..10]).contains("Drawn are"));
    }

    #[test]
    fn names_of_traces_tell_them_apart() {
        let names = |paths: &[&str]| {
            short_names(&paths.iter().map(|path| report(path, 1)).collect::<Vec<_>>())
        };
        assert_eq!(names(&["a/web.1.ptrace", "b/web.2.ptrace.zst"]), ["web.1", "web.2"]);
        assert_eq!(names(&["a/t.csv", "b/t.csv", "c/.x"]), ["a/t.csv", "b/t.csv", ".x"]);
    }

    #[test]
    fn what_is_estimated_stands_with_its_bounds() {
        let figure = Figure { pages: 1000, bars: Some((900, 1100)) };
        assert_eq!([counted(&figure), counted(&Figure::exact(7))], ["1000 (900 to 1100)", "7"]);
    }
}
