//! The page of a comparison: tables, and figures 13 to 25 of Sprint-AEP (section IV), drawn of the
//! modelled runs beside what the paper says of its own measurements.

use std::fmt::{self, Write};

use perdura_page::{COLOURS, Chart, Series, Style, charts, data, escape, table};

use crate::energy::outcome::Outcome;
use crate::energy::result::EnergyResult;
use crate::energy::schemes::{DRAM_PROFILE, Scheme, Workload};
use crate::energy::tables::{CHOICE_COLUMNS, COLUMNS, DRAM_COLUMNS};

/// The page of a comparison.
pub fn page(result: &EnergyResult) -> String {
    perdura_page::page("Let the others sleep", |out| {
        out.push_str("<h1>Let the others sleep</h1>");
        introduction(out, result)?;
        table(out, &COLUMNS, result.table())?;
        out.push_str("<h2>A battery-backed DRAM before all modules</h2>");
        write!(
            out,
            "<p>Not in the paper. The DRAM has room for a small part of the data and keeps what is \
             used most; what is written stays there until a burst takes the coldest of it to \
             the primary. The modules' energy leaves the DRAM's own power out, as the paper's \
             measurement does. The last column charges one whole module of the profile \
             <code>{DRAM_PROFILE}</code>, however little of it is used. \"Primary awake\" charges \
             the primary as one that never sleeps; without time between requests it never does.\
             </p>",
        )?;
        table(out, &DRAM_COLUMNS, result.dram_table())?;
        let (agreeing, all) = result.agreeing();
        write!(
            out,
            "<h2>Number of primaries</h2><p>Products of equal-time energy and delay beside four \
             primaries, of a sweep of all numbers; the number with the least; and what trials \
             find, which keep one more primary if reads and writes together gain 10 %. They agree \
             for {agreeing} of {all} workloads. The last two columns are of changes from each \
             other workload, with the number of primaries that was found for that.</p>",
        )?;
        table(out, &CHOICE_COLUMNS, result.choice_table())?;
        for figure in figures(result) {
            charts(out, &format!("Figure {}", figure.number), figure.charts)?;
            write!(out, "<p class=\"note\">The paper: {}</p>", escape(figure.says))?;
        }
        data(out, result)
    })
}

fn introduction(out: &mut String, result: &EnergyResult) -> fmt::Result {
    let scale = &result.scale;
    write!(
        out,
        "<p>Modelled, not measured{}: four modules of the profile <code>{}</code>, of which some \
         sleep (Sprint-AEP, section IV), under 20 clients with {} requests of {} records of 1 KiB \
         ({}), after {} that fill cache and buffer. Each primary has a cache of {} MiB and a \
         buffer of {} MiB for the modules behind it; the cache has room for all of their data, so \
         the figures of reads hold for such a cache only. \"Saved\" is energy of the same \
         requests, each run until its own end; \"equal time\" until the end of the slower one, at \
         2.8 W; \"by interval\" takes figure 2's power for the time between each two requests of a \
         module, with which none sleeps that is asked more often than each 1.6 ms.</p>",
        if result.is_real_clock { ", at the pace of the machine's clock" } else { "" },
        escape(&result.profile),
        scale.requests,
        scale.records,
        escape(&result.distribution),
        scale.warm_requests,
        scale.cache_bytes >> 20,
        scale.buffer_bytes >> 20,
    )
}

/// A figure of the paper, and what it says of it.
struct Figure {
    number: u32,
    says: &'static str,
    charts: Vec<Chart>,
}

fn figures(result: &EnergyResult) -> Vec<Figure> {
    let low = |title: &str, unit: &str, of: Of| compared(result, true, title, unit, of);
    let high = |title: &str, unit: &str, of: Of| compared(result, false, title, unit, of);
    let figure = |number, charts, says| Figure { number, says, charts };
    let (reads, writes): (Of, Of) = (|_, it| Some(it.reads_per_s), |_, it| Some(it.writes_per_s));
    vec![
        figure(
            13,
            vec![low("Reads that the last module served", "reads", |_, it| {
                Some(it.reads_of_last as f64)
            })],
            "Sprint reads about 99.99 % less of an idle module, and at least 96 % less without \
             prefetching.",
        ),
        figure(
            14,
            vec![low("Time in which the last module was accessed", "share of the run", |_, it| {
                Some(it.last_accessed_s / it.elapsed_s)
            })],
            "at least 95 % less execution time of an idle module. For the standard the paper \
             counts the time between requests as well, that is, nearly the whole run.",
        ),
        figure(
            15,
            vec![low("Equal-time energy saved", "share at 2.8 W", |all, it| {
                all.saved_equal_time(it)
            })],
            "Sprint saves about 26 % with one primary of four, with or without prefetching.",
        ),
        figure(
            16,
            vec![low("Reads", "reads/s", reads), low("Updates", "updates/s", writes)],
            "Sprint is slightly faster than the standard; the time between requests limits all.",
        ),
        figure(
            17,
            vec![low("Equal-time energy x delay", "beside the standard", |all, it| {
                all.product(it)
            })],
            "30 % better than the standard.",
        ),
        figure(
            18,
            vec![sized(result, "Equal-time energy of A-T", "J at 2.8 W", |all, it| {
                let of_size = all.sizes.iter().filter(|other| other.records == it.records);
                let end_s = of_size.map(|other| other.elapsed_s).fold(0.0, f64::max);
                Some(all.joules_until(it, end_s))
            })],
            "the same pattern for each size of the data.",
        ),
        figure(
            19,
            vec![sized(result, "Requests of A-T", "requests/s", |_, it| {
                Some(it.reads_per_s + it.writes_per_s)
            })],
            "the same pattern for each size of the data.",
        ),
        figure(
            20,
            vec![high("Equal-time energy saved", "share", |all, it| all.saved_equal_time(it))],
            "Sprint saves about 7 % to 17 %, with three primaries for A and B and two for 3. (The \
             caption says low density; the text, and the section, say high.)",
        ),
        figure(
            21,
            vec![high("Reads", "reads/s", reads), high("Updates", "updates/s", writes)],
            "the standard writes more; without prefetching reads are the same but for 3, and \
             prefetching makes them faster.",
        ),
        figure(
            22,
            gains(result),
            "one more primary is kept as long as both gains together reach 10 %: three for A and \
             B, two for 3.",
        ),
        figure(
            23,
            vec![high("Equal-time energy x delay", "beside the standard", |all, it| {
                all.product(it)
            })],
            "a little better than the standard.",
        ),
        figure(
            24,
            parallel(result, false),
            "30 % to 68 % more writes and 23.7 % to 40 % more reads by parallel sync and prefetch.",
        ),
        figure(25, parallel(result, true), "little more; the time between requests limits all."),
    ]
}

