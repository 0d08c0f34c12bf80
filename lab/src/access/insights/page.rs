//! The page of `perdura-lab access insights`: each question with its answer, the published
//! statement beside it, and charts of the figures. One file without scripts.

use std::fmt::Write;

use perdura_media::Bytes;

use crate::access::insights::figures::{
    Order, PlaceFigures, Share, StructureFigure, Written, median,
};
use crate::access::insights::price::PriceRow;
use crate::access::insights::{Insight, InsightsResult};
use crate::access::reference::PerPattern;
use perdura_page::{COLOURS, Chart, Point, Series, Style, data, escape, short, table};

/// Draws the page.
pub fn page(result: &InsightsResult) -> String {
    perdura_page::page("Eight insights about this machine's memory", |out| write_page(result, out))
}

type Done = std::fmt::Result;

fn write_page(result: &InsightsResult, out: &mut String) -> Done {
    write!(
        out,
        "<h1>Eight insights about this machine's memory</h1>\
         <p>{}, load {} at the beginning{}.</p><p>{}.</p>",
        escape(&result.machine.to_string()),
        escape(result.machine.load_1m.as_deref().unwrap_or("unknown")),
        result
            .facts
            .cache_bytes
            .map_or(String::new(), |bytes| format!(", last-level cache {}", Bytes(bytes))),
        escape(&result.settings.to_string()),
    )?;
    for restriction in &result.restrictions {
        write!(out, "<p class=\"note\">{}.</p>", escape(restriction))?;
    }
    write!(
        out,
        "<p class=\"note\">Answers and charts are this machine's: measured, unless they say \
         estimated; prices are given. Lines over bars reach from the lowest to the highest round. \
         <span class=\"published\">Published</span>: {}; these figures were not measured here.</p>",
        escape(&result.references.about),
    )?;
    for insight in &result.insights {
        answer(insight, out)?;
        match insight.number {
            5 => utilization(result, out),
            6 => each(result, &writes, out),
            7 => each(result, &updates, out),
            8 => each(result, &reads, out),
            _ => {}
        }
    }
    prices(result, out)?;
    systems(result, out)?;
    data(out, result)
}

fn answer(insight: &Insight, out: &mut String) -> Done {
    write!(out, "<h2>{}. {}</h2>", insight.number, escape(&insight.question))?;
    if let Some(why) = &insight.unanswered {
        write!(out, "<p>{}.</p>", escape(why))?;
    }
    for answer in &insight.answers {
        write!(
            out,
            "<p><b>{}, {}:</b> {}.</p><p class=\"note\">{}.</p>",
            escape(&answer.place),
            answer.label.name(),
            escape(&answer.sentence),
            escape(&answer.how)
        )?;
    }
    write!(
        out,
        "<p class=\"note\"><span class=\"published\">Published</span>: {}.</p>",
        escape(&insight.published)
    )
}

/// Draws the charts of each memory.
fn each(result: &InsightsResult, charts: &dyn Fn(&PlaceFigures) -> Vec<Chart>, out: &mut String) {
    out.push_str("<div class=\"charts\">");
    for chart in result.places.iter().flat_map(charts) {
        out.push_str(&chart.svg());
    }
    out.push_str("</div>");
}

fn middle(place: &PlaceFigures, title: &str, y_name: &str, x_names: Vec<String>) -> Chart {
    Chart {
        title: format!("{title} ({})", place.place),
        y_name: y_name.into(),
        x_names,
        ..Chart::half()
    }
}

/// A point with its range over the rounds.
fn point(x: usize, rounds: &[f64]) -> Point {
    let ends = rounds.iter().fold([f64::INFINITY, 0.0], |[low, high], value| {
        [f64::min(low, *value), f64::max(high, *value)]
    });
    Point { x, y: median(rounds), range: Some(ends) }
}

