//! The page of `perdura-lab caches`: the paper's figures drawn from these results, the modelled
//! ones labelled. One file without scripts and without resources from a network.

use std::fmt::Write;

use crate::caches::estimate::{Estimate, WriteShare};
use crate::caches::model::{FlushKind, Owner};
use crate::caches::placement::{Filling, Placement};
use crate::caches::result::{AloneResult, CachesResult, Step, StepResult};
use perdura_bench::report::machine_paragraph;
use perdura_page::{Chart, Point, Series, Style, data, escape, short};

/// Width of a chart of which three lie beside each other, pixels.
const THIRD: f64 = 350.0;

/// Draws the page.
pub fn page(result: &CachesResult) -> String {
    perdura_page::page("Two kinds of memory in one cache", |out| Page { result, out }.write())
}

struct Page<'p> {
    result: &'p CachesResult,
    out: &'p mut String,
}

type Written = std::fmt::Result;

impl<'p> Page<'p> {
    fn write(&mut self) -> Written {
        self.heading()?;
        self.steps()?;
        self.placement()?;
        self.interference()?;
        self.logs()?;
        self.times()?;
        self.buckets()?;
        self.table()?;
        data(self.out, self.result)
    }

    fn heading(&mut self) -> Written {
        let setup = &self.result.configuration;
        write!(
            self.out,
            "<h1>How persistent and capacity memory disturb each other in their shared cache</h1>\
             <p>A hash table in persistent memory (insert 50 %, look up 30 %, delete 20 %) beside \
             work on capacity \
             memory (emits records, looks back at one of {} kept, counts in a table of {}), {} of \
             its steps for each \
             hash operation; seed {}.</p>\
             <p class=\"note\"><span class=\"modelled\">Modelled</span>: a last-level cache of {}, \
             {} ways, lines of {} \
             B, least recently used, physically indexed, fed with every load and store; a flush \
             {}. Addresses are translated by the {}. The paper's machine has 1 MB; its ways are \
             assumed. Loads of the heap's own structures in DRAM are not counted.</p>\
             {}",
            bytes(setup.kept_bytes),
            bytes(setup.hot_bytes),
            setup.capacity_steps_per_operation,
            setup.seed,
            bytes(setup.cache.size_bytes),
            setup.cache.ways,
            setup.cache.line_bytes,
            match setup.flush {
                FlushKind::Drops => "drops the line, as the paper's clflush does",
                FlushKind::Keeps => "leaves the line, as clwb does",
            },
            escape(self.result.frames.words()),
            machine_paragraph(&self.result.machine),
        )?;
        match self.result.counters_missing.as_slice() {
            [] => Ok(()),
            missing => write!(
                self.out,
                "<p class=\"note\">Hardware counters are not available here: {}.</p>",
                escape(&missing.join("; "))
            ),
        }
    }

    fn steps(&mut self) -> Written {
        self.begin("Step by step: base, +CAA, +NVMA, +hybrid log")?;
        let counts = self.counts();
        let misses = |step: &StepResult| Some(step.modelled.total().misses as f64);
        self.chart(Chart {
            title: "Modelled: misses of the last-level cache".into(),
            series: self.by_step(&counts, misses),
            ..over_operations(&counts)
        });
        let fewer = |step: &StepResult| step.modelled_misses_fewer_percent;
        self.chart(Chart {
            title: "Modelled: misses fewer than the base's, %".into(),
            series: self.by_step(&counts, fewer).split_off(1),
            ..over_operations(&counts)
        });
        let last: Vec<&StepResult> = self.last_steps();
        let owner = |(index, owner): (usize, Owner)| {
            let misses = |step: &StepResult| Some(step.modelled.of(owner).misses as f64);
            bars(owner.name(), format!("c{index}"), &last, misses)
        };
        let names = || last.iter().map(|step| step.step.name().to_owned()).collect();
        self.chart(Chart {
            title: "Modelled: misses by owner, most operations".into(),
            x_names: names(),
            series: Owner::ALL.into_iter().enumerate().map(owner).collect(),
            ..Chart::half()
        });
        if last.iter().any(|step| step.persistent.is_some()) {
            let persistent = |step: &StepResult| Some(step.persistent?.breaks_per_1000);
            let capacity = |step: &StepResult| Some(step.capacity?.breaks_per_1000);
            self.chart(Chart {
                title: "Breaks per 1,000 pages, most operations".into(),
                x_names: names(),
                series: vec![
                    bars("persistent pages", "c0", &last, persistent),
                    bars("capacity pages", "c1", &last, capacity),
                ],
                ..Chart::half()
            });
        }
        self.end();
        self.out.push_str(
            "<p class=\"note\"><span class=\"published\">Published</span> (the paper, its \
             machine): 12 to 13 % fewer \
             misses with all steps, 89 % fewer breaks with buckets, of the log 1 to 2 %.</p>",
        );
        Ok(())
    }

