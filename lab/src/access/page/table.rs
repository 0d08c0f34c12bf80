//! A table of all figures of a matrix, a row for each cell and part. Columns that no cell fills
//! (intervals without repetitions, latencies without samples) are left out.

use std::fmt::Write;

use perdura_page::{escape, short};

use super::Written;
use super::matrix::{Matrix, figures};
use crate::access::result::{Figures, Latency};

/// A figure as text; none if the cell does not have it.
type Tell = fn(&Figures) -> Option<String>;

const COLUMNS: [(&str, Tell); 20] = [
    ("GiB/s", |figures| Some(format!("{:.3}", figures.bandwidth))),
    ("95 %", |figures| figures.bandwidth_ci95.map(|[low, high]| format!("{low:.3} to {high:.3}"))),
    ("error of the fit", |figures| figures.fit.as_ref().map(ToString::to_string)),
    ("operations/s", |figures| Some(short(figures.ops_per_second))),
    ("a thread, GiB/s", |figures| Some(format!("{:.3}", figures.thread_bandwidth_avg))),
    ("deviation", |figures| Some(format!("{:.3}", figures.thread_bandwidth_std_dev))),
    ("seconds", |figures| Some(format!("{:.3}", figures.execution_time))),
    ("on a processor", |figures| figures.cpu_share.map(|share| format!("{:.0} %", share * 100.0))),
    ("nJ/operation", |figures| cost(figures.costs.as_ref()?.nj_per_operation)),
    ("energy is", |figures| Some(figures.costs.as_ref()?.energy_from?.name().to_owned())),
    ("EUR/10^12 operations", |figures| cost(figures.costs.as_ref()?.eur_per_trillion_operations)),
    ("least, ns", |figures| latency(figures, |latency| latency.min)),
    ("mean", |figures| latency(figures, |latency| latency.avg.round() as u64)),
    ("median", |figures| latency(figures, |latency| latency.median)),
    ("90 %", |figures| latency(figures, |latency| latency.percentile_90)),
    ("99 %", |figures| latency(figures, |latency| latency.percentile_99)),
    ("99.9 %", |figures| latency(figures, |latency| latency.percentile_999)),
    ("99.99 %", |figures| latency(figures, |latency| latency.percentile_9999)),
    ("most", |figures| latency(figures, |latency| latency.max)),
    ("samples", |figures| latency(figures, |latency| latency.samples)),
];

fn cost(value: Option<f64>) -> Option<String> {
    value.map(short)
}

fn latency(figures: &Figures, of: fn(&Latency) -> u64) -> Option<String> {
    figures.latency.as_ref().map(|latency| of(latency).to_string())
}

pub fn table(matrix: &Matrix<'_>, out: &mut String) -> Written {
    let rows: Vec<_> = matrix
        .rows
        .iter()
        .flat_map(|(values, cell)| {
            let parts = matrix.parts.iter().map(|part| part.as_deref());
            parts.filter_map(move |part| Some((values, part, figures(cell, part)?)))
        })
        .collect();
    let is_told = |tell: &Tell| rows.iter().any(|(_, _, figures)| tell(figures).is_some());
    let columns: Vec<_> = COLUMNS.iter().filter(|(_, tell)| is_told(tell)).collect();
    let is_parallel = matrix.parts.iter().any(Option::is_some);
    out.push_str("<div class=\"wide\"><table><tr>");
    for axis in &matrix.axes {
        write!(out, "<th>{}</th>", escape(&axis.name()))?;
    }
    if is_parallel {
        out.push_str("<th>benchmark</th>");
    }
    for (name, _) in &columns {
        write!(out, "<th>{name}</th>")?;
    }
    out.push_str("</tr>");
    for (values, part, figures) in &rows {
        out.push_str("<tr>");
        for value in *values {
            write!(out, "<td>{}</td>", escape(value))?;
        }
        if is_parallel {
            write!(out, "<td>{}</td>", escape(part.unwrap_or_default()))?;
        }
        for (_, tell) in &columns {
            write!(out, "<td>{}</td>", tell(figures).as_deref().unwrap_or("-"))?;
        }
        out.push_str("</tr>");
    }
    out.push_str("</table></div>");
    Ok(())
}
