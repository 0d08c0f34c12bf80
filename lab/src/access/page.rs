//! The page of `perdura-lab access run`: for every matrix the figures over its first axis, a line
//! for each combination of the others, times of sampled operations, and a table of all figures. One
//! file without scripts and without resources from a network.

mod matrix;
mod table;

use std::fmt::Write;

use perdura_media::Bytes;

use crate::access::result::{BenchmarkResult, CellResult, Figures, Label};
use matrix::{Axis, Matrix, figures};
use perdura_page::{COLOURS, Chart, Point, Series, Style, data, escape};
use table::table;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 260.0;
/// Most lines that one chart can tell apart: each colour, solid and dashed.
const LINES_MAX: usize = 2 * COLOURS.len();
/// Most letters of a name in a chart; the table has the whole name.
const NAME_MAX: usize = 72;

type Written = std::fmt::Result;

/// Draws the page of result files, each with its name.
pub fn page(files: &[(String, Vec<BenchmarkResult>)]) -> String {
    perdura_page::page("Memory access", |out| write(files, out))
}

fn write(files: &[(String, Vec<BenchmarkResult>)], out: &mut String) -> Written {
    out.push_str("<h1>Memory access by workload files</h1>");
    let mut machines: Vec<String> = Vec::new();
    for result in files.iter().flat_map(|(_, results)| results) {
        let load = result.machine.load_1m.as_deref().unwrap_or("unknown");
        let machine = result.machine.to_string();
        let memory = Bytes(result.machine.memory_bytes);
        if machines.iter().all(|told| !told.starts_with(&machine)) {
            machines.push(format!("{machine}; {memory} of memory, load {load} at the beginning"));
        }
    }
    for machine in machines {
        write!(out, "<p>{}</p>", escape(&machine))?;
    }
    out.push_str(
        "<p class=\"note\">Each benchmark says whether its figures were measured on this machine \
         or are \
         <span class=\"modelled\">modelled</span>: the same accesses in the time of a medium's \
         model. Bars at points are 95 % intervals over \
         repetitions; where there are several, the figures are those of the median one.</p>",
    );
    for (name, results) in files {
        write!(out, "<h2>{}</h2>", escape(name))?;
        for result in results {
            benchmark(result, out)?;
        }
    }
    data(out, files)
}

fn benchmark(result: &BenchmarkResult, out: &mut String) -> Written {
    let label = match result.label {
        Label::Measured => "measured",
        Label::Modelled => "<span class=\"modelled\">modelled</span>",
    };
    let instructions = match result.label {
        Label::Measured => format!("; loads and stores: {}", escape(&result.instructions)),
        Label::Modelled => String::new(),
    };
    write!(
        out,
        "<h3>{}: {label}</h3><p>{}{instructions}</p>",
        escape(&result.bm_name),
        escape(&result.place)
    )?;
    if let Some(fit) = &result.fit {
        write!(out, "<p class=\"note\">{}.</p>", escape(&fit.to_string()))?;
    }
    if !result.bounded.is_empty() {
        write!(out, "<p class=\"note\">Bounded: {}.</p>", escape(&result.bounded.join("; ")))?;
    }
    let matrix = Matrix::of(result);
    out.push_str("<div class=\"charts\">");
    for part in &matrix.parts {
        charts(result, &matrix, part.as_deref(), out);
    }
    out.push_str("</div>");
    table(&matrix, out)
}

fn clipped(name: String) -> String {
    match name.char_indices().nth(NAME_MAX) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name,
    }
}

/// A figure and its interval, as a chart shows them.
type Drawn = fn(&Figures) -> Option<(f64, Option<[f64; 2]>)>;

fn bandwidth(figures: &Figures) -> Option<(f64, Option<[f64; 2]>)> {
    Some((figures.bandwidth, figures.bandwidth_ci95))
}

fn millions(figures: &Figures) -> Option<(f64, Option<[f64; 2]>)> {
    // Each operation takes the same bytes, so operations have the bandwidth's interval, scaled.
    let scale = figures.ops_per_second / 1e6 / figures.bandwidth.max(f64::MIN_POSITIVE);
    let range = figures.bandwidth_ci95.map(|ends| ends.map(|end| end * scale));
    Some((figures.ops_per_second / 1e6, range))
}

