//! From figures to sentences: pure functions, one for each insight. A question that cannot be
//! answered says why.
//!
//! This file is about what one machine cannot vary; `used` is about cycles and bandwidth, `flushes`
//! about persist instructions and doing without them, `order` about predictable reads.

pub mod flushes;
pub mod order;
pub mod used;

use perdura_media::Bytes;

use super::facts::{Facts, PowerLimit, Told};
use super::figures::{Verdict, Versus};
use crate::access::reference::{MemoryKind, Reference, References};

/// Why the capacity of a module cannot be varied here, and what is known about the modules.
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
                "not answerable here: the machine has {count} {plural} of {sizes}, and no others \
                 to compare with"
            )
        }
        Told::NotTold(why) => {
            format!("not answerable here: the machine does not report its modules ({why})")
        }
    }
}

/// Why the power budget cannot be varied here.
pub fn power_here(facts: &Facts) -> String {
    match &facts.memory_limit {
        Told::Known(PowerLimit { watts, zones }) => {
            let zones =
                if *zones == 1 { String::new() } else { format!(", the sum of {zones} zones") };
            format!(
                "not answered here: the memory's power limit is {watts} W{zones}, and only the \
                 machine's owner may change it"
            )
        }
        Told::NotTold(why) => {
            format!("not answerable here: the machine shows no power limit of its memory ({why})")
        }
    }
}

/// Why the number of modules cannot be varied here.
pub fn modules_here() -> String {
    "not answerable here: the number of modules that addresses are spread over is set by the \
     firmware, not at run time"
        .into()
}

/// Why the bus cannot be varied here.
pub fn bus_here(facts: &Facts) -> String {
    let speed = match &facts.modules {
        Told::Known(modules) => modules
            .iter()
            .map(|module| module.configured_mega_transfers_per_s)
            .max()
            .filter(|speed| *speed > 0),
        Told::NotTold(_) => None,
    };
    match speed {
        Some(speed) => format!(
            "cannot be varied here: the bus runs at {speed} MT/s, which the firmware sets before \
             the system starts"
        ),
        None => "cannot be varied here: the firmware sets it before the system starts".into(),
    }
}

/// Peaks of the published systems of one generation, with all their differences: no two differ in
/// capacity alone.
pub fn published_capacity(references: &References) -> String {
    let of = |system: &Reference| {
        let peaks = system.peak_gib_per_s?;
        Some(format!(
            "{} of {} GB ({}) read {} GiB/s in sequence and write {}",
            system.modules,
            system.module_gb?,
            besides(system, true),
            peaks.sequential_read,
            peaks.sequential_write
        ))
    };
    let said = first_series(references).filter_map(of).collect::<Vec<_>>().join("; ");
    format!(
        "{said}; so capacity is not the only difference: the one of 256 GB is also the only one of \
         18 W, and that of 512 GB has more cores"
    )
}

/// Peaks of the published systems by power of a module, with all their differences.
pub fn published_power(references: &References) -> String {
    let of = |system: &Reference| {
        let peaks = system.peak_gib_per_s?;
        Some(format!(
            "{} W a module: {} GiB/s of sequential writes ({}, {} GB a module, {})",
            system.module_watts?,
            peaks.sequential_write,
            system.name,
            system.module_gb?,
            besides(system, false)
        ))
    };
    let said = first_series(references).filter_map(of).collect::<Vec<_>>().join("; ");
    format!(
        "{said}; so power is not the only difference: the only one of 18 W is also the only one of \
         256 GB a module"
    )
}

/// Properties of a system besides the one that is compared.
fn besides(system: &Reference, with_watts: bool) -> String {
    let watts = system.module_watts.filter(|_| with_watts).map(|watts| format!("{watts} W each"));
    let cores = system.cores.map(|cores| format!("{cores} cores"));
    [watts, cores].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The systems of the same generation and number of modules.
fn first_series(references: &References) -> impl Iterator<Item = &Reference> {
    references.systems.iter().filter(|system| {
        system.memory == MemoryKind::Persistent && system.series.as_deref() == Some("100")
    })
}

/// A ratio with its interval: `2.00 times, 95 % 1.90 to 2.10`.
fn times(versus: &Versus) -> String {
    match versus.ci95 {
        Some([low, high]) => {
            format!("{} times, 95 % {} to {}", two(versus.ratio), two(low), two(high))
        }
        None => format!("{} times, of one round", two(versus.ratio)),
    }
}

/// The verdict over all sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overall {
    Helps,
    Hurts,
    NoDifference,
    /// Some sizes are faster, others are not.
    Depends,
    /// Some sizes are slower, the others make no difference.
    HurtsSome,
    CannotBeTold,
}

/// The verdict over all sizes, and whether some sizes have none.
fn overall(verdicts: &[Verdict]) -> (Overall, bool) {
    let is = |wanted| verdicts.contains(&wanted);
    let of = match (is(Verdict::Faster), is(Verdict::Slower), is(Verdict::Alike)) {
        (true, false, false) => Overall::Helps,
        (false, true, false) => Overall::Hurts,
        (false, false, true) => Overall::NoDifference,
        (true, ..) => Overall::Depends,
        (false, true, true) => Overall::HurtsSome,
        (false, false, false) => Overall::CannotBeTold,
    };
    (of, is(Verdict::Unclear))
}

fn two(value: f64) -> String {
    format!("{value:.2}")
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// A number of threads in words: `1 thread`, `2 threads`.
pub(super) fn threads(count: u64) -> String {
    if count == 1 { "1 thread".into() } else { format!("{count} threads") }
}

#[cfg(test)]
mod tests;
