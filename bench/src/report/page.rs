//! The page of a sweep: the paper's figures 7 to 10 drawn from what was measured, its own numbers
//! beside them, labelled. One file: no script, nothing from a network.

use std::fmt::Write;

use super::machine::machine_paragraph;
use super::published::{self, loss_at_11};
use super::result::{SideResult, SweepResult, YcsbResult};
use perdura_page::{Chart, Point, Series, Style, charts, data, escape, short};

const NARROW: f64 = 350.0;
const WIDE: f64 = 720.0;
const HEIGHT: f64 = 230.0;

/// The page of a sweep.
pub fn page(sweep: &SweepResult) -> String {
    perdura_page::page("Perdura over budgets", |out| Page { sweep, out }.write())
}

struct Page<'p> {
    sweep: &'p SweepResult,
    out: &'p mut String,
}

type Written = std::fmt::Result;

impl Page<'_> {
    fn write(&mut self) -> Written {
        self.heading()?;
        self.throughput()?;
        self.latency()?;
        self.write_rate()?;
        self.sizes()?;
        self.causes()?;
        self.table()?;
        data(self.out, self.sweep)
    }

    fn heading(&mut self) -> Written {
        self.out.push_str("<h1>What a smaller budget costs</h1>");
        let Some(first) = self.sweep.points.first() else {
            self.out.push_str("<p>Nothing was measured.</p>");
            return Ok(());
        };
        let setup = &first.configuration;
        let lengths = match (setup.operations, setup.duration_ns) {
            (Some(operations), _) => format!("{} operations", short(operations as f64)),
            (_, ns) => format!("{} s", ns.unwrap_or(0) as f64 / 1e9),
        };
        write!(
            self.out,
            "<p>{} records of {} fields of {} B, {} of data; {lengths} a side and point, threads: \
             {}, seed {}; victim policy {}; {}. Every point was measured against the full budget \
             (100 % of the data) in turn, {} pairs of slices; bars are 95 % intervals of the \
             ratio.</p>\
             {}\
             <p class=\"note\"><span class=\"published\">Published</span>: figures that the text \
             of the Viyojit paper gives (ISCA 2017, section 6), for Redis on its machine with 17.5 \
             GB of data and traps; its curves were not read off. <span \
             class=\"modelled\">Modelled</span>: calculated, not measured. Everything else was \
             measured here.</p>",
            short(setup.records as f64),
            setup.fields,
            setup.field_bytes,
            bytes(setup.data_bytes),
            setup.threads,
            setup.seed,
            escape(setup.policy.as_deref().unwrap_or("unknown")),
            escape(&first.side.target),
            setup.pairs,
            machine_paragraph(&self.sweep.machine),
        )
    }

    fn throughput(&mut self) -> Written {
        let all = workloads(&self.sweep.points);
        let of_workload = |(letter, points): &(&str, Vec<&YcsbResult>)| {
            let full =
                |point: &YcsbResult| Some(point.compare.as_ref()?.throughput_ops_per_s / 1e3);
            Chart {
                title: format!("{}: thousand operations/s", letter.to_uppercase()),
                series: vec![
                    line("budget", "c0", points, |point| {
                        Some(point.side.throughput_ops_per_s / 1e3)
                    }),
                    Series {
                        style: Style::Dashed,
                        ..line("100 % beside it", "base", points, full)
                    },
                ],
                ..over_budgets(points, NARROW)
            }
        };
        let mut series: Vec<_> = all
            .iter()
            .enumerate()
            .map(|(index, (letter, points))| {
                let loss = points.iter().enumerate().filter_map(|(x, point)| {
                    Some(Point { x, y: loss(point.ratio?), range: point.ratio_ci95.map(losses) })
                });
                Series {
                    name: letter.to_uppercase(),
                    class: format!("c{}", index % 6),
                    points: loss.collect(),
                    style: Style::Line,
                }
            })
            .collect();
        series.extend(published_losses(&self.sweep.points));
        let losses = all.first().map(|(_, points)| Chart {
            title: "Loss of throughput against the full budget, %".into(),
            series,
            ..over_budgets(points, WIDE)
        });
        let drawn = all.iter().map(of_workload).chain(losses);
        charts(self.out, "Throughput over budgets (as the paper's figure 7)", drawn)?;
        self.published_losses_table()?;
        self.out.push_str("<p class=\"note\">Published, in words:</p><ul class=\"note\">");
        for words in published::IN_WORDS {
            write!(self.out, "<li>{}</li>", escape(words))?;
        }
        self.out.push_str("</ul>");
        Ok(())
    }

    fn published_losses_table(&mut self) -> Written {
        self.out.push_str(
            "<table><tr><th>loss at 11 %</th><th>measured here, %</th><th>95 % interval</th>\
             <th class=\"published\">published, %</th></tr>",
        );
        let at_11 = |point: &&YcsbResult| is_at(point, published::BUDGET_PERCENT);
        for point in self.sweep.points.iter().filter(at_11) {
            let (Some(ratio), Some(ends)) = (point.ratio, point.ratio_ci95) else { continue };
            let [low, high] = losses(ends);
            write!(
                self.out,
                "<tr><td>{}</td><td>{:.1}</td><td>{low:.1} to {high:.1}</td>\
                 <td class=\"published\">{}</td></tr>",
                point.workload.to_uppercase(),
                loss(ratio),
                loss_at_11(&point.workload).map_or("not run".into(), |loss| format!("{loss:.0}")),
            )?;
        }
        self.out.push_str("</table>");
        Ok(())
    }

    fn latency(&mut self) -> Written {
        let of_workload = |(letter, points): (&str, Vec<&YcsbResult>)| {
            let kind = looked_at(letter);
            let of = |side: &SideResult| side.latency_ns.get(kind).copied();
            let us = |ns: f64| ns / 1e3;
            let mean = |point: &YcsbResult| Some(us(of(&point.side)?.mean));
            let p99 = |point: &YcsbResult| Some(us(of(&point.side)?.p99 as f64));
            let p99_9 = |point: &YcsbResult| Some(us(of(&point.side)?.p99_9 as f64));
            let full = |point: &YcsbResult| Some(us(of(point.compare.as_ref()?)?.p99 as f64));
            let full_mean = |point: &YcsbResult| Some(us(of(point.compare.as_ref()?)?.mean));
            let dashed = |series: Series| Series { style: Style::Dashed, ..series };
            Chart {
                title: format!("{}: {}, us", letter.to_uppercase(), kind.replace('_', "-")),
                is_log: true,
                series: vec![
                    line("mean", "c0", &points, mean),
                    line("p99", "c1", &points, p99),
                    line("p99.9", "c3", &points, p99_9),
                    dashed(line("mean, 100 %", "c0", &points, full_mean)),
                    dashed(line("p99, 100 %", "c1", &points, full)),
                ],
                ..over_budgets(&points, NARROW)
            }
        };
        let drawn = workloads(&self.sweep.points).into_iter().map(of_workload);
        charts(self.out, "Latency over budgets (as the paper's figure 8)", drawn)?;
        self.out.push_str(
            "<p class=\"note\">The operation shown is the one the paper looks at: updates of A and \
             B, reads of C, inserts of D, read-modify-writes of F. Its text gives no \
             latencies.</p>",
        );
        Ok(())
    }

    fn write_rate(&mut self) -> Written {
        let mb = |rate: Option<f64>| rate.map(|rate| rate / 1e6);
        let all = workloads(&self.sweep.points);
        let of_rate = |with_flush: bool| {
            let rate = |point: &YcsbResult| {
                mb(if with_flush {
                    point.side.write_rate_with_flush_bytes_per_s
                } else {
                    point.side.write_rate_bytes_per_s
                })
            };
            let (_, points) = all.first()?;
            let mut series: Vec<_> = all
                .iter()
                .enumerate()
                .map(|(index, (letter, points))| {
                    line(&letter.to_uppercase(), &format!("c{}", index % 6), points, rate)
                })
                .collect();
            let at_11 = points.iter().position(|point| is_at(point, published::BUDGET_PERCENT));
            if let (Some(x), true) = (at_11, with_flush) {
                series.push(Series {
                    name: "published, A".into(),
                    class: "paper".into(),
                    points: vec![Point {
                        x,
                        y: published::WRITE_RATE_A_AT_11_MB_PER_S,
                        range: None,
                    }],
                    style: Style::Marks,
                });
            }
            let title = match with_flush {
                true => "MB/s, with what is written at the end",
                false => "MB/s, without what is written at the end",
            };
            Some(Chart { title: title.into(), series, ..over_budgets(points, NARROW * 1.5) })
        };
        let drawn = [true, false].into_iter().filter_map(of_rate);
        charts(self.out, "Write rate to the SSD (as the paper's figure 9)", drawn)?;
        self.out.push_str(
            "<p class=\"note\">A rate follows the throughput: a store that does more operations a \
             second writes more a second. SSD bytes per user byte are in the table \
             below.</p>",
        );
        Ok(())
    }

    fn sizes(&mut self) -> Written {
        if self.sweep.larger.is_empty() {
            return Ok(());
        }
        let of_workload = |(letter, larger): (&str, Vec<&YcsbResult>)| {
            let of_size = |budget: &YcsbResult| {
                let same = |point: &&YcsbResult| {
                    point.workload == letter
                        && point.side.budget_percent == budget.side.budget_percent
                };
                self.sweep.points.iter().find(same)
            };
            let smaller: Vec<&YcsbResult> = larger.iter().copied().filter_map(of_size).collect();
            let bars = |class: &str, points: &[&YcsbResult]| Series {
                name: points
                    .first()
                    .map_or("?".into(), |point| bytes(point.configuration.data_bytes)),
                class: class.into(),
                points: points
                    .iter()
                    .enumerate()
                    .filter_map(|(x, point)| {
                        let range = point.ratio_ci95.map(losses);
                        Some(Point { x, y: loss(point.ratio?), range })
                    })
                    .collect(),
                style: Style::Bars,
            };
            Chart {
                title: format!("{}: loss of throughput, %", letter.to_uppercase()),
                series: vec![bars("c0", &smaller), bars("c1", &larger)],
                ..over_budgets(&larger, NARROW)
            }
        };
        let drawn = workloads(&self.sweep.larger).into_iter().map(of_workload);
        charts(self.out, "Two sizes of data (as the paper's figure 10)", drawn)?;
        self.out.push_str(
            "<p class=\"note\">Published, in words only: losses are smaller with 52.5 GB than with \
             17.5 GB.</p>",
        );
        Ok(())
    }

    fn causes(&mut self) -> Written {
        if self.sweep.causes.is_empty() {
            return Ok(());
        }
        self.out.push_str(
            "<h2>Causes of the loss (as section 6.3), workload A at 11 %</h2><div \
             class=\"wide\"><table>\
             <tr><th></th><th>lost, ns/op</th><th>waiting for the SSD</th><th>traps</th><th>the \
             rest</th>\
             <th>a trap, ns</th><th>without recency, ratio</th><th>95 % interval</th>\
             <th class=\"modelled\">modelled: MMU, ratio to 100 %</th></tr>",
        );
        for run in &self.sweep.causes {
            let Some(causes) = &run.causes else { continue };
            let ns = |value: Option<f64>| value.map_or("-".into(), |ns| format!("{ns:.0}"));
            let think = run.configuration.think_ns;
            let name = match run.configuration.trap_mode {
                true => format!("array, trapped, {:.0} us of other work", think as f64 / 1e3),
                false => "store, announced".into(),
            };
            let modelled = causes
                .modelled_mmu_throughput_ops_per_s
                .zip(causes.modelled_mmu_compare_throughput_ops_per_s);
            write!(
                self.out,
                "<tr><td>{name}</td><td>{:.0}</td><td>{}</td><td>{:.0}</td><td>{:.0}</td><td>{}\
                 </td>\
                 <td>{}</td><td>{}</td><td class=\"modelled\">{}</td></tr>",
                causes.loss_ns_per_operation,
                causes.waiting_ns_per_operation.map_or("not timed".into(), |ns| format!("{ns:.0}")),
                causes.traps_ns_per_operation,
                causes.rest_ns_per_operation,
                ns(causes.trap_ns),
                causes.without_recency_ratio.map_or("-".into(), |ratio| format!("{ratio:.3}")),
                causes
                    .without_recency_ci95
                    .map_or("-".into(), |[low, high]| format!("{low:.3} to {high:.3}")),
                modelled.map_or("-".into(), |(side, full)| format!("{:.3}", side / full)),
            )?;
        }
        self.out.push_str(
            "</table></div><p class=\"note\">Waiting: counted by the region; a trapped store's \
             wait is not timed and is part of the rest, as is the cleaner's use of processors and \
             memory. Traps: as many as there were, at the price measured in the same run. Without \
             recency: throughput with its upkeep switched off over throughput with it, at the same \
             budget; below 1 it is worth its cost. <span \
             class=\"modelled\">Modelled</span>: a memory management unit that counts and limits \
             dirty pages itself (section 5.4), as if no store trapped; waits \
             stay.</p>",
        );
        Ok(())
    }

    fn table(&mut self) -> Written {
        self.out.push_str(
            "<h2>All points</h2><div class=\"wide\"><table><tr><th>workload</th><th>data</th>\
             <th>budget</th>\
             <th>ops/s</th><th>ratio to 100 %</th><th>95 % interval</th><th>dirty at most</th>\
             <th>SSD B / user B</th><th>MB/s to SSD</th><th>stalls</th><th>stalled, ms</th>\
             <th>CPU, us/op</th><th>errors</th></tr>",
        );
        for point in self.sweep.points.iter().chain(&self.sweep.larger) {
            let side = &point.side;
            let written = side.ssd_bytes_written.unwrap_or(0) as f64;
            let per_byte = written / side.user_bytes_written as f64;
            let [low, high] = point.ratio_ci95.unwrap_or([f64::NAN; 2]);
            write!(
                self.out,
                "<tr><td>{}</td><td>{}</td><td>{} %</td><td>{:.0}</td><td>{:.3}</td>\
                 <td>{low:.3} to {high:.3}</td><td>{}</td><td>{}</td><td>{:.1}</td><td>{}</td>\
                 <td>{:.1}</td>\
                 <td>{:.2}</td><td>{}</td></tr>",
                point.workload.to_uppercase(),
                bytes(point.configuration.data_bytes),
                short(side.budget_percent.unwrap_or(f64::NAN)),
                side.throughput_ops_per_s,
                point.ratio.unwrap_or(f64::NAN),
                bytes(side.dirty_bytes_max.unwrap_or(0)),
                if per_byte.is_finite() { format!("{per_byte:.3}") } else { "-".into() },
                side.write_rate_bytes_per_s.unwrap_or(0.0) / 1e6,
                side.stalls.unwrap_or(0),
                side.stall_ns.unwrap_or(0) as f64 / 1e6,
                side.cpu_ns_per_operation.unwrap_or(0.0) / 1e3,
                side.errors + side.missing,
            )?;
        }
        self.out.push_str("</table></div>");
        Ok(())
    }
}