fn sizes(of: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut sizes: Vec<u64> = of.collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn names(sizes: &[u64]) -> Vec<String> {
    sizes.iter().map(|size| Bytes(*size).to_string()).collect()
}

/// A chart with a bar for each size and instruction, GiB/s.
fn by_persist(place: &PlaceFigures, title: &str, of: &[&Written]) -> Chart {
    let sizes = sizes(of.iter().map(|one| one.write_bytes));
    let mut persists: Vec<&str> = Vec::new();
    for one in of {
        if !persists.contains(&one.persist.as_str()) {
            persists.push(&one.persist);
        }
    }
    let series = persists.iter().enumerate().map(|(index, persist)| {
        let own = of.iter().filter(|one| one.persist == *persist);
        let bandwidth = |one: &&&Written| {
            let gib = one.write_bytes as f64 / (1u64 << 30) as f64;
            let rounds: Vec<f64> = one.per_s.iter().map(|per_s| per_s * gib).collect();
            let x = sizes.iter().position(|size| *size == one.write_bytes)?;
            Some(point(x, &rounds))
        };
        Series {
            name: (*persist).into(),
            class: COLOURS[index % COLOURS.len()].into(),
            points: own.filter_map(|one| bandwidth(&one)).collect(),
            style: Style::Bars,
        }
    });
    let series = series.collect();
    Chart { series, ..middle(place, title, "GiB/s written", names(&sizes)) }
}

fn writes(place: &PlaceFigures) -> Vec<Chart> {
    let order = |is_random| {
        place.writes.iter().filter(|one| one.is_random == is_random).collect::<Vec<_>>()
    };
    vec![
        by_persist(place, "Writes in sequence, one thread", &order(false)),
        by_persist(place, "Writes at random, one thread", &order(true)),
    ]
}

fn updates(place: &PlaceFigures) -> Vec<Chart> {
    let of: Vec<&Written> = place.updates.iter().collect();
    vec![by_persist(place, "256 B read, then so much written, one thread", &of)]
}

fn reads(place: &PlaceFigures) -> Vec<Chart> {
    let sizes = sizes(place.reads.iter().map(|read| read.read_bytes));
    let orders = [
        (Order::Ascending, "ascending"),
        (Order::Descending, "descending"),
        (Order::EveryFourth, "every fourth"),
        (Order::Random, "random"),
    ];
    let series = orders.iter().enumerate().map(|(index, (order, name))| {
        let own = place.reads.iter().filter(|read| read.order == *order);
        let points = own.filter_map(|read| {
            let gib = read.read_bytes as f64 / (1u64 << 30) as f64;
            let rounds: Vec<f64> = read.per_s.iter().map(|per_s| per_s * gib).collect();
            Some(point(sizes.iter().position(|size| *size == read.read_bytes)?, &rounds))
        });
        Series {
            name: (*name).into(),
            class: COLOURS[index].into(),
            points: points.collect(),
            style: Style::Bars,
        }
    });
    let series = series.collect();
    vec![Chart {
        series,
        ..middle(place, "Reads by order, one thread", "GiB/s read", names(&sizes))
    }]
}

fn utilization(result: &InsightsResult, out: &mut String) {
    out.push_str("<div class=\"charts\">");
    for (at, place) in result.places.iter().enumerate() {
        let store: &[StructureFigure] = if at == 0 { &result.store } else { &[] };
        let all: Vec<&StructureFigure> = place.structures.iter().chain(store).collect();
        let over_threads =
            |title: &str, y_name: &str, of: &dyn Fn(&StructureFigure) -> Option<Point>| {
                let threads = sizes(all.iter().map(|one| one.threads));
                let x_names = threads.iter().map(u64::to_string).collect();
                let mut series: Vec<Series> = Vec::new();
                for one in &all {
                    let index = series.len();
                    let x = threads.iter().position(|threads| *threads == one.threads).unwrap_or(0);
                    let Some(point) = of(one).map(|point| Point { x, ..point }) else { continue };
                    match series.iter_mut().find(|series| series.name == one.name) {
                        Some(series) => series.points.push(point),
                        None => series.push(Series {
                            name: one.name.clone(),
                            class: COLOURS[index % COLOURS.len()].into(),
                            points: vec![point],
                            style: if one.is_real { Style::Line } else { Style::Dashed },
                        }),
                    }
                }
                let chart = middle(place, title, y_name, x_names);
                Chart { x_name: "threads".into(), series, ..chart }.svg()
            };
        let rate = |one: &StructureFigure| {
            let millions: Vec<f64> = one.per_s.iter().map(|per_s| per_s / 1e6).collect();
            Some(point(0, &millions))
        };
        let share = |one: &StructureFigure| {
            Some(Point { x: 0, y: 100.0 * one.not_memory()?.value(), range: None })
        };
        let is_counted = all.iter().all(|one| matches!(one.not_memory(), Some(Share::Counted(_))));
        let title = match is_counted {
            true => "Cycles without waiting, counted",
            false => "Cycles not on memory, estimated",
        };
        out.push_str(&over_threads("Operations a second, measured", "M/s", &rate));
        out.push_str(&over_threads(title, "%", &share));
    }
    out.push_str("</div>");
}

fn prices(result: &InsightsResult, out: &mut String) -> Done {
    let name = |row: &PriceRow| format!("{}, {}", row.name, row.label);
    let named = result.prices.rows.iter().map(name).collect();
    let chart = |title: &str, of: &dyn Fn(usize, usize) -> Option<f64>| {
        let series = PerPattern::<f64>::NAMES.iter().enumerate().map(|(pattern, name)| {
            let values = (0..result.prices.rows.len()).map(|row| of(row, pattern));
            Series::over(*name, COLOURS[pattern], Style::Bars, values)
        });
        Chart {
            title: title.into(),
            x_names: Vec::clone(&named),
            series: series.collect(),
            is_log: true,
            ..Chart::whole()
        }
    };
    let rows = &result.prices.rows;
    out.push_str("<h2>Price and performance</h2><div class=\"charts\">");
    out.push_str(
        &chart(
            "Highest bandwidth, GiB/s (this machine measured, the others published)",
            &|row, pattern| rows[row].gib_per_s.all()[pattern],
        )
        .svg(),
    );
    out.push_str(
        &chart(
            "Euro per GB, per GiB/s, lower is better (this machine: price given, bandwidth \
             measured)",
            &|row, pattern| rows[row].euro_per_gb_per_s.all()[pattern],
        )
        .svg(),
    );
    out.push_str(
        "</div><div class=\"wide\"><table>\
         <tr><th>system</th><th>bandwidth</th><th>price</th><th>EUR/GB</th>",
    );
    for heading in ["GiB/s (threads)", "EUR/GB per GiB/s", "poster's EUR/GB/s, published"] {
        for pattern in PerPattern::<f64>::NAMES {
            write!(out, "<th>{pattern}<br>{heading}</th>")?;
        }
    }
    out.push_str("</tr>");
    let cell = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
    for row in rows {
        let class = if row.label == "published" { " class=\"published\"" } else { "" };
        write!(
            out,
            "<tr><td>{}</td><td{class}>{}</td><td{class}>{}</td><td>{}</td>",
            escape(&row.name),
            escape(&row.label),
            escape(&row.price_label),
            cell(row.euro_per_gb)
        )?;
        for (value, threads) in row.gib_per_s.all().into_iter().zip(row.threads.all()) {
            let threads = threads.map_or(String::new(), |threads| format!(" ({threads})"));
            write!(out, "<td>{}{threads}</td>", cell(value))?;
        }
        for figures in [row.euro_per_gb_per_s, row.poster] {
            for value in figures.all() {
                write!(out, "<td>{}</td>", cell(value))?;
            }
        }
        out.push_str("</tr>");
    }
    write!(out, "</table></div><p class=\"note\">{}</p>", escape(&result.prices.note))
}

fn systems(result: &InsightsResult, out: &mut String) -> Done {
    out.push_str("<h2>The <span class=\"published\">published</span> systems</h2>");
    let or = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    let rows = result.references.systems.iter().map(|system| {
        [
            system.about.clone(),
            system.cpu.clone(),
            or(system.cores.map(|cores| cores.to_string())),
            system.modules.to_string(),
            or(system.module_gb.map(|gb| gb.to_string())),
            or(system.series.clone()),
            or(system.module_watts.map(short)),
            or(system.read_64b_ns.map(|read| short(read.average))),
            or(system.read_64b_ns.map(|read| short(read.p99))),
        ]
    });
    let headings = [
        "system",
        "processor",
        "cores",
        "modules",
        "GB each",
        "series",
        "W each",
        "64 B read, ns",
        "p99",
    ];
    table(out, &headings, rows)
}
