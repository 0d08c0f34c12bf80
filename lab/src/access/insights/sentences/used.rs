//! Sentences about the use of the hardware: by cycles of real structures, which is the poster's
//! question, and beside it by bandwidth of patterns. A pattern that spends all its cycles on memory
//! only waits; how many bytes it moves is another question.

use super::{percent, threads, two};
use crate::access::insights::figures::{PlaceFigures, Share, StructureFigure, median};

/// Below this share of other cycles, memory is what the cycles are spent on.
const FULL: f64 = 0.10;

/// Whether the hardware is used to the full. `real` are the structures in this place's memory.
pub fn utilization(real: &[StructureFigure], place: &PlaceFigures) -> String {
    let cycles = cycles(real);
    match bandwidths(place) {
        Some(bandwidths) => format!("{cycles}. {bandwidths}"),
        None => cycles,
    }
}

fn cycles(real: &[StructureFigure]) -> String {
    if real.is_empty() {
        return "unknown: no real structure uses this memory, only patterns of accesses were \
                measured"
            .into();
    }
    let shares: Vec<Share> = real.iter().filter_map(StructureFigure::not_memory).collect();
    let missing = real.len() - shares.len();
    let values = shares.iter().map(|share| share.value());
    let (low, high) = (values.clone().fold(1.0, f64::min), values.fold(0.0, f64::max));
    let verdict = match () {
        () if shares.is_empty() => {
            return "unknown: the real structures were not faster when caches held all data, so \
                    something other than memory decides"
                .into();
        }
        () if high < FULL => "yes",
        () if low < FULL => "not always",
        () => "no",
    };
    let label = if is_counted(real) { "counted" } else { "estimated" };
    let missing = match missing {
        0 => String::new(),
        some => format!(
            " ({some} of {} without an estimate: not faster when caches held all data)",
            real.len()
        ),
    };
    format!(
        "{verdict}, {label}: share of the cycles that is not spent on memory: {}{missing}",
        by_name(real)
    )
}

/// Shares of each structure, by number of threads.
fn by_name(real: &[StructureFigure]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for one in real {
        if one.not_memory().is_some() && !names.contains(&one.name.as_str()) {
            names.push(&one.name);
        }
    }
    let told = |name: &&str| {
        let own = real.iter().filter(|one| one.name == **name);
        let own: Vec<(u64, f64)> =
            own.filter_map(|one| Some((one.threads, one.not_memory()?.value()))).collect();
        let values = own.iter().map(|(_, value)| *value);
        let (low, high) =
            (percent(values.clone().fold(1.0, f64::min)), percent(values.fold(0.0, f64::max)));
        let (first, last) = (
            own.iter().map(|one| one.0).min().unwrap_or(0),
            own.iter().map(|one| one.0).max().unwrap_or(0),
        );
        let over =
            if first == last { threads(last) } else { format!("{first} to {}", threads(last)) };
        let shares = if low == high { low } else { format!("{low} to {high}") };
        format!("{name} {shares} ({over})")
    };
    names.iter().map(told).collect::<Vec<_>>().join(", ")
}

/// Bandwidth of each pattern as a share of the memory's, each with its best number of threads.
fn bandwidths(place: &PlaceFigures) -> Option<String> {
    let (pattern, peak) = place.peak()?;
    let mut names: Vec<&str> = Vec::new();
    for one in &place.structures {
        if !names.contains(&one.name.as_str()) {
            names.push(&one.name);
        }
    }
    let told = |name: &&str| {
        let own = place.structures.iter().filter(|one| one.name == **name);
        let rates = own.map(|one| (one.threads, median(&one.gib_per_s)));
        let (count, best) = rates.max_by(|one, other| one.1.total_cmp(&other.1))?;
        Some(format!("{name} {} ({})", percent(best / peak.gib_per_s), threads(count)))
    };
    let each: Vec<String> = names.iter().filter_map(told).collect();
    (!each.is_empty()).then(|| {
        format!(
            "Patterns apart, measured: of the {} GiB/s that {pattern}s reach with {}, they move {}",
            two(peak.gib_per_s),
            threads(peak.threads),
            each.join(", ")
        )
    })
}

/// Whether the processor counted all shares.
pub fn is_counted(of: &[StructureFigure]) -> bool {
    of.iter().all(|one| matches!(one.not_memory(), Some(Share::Counted(_))))
}

