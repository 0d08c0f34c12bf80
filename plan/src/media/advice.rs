//! The advice: which memory to buy, at which load the answer changes, and whether the conclusions
//! of the HASTE slides hold at these prices.

use serde::Serialize;

use super::device::Kind;
use super::fleet::{Fleet, Question};
use super::{Candidate, Locality, Role, Workload};

/// A capacity or rate from which on another candidate is the cheapest that meets the load, by a
/// twentieth at least: less is no reason to change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flip {
    /// The capacity (bytes) or the rate (requests a second) from which on it is so.
    pub from: f64,
    /// The medium; `None` where none meets the load.
    pub medium: Option<String>,
    /// The role of the medium.
    pub role: Option<Role>,
}

/// The cheapest candidate over capacity and rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Map {
    /// The capacities, which are the columns, bytes.
    pub capacities_bytes: Vec<u64>,
    /// The rates, which are the rows, requests a second.
    pub rates_per_s: Vec<f64>,
    /// The media and roles that the cells number.
    pub choices: Vec<(String, Role)>,
    /// The cheapest for each rate and capacity, row by row; `None` where nothing meets the load.
    pub cells: Vec<Vec<Option<usize>>>,
}

/// One of the slides' conclusions, compared with the modelled figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Conclusion {
    /// The role of the media in the conclusion.
    pub role: Role,
    /// The slides' conclusion, in our words.
    pub claim: &'static str,
    /// Whether the conclusion holds at these prices. `None`: a medium that it names was not
    /// compared, or has no price.
    pub holds: Option<bool>,
    /// The comparison in words: the media, and by how much another medium in the same role is
    /// cheaper or dearer.
    pub verdict: String,
    /// The figures that the verdict rests on.
    pub because: String,
}

pub(super) fn flips_by_capacity(fleet: &Fleet, workload: &Workload) -> Vec<Flip> {
    let at = |bytes: f64| Workload { capacity_bytes: bytes as u64, ..workload.clone() };
    flips(fleet, 1e9, 1e15, at)
}

pub(super) fn flips_by_rate(fleet: &Fleet, workload: &Workload) -> Vec<Flip> {
    let at = |rate_per_s: f64| Workload { rate_per_s, ..workload.clone() };
    flips(fleet, 10.0, 1e8, at)
}

/// The changes from `low` to `high`: found step by step, then halved down to a hundredth.
fn flips(fleet: &Fleet, low: f64, high: f64, at: impl Fn(f64) -> Workload) -> Vec<Flip> {
    let steps = ((high / low).log10() * STEPS_PER_DECADE) as u32;
    let value = |step: u32| low * 10f64.powf(f64::from(step) / STEPS_PER_DECADE);
    let mut held = choice(fleet, &at(low));
    let mut found = vec![flip(low, held.clone())];
    for step in 1..=steps {
        let (mut from, mut to) = (value(step - 1), value(step));
        if is_kept(fleet, &at(to), held.as_ref()) {
            continue;
        }
        while to / from > 1.01 {
            let middle = (from * to).sqrt();
            if is_kept(fleet, &at(middle), held.as_ref()) { from = middle } else { to = middle }
        }
        held = choice(fleet, &at(to));
        found.push(flip(to, held.clone()));
    }
    found
}

fn flip(from: f64, choice: Option<(String, Role)>) -> Flip {
    let (medium, role) = choice.unzip();
    Flip { from, medium, role }
}

/// Whether a choice is still the cheapest, or nearly so.
fn is_kept(fleet: &Fleet, workload: &Workload, held: Option<&(String, Role)>) -> bool {
    let best = fleet.best(workload).filter(|best| best.meets);
    let (Some((medium, role)), Some(best)) = (held, &best) else {
        return held.is_none() == best.is_none();
    };
    let all = fleet.candidates(workload);
    let held = all.iter().find(|one| one.medium == *medium && one.role == *role && one.meets);
    let is_near = |held: &Candidate| {
        held.eur.zip(best.eur).is_some_and(|(held, best)| held <= CHANGED_FROM * best)
    };
    held.is_some_and(is_near)
}

fn choice(fleet: &Fleet, workload: &Workload) -> Option<(String, Role)> {
    fleet.best(workload).filter(|best| best.meets).map(|best| (best.medium, best.role))
}

