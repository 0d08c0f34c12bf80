//! Two result files side by side: cells of the same benchmark and configuration, the ratio of what
//! they reached, and whether it is more than chance.
//!
//! Files of the published benchmark are read, too: what they do not tell (machine, place,
//! instructions, repetitions) is unknown, and of their configurations only the keys that both files
//! have are compared. Modelled figures are the same every time: they are never tested.

#[cfg(test)]
mod tests;
mod told;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use perdura_media::Bytes;
use serde::{Deserialize, Serialize};

use super::result::Label;
use perdura_bench::machine::Machine;
use perdura_bench::student::Unpaired;
pub use told::{CompareError, ResultFile, read};
use told::{Told, ToldCell, ToldFigures, ToldLatency};

/// What comes of two files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What they do not have in common besides what was measured.
    pub differences: Vec<Difference>,
    /// Cells that both have, in the first one's order.
    pub cells: Vec<Compared>,
    /// Cells of the first that the second has not.
    pub only_in_a: Vec<String>,
    /// Cells of the second that the first has not.
    pub only_in_b: Vec<String>,
    /// Settings by which cells of one benchmark have no match.
    pub unmatched_by: Vec<String>,
}

/// Something that both files tell differently; an empty list: not told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// What.
    pub what: String,
    /// In the first.
    pub a: Vec<String>,
    /// In the second.
    pub b: Vec<String>,
}

/// What is known of a cell of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The second is.
    Faster,
    /// The second is.
    Slower,
    /// Nothing that chance would not do, too.
    NoDifferenceShown,
    /// There is nothing to test.
    NoTest,
}

/// A cell of both, or one part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// Benchmark.
    pub bm_name: String,
    /// Which of those that run together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// What the matrix varies, and its values here.
    pub settings: String,
    /// Where its figures come from, in the first and the second; none: not told.
    pub labels: [Option<Label>; 2],
    /// GiB/s.
    pub bandwidth: Option<Pair>,
    /// Operations a second; of custom access, chains.
    pub ops_per_second: Option<Pair>,
    /// Median of sampled operations, nanoseconds; not tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_median_ns: Option<Pair>,
    /// 99 % of them were within, nanoseconds; not tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_p99_ns: Option<Pair>,
    /// What is known.
    pub verdict: Verdict,
    /// How often sides that do not differ come out this far apart, by Welch's test on the
    /// repetitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// Why there is no test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_no_test: Option<String>,
}

/// A figure of both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Of the first.
    pub a: f64,
    /// Of the second.
    pub b: f64,
    /// The second by the first; of repetitions, of their geometric means. None of what is not
    /// positive.
    pub ratio: Option<f64>,
    /// Its 95 % interval, if there are repetitions.
    pub ci95: Option<[f64; 2]>,
}

/// Compares the second file with the first.
pub fn compare(a: &ResultFile, b: &ResultFile) -> Comparison {
    let mut comparison = Comparison {
        differences: differences(a, b),
        cells: Vec::new(),
        only_in_a: Vec::new(),
        only_in_b: Vec::new(),
        unmatched_by: Vec::new(),
    };
    // Benchmarks of one name, should a file have several, meet in their order.
    let mut left: Vec<&Told> = b.0.iter().collect();
    for one in &a.0 {
        match left.iter().position(|other| other.bm_name == one.bm_name) {
            Some(at) => benchmark(one, left.remove(at), &mut comparison),
            None => comparison.only_in_a.extend(one.benchmarks.iter().map(|cell| one.named(cell))),
        }
    }
    for one in left {
        comparison.only_in_b.extend(one.benchmarks.iter().map(|cell| one.named(cell)));
    }
    comparison
}

/// What two files tell of where and how, where it is not the same.
fn differences(a: &ResultFile, b: &ResultFile) -> Vec<Difference> {
    type Tell = fn(&Told) -> Vec<String>;
    const TOLD: [(&str, Tell); 8] = [
        ("figures", |told| told.label.iter().map(|label| label.name().to_owned()).collect()),
        ("place", |told| told.place.iter().cloned().collect()),
        ("instructions", |told| told.instructions.iter().cloned().collect()),
        ("processor", |told| {
            of_machine(told, |machine| format!("{}, {} processors", machine.cpu, machine.cpus))
        }),
        ("memory", |told| of_machine(told, |machine| Bytes(machine.memory_bytes).to_string())),
        ("kernel", |told| of_machine(told, |machine| machine.kernel.clone())),
        ("perdura", |told| {
            of_machine(told, |machine| {
                let build = if machine.is_release { "" } else { ", NOT a release build" };
                format!("{} {}{build}", machine.version, machine.revision)
            })
        }),
        ("bounds", |told| told.bounded.clone()),
    ];
    let all = |file: &ResultFile, tell: Tell| -> Vec<String> {
        file.0.iter().flat_map(tell).collect::<BTreeSet<_>>().into_iter().collect()
    };
    let told = TOLD.iter().map(|(what, tell)| Difference {
        what: (*what).to_owned(),
        a: all(a, *tell),
        b: all(b, *tell),
    });
    told.filter(|difference| difference.a != difference.b).collect()
}

fn of_machine(told: &Told, of: fn(&Machine) -> String) -> Vec<String> {
    told.machine.iter().map(of).collect()
}