/// How the shares of [`utilization`] were found.
pub fn how_utilization(real: &[StructureFigure]) -> &'static str {
    match () {
        () if real.is_empty() => {
            "patterns do nothing but wait for memory, so their share of cycles says nothing about \
             the use of the hardware; a chart below shows it"
        }
        () if is_counted(real) => {
            "counted: cycles in which the processor's back end did not wait; it also waits for \
             other things than memory, so memory's share is less than the rest"
        }
        () => {
            "estimated, because the machine shows no counter of waiting: the processor time of the \
             same operations on as few records as the nearest caches hold, over their time on all \
             records; everything else that differs with the size, address translation above all, \
             counts as memory. Patterns: bytes that they ask for, the median of rounds; each \
             thread waits for one read before the next"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::insights::figures::Peak;

    fn structure(name: &str, threads: u64, not_memory: f64) -> StructureFigure {
        StructureFigure {
            name: name.into(),
            is_real: true,
            threads,
            per_s: vec![1.0],
            gib_per_s: Vec::new(),
            cpu_share: 1.0,
            cpu_ns: 100.0,
            cached_cpu_ns: 100.0 * not_memory,
            counted_share: None,
        }
    }

    fn said(real: &[StructureFigure]) -> String {
        utilization(real, &PlaceFigures::default())
    }

    #[test]
    fn the_share_of_real_structures_decides() {
        let lookup = |share| structure("perdura store: lookup", 1, share);
        assert!(said(&[lookup(0.05), lookup(0.08)]).starts_with("yes, estimated: "));
        assert!(said(&[lookup(0.05), lookup(0.4)]).starts_with("not always, estimated: "));
        let updates = [1, 32].map(|threads| {
            structure("perdura store: update", threads, 0.3 + threads as f64 / 320.0)
        });
        assert_eq!(
            said(&[&[lookup(0.5)], &updates[..]].concat()),
            "no, estimated: share of the cycles that is not spent on memory: perdura store: lookup \
             50 % (1 thread), perdura store: update 30 % to 40 % (1 to 32 threads)"
        );
        assert!(how_utilization(&[lookup(0.5)]).starts_with("estimated"));
    }

    #[test]
    fn what_was_counted_is_of_all_waiting() {
        let counted = StructureFigure {
            counted_share: Some(0.2),
            ..structure("perdura store: lookup", 1, 0.9)
        };
        let counted = [counted];
        assert!(said(&counted).starts_with(
            "no, counted: share of the cycles that is not spent on memory: perdura store: lookup \
             20 %"
        ));
        assert!(how_utilization(&counted).contains("other things than memory"));
        assert!(is_counted(&counted) && !is_counted(&[structure("a", 1, 0.5)]));
    }

    #[test]
    fn without_an_estimate_it_cannot_be_told() {
        assert!(said(&[]).starts_with("unknown: no real structure uses this memory"));
        assert!(how_utilization(&[]).starts_with("patterns do nothing but wait"));
        let one = structure("perdura store: lookup", 1, 1.2);
        assert!(said(std::slice::from_ref(&one)).starts_with("unknown: the real structures"));
        let two = [one, structure("perdura store: lookup", 2, 0.5)];
        let said = said(&two);
        assert!(said.contains("lookup 50 % (2 threads)"), "{said}");
        assert!(
            said.ends_with("(1 of 2 without an estimate: not faster when caches held all data)"),
            "{said}"
        );
    }

    #[test]
    fn patterns_are_told_apart_by_what_they_move() {
        let pattern = |threads, gib_per_s| StructureFigure {
            is_real: false,
            gib_per_s: vec![gib_per_s],
            ..structure("hash lookup", threads, 0.01)
        };
        let place = PlaceFigures {
            structures: vec![pattern(1, 0.5), pattern(4, 2.0), pattern(8, 1.5)],
            peaks: vec![Peak {
                pattern: "sequential read".into(),
                threads: 2,
                access_bytes: 4096,
                cpu_share: 1.0,
                gib_per_s: vec![10.0],
            }],
            ..PlaceFigures::default()
        };
        assert_eq!(
            utilization(&[], &place),
            "unknown: no real structure uses this memory, only patterns of accesses were measured. \
             Patterns apart, measured: of the 10.00 GiB/s that sequential reads reach with 2 \
             threads, they move hash lookup 20 % (4 threads)"
        );
    }
}
