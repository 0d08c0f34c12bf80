//! From figures to sentences: pure functions, one for each insight. What cannot be answered says why.

use perdura_media::Bytes;

use super::facts::{Facts, Told};
use super::figures::{
    BestPersist, Order, PlaceFigures, StructureFigure, Verdict, Versus, WithoutFlush,
};
use crate::access::reference::{MemoryKind, Reference, References};

/// Sizes of writes that the question about eADR is of; the last stands for the poster's 200 B.
pub const WITHOUT_FLUSH_BYTES: [u64; 3] = [64, 128, 256];
/// Below this, memory is what the cycles are spent on.
const FULL: f64 = 0.10;

/// Why capacity per module cannot be varied here, and what is known of the modules.
pub fn capacity_here(facts: &Facts) -> String {
    match &facts.modules {
        Told::Known(modules) => {
            let mut sizes: Vec<u64> = modules.iter().map(|module| module.bytes).collect();
            sizes.sort_unstable();
            sizes.dedup();
            let sizes: Vec<String> =
                sizes.into_iter().map(|size| Bytes(size).to_string()).collect();
            let (count, sizes) = (modules.len(), sizes.join(" and "));
            let plural = if count == 1 { "module" } else { "modules" };
            format!(
                "not answerable here: it has {count} {plural} of {sizes}, and no others to compare with"
            )
        }
        Told::NotTold(why) => {
            format!("not answerable here: the machine does not tell which modules it has ({why})")
        }
    }
}

/// Why the power budget cannot be varied here.
pub fn power_here(facts: &Facts) -> String {
    match &facts.memory_watts {
        Told::Known(watts) => format!(
            "not answered here: the memory's power limit is {watts} W, and changing it is for who owns the machine"
        ),
        Told::NotTold(why) => {
            format!("not answerable here: the machine shows no power limit of its memory ({why})")
        }
    }
}

/// Why the number of modules cannot be varied here.
pub fn modules_here() -> String {
    "not answerable here: the number of modules that addresses are spread over is set by the firmware, not at run time".into()
}

/// Why the bus cannot be varied here.
pub fn bus_here(facts: &Facts) -> String {
    let speed = match &facts.modules {
        Told::Known(modules) => modules
            .iter()
            .map(|module| module.mega_transfers_per_s)
            .max()
            .filter(|speed| *speed > 0),
        Told::NotTold(_) => None,
    };
    match speed {
        Some(speed) => format!(
            "cannot be varied here: the bus runs at {speed} MT/s, which the firmware sets before the system starts"
        ),
        None => "cannot be varied here: the firmware sets it before the system starts".into(),
    }
}

/// Peaks of the published systems that differ in their modules' capacity alone, or nearly.
pub fn published_capacity(references: &References) -> String {
    let of = |system: &Reference| {
        let peaks = system.peak_gib_per_s?;
        Some(format!(
            "{} of {} GB read {} GiB/s in sequence and write {}",
            system.modules, system.module_gb?, peaks.sequential_read, peaks.sequential_write
        ))
    };
    first_series(references).filter_map(of).collect::<Vec<_>>().join("; ")
}

/// Peaks of the published systems by power of a module.
pub fn published_power(references: &References) -> String {
    let of = |system: &Reference| {
        let peaks = system.peak_gib_per_s?;
        Some(format!(
            "{} W a module: {} GiB/s of sequential writes ({})",
            system.module_watts?, peaks.sequential_write, system.name
        ))
    };
    first_series(references).filter_map(of).collect::<Vec<_>>().join("; ")
}

/// Those of the same generation and number of modules.
fn first_series(references: &References) -> impl Iterator<Item = &Reference> {
    references.systems.iter().filter(|system| {
        system.memory == MemoryKind::Persistent && system.series.as_deref() == Some("100")
    })
}

/// Whether the hardware is used to the full.
pub fn utilization(structures: &[StructureFigure]) -> String {
    let by_share = |one: &&StructureFigure, other: &&StructureFigure| {
        one.not_memory().total_cmp(&other.not_memory())
    };
    let (least, most) = (structures.iter().min_by(by_share), structures.iter().max_by(by_share));
    let (Some(least), Some(most)) = (least, most) else {
        return "nothing was measured that uses it".into();
    };
    let told = |one: &StructureFigure| {
        let threads = threads(one.threads);
        format!("{} ({}, {threads})", percent(one.not_memory()), one.name)
    };
    let verdict = match () {
        () if most.not_memory() < FULL => "yes",
        () if least.not_memory() < FULL => "by some, not by all",
        () => "no",
    };
    let real = match real(structures) {
        none if none.is_empty() => none,
        real => format!("; {real}"),
    };
    format!(
        "{verdict}: of the processor's cycles {} to {} are not spent on memory{real}",
        told(least),
        told(most)
    )
}

