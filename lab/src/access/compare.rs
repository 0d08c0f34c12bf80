//! Compares two result files: the ratio of each pair of cells of the same benchmark and
//! configuration, and whether it is more than chance.
//!
//! Files of the published benchmark can be read, too: what they do not contain (machine, place,
//! instructions, repetitions) counts as unknown, and only the configuration keys that both files
//! have are compared. Modelled figures are the same in every run, so they are never tested.

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

/// The comparison of two files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Differences besides the measured figures.
    pub differences: Vec<Difference>,
    /// Cells that both files have, in the order of the first file.
    pub cells: Vec<Compared>,
    /// Cells of the first file that the second one lacks.
    pub only_in_a: Vec<String>,
    /// Cells of the second file that the first one lacks.
    pub only_in_b: Vec<String>,
    /// Settings that have no value in common, so that cells of one benchmark have no match.
    pub unmatched_by: Vec<String>,
}

/// A property with different values in the two files; an empty list means that a file does not say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Name of the property.
    pub what: String,
    /// Values in the first file.
    pub a: Vec<String>,
    /// Values in the second file.
    pub b: Vec<String>,
}

/// Verdict about a pair of cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The second cell is faster.
    Faster,
    /// The second cell is slower.
    Slower,
    /// The difference may be chance.
    NoDifferenceShown,
    /// There is nothing to test.
    NoTest,
}

/// A cell that both files have, or one part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// Name of the benchmark.
    pub bm_name: String,
    /// Name of the part, if several run together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The settings that the matrix varies, with their values in this cell.
    pub settings: String,
    /// Origin of the figures in the first and the second file; none: the file does not say.
    pub labels: [Option<Label>; 2],
    /// Bandwidths, GiB/s.
    pub bandwidth: Option<Pair>,
    /// Operations a second; for custom access, chains a second.
    pub ops_per_second: Option<Pair>,
    /// Medians of sampled operations, nanoseconds; not tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_median_ns: Option<Pair>,
    /// 99th percentiles of sampled operations, nanoseconds; not tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_p99_ns: Option<Pair>,
    /// Verdict of the test.
    pub verdict: Verdict,
    /// Probability that equal sides come out this far apart, by Welch's test on the repetitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// Why there is no test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_no_test: Option<String>,
}

/// A figure in both files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Figure in the first file.
    pub a: f64,
    /// Figure in the second file.
    pub b: f64,
    /// The second figure over the first; with repetitions, the ratio of their geometric means. None
    /// if a figure is not positive.
    pub ratio: Option<f64>,
    /// The 95 % interval of the ratio, if there are repetitions.
    pub ci95: Option<[f64; 2]>,
}

/// Compares the second file with the first one.
pub fn compare(a: &ResultFile, b: &ResultFile) -> Comparison {
    let mut comparison = Comparison {
        differences: differences(a, b),
        cells: Vec::new(),
        only_in_a: Vec::new(),
        only_in_b: Vec::new(),
        unmatched_by: Vec::new(),
    };
    // If a file has several benchmarks of one name, they are matched in order.
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

/// Differences of place and machine between two files.
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
    // In a file of this program a missing key is off or without effect; in another file it is
    // unknown.
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

/// The settings for which two benchmarks have no value in common.
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
        // Operations are proportional to the bandwidth here: cells of one configuration take the
        // same bytes for each operation.
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
            return Some(format!("only one measurement in {name}; set repetitions"));
        }
        if side.repetitions.iter().any(|one| *one <= 0.0) {
            return Some(format!("{name} has a measurement that is not positive"));
        }
    }
    None
}