pub(super) fn map(fleet: &Fleet, workload: &Workload) -> Map {
    let capacities_bytes: Vec<u64> =
        (0..=36).map(|step| 10f64.powf(9.0 + f64::from(step) / 6.0) as u64).collect();
    let rates_per_s: Vec<f64> =
        (0..=24).map(|step| 10f64.powf(2.0 + f64::from(step) / 4.0)).collect();
    let mut choices: Vec<(String, Role)> = Vec::new();
    let cells = rates_per_s
        .iter()
        .map(|rate_per_s| {
            let row = capacities_bytes.iter().map(|capacity_bytes| {
                let at = Workload {
                    capacity_bytes: *capacity_bytes,
                    rate_per_s: *rate_per_s,
                    ..workload.clone()
                };
                let found = choice(fleet, &at)?;
                Some(choices.iter().position(|known| *known == found).unwrap_or_else(|| {
                    choices.push(found);
                    choices.len() - 1
                }))
            });
            row.collect()
        })
        .collect();
    Map { capacities_bytes, rates_per_s, choices, cells }
}

/// The three conclusions of the slides, each on a load of the kind that they name for it.
pub(super) fn conclusions(question: &Question) -> Vec<Conclusion> {
    vec![primary(question), cache(question), hybrid(question)]
}

/// The conclusion on intensive random requests to less than a terabyte.
fn primary(question: &Question) -> Conclusion {
    let fleet = Fleet::of(question);
    let load = Workload {
        capacity_bytes: 500_000_000_000,
        rate_per_s: 500_000.0,
        ..question.workload.clone()
    };
    let all: Vec<Candidate> =
        fleet.candidates(&load).into_iter().filter(|one| one.role == Role::Primary).collect();
    let of = |kind| cheapest(&all, |one| fleet.kind(&one.medium) == Some(kind));
    let (fast, flash, disks) = (of(Kind::Fast), of(Kind::Flash), of(Kind::Disk));
    let (Some(fast), Some(flash), Some(disks)) = (fast, flash, disks) else {
        return unanswered(Role::Primary, PRIMARY);
    };
    let (fast_cost, flash_cost, disk_cost) = (cost(&fast), cost(&flash), cost(&disks));
    let fails = [
        (!fast.meets, "the load is not met"),
        (fast_cost >= flash_cost, "flash costs no more"),
        (fast_cost >= disk_cost, "disks cost no more"),
        (fast.watts >= 2.0 * flash.watts, "it takes twice the power of flash or more"),
    ];
    let (holds, verdict) = judged(&fails, "holds", &fast, Some(&flash));
    Conclusion {
        role: Role::Primary,
        claim: PRIMARY,
        holds: Some(holds),
        verdict,
        because: format!(
            "500 GB at 500,000 requests/s: {} {:.4} EUR per request/s and {:.0} W, {} {:.4} EUR \
             and {:.0} W, {} {:.3} EUR and {:.0} W",
            fast.medium,
            fast_cost,
            fast.watts,
            flash.medium,
            flash_cost,
            flash.watts,
            disks.medium,
            disk_cost,
            disks.watts
        ),
    }
}

/// The conclusion on a cache in front of an array, for large data with locality.
fn cache(question: &Question) -> Conclusion {
    let locality = Locality::of_shares(0.1, 0.9);
    beside(
        question,
        Role::Cache,
        CACHE,
        5e13,
        locality,
        "50 TB, nine requests of ten to a tenth of the data",
    )
}

/// The conclusion on a fixed part of the data that is asked for most: a log, swap.
fn hybrid(question: &Question) -> Conclusion {
    beside(
        question,
        Role::Hybrid,
        HYBRID,
        5e13,
        Locality::none(),
        "50 TB, a fixed 0.1 % of the data with half of the requests",
    )
}