/// The shares of what is no pattern, over its numbers of threads.
fn real(structures: &[StructureFigure]) -> String {
    let mut said: Vec<String> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for one in structures.iter().filter(|one| one.is_real) {
        if names.contains(&one.name.as_str()) {
            continue;
        }
        names.push(&one.name);
        let own = structures.iter().filter(|other| other.name == one.name);
        let (low, high) = own.fold((1.0, 0.0), |(low, high), one| {
            (f64::min(low, one.not_memory()), f64::max(high, one.not_memory()))
        });
        said.push(match percent(low) == percent(high) {
            true => format!("{} {}", one.name, percent(low)),
            false => format!("{} {} to {}", one.name, percent(low), percent(high)),
        });
    }
    said.join(", ")
}

/// How the shares of [`utilization`] were got.
pub fn how_utilization(structures: &[StructureFigure]) -> &'static str {
    if structures.iter().any(|one| one.counted_share.is_some()) {
        "counted: cycles in which the processor's back end did not wait"
    } else {
        "estimated, for the machine shows no counter of waiting: the processor time that the same operations take without flushes where the \
         nearest caches hold all of their data, over their time on the whole range"
    }
}

/// Which instruction for which write.
pub fn persists(bests: &[BestPersist]) -> String {
    let order = |is_random| {
        let own: Vec<&BestPersist> =
            bests.iter().filter(|best| best.is_random == is_random).collect();
        let mut said: Vec<String> = Vec::new();
        let mut rest = &own[..];
        while let Some(first) = rest.first() {
            let kind = |best: &BestPersist| (best.versus.verdict(), best.best.clone());
            let is_same = |other: &&&BestPersist| match is_clear(first) {
                true => kind(other) == kind(first),
                false => {
                    other.versus.verdict() == first.versus.verdict()
                        && advice(other) == advice(first)
                }
            };
            let count = rest.iter().take_while(is_same).count();
            said.push(group(&rest[..count]));
            rest = &rest[count..];
        }
        said.join(", ")
    };
    match (order(false), order(true)) {
        (in_order, random) if in_order.is_empty() && random.is_empty() => {
            "no instruction was measured".into()
        }
        (in_order, random) if random.is_empty() => format!("in sequence {in_order}"),
        (in_order, random) if in_order.is_empty() => format!("at random {random}"),
        (in_order, random) => format!("in sequence {in_order}; at random {random}"),
    }
}

fn is_clear(best: &BestPersist) -> bool {
    best.versus.verdict() == Verdict::Faster
}

/// The instruction to take; where two are alike, both, in the order of their names.
fn advice(best: &BestPersist) -> Vec<&str> {
    let mut names = match is_clear(best) {
        true => vec![best.best.as_str()],
        false => vec![best.best.as_str(), best.next.as_str()],
    };
    names.sort_unstable();
    names
}

fn group(bests: &[&BestPersist]) -> String {
    let sizes = |bests: &[&BestPersist]| match bests {
        [one] => Bytes(one.write_bytes).to_string(),
        [first, .., last] => format!("{} to {}", Bytes(first.write_bytes), Bytes(last.write_bytes)),
        [] => String::new(),
    };
    let Some(first) = bests.first() else { return String::new() };
    if !is_clear(first) {
        let word = match first.versus.verdict() {
            Verdict::Alike => "alike",
            _ => "with no clear winner",
        };
        return format!("{} for {} {word}", advice(first).join(" and "), sizes(bests));
    }
    let ratios = bests.iter().map(|best| best.versus.ratio);
    let (low, high) = (ratios.clone().fold(f64::INFINITY, f64::min), ratios.fold(0.0, f64::max));
    let margin = match bests {
        [one] => beside(&one.versus),
        _ => format!("{} to {} times the next", two(low), two(high)),
    };
    format!("{} for {} ({margin})", first.best, sizes(bests))
}

