//! The page of `plan media`: which memory to buy, and a map of the loads at which the answer
//! changes. Every figure on the page is modelled.

use std::fmt::Write;

use crate::media::{Candidate, MediaPlan, Role};
use perdura_media::Bytes;

use perdura_page::{COLOURS, Chart, Point, Series, Style, escape, short};

const CELL: f64 = 22.0;
const LEFT: f64 = 90.0;

/// The page of `perdura plan media`.
pub fn media_page(plan: &MediaPlan) -> String {
    perdura_page::page("Which memory to buy", |out| write(plan, out))
}

fn write(plan: &MediaPlan, out: &mut String) -> std::fmt::Result {
    let load = &plan.workload;
    write!(
        out,
        "<h1>Which memory to buy for a load</h1>\
         <p>{} requests/s of {} over {}, {:.0} % reads, {:.1} us of software a request; prices of \
         {}.</p>\
         <p class=\"note\"><span class=\"modelled\">Modelled</span>: every number here follows \
         from profiles; many prices and powers in them are assumptions, which each profile says. A \
         medium without a price of the year has its newest before it.</p>",
        short(load.rate_per_s),
        Bytes(load.request_bytes),
        Bytes(load.capacity_bytes),
        100.0 * load.read_share,
        load.software_ns / 1e3,
        plan.price_year
    )?;
    out.push_str("<h2>The slides' conclusions at these prices</h2><ul>");
    for conclusion in &plan.conclusions {
        write!(
            out,
            "<li><b>{}: {}.</b> <span class=\"published\">HASTE slides:</span> {}. \
             <span class=\"modelled\">Modelled here:</span> {}.</li>",
            role(conclusion.role),
            escape(&conclusion.verdict),
            escape(conclusion.claim),
            escape(&conclusion.because)
        )?;
    }
    out.push_str(
        "</ul><h2>Modelled: the cheapest that meets the load, over capacity and rate</h2>",
    );
    map(plan, out)?;
    out.push_str("<h2>This load</h2><div class=\"charts\">");
    let bars = |title: &str, of: &dyn Fn(&Candidate) -> Option<f64>| bars(plan, title, of);
    out.push_str(&bars("Modelled: requests/s for a euro", &|one| one.rate_per_eur));
    out.push_str(&bars("Modelled: requests/s for a watt", &|one| Some(one.rate_per_watt)));
    out.push_str(&bars("Modelled: speed-up over disks that hold the data", &|one| {
        Some(one.speed_up)
    }));
    out.push_str("</div>");
    table(plan, out)
}

fn bars(plan: &MediaPlan, title: &str, of: &dyn Fn(&Candidate) -> Option<f64>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for one in &plan.candidates {
        if !names.contains(&one.medium.as_str()) {
            names.push(&one.medium);
        }
    }
    let series = |(class, of_role): (&str, Role)| {
        let points = names.iter().enumerate().filter_map(|(x, name)| {
            let one =
                plan.candidates.iter().find(|one| one.medium == **name && one.role == of_role)?;
            Some(Point { x, y: of(one).filter(|value| *value > 0.0)?, range: None })
        });
        Series {
            name: role(of_role).into(),
            class: class.into(),
            points: points.collect(),
            style: Style::Bars,
        }
    };
    let chart = Chart {
        title: title.into(),
        x_names: names.iter().map(|name| (*name).to_owned()).collect(),
        series: [("c0", Role::Primary), ("c1", Role::Cache), ("c2", Role::Hybrid)]
            .into_iter()
            .map(series)
            .collect(),
        is_log: true,
        width: 1140.0,
        height: 240.0,
        ..Chart::default()
    };
    chart.svg()
}

fn map(plan: &MediaPlan, out: &mut String) -> std::fmt::Result {
    let map = &plan.map;
    let (columns, rows) = (map.capacities_bytes.len() as f64, map.rates_per_s.len() as f64);
    let (width, height) = (LEFT + columns * CELL + 20.0, rows * CELL + 60.0);
    write!(
        out,
        "<div class=\"charts\"><svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" \
         aria-label=\"cheapest medium by capacity and rate\">"
    )?;
    for (row, cells) in map.cells.iter().enumerate() {
        let y = (rows - 1.0 - row as f64) * CELL + 10.0;
        for (column, cell) in cells.iter().enumerate() {
            let Some(choice) = cell else { continue };
            let (medium, of_role) = &map.choices[*choice];
            write!(
                out,
                "<rect class=\"bar {}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{}\" \
                 height=\"{}\"><title>{} as {}: {} B, {} \
                 requests/s</title></rect>",
                COLOURS[choice % COLOURS.len()],
                LEFT + column as f64 * CELL,
                CELL - 1.0,
                CELL - 1.0,
                escape(medium),
                role(*of_role),
                short(map.capacities_bytes[column] as f64),
                short(map.rates_per_s[row])
            )?;
        }
        if row % 4 == 0 {
            write!(
                out,
                "<text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}/s</text>",
                LEFT - 6.0,
                y + CELL / 2.0 + 4.0,
                short(map.rates_per_s[row])
            )?;
        }
    }
    for (column, capacity) in map.capacities_bytes.iter().enumerate().step_by(6) {
        write!(
            out,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{} GB</text>",
            LEFT + (column as f64 + 0.5) * CELL,
            rows * CELL + 26.0,
            short(*capacity as f64 / 1e9)
        )?;
    }
    write!(
        out,
        "<text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">data; empty: nothing meets \
         that rate</text></svg><div>",
        width / 2.0,
        height - 8.0
    )?;
    for (index, (medium, of_role)) in map.choices.iter().enumerate() {
        write!(
            out,
            "<p style=\"margin:2px\"><svg width=\"14\" height=\"12\"><rect class=\"bar {}\" \
             width=\"14\" height=\"12\"/></svg> {} \
             as {}</p>",
            COLOURS[index % COLOURS.len()],
            escape(medium),
            role(*of_role)
        )?;
    }
    out.push_str("</div></div>");
    Ok(())
}

fn table(plan: &MediaPlan, out: &mut String) -> std::fmt::Result {
    out.push_str(
        "<div class=\"wide\"><table><tr><th>medium</th><th>role</th><th>devices</th><th>disk \
         arrays</th><th>share of data</th>\
         <th>share of requests</th><th>EUR</th><th>price \
         of</th><th>watts</th><th>requests/s</th><th>us a request</th>\
         <th>/s per EUR</th><th>/s per watt</th><th>speed-up</th></tr>",
    );
    for one in &plan.candidates {
        let known = |value: Option<f64>| value.map_or("-".to_owned(), short);
        write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1} %</td><td>{:.1} \
             %</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&one.medium),
            role(one.role),
            one.devices,
            one.disk_arrays,
            100.0 * one.data_share,
            100.0 * one.request_share,
            known(one.eur),
            one.price_year.map_or("-".to_owned(), |year| year.to_string()),
            short(one.watts),
            short(one.rate_per_s),
            if one.meets { "" } else { " (too few)" },
            short(one.request_ns / 1e3),
            known(one.rate_per_eur),
            short(one.rate_per_watt),
            short(one.speed_up)
        )?;
    }
    out.push_str("</table></div>");
    Ok(())
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Primary => "primary",
        Role::Cache => "cache",
        Role::Hybrid => "hybrid",
    }
}