fn beside(
    question: &Question,
    role: Role,
    claim: &'static str,
    capacity: f64,
    locality: Locality,
    about: &str,
) -> Conclusion {
    let fleet = Fleet::of(question);
    let load = Workload {
        capacity_bytes: capacity as u64,
        rate_per_s: 20_000.0,
        locality,
        fixed_data_share: 0.001,
        fixed_request_share: 0.5,
        ..question.workload.clone()
    };
    let all = fleet.candidates(&load);
    let of_role: Vec<Candidate> = all.iter().filter(|one| one.role == role).cloned().collect();
    let alone: Vec<Candidate> = all.into_iter().filter(|one| one.role == Role::Primary).collect();
    let fast = cheapest(&of_role, |one| fleet.kind(&one.medium) == Some(Kind::Fast));
    let disks = cheapest(&alone, |one| one.medium == fleet.disks.name);
    let (Some(fast), Some(disks)) = (fast, disks) else {
        return unanswered(role, claim);
    };
    let array_watts = fleet
        .disks
        .watts(fast.disk_arrays, load.rate_per_s.min(fast.rate_per_s) * (1.0 - fast.request_share));
    let share = (fast.watts - array_watts) / array_watts;
    let flash = cheapest(&of_role, |one| fleet.kind(&one.medium) == Some(Kind::Flash));
    let beside_flash = flash.as_ref().map_or(String::new(), |flash| {
        format!("{} in its place {:.4} EUR, ", flash.medium, cost(flash))
    });
    let fails = [
        (!fast.meets, "the load is not met"),
        (cost(&fast) >= cost(&disks), "disks alone cost no more"),
        (share >= 0.1, "its power is a tenth of the array's or more"),
    ];
    let (holds, verdict) = judged(&fails, "holds against disks alone", &fast, flash.as_ref());
    Conclusion {
        role,
        claim,
        holds: Some(holds),
        verdict,
        because: format!(
            "{about}, 20,000 requests/s: {} before the disks {:.4} EUR per request/s, \
             {beside_flash}disks alone {:.4} EUR; it adds {:.1} % to the array's {:.0} W",
            fast.medium,
            cost(&fast),
            cost(&disks),
            100.0 * share,
            array_watts
        ),
    }
}

/// Whether a claim holds, by what would speak against it, and that in words: with what fails, or
/// with how much flash in the same role costs beside it.
fn judged(
    fails: &[(bool, &str)],
    holds: &str,
    fast: &Candidate,
    flash: Option<&Candidate>,
) -> (bool, String) {
    let failed: Vec<&str> = fails.iter().filter(|(fails, _)| *fails).map(|(_, why)| *why).collect();
    if !failed.is_empty() {
        return (false, format!("changed, for {}", failed.join(" and ")));
    }
    let Some(flash) = flash else { return (true, holds.to_owned()) };
    let (name, ratio) = (&flash.medium, cost(flash) / cost(fast));
    let percent = 100.0 * (ratio - 1.0);
    let more = match percent {
        ..-0.05 => format!("{:.1} % less", -percent),
        0.05.. => format!("{percent:.1} % more"),
        _ => "the same".to_owned(),
    };
    let is_tie = (1.0 / CHANGED_FROM..=CHANGED_FROM).contains(&ratio);
    let but = match (is_tie, percent < 0.0) {
        (true, _) => "but it is a tie with flash",
        (false, true) => "but flash is cheaper still",
        (false, false) => "and flash is dearer",
    };
    (true, format!("{holds}, {but}: {name} in its place costs {more}"))
}

fn cheapest(all: &[Candidate], which: impl Fn(&Candidate) -> bool) -> Option<Candidate> {
    let fitting = all.iter().filter(|one| which(one) && one.eur.is_some());
    fitting.min_by(|left, right| left.order(right)).cloned()
}

fn cost(candidate: &Candidate) -> f64 {
    candidate.eur.unwrap_or(f64::INFINITY) / candidate.rate_per_s
}

fn unanswered(role: Role, claim: &'static str) -> Conclusion {
    let because =
        "not among the media compared: a fast memory, flash and disks with prices are needed"
            .to_owned();
    Conclusion { role, claim, holds: None, verdict: "not answered".to_owned(), because }
}

const PRIMARY: &str = "as primary storage for intensive random requests on less than a terabyte a \
    node, fast memory costs least for each request a second, at about the power of flash";
const CACHE: &str = "as a cache before a disk array it lowers what a request a second costs, and \
    its power is negligible beside the array's";
const HYBRID: &str = "for a fixed part of the data (a log, swap) it lowers what a request a second \
    costs, and its power is negligible beside the array's";
/// How much dearer than the cheapest is not worth a change: less than this is a tie.
const CHANGED_FROM: f64 = 1.05;
const STEPS_PER_DECADE: f64 = 8.0;