/// Whether writes without flushes help.
pub fn without_flush(of: &[WithoutFlush]) -> String {
    // An update is what structures do; a bare write stands in where none was measured.
    let versus = |one: &WithoutFlush| one.update.clone().or_else(|| one.write.clone());
    let verdicts: Vec<(&WithoutFlush, Verdict)> =
        of.iter().filter_map(|one| Some((one, versus(one)?.verdict()))).collect();
    if verdicts.is_empty() {
        return "nothing was measured without a flush".into();
    }
    let all = |wanted| verdicts.iter().all(|(_, verdict)| *verdict == wanted);
    let headline = match () {
        () if all(Verdict::Faster) => "yes, at each size",
        () if all(Verdict::Slower) => "no, it hurts at each size",
        () if all(Verdict::Alike) => "no difference at any size",
        () if all(Verdict::Unclear) => "cannot be told, the rounds differ too much",
        () => "it depends on the size",
    };
    let told = |(one, verdict): &(&WithoutFlush, Verdict)| {
        let word = match verdict {
            Verdict::Faster => "helps",
            Verdict::Slower => "hurts",
            Verdict::Alike => "no difference",
            Verdict::Unclear => "cannot be told",
        };
        let parts: Vec<String> =
            [("records read and changed", &one.update), ("bare writes", &one.write)]
                .into_iter()
                .filter_map(|(name, versus)| {
                    Some(format!("{name} {} times", two(versus.as_ref()?.ratio)))
                })
                .collect();
        let size = Bytes(one.write_bytes);
        let rounded = if one.write_bytes == 256 { " (for 200 B, rounded up)" } else { "" };
        format!("{size}{rounded} {word} ({})", parts.join(", "))
    };
    let each: Vec<String> = verdicts.iter().map(told).collect();
    format!("{headline}, beside the fastest flush: {}", each.join("; "))
}

/// Whether fetching ahead helps.
pub fn prefetcher(place: &PlaceFigures) -> String {
    let mut sizes: Vec<u64> = place.reads.iter().map(|read| read.read_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let against = |order| {
        let one = |bytes: &u64| Some((*bytes, place.order_versus(*bytes, order, Order::Random)?));
        sizes.iter().filter_map(one).collect::<Vec<(u64, Versus)>>()
    };
    let ascending = against(Order::Ascending);
    if ascending.is_empty() {
        return "no reads were measured in two orders".into();
    }
    let is = |of: &[(u64, Versus)], wanted| of.iter().any(|(_, v)| v.verdict() == wanted);
    let unclear = |of| is(of, Verdict::Unclear);
    let headline = match (is(&ascending, Verdict::Faster), is(&ascending, Verdict::Slower)) {
        (true, false) => "it helps",
        (false, true) => "it hurts",
        (true, true) => "it helps some sizes and hurts others",
        (false, false) if unclear(&ascending) => "cannot be told, the rounds differ too much",
        (false, false) => "it does not show",
    };
    let list = |of: &[(u64, Versus)]| {
        let one = |(bytes, versus): &(u64, Versus)| {
            format!("{} {} times", Bytes(*bytes), two(versus.ratio))
        };
        of.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let mut said =
        format!("{headline}: reads in ascending order beside random ones: {}", list(&ascending));
    let descending = against(Order::Descending);
    if !descending.is_empty() {
        said += &format!("; descending: {}", list(&descending));
    }
    let strided = against(Order::EveryFourth);
    if !strided.is_empty() {
        let word = match (is(&strided, Verdict::Faster), is(&strided, Verdict::Slower)) {
            (true, false) => "gaps are foreseen",
            (_, true) => "what is fetched for gaps is in the way",
            (false, false) if unclear(&strided) => "whether gaps are foreseen cannot be told",
            (false, false) => "gaps are not foreseen",
        };
        said += &format!("; every fourth: {} ({word})", list(&strided));
    }
    said
}

/// What the answer of [`prefetcher`] cannot tell.
pub fn how_prefetcher(facts: &Facts) -> String {
    match &facts.prefetch_switch {
        Told::Known(how) => format!(
            "by the order of reads, not by switching the prefetchers off (MSR 0x1a4; {how}, which this program does not do): what order \
             spares in address translation and in the memory's rows is in it"
        ),
        Told::NotTold(why) => format!(
            "by the order of reads, for the prefetchers cannot be switched off here (MSR 0x1a4; {why}): what order spares in address \
             translation and in the memory's rows is in it"
        ),
    }
}

/// `1.8 times the next, 95 % 1.7 to 1.9`.
fn beside(versus: &Versus) -> String {
    match versus.ci95 {
        Some([low, high]) => {
            format!("{} times the next, 95 % {} to {}", two(versus.ratio), two(low), two(high))
        }
        None => format!("{} times the next, of one round", two(versus.ratio)),
    }
}

fn two(value: f64) -> String {
    format!("{value:.2}")
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn threads(count: u64) -> String {
    if count == 1 { "1 thread".into() } else { format!("{count} threads") }
}

#[cfg(test)]
mod tests;
