//! The table as text and as JSON.

use std::cmp::Ordering;
use std::fmt::Write as _;

use crate::settings::Cell;
use crate::side::One;

/// A cell's figures, of all servers.
pub struct Row {
    pub cell: Cell,
    pub all: Vec<Figures>,
}

/// One server's figures for a cell.
pub struct Figures {
    pub address: String,
    pub rounds: Vec<One>,
}

impl Figures {
    pub fn new(address: &str) -> Self {
        Self { address: address.into(), rounds: Vec::new() }
    }

    fn of(&self, figure: fn(&One) -> f64) -> [f64; 3] {
        spread(self.rounds.iter().map(figure).collect())
    }

    /// The ratio to another server's figures, round by round.
    fn against(&self, other: &Self, figure: fn(&One) -> f64) -> [f64; 3] {
        let pairs = self.rounds.iter().zip(&other.rounds);
        // No processor time at all is less than the clock's step: the ratio is not known.
        let ratios = pairs.map(|(one, other)| figure(one) / figure(other));
        spread(ratios.filter(|ratio| ratio.is_finite()).collect())
    }
}

pub fn print_head() {
    println!(
        "{:38} {:>23} {:>19} {:>15} {:>13}  p50, p99, p99.9 ms",
        "", "throughput ratio", "processor ratio", "k/s", "CPU us/op"
    );
}

/// Prints the ratio of each server but the last to the last, and the figures of both.
pub fn print_row(row: &Row) {
    let Some((last, others)) = row.all.split_last() else { return };
    for side in others.iter().chain(others.is_empty().then_some(last)) {
        let (rates, cpus) =
            (side.against(last, |one| one.ops_per_s), side.against(last, |one| one.cpu_us_per_op));
        let both = |figure: fn(&One) -> f64, digits: usize| {
            format!("{:.digits$}/{:.digits$}", side.of(figure)[1], last.of(figure)[1])
        };
        println!(
            "{:38} {:8.2} ({:.2} to {:.2}) {:5.2} ({:.2} to {:.2}) {:>15} {:>13}  {} {} {}",
            row.cell.to_string(),
            rates[1],
            rates[0],
            rates[2],
            cpus[1],
            cpus[0],
            cpus[2],
            both(|one| one.ops_per_s / 1e3, 0),
            both(|one| one.cpu_us_per_op, 2),
            both(|one| one.p50_ms, 2),
            both(|one| one.p99_ms, 2),
            both(|one| one.p999_ms, 2),
        );
    }
}

/// Names the worst cells.
pub fn print_foot(rows: &[Row]) {
    println!("medians of the rounds (least to most); a/b: the server, and the last server");
    let worst = |what: &str, figure: fn(&One) -> f64, is_worse: fn(f64, f64) -> bool| {
        let mut found: Option<(f64, &Row)> = None;
        for row in rows.iter().filter(|row| row.all.len() > 1) {
            let [.., side, last] = &row.all[..] else { continue };
            let ratio = side.against(last, figure)[1];
            if found.is_none_or(|(other, _)| is_worse(ratio, other)) {
                found = Some((ratio, row));
            }
        }
        if let Some((ratio, row)) = found {
            println!("worst {what}: {ratio:.2}, {}", row.cell);
        }
    };
    worst("throughput", |one| one.ops_per_s, |a, b| a < b);
    worst("processor time", |one| one.cpu_us_per_op, |a, b| a > b);
    worst("p99", |one| one.p99_ms, |a, b| a > b);
    worst("p99.9", |one| one.p999_ms, |a, b| a > b);
}

/// All rounds of all cells.
pub fn json(rows: &[Row]) -> String {
    let mut text = String::from("[\n");
    for (at, row) in rows.iter().enumerate() {
        let Cell { command, value_bytes, pipeline, clients, durable } = &row.cell;
        let _ = write!(
            text,
            "{{\"command\":\"{command}\",\"value_bytes\":{value_bytes},\"pipeline\":{pipeline},\
             \"clients\":{clients},\"durable\":{durable},\"servers\":["
        );
        for (nth, side) in row.all.iter().enumerate() {
            let comma = if nth > 0 { "," } else { "" };
            let _ = write!(text, "{comma}{{\"address\":\"{}\",\"rounds\":[", side.address);
            for (round, one) in side.rounds.iter().enumerate() {
                let comma = if round > 0 { "," } else { "" };
                let One { ops_per_s, cpu_us_per_op, p50_ms, p99_ms, p999_ms } = one;
                let _ = write!(
                    text,
                    "{comma}{{\"ops_per_s\":{ops_per_s:.0},\"cpu_us_per_op\":{cpu_us_per_op:.4},\
                     \"p50_ms\":{p50_ms:.4},\"p99_ms\":{p99_ms:.4},\"p999_ms\":{p999_ms:.4}}}"
                );
            }
            text.push_str("]}");
        }
        text.push_str(if at + 1 < rows.len() { "]},\n" } else { "]}\n" });
    }
    text.push_str("]\n");
    text
}

/// Least, median and most.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    match values.len() {
        0 => [f64::NAN; 3],
        len => [values[0], values[len / 2], values[len - 1]],
    }
}