fn benchmark(a: &Told, b: &Told, comparison: &mut Comparison) {
    // Of ours, a key that is not there is off or without effect; of others, unknown.
    let keys = match (&a.label, &b.label) {
        (Some(_), Some(_)) => &a.keys() | &b.keys(),
        _ => &a.keys() & &b.keys(),
    };
    let mut by_identity: BTreeMap<Vec<Option<String>>, VecDeque<&ToldCell>> = BTreeMap::new();
    for cell in &b.benchmarks {
        by_identity.entry(cell.identity(&keys)).or_default().push_back(cell);
    }
    let (found, missing) = (comparison.cells.len(), comparison.only_in_a.len());
    for cell in &a.benchmarks {
        let other = by_identity.get_mut(&cell.identity(&keys)).and_then(VecDeque::pop_front);
        match other {
            Some(other) => cells(a, cell, b, other, comparison),
            None => comparison.only_in_a.push(a.named(cell)),
        }
    }
    comparison.only_in_b.extend(by_identity.into_values().flatten().map(|cell| b.named(cell)));
    if comparison.cells.len() == found && comparison.only_in_a.len() > missing {
        comparison.unmatched_by.extend(unmatched_by(a, b, &keys));
    }
}

/// The settings of which two benchmarks have no value in common.
fn unmatched_by(a: &Told, b: &Told, keys: &BTreeSet<String>) -> Vec<String> {
    let values = |told: &Told, key: &String| -> BTreeSet<String> {
        let one = BTreeSet::from([key.clone()]);
        let cells = told.benchmarks.iter();
        cells.flat_map(|cell| cell.identity(&one)).map(|v| v.unwrap_or("none".into())).collect()
    };
    let shown = |values: BTreeSet<String>| values.into_iter().collect::<Vec<_>>().join(", ");
    let of = |key| (key, values(a, key), values(b, key));
    let apart = keys.iter().map(of).filter(|(_, a, b)| a.is_disjoint(b));
    apart
        .map(|(key, in_a, in_b)| {
            format!("{}: {key}: {} in A, {} in B", a.bm_name, shown(in_a), shown(in_b))
        })
        .collect()
}

/// Compares a cell with its match, part by part.
fn cells(a: &Told, cell: &ToldCell, b: &Told, other: &ToldCell, to: &mut Comparison) {
    let (own, others) = (cell.figures(), other.figures());
    let named = |told: &Told, cell: &ToldCell, part: Option<&String>| {
        part.map_or(told.named(cell), |part| format!("{}, {part}", told.named(cell)))
    };
    if own.is_empty() {
        to.only_in_b.push(b.named(other));
    }
    if others.is_empty() {
        to.only_in_a.push(a.named(cell));
    }
    let lone = others.iter().filter(|(name, _)| !own.iter().any(|(own, _)| own == name));
    to.only_in_b.extend(lone.filter(|_| !own.is_empty()).map(|(part, _)| named(b, other, *part)));
    for (part, one) in own {
        let Some((_, two)) = others.iter().find(|(name, _)| *name == part) else {
            if !others.is_empty() {
                to.only_in_a.push(named(a, cell, part));
            }
            continue;
        };
        let labels = [a.label, b.label];
        let settings = a.varied(cell);
        let (bm_name, part) = (a.bm_name.clone(), part.cloned());
        to.cells.push(compared(bm_name, part, settings, labels, one, two));
    }
}

fn compared(
    bm_name: String,
    part: Option<String>,
    settings: String,
    labels: [Option<Label>; 2],
    a: &ToldFigures,
    b: &ToldFigures,
) -> Compared {
    let why_no_test = why_no_test(labels, a, b);
    let tested = match why_no_test {
        // Of what is told in GiB/s the operations follow: cells of one configuration take as many
        // bytes for each.
        None => Unpaired::of(&b.repetitions, &a.repetitions),
        Some(_) => None,
    };
    let pair = |a: Option<f64>, b: Option<f64>, tested: Option<&Unpaired>| {
        let (a, b) = (a?, b?);
        let of_two = (a > 0.0 && b > 0.0).then(|| b / a);
        let ratio = tested.map_or(of_two, |tested| Some(tested.ratio));
        Some(Pair { a, b, ratio, ci95: tested.map(|tested| tested.ci95) })
    };
    let verdict = match &tested {
        None => Verdict::NoTest,
        Some(tested) if tested.ci95[0] > 1.0 => Verdict::Faster,
        Some(tested) if tested.ci95[1] < 1.0 => Verdict::Slower,
        Some(_) => Verdict::NoDifferenceShown,
    };
    let latency = |of: fn(&ToldLatency) -> f64| {
        pair(a.latency.as_ref().map(of), b.latency.as_ref().map(of), None)
    };
    let bandwidth = pair(a.bandwidth, b.bandwidth, tested.as_ref());
    let ops_per_second = pair(a.ops_per_second, b.ops_per_second, tested.as_ref());
    Compared {
        bm_name,
        part,
        settings,
        labels,
        bandwidth,
        ops_per_second,
        latency_median_ns: latency(|latency| latency.median),
        latency_p99_ns: latency(|latency| latency.percentile_99),
        verdict,
        p: tested.map(|tested| tested.p),
        why_no_test,
    }
}

fn why_no_test(labels: [Option<Label>; 2], a: &ToldFigures, b: &ToldFigures) -> Option<String> {
    if labels.contains(&Some(Label::Modelled)) {
        return Some("modelled figures are the same every time".to_owned());
    }
    for (name, side) in [("A", a), ("B", b)] {
        if side.repetitions.len() < 2 {
            return Some(format!("one measurement in {name}; give it repetitions"));
        }
        if side.repetitions.iter().any(|one| *one <= 0.0) {
            return Some(format!("a measurement in {name} that is not positive"));
        }
    }
    None
}