/// Points by workload, in their order.
fn workloads(points: &[YcsbResult]) -> Vec<(&str, Vec<&YcsbResult>)> {
    let mut all: Vec<(&str, Vec<&YcsbResult>)> = Vec::new();
    for point in points {
        match all.iter_mut().find(|(letter, _)| *letter == point.workload) {
            Some((_, points)) => points.push(point),
            None => all.push((&point.workload, vec![point])),
        }
    }
    all
}

fn over_budgets(points: &[&YcsbResult], width: f64) -> Chart {
    let name = |point: &&YcsbResult| short(point.side.budget_percent.unwrap_or(f64::NAN));
    Chart {
        x_names: points.iter().map(name).collect(),
        x_name: "budget, % of the data".into(),
        width,
        height: HEIGHT,
        ..Chart::default()
    }
}

fn line(
    name: &str,
    class: &str,
    points: &[&YcsbResult],
    y: impl Fn(&YcsbResult) -> Option<f64>,
) -> Series {
    Series::over(name, class, Style::Line, points.iter().map(|point| y(point)))
}

/// One mark for each workload that was measured and published.
fn published_losses(points: &[YcsbResult]) -> Option<Series> {
    let (_, budgets) = workloads(points).into_iter().next()?;
    let x = budgets.iter().position(|point| is_at(point, published::BUDGET_PERCENT))?;
    let measured = workloads(points);
    let marks = measured.iter().filter_map(|(letter, _)| loss_at_11(letter));
    Some(Series {
        name: "published, A B C D F at 11 %".into(),
        class: "paper".into(),
        points: marks.map(|y| Point { x, y, range: None }).collect(),
        style: Style::Marks,
    })
}

