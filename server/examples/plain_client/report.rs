//! The table as text and as JSON.

use std::cmp::Ordering;
use std::fmt::Write as _;

use crate::settings::Cell;
use crate::side::One;

/// A cell's figures, of all servers.
pub struct Row {
    pub cell: Cell,
    pub all: Vec<Figures>,
    /// Commands a second that were due, and the figures with them.
    pub at_load: Option<(f64, Vec<Figures>)>,
}

/// One server's figures for a cell.
pub struct Figures {
    pub name: String,
    pub rounds: Vec<One>,
}

impl Figures {
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), rounds: Vec::new() }
    }

    /// The median of the rounds.
    pub fn ops_per_s(&self) -> f64 {
        self.of(|one| one.ops_per_s)[1]
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
        "| command | against | throughput | processor time | us an operation | thousands a second \
         | at load: p50, p99, p99.9 ms | other's | p99 | p99.9 |\n|{}",
        "---|".repeat(10)
    );
}

/// Prints what one server has beside another, for the servers that are to be compared: the first
/// with each other one, or each with the last.
pub fn print_row(row: &Row, is_of_first: bool) {
    let last = row.all.len() - 1;
    let pairs: Vec<_> = match is_of_first {
        true => (1..=last).map(|other| (0, other)).collect(),
        false => (0..last.max(1)).map(|side| (side, last)).collect(),
    };
    for (side, other) in pairs {
        print_pair(row, side, other);
    }
}

fn print_pair(row: &Row, side: usize, other: usize) {
    let (ours, theirs) = (&row.all[side], &row.all[other]);
    let both = |figure: fn(&One) -> f64, digits: usize| {
        format!("{:.digits$}, {:.digits$}", ours.of(figure)[1], theirs.of(figure)[1])
    };
    let ratio = |ours: &Figures, theirs: &Figures, figure: fn(&One) -> f64| {
        let [least, median, most] = ours.against(theirs, figure);
        format!("{median:.2} ({least:.2} to {most:.2})")
    };
    print!(
        "| {} | {} | {} | {} | {} | {} |",
        row.cell,
        theirs.name,
        ratio(ours, theirs, |one| one.ops_per_s),
        ratio(ours, theirs, |one| one.cpu_us_per_op),
        both(|one| one.cpu_us_per_op, 2),
        both(|one| one.ops_per_s / 1e3, 0),
    );
    let (at_load, of) = match &row.at_load {
        Some((rate, all)) => (all, format!("at {:.0} k/s: ", rate / 1e3)),
        None => (&row.all, String::new()),
    };
    let (ours, theirs) = (&at_load[side], &at_load[other]);
    let tail = |side: &Figures| {
        let figures: [fn(&One) -> f64; 3] = [|one| one.p50_ms, |one| one.p99_ms, |one| one.p999_ms];
        figures.map(|figure| format!("{:.2}", side.of(figure)[1])).join(", ")
    };
    println!(
        " {of}{} | {} | {} | {} |",
        tail(ours),
        tail(theirs),
        ratio(ours, theirs, |one| one.p99_ms),
        ratio(ours, theirs, |one| one.p999_ms),
    );
}

/// Names the worst cells.
pub fn print_foot(rows: &[Row]) {
    println!(
        "medians of the rounds (least to most); a, b: the server, and the one it stands against"
    );
    let worst = |what: &str, is_tail, figure: fn(&One) -> f64, is_worse: fn(f64, f64) -> bool| {
        let mut found: Option<(f64, &Row)> = None;
        for row in rows.iter().filter(|row| row.all.len() > 1) {
            let at_load = row.at_load.as_ref().filter(|_| is_tail);
            let all = at_load.map_or(&row.all, |(_, all)| all);
            let (Some(side), Some(last)) = (all.first(), all.last()) else { continue };
            let ratio = side.against(last, figure)[1];
            if found.is_none_or(|(other, _)| is_worse(ratio, other)) {
                found = Some((ratio, row));
            }
        }
        if let Some((ratio, row)) = found {
            println!("worst {what}: {ratio:.2}, {}", row.cell);
        }
    };
    worst("throughput", false, |one| one.ops_per_s, |a, b| a < b);
    worst("processor time", false, |one| one.cpu_us_per_op, |a, b| a > b);
    worst("p99", true, |one| one.p99_ms, |a, b| a > b);
    worst("p99.9", true, |one| one.p999_ms, |a, b| a > b);
}

/// All rounds of all cells; those at equal load, if there are any, stand behind the others.
pub fn json(rows: &[Row]) -> String {
    let mut text = String::from("[\n");
    for (at, row) in rows.iter().enumerate() {
        let Cell { command, value_bytes, pipeline, clients, durable } = &row.cell;
        let _ = write!(
            text,
            "{{\"command\":\"{command}\",\"value_bytes\":{value_bytes},\"pipeline\":{pipeline},\
             \"clients\":{clients},\"durable\":{durable},\"servers\":["
        );
        let at_load = row.at_load.iter().flat_map(|(_, all)| all);
        for (nth, side) in row.all.iter().chain(at_load).enumerate() {
            let comma = if nth > 0 { "," } else { "" };
            let _ = write!(text, "{comma}{{\"server\":\"{}\",\"rounds\":[", side.name);
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