    fn placement(&mut self) -> Written {
        if self.result.placement.iter().all(|placed| placed.persistent.is_none()) {
            return Ok(());
        }
        self.begin("Pages of two kinds in one range, by how a bucket is filled")?;
        for threads in [1, 2] {
            for is_memory_file in [false, true] {
                let placed: Vec<&Placement> = self
                    .result
                    .placement
                    .iter()
                    .filter(|p| p.threads == threads && p.is_memory_file == is_memory_file)
                    .collect();
                self.chart(placement_chart(&placed, threads, is_memory_file));
            }
        }
        self.end();
        Ok(())
    }

    fn interference(&mut self) -> Written {
        self.begin("Capacity work alone, and with persistent work beside it")?;
        let counts = self.counts();
        let beside = |step: &StepResult| {
            let is_same = |alone: &&AloneResult| alone.operations == step.operations;
            let alone = self.result.alone.iter().find(is_same)?.modelled.capacity_data.misses;
            Some(100.0 * (step.modelled.capacity_data.misses as f64 / alone.max(1) as f64 - 1.0))
        };
        self.chart(Chart {
            title: "Modelled: misses of the capacity work more than alone, %".into(),
            series: self.by_step(&counts, beside),
            ..over_operations(&counts)
        });
        if self.result.alone.iter().any(|alone| alone.native.is_some()) {
            let alone = self.alone(&counts, |index| {
                Some(self.result.alone[index].native.as_ref()?.capacity_step_ns)
            });
            let beside = |step: &StepResult| Some(step.native.as_ref()?.capacity_step_ns);
            let mut series = vec![alone];
            series.extend(self.by_step(&counts, beside).into_iter().map(as_line));
            self.chart(Chart {
                title: "Measured here: a capacity step, ns (a thread each)".into(),
                series,
                ..over_operations(&counts)
            });
        }
        self.end();
        Ok(())
    }

    fn logs(&mut self) -> Written {
        self.begin(
            "Kinds of log under mixed transactions (half put whole values, the rest change words)",
        )?;
        let logs = &self.result.logs;
        let bars = |title: &str, of: &dyn Fn(usize) -> f64| Chart {
            title: title.into(),
            x_names: logs.iter().map(|log| log.log.name().to_owned()).collect(),
            series: vec![Series::over("", "c2", Style::Bars, (0..logs.len()).map(|x| Some(of(x))))],
            width: THIRD,
            ..Chart::half()
        };
        let all = [
            bars("Log bytes per changed byte", &|x| logs[x].log_bytes_per_changed_byte),
            bars("Lines flushed for a transaction", &|x| logs[x].lines_flushed_per_transaction),
            bars("Fences of a transaction", &|x| logs[x].fences_per_transaction),
        ];
        all.into_iter().for_each(|chart| self.chart(chart));
        self.end();
        Ok(())
    }

