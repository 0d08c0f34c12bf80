//! The pages: figures 1 to 8, and, in `comparison`, figures 13 to 25, each beside what the paper
//! says of it.

mod comparison;

pub use comparison::page;

use std::fmt::{self, Write};

use perdura_page::{COLOURS, Chart, Series, Style, charts, data};

use super::motivation::{Interval, Mode, Moment, Motivation, THREADS, Threads};

/// What the paper says of each figure, in the figures' order.
pub const STATEMENTS: [&str; 8] = [
    "Figure 1: reads outperform writes; times are shortest without intervals, change little from \
     0.1 to 0.8 ms, and are longer from 0.9 ms on. The model has no wake-up time, whose length the \
     paper's text does not give, so its times do not depend on the interval.",
    "Figure 2: 254,131 random writes a second without intervals, falling exponentially with them; \
     the power is highest without, 3.3 W from 0.1 to 0.8 ms, and 1.96 W in the end. The model is \
     fitted to these numbers.",
    "Figure 3: 69.7 (thousand) requests for a joule without intervals, falling quickly to nearly \
     nothing.",
    "Figure 4: compact requests draw the peak power until they are done, then the idle power; \
     disperse ones draw less for the whole time, and more energy in all.",
    "Figure 5: the product of energy until the end and time of a request is least without \
     intervals.",
    "Figure 6: the same with the energy for an equal time.",
    "Figure 7: reads gain much by threads; writes gain little, and drop visibly at eight.",
    "Figure 8: reads draw more power than writes; threads change the power little. The model draws \
     the peak power for both: the paper's text gives no number of a read.",
];

/// The page of figures 1 to 8.
pub fn motivation_page(result: &Motivation) -> String {
    perdura_page::page("Compact and disperse requests", |out| {
        out.push_str("<h1>Compact and disperse requests</h1>");
        write!(
            out,
            "<p>Modelled, not measured: the module of the profile <code>{}</code> under requests \
             of 4 KiB, with a time between requests (figures 1 to 6 of Sprint-AEP, section II) and \
             with several threads (figures 7 and 8). Below each heading stands what the paper says \
             of its own measurement.</p>",
            perdura_page::escape(&result.profile),
        )?;
        let figures = [
            modes(result, "Mean time of a request", "µs", |run| run.response_us),
            power(result),
            modes(result, "Requests for a joule", "requests/J", |run| run.requests_per_joule),
            moments(result),
            product(result, "until the end", |run| run.execution_joules),
            product(result, "for an equal time", |run| run.equal_time_joules),
            threads(result, "Throughput", "MB/s", |run| run.bytes_per_s / 1e6),
            threads(result, "Power", "W", |run| run.watts),
        ];
        for (number, (figure, statement)) in figures.into_iter().zip(STATEMENTS).enumerate() {
            section(out, number + 1, statement, figure)?;
        }
        data(out, result)
    })
}

fn section(out: &mut String, number: usize, says: &str, figure: Vec<Chart>) -> fmt::Result {
    charts(out, &format!("Figure {number}"), figure)?;
    write!(out, "<p class=\"note\">{}</p>", perdura_page::escape(says))
}

fn interval_names(result: &Motivation) -> Vec<String> {
    result.of_mode(Mode::RandomWrite).map(|run| format!("{:.1}", run.interval_ms)).collect()
}

/// A chart over the intervals.
fn over_intervals(result: &Motivation, title: &str, y_name: &str, series: Vec<Series>) -> Chart {
    Chart {
        title: title.to_owned(),
        y_name: y_name.to_owned(),
        x_name: "time between requests (ms)".to_owned(),
        x_names: interval_names(result),
        series,
        ..Chart::half()
    }
}

fn modes(
    result: &Motivation,
    title: &str,
    unit: &str,
    of: impl Fn(&Interval) -> f64,
) -> Vec<Chart> {
    let series = Mode::ALL.iter().zip(COLOURS).map(|(mode, colour)| {
        let values = result.of_mode(*mode).map(|run| Some(of(run)));
        Series::over(mode.name(), colour, Style::Line, values)
    });
    let chart = over_intervals(result, title, unit, series.collect());
    vec![Chart { is_log: unit != "µs", ..chart }]
}

fn power(result: &Motivation) -> Vec<Chart> {
    let of = |name: &str, of: &dyn Fn(&Interval) -> f64| {
        let values = result.of_mode(Mode::RandomWrite).map(|run| Some(of(run)));
        vec![Series::over(name, COLOURS[0], Style::Line, values)]
    };
    let rates = of("random write", &|run| run.requests_per_s);
    let watts = of("random write", &|run| run.watts);
    let rates = over_intervals(result, "Requests a second", "requests/s", rates);
    vec![Chart { is_log: true, ..rates }, over_intervals(result, "Mean power", "W", watts)]
}

fn moments(result: &Motivation) -> Vec<Chart> {
    // Each eighth has a name: there is no room for more.
    let name = |(number, moment): (usize, &Moment)| match number % 8 {
        7 => format!("{:.0}", moment.at_ms),
        _ => String::new(),
    };
    let names: Vec<_> = result.moments.iter().enumerate().map(name).collect();
    let chart = |title: &str, unit: &str, of: &dyn Fn((f64, f64)) -> f64| {
        let compact = result.moments.iter().map(|moment| Some(of(moment.compact)));
        let disperse = result.moments.iter().map(|moment| Some(of(moment.disperse)));
        Chart {
            title: title.to_owned(),
            y_name: unit.to_owned(),
            x_name: "time (ms)".to_owned(),
            x_names: names.clone(),
            series: vec![
                Series::over("compact", COLOURS[0], Style::Line, compact),
                Series::over("disperse", COLOURS[1], Style::Line, disperse),
            ],
            ..Chart::half()
        }
    };
    vec![
        chart("Power over the time", "W", &|(watts, _)| watts),
        chart("Energy so far", "J", &|(_, joules)| joules),
    ]
}

fn product(result: &Motivation, what: &str, energy: impl Fn(&Interval) -> f64) -> Vec<Chart> {
    let series = Mode::ALL.iter().zip(COLOURS).map(|(mode, colour)| {
        let products: Vec<_> =
            result.of_mode(*mode).map(|run| energy(run) * run.response_us).collect();
        let most = products.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let shares = products.into_iter().map(|product| Some(product / most));
        Series::over(mode.name(), colour, Style::Line, shares)
    });
    let title = format!("Energy {what} x time of a request");
    vec![over_intervals(result, &title, "share of the largest", series.collect())]
}

fn threads(
    result: &Motivation,
    title: &str,
    unit: &str,
    of: impl Fn(&Threads) -> f64,
) -> Vec<Chart> {
    let series = [Mode::RandomWrite, Mode::RandomRead].iter().zip(COLOURS).map(|(mode, colour)| {
        let runs = result.threads.iter().filter(|run| run.mode == *mode);
        Series::over(mode.name(), colour, Style::Line, runs.map(|run| Some(of(run))))
    });
    vec![Chart {
        title: title.to_owned(),
        y_name: unit.to_owned(),
        x_name: "threads".to_owned(),
        x_names: THREADS.iter().map(u32::to_string).collect(),
        series: series.collect(),
        ..Chart::half()
    }]
}