fn is_at(point: &YcsbResult, percent: f64) -> bool {
    point.side.budget_percent.is_some_and(|found| (found - percent).abs() < 1e-9)
}

fn loss(ratio: f64) -> f64 {
    100.0 * (1.0 - ratio)
}

/// The interval of a loss from the interval of a ratio.
fn losses([low, high]: [f64; 2]) -> [f64; 2] {
    [loss(high), loss(low)]
}

/// The kind of operation whose latency the paper shows.
fn looked_at(letter: &str) -> &'static str {
    match letter {
        "a" | "b" => "update",
        "d" => "insert",
        "e" => "scan",
        "f" => "read_modify_write",
        _ => "read",
    }
}

fn bytes(bytes: u64) -> String {
    perdura_media::Bytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::result;

    #[test]
    fn the_page_stands_alone_and_labels_what_is_not_measured() {
        let point = |letter: &str, percent: f64, throughput: f64| {
            let side = SideResult {
                budget_percent: Some(percent),
                throughput_ops_per_s: throughput,
                write_rate_with_flush_bytes_per_s: Some(1e7),
                ..SideResult::default()
            };
            let full = SideResult { throughput_ops_per_s: 1e6, ..SideResult::default() };
            let mut result = result(side, Some(full));
            result.workload = letter.into();
            result.ratio = Some(throughput / 1e6);
            result.ratio_ci95 = Some([throughput / 2e6, throughput / 5e5]);
            result
        };
        let sweep = SweepResult {
            kind: "ycsb_sweep".into(),
            machine: crate::machine::Machine::here(),
            points: vec![point("a", 11.0, 7e5), point("a", 100.0, 1e6), point("c", 11.0, 9e5)],
            larger: vec![point("a", 11.0, 8e5)],
            causes: Vec::new(),
        };
        let page = page(&sweep);
        for wanted in ["published, A", "Loss of throughput", "30.0", ">25<", "95 % interval"] {
            assert!(page.contains(wanted), "{wanted}");
        }
        for unwanted in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(unwanted), "{unwanted}");
        }
        let (_, data) = page.split_once("id=\"result\">").unwrap();
        let (json, _) = data.split_once("</script>").unwrap();
        assert_eq!(serde_json::from_str::<SweepResult>(json).unwrap(), sweep);
    }
}