    fn times(&mut self) -> Written {
        self.begin("Run time on non-volatile memory, under the paper's three assumptions")?;
        let counts = self.counts();
        for factor in &self.result.configuration.times.write_factors {
            let assumed = |(index, writes): (usize, WriteShare)| {
                let shorter = |step: &StepResult| {
                    let is_it = |estimate: &&Estimate| {
                        estimate.writes == writes && estimate.write_factor == *factor
                    };
                    Some(step.modelled_times.iter().find(is_it)?.shorter_percent)
                };
                let hybrid = self.steps_of(Step::Hybrid);
                bars(writes.name(), format!("c{index}"), &hybrid, shorter)
            };
            let series = WriteShare::ALL.into_iter().enumerate().map(assumed).collect();
            self.chart(Chart {
                title: format!("Modelled: shorter by, %; a write takes {} reads", short(*factor)),
                series,
                ..over_operations(&counts)
            });
        }
        self.end();
        let times = &self.result.configuration.times;
        write!(
            self.out,
            "<p class=\"note\"><span class=\"modelled\">Modelled</span>: the base takes {} ns for \
             an access, {} \
             ns more for a miss, a write for a line written back; of the misses that all steps \
             together save, half, all, or \
             a third would have been writes.</p>",
            short(times.hit_ns),
            short(times.read_ns),
        )
    }

    fn buckets(&mut self) -> Written {
        let buckets = &self.result.buckets;
        if buckets.is_empty() {
            return Ok(());
        }
        self.begin("Sizes of a bucket")?;
        let chart = |title: &str, of: &dyn Fn(usize) -> Option<f64>| Chart {
            title: title.into(),
            x_names: buckets.iter().map(|bucket| bytes(bucket.bucket_bytes)).collect(),
            x_name: "bucket".into(),
            series: vec![Series::over("", "c0", Style::Bars, (0..buckets.len()).map(of))],
            width: THIRD,
            ..Chart::half()
        };
        let all = [
            chart("Modelled: misses", &|x| Some(buckets[x].modelled.total().misses as f64)),
            chart("Breaks per 1,000 pages, both kinds", &|x| {
                let (a, b) = (buckets[x].persistent?, buckets[x].capacity?);
                Some(1000.0 * (a.breaks + b.breaks) as f64 / (a.pages + b.pages).max(1) as f64)
            }),
            chart("Measured: operation and capacity step, ns", &|x| Some(buckets[x].operation_ns)),
            chart("Measured: the slowest operation, us", &|x| {
                Some(buckets[x].operation_ns_max as f64 / 1e3)
            }),
            chart("Resident bytes per byte of objects", &|x| buckets[x].resident_per_live),
        ];
        all.into_iter().for_each(|chart| self.chart(chart));
        self.end();
        Ok(())
    }

    fn table(&mut self) -> Written {
        self.out.push_str(
            "<h2>All figures of the steps</h2><div \
             class=\"wide\"><table><tr><th>operations</th><th>step</th>\
             <th class=\"modelled\">misses</th><th class=\"modelled\">fewer, %</th>\
             <th class=\"modelled\">persistent</th><th class=\"modelled\">capacity</th>\
             <th class=\"modelled\">metadata</th><th class=\"modelled\">log</th>\
             <th class=\"modelled\">lines written</th><th>flushed/operation</th><th>breaks fewer, \
             %</th>\
             <th>operation, ns</th><th>capacity step, ns</th><th>pages moved</th></tr>",
        );
        for step in &self.result.steps {
            let misses = |owner| short(step.modelled.of(owner).misses as f64);
            let total = step.modelled.total();
            let percent =
                |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.1}"));
            let native = step.native.as_ref();
            write!(
                self.out,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
                 <td>{}</td>\
                 <td>{}</td><td>{:.2}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                short(step.operations as f64),
                step.step.name(),
                short(total.misses as f64),
                percent(step.modelled_misses_fewer_percent),
                misses(Owner::PersistentData),
                misses(Owner::CapacityData),
                misses(Owner::Metadata),
                misses(Owner::Log),
                short(total.writebacks as f64),
                step.lines_flushed_per_operation,
                percent(step.breaks_fewer_percent),
                native.and_then(|native| native.operation_ns).map_or("-".into(), short),
                native.map_or("-".into(), |native| short(native.capacity_step_ns)),
                step.pages_moved,
            )?;
        }
        self.out.push_str("</table></div>");
        Ok(())
    }

    /// Counts of operations in ascending order.
    fn counts(&self) -> Vec<u64> {
        self.steps_of(Step::Base).iter().map(|step| step.operations).collect()
    }

    fn steps_of(&self, step: Step) -> Vec<&'p StepResult> {
        self.result.steps.iter().filter(|found| found.step == step).collect()
    }

    fn last_steps(&self) -> Vec<&'p StepResult> {
        let most = self.result.steps.iter().map(|step| step.operations).max();
        self.result.steps.iter().filter(|step| Some(step.operations) == most).collect()
    }

    fn by_step(&self, counts: &[u64], of: impl Fn(&StepResult) -> Option<f64>) -> Vec<Series> {
        let series = |(index, step): (usize, Step)| {
            let class = if step == Step::Base { "base".into() } else { format!("c{}", index - 1) };
            let steps = self.steps_of(step);
            bars(step.name(), class, &steps[..counts.len().min(steps.len())], &of)
        };
        Step::ALL.into_iter().enumerate().map(series).collect()
    }

    fn alone(&self, counts: &[u64], of: impl Fn(usize) -> Option<f64>) -> Series {
        let point = |index: usize| {
            let x =
                counts.iter().position(|count| *count == self.result.alone[index].operations)?;
            Some(Point { x, y: of(index)?, range: None })
        };
        Series {
            name: "alone".into(),
            class: "c4".into(),
            points: (0..self.result.alone.len()).filter_map(point).collect(),
            style: Style::Dashed,
        }
    }

    /// Draws a chart if it has any points.
    fn chart(&mut self, chart: Chart) {
        if chart.series.iter().any(|series| !series.points.is_empty()) {
            self.out.push_str(&chart.svg());
        }
    }

    fn begin(&mut self, heading: &str) -> Written {
        write!(self.out, "<h2>{}</h2><div class=\"charts\">", escape(heading))
    }

    fn end(&mut self) {
        self.out.push_str("</div>");
    }
}