type Of = fn(&EnergyResult, &Outcome) -> Option<f64>;

/// The workloads of a density.
fn workloads(is_disperse: bool) -> Vec<String> {
    let of = |it: &&Workload| it.is_disperse == is_disperse;
    Workload::ALL.iter().filter(of).map(|it| it.name()).collect()
}

/// The number of primaries of the paper's runs.
fn primaries_of_paper(scheme: Scheme, workload: &str) -> u16 {
    match (scheme, workload) {
        (Scheme::Standard, _) => 4,
        (Scheme::Dram, _) => 1,
        (_, "A" | "B") => 3,
        (_, "3") => 2,
        _ => 1,
    }
}

/// A value of each configuration, with the paper's numbers of primaries, over workloads.
fn compared(result: &EnergyResult, is_disperse: bool, title: &str, unit: &str, of: Of) -> Chart {
    let names = workloads(is_disperse);
    let series = Scheme::ALL.into_iter().zip(COLOURS).map(|(scheme, colour)| {
        let values = names.iter().map(|name| {
            let primaries = primaries_of_paper(scheme, name);
            of(result, result.find(scheme, name, primaries)?)
        });
        Series::over(scheme.name(), colour, Style::Bars, values)
    });
    let series = series.collect();
    bars(title, unit, "workload", names, series)
}

/// A value of each configuration over the sizes of the data.
fn sized(result: &EnergyResult, title: &str, unit: &str, of: Of) -> Chart {
    let mut sizes: Vec<_> = result.sizes.iter().map(|it| it.records).collect();
    sizes.dedup();
    let series = Scheme::ALL.into_iter().zip(COLOURS).filter_map(|(scheme, colour)| {
        let values = sizes.iter().map(|records| {
            let is_it = |it: &&Outcome| it.scheme == scheme && it.records == *records;
            result.sizes.iter().find(is_it).and_then(|it| of(result, it))
        });
        let values: Vec<_> = values.collect();
        let has_any = values.iter().any(Option::is_some);
        has_any.then(|| Series::over(scheme.name(), colour, Style::Bars, values))
    });
    let series = series.collect();
    bars(title, unit, "records", sizes.iter().map(u64::to_string).collect(), series)
}

/// What one more primary gains, for the workloads of both densities.
fn gains(result: &EnergyResult) -> Vec<Chart> {
    let names: Vec<_> = result.choices.iter().map(|it| it.workload.clone()).collect();
    let chart = |title: &str, of: fn(&(f64, f64)) -> f64| {
        let series = (0..3).zip(COLOURS).map(|(step, colour)| {
            let values = result.choices.iter().map(|it| it.gains.get(step).map(of));
            Series::over(format!("{} to {}", step + 1, step + 2), colour, Style::Bars, values)
        });
        bars(title, "gain", "workload", names.clone(), series.collect())
    };
    vec![
        chart("Reads that one more primary gains", |it| it.0),
        chart("Writes that one more primary gains", |it| it.1),
    ]
}

/// Throughput of Sprint with several threads beside one, with each number of primaries.
fn parallel(result: &EnergyResult, is_disperse: bool) -> Vec<Chart> {
    let names = workloads(is_disperse);
    let chart = |title: &str, rate: fn(&Outcome) -> f64| {
        let series = (1..=3).zip(COLOURS).map(|(primaries, colour)| {
            let values = names.iter().map(|name| {
                let with = result.find(Scheme::Sprint, name, primaries)?;
                let without = result.find(Scheme::WithoutParallel, name, primaries)?;
                Some(rate(with) / rate(without))
            });
            Series::over(format!("{primaries} primaries"), colour, Style::Bars, values)
        });
        bars(title, "with / without", "workload", names.clone(), series.collect())
    };
    vec![
        chart("Reads, parallel beside not", |it| it.reads_per_s),
        chart("Writes, parallel beside not", |it| it.writes_per_s),
    ]
}

fn bars(title: &str, unit: &str, x: &str, x_names: Vec<String>, series: Vec<Series>) -> Chart {
    let (title, y_name, x_name) = (title.to_owned(), unit.to_owned(), x.to_owned());
    Chart { title, y_name, x_name, x_names, series, ..Chart::half() }
}