fn charts(result: &BenchmarkResult, matrix: &Matrix<'_>, part: Option<&str>, out: &mut String) {
    if matrix.axes.is_empty() {
        return; // one cell: the table says it
    }
    let label = result.label.name();
    let name = part.map_or(result.bm_name.clone(), |part| format!("{} / {part}", result.bm_name));
    let is_custom = matrix.rows.iter().any(|(_, cell)| {
        let config = part.map_or(&cell.config, |part| &cell.config[part]);
        !config["custom_operations"].is_null()
    });
    let (unit, of): (&str, Drawn) = match is_custom {
        true => ("million operations/s", millions),
        false => ("GiB/s", bandwidth),
    };
    let lines = Lines::of(matrix, part);
    lines.draw(&format!("{name}, {label}: {unit}"), unit, of, false, out);
    let has_latency = |(_, cell): &(Vec<String>, &CellResult)| {
        figures(cell, part).is_some_and(|figures| figures.latency.is_some())
    };
    if matrix.rows.iter().any(has_latency) {
        let percentiles: [(&str, Drawn); 2] = [
            ("median", |figures| Some((figures.latency.as_ref()?.median as f64, None))),
            ("99 % within", |figures| Some((figures.latency.as_ref()?.percentile_99 as f64, None))),
        ];
        for (what, of) in percentiles {
            lines.draw(&format!("{name}, {label}: an operation, {what}, ns"), "ns", of, true, out);
        }
    }
}