fn placement_chart(placed: &[&Placement], threads: usize, is_memory_file: bool) -> Chart {
    let name = |placed: &&Placement| match (placed.filling, placed.bucket_bytes) {
        (Filling::Populated, Some(size)) => format!("p {}", bytes(size as u64)),
        (Filling::Gathered, Some(size)) => format!("g {}", bytes(size as u64)),
        _ => "demand".into(),
    };
    let series = |name: &str, class: &str, of: &dyn Fn(&Placement) -> Option<f64>| {
        Series::over(name, class, Style::Bars, placed.iter().map(|placed| of(placed)))
    };
    Chart {
        title: format!(
            "Breaks per 1,000 pages, {}, {} (p populated, g gathered)",
            if is_memory_file { "file in memory" } else { "no file" },
            if threads == 1 { "one thread" } else { "a thread for each kind" },
        ),
        x_names: placed.iter().map(name).collect(),
        series: vec![
            series("persistent", "c0", &|placed| Some(placed.persistent?.breaks_per_1000)),
            series("capacity", "c1", &|placed| Some(placed.capacity?.breaks_per_1000)),
        ],
        ..Chart::whole()
    }
}

fn over_operations(counts: &[u64]) -> Chart {
    Chart {
        x_names: counts.iter().map(|count| short(*count as f64)).collect(),
        x_name: "hash operations".into(),
        ..Chart::half()
    }
}

/// Bars with a figure of each step.
fn bars(
    name: &str,
    class: impl Into<String>,
    steps: &[&StepResult],
    of: impl Fn(&StepResult) -> Option<f64>,
) -> Series {
    Series::over(name, class, Style::Bars, steps.iter().map(|step| of(step)))
}

fn as_line(series: Series) -> Series {
    Series { style: Style::Line, ..series }
}

fn bytes(bytes: u64) -> String {
    perdura_media::Bytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caches::estimate::{MemoryTimes, estimates};
    use crate::caches::frames::{Contiguity, FrameSource};
    use crate::caches::model::{CacheShape, Counts, CountsByOwner};
    use crate::caches::result::{BucketResult, Configuration, LogKind, LogResult, Native};
    use perdura_bench::machine::Machine;

    fn step(step: Step, operations: u64, misses: u64) -> StepResult {
        let counts = |misses| Counts { accesses: 10 * misses, misses, ..Counts::default() };
        let modelled = CountsByOwner { log: counts(misses), ..CountsByOwner::default() };
        let contiguity =
            Contiguity { pages: 1000, breaks: 7, breaks_per_1000: 7.0, ..Contiguity::default() };
        StepResult {
            step,
            operations,
            modelled,
            modelled_misses_fewer_percent: Some(12.5),
            modelled_times: estimates(&MemoryTimes::default(), counts(2 * misses), counts(misses)),
            persistent: Some(contiguity),
            capacity: Some(contiguity),
            breaks_fewer_percent: Some(99.0),
            pages_moved: 0,
            lines_flushed_per_operation: 2.5,
            native: Some(Native {
                operation_ns: Some(900.0),
                capacity_step_ns: 120.0,
                counters: Vec::new(),
            }),
        }
    }

    fn result() -> CachesResult {
        let steps = [600_000, 800_000].into_iter().flat_map(|operations| {
            Step::ALL.into_iter().map(move |which| step(which, operations, 1000))
        });
        let base = step(Step::Base, 600_000, 500);
        CachesResult {
            kind: "heap_caches".into(),
            machine: Machine::here(),
            configuration: Configuration {
                cache: CacheShape::default(),
                flush: FlushKind::Drops,
                base_log: LogKind::Words,
                times: MemoryTimes::default(),
                bucket_bytes: 2 << 20,
                heap_bytes: 1 << 30,
                hot_bytes: 1 << 19,
                kept_bytes: 1 << 25,
                capacity_steps_per_operation: 1,
                seed: 1,
            },
            frames: FrameSource::Guest,
            counters_missing: vec!["counter cache-misses: <none>".into()],
            placement: [1, 2]
                .map(|threads| Placement {
                    is_memory_file: false,
                    threads,
                    filling: Filling::Gathered,
                    bucket_bytes: Some(2 << 20),
                    persistent: base.persistent,
                    capacity: base.capacity,
                    breaks_fewer_percent: Some(99.0),
                    page_ns: 500.0,
                    bucket_ns_max: 1,
                    gather_failures: 0,
                })
                .to_vec(),
            steps: steps.collect(),
            alone: vec![AloneResult {
                operations: 600_000,
                modelled: base.modelled,
                native: base.native.clone(),
            }],
            logs: vec![LogResult {
                log: LogKind::Hybrid,
                transactions: 10,
                changed_bytes: 100,
                log_bytes: 150,
                log_bytes_per_changed_byte: 1.5,
                lines_flushed_per_transaction: 2.0,
                fences_per_transaction: 1.0,
            }],
            buckets: vec![BucketResult {
                bucket_bytes: 64 << 10,
                modelled: base.modelled,
                persistent: base.persistent,
                capacity: base.capacity,
                resident_per_live: Some(1.2),
                operation_ns: 1000.0,
                operation_ns_max: 50_000,
            }],
        }
    }

    #[test]
    fn the_page_stands_alone_and_labels_what_is_modelled() {
        let result = result();
        let page = super::page(&result);
        for wanted in [
            "Modelled: misses of the last-level cache",
            "frames of the guest",
            "Hardware counters are not available here: counter cache-misses: &lt;none&gt;",
            "half-half",
            "hybrid",
            ">12.5<",
        ] {
            assert!(page.contains(wanted), "{wanted}");
        }
        for unwanted in ["http://", "https://", "src=", "@import", "url(", "NaN"] {
            assert!(!page.contains(unwanted), "{unwanted}");
        }
        let (_, data) = page.split_once("id=\"result\">").unwrap();
        let (json, _) = data.split_once("</script>").unwrap();
        assert_eq!(serde_json::from_str::<CachesResult>(json).unwrap(), result);
    }

    #[test]
    fn without_frames_nothing_is_drawn_of_placement() {
        let mut result = result();
        result.frames = FrameSource::Hidden;
        result.placement.iter_mut().for_each(|p| (p.persistent, p.capacity) = (None, None));
        result.steps.iter_mut().for_each(|step| (step.persistent, step.capacity) = (None, None));
        result.buckets.iter_mut().for_each(|b| (b.persistent, b.capacity) = (None, None));
        let page = super::page(&result);
        assert!(page.contains("are not shown here") && !page.contains("Breaks per 1,000 pages,"));
    }
}