/// The cells of one part as lines over an axis.
struct Lines<'m> {
    axis: &'m Axis,
    x_names: Vec<String>,
    lines: Vec<(String, Vec<(usize, &'m Figures)>)>,
}

impl<'m> Lines<'m> {
    fn of(matrix: &'m Matrix<'_>, part: Option<&str>) -> Self {
        let first = matrix.first(part);
        let (mut x_names, mut lines) = (Vec::new(), Vec::<(Vec<&String>, Vec<_>)>::new());
        for (values, cell) in &matrix.rows {
            let Some(figures) = figures(cell, part) else { continue };
            let x = x_names.iter().position(|name| name == &values[first]).unwrap_or_else(|| {
                x_names.push(values[first].clone());
                x_names.len() - 1
            });
            let own: Vec<&String> =
                values.iter().enumerate().filter(|(at, _)| *at != first).map(|(_, v)| v).collect();
            let at = lines.iter().position(|(values, _)| *values == own).unwrap_or_else(|| {
                lines.push((own, Vec::new()));
                lines.len() - 1
            });
            // Limits may make two cells of one configuration: the first one is drawn, the table has
            // both.
            if lines[at].1.iter().all(|(other, _)| *other != x) {
                lines[at].1.push((x, figures));
            }
        }
        let others = || matrix.axes.iter().enumerate().filter(|(at, _)| *at != first);
        let named = |values: Vec<&String>| {
            let told = others().zip(values).map(|((_, axis), value)| axis.told(value));
            clipped(told.collect::<Vec<_>>().join(", "))
        };
        let lines = lines.into_iter().map(|(values, points)| (named(values), points)).collect();
        Self { axis: &matrix.axes[first], x_names, lines }
    }

    /// Draws charts with as many lines each as can be told apart.
    fn draw(&self, title: &str, unit: &str, of: Drawn, is_log: bool, out: &mut String) {
        // Long names are replaced by numbers, which are explained below the chart.
        let is_long = self.x_names.iter().any(|name| name.len() > 12);
        let x_names = match is_long {
            true => (1..=self.x_names.len()).map(|n| format!("#{n}")).collect(),
            false => self.x_names.clone(),
        };
        // A line needs two points.
        let alone = if self.x_names.len() > 1 { Style::Line } else { Style::Bars };
        let count = self.lines.len().div_ceil(LINES_MAX);
        for (at, lines) in self.lines.chunks(LINES_MAX).enumerate() {
            let series = lines.iter().enumerate().map(|(line, (name, points))| {
                let point = |(x, figures): &(usize, &Figures)| {
                    of(figures).map(|(y, range)| Point { x: *x, y, range })
                };
                let is_dashed = line >= COLOURS.len() && alone == Style::Line;
                Series {
                    name: name.clone(),
                    class: COLOURS[line % COLOURS.len()].into(),
                    points: points.iter().filter_map(point).collect(),
                    style: if is_dashed { Style::Dashed } else { alone },
                }
            });
            let pages = if count > 1 { format!(" ({} of {count})", at + 1) } else { String::new() };
            let chart = Chart {
                title: format!("{title}{pages}"),
                y_name: unit.to_owned(),
                x_name: self.axis.name(),
                x_names: x_names.clone(),
                series: series.collect(),
                is_log,
                width: WIDTH,
                height: HEIGHT,
            };
            out.push_str(&chart.svg());
        }
        if is_long {
            out.push_str("<ol class=\"note\">");
            for name in &self.x_names {
                let _ = write!(out, "<li>{}</li>", escape(&self.axis.told(name)));
            }
            out.push_str("</ol>");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::access::economy::Economy;
    use crate::access::place::Place;
    use crate::access::suite::{Bounds, Settings, run_benchmark};
    use crate::access::workload::parse;

    /// The page of a workload on a model: no time passes, and every run gives the same figures.
    fn page_of(workload: &str) -> String {
        let place = Place::Model(Box::new(perdura_media::System::find("dram").unwrap()));
        let (bounds, economy) = (Bounds::default(), Economy::default());
        let settings = Settings { place, isa: None, bounds, economy };
        let run = |benchmark| run_benchmark(benchmark, &settings, &|_, _| {}).unwrap();
        let results = parse("w.yaml", workload).unwrap().iter().map(run).collect();
        let page = super::page(&[("w<1>.json".to_owned(), results)]);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(!page.contains("NaN") && !page.contains("inf,"), "{page}");
        page
    }

    #[test]
    fn a_matrix_is_drawn_over_its_first_axis_with_a_line_for_each_of_the_others() {
        let page = page_of(
            "reads:\n  matrix:\n    number_threads: [1, 2]\n    access_size: [64, 4K]\n    \
             operation: [read, write]\n  args:\n    memory_range: 64K\n",
        );
        assert_eq!(page.matches("<svg").count(), 1);
        assert!(page.contains("reads, modelled: GiB/s") && page.contains("w&lt;1&gt;.json"));
        for line in ["64 B, read", "64 B, write", "4 KiB, read", "4 KiB, write"] {
            assert!(page.contains(&format!(">{line}</text>")), "{line}");
        }
        assert_eq!(page.matches("<polyline").count(), 4);
        assert_eq!(page.matches("<tr>").count(), 9, "heading and cells");
    }

    #[test]
    fn chains_are_drawn_in_operations_with_their_latency_and_written_short() {
        let page = page_of(
            "chains:\n  matrix:\n    custom_operations: ['r_64,r_64,r_64,w_64_none', r_128]\n    \
             number_threads: [1, 2]\n  args:\n    memory_range: 64K\n    \
             exec_mode: custom\n    number_operations: 100\n    latency_sample_frequency: 2\n",
        );
        for part in ["million operations/s", "median, ns", "99 % within, ns", "<th>99.99 %</th>"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(page.contains("<li>3 x rp_64, wp_64_none</li>"), "numbers stand for long names");
    }

    #[test]
    fn what_runs_together_has_a_chart_for_each() {
        let page = page_of(
            "both:\n  parallel_benchmark:\n    scan:\n      args:\n        memory_range: 64K\n    \
             log:\n      matrix:\n        access_size: [64, 256]\n      \
             args:\n        memory_range: 64K\n        operation: write\nalone:\n  args:\n    \
             memory_range: 64K\n",
        );
        assert!(page.contains("both / scan, modelled") && page.contains("both / log, modelled"));
        assert_eq!(page.matches("<svg").count(), 2, "one cell alone is no chart");
        assert!(page.contains("<h3>alone: "));
    }

    #[test]
    fn more_lines_than_can_be_told_apart_take_a_chart_more() {
        let seeds: Vec<String> = (0..40).map(|seed| seed.to_string()).collect();
        let page = page_of(&format!(
            "many:\n  matrix:\n    access_size: [64, 256]\n    seed: [{}]\n  args:\n    \
             memory_range: 4K\n",
            seeds.join(", ")
        ));
        assert_eq!(page.matches("<svg").count(), 3);
        assert!(page.contains("(3 of 3)") && page.contains("dashed"));
    }
}
