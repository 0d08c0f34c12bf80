//! The energy of the booked requests, in joules.
//!
//! Where a profile gives power by the interval between requests (Sprint-AEP, table II and figure
//! 2), the time from one request's start to the next one's costs the power of the idle interval
//! between them. Otherwise a unit draws `peak` while it works on a request that waited for the one
//! before, `active` on a request that found the unit idle, and `idle` in between. Requests that a
//! unit has under way at the same time count as one time of work.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::Model;
use crate::profile::System;
use crate::units::Joules;

/// Modelled energy of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EnergyUse {
    /// Energy until the last request was done (Sprint-AEP's execution-time energy).
    pub execution: Joules,
    /// Energy until the instant asked for, idle from the last request on (Sprint-AEP's equal-time
    /// energy).
    pub equal_time: Joules,
}

/// Power of one unit, its share of the module's, in nanowatts: times a picosecond it is 10^-21 J.
pub(super) struct PowerOf {
    idle_nw: u64,
    active_nw: u64,
    peak_nw: u64,
    /// Pairs of an idle interval in picoseconds and the power at that interval.
    by_interval: Vec<(u64, u64)>,
}

impl PowerOf {
    pub(super) fn of(system: &System) -> Self {
        let share_nw = |watts: f64| (watts * 1e9 / f64::from(system.medium.units)) as u64;
        let power = &system.power;
        Self {
            idle_nw: share_nw(power.idle.0),
            active_nw: share_nw(power.active.0),
            peak_nw: share_nw(power.peak.0),
            by_interval: power
                .by_interval
                .iter()
                .map(|(gap, watts)| (gap.0, share_nw(watts.0)))
                .collect(),
        }
    }

    /// Power at an interval: linear between two points, constant before the first, idle after the
    /// last.
    fn at(&self, interval_ps: u64) -> u64 {
        let after = self.by_interval.partition_point(|(gap_ps, _)| *gap_ps <= interval_ps);
        match (
            after.checked_sub(1).map(|before| self.by_interval[before]),
            self.by_interval.get(after),
        ) {
            (None, None) => self.active_nw,
            (None, Some((_, nw))) => *nw,
            (Some((last_ps, nw)), None) if interval_ps == last_ps => nw,
            (Some(_), None) => self.idle_nw,
            (Some((from_ps, from_nw)), Some((to_ps, to_nw))) => {
                let share = (interval_ps - from_ps) as f64 / (to_ps - from_ps) as f64;
                (from_nw as f64 + (*to_nw as f64 - from_nw as f64) * share) as u64
            }
        }
    }
}

/// Energy that one unit has drawn. Threads that book the same unit at once may each miss the
/// other's last interval.
#[derive(Default)]
pub(super) struct Meter {
    requests: AtomicU64,
    start_ps: AtomicU64,
    done_ps: AtomicU64,
    /// Time of requests that found the unit idle.
    active_ps: AtomicU64,
    /// Time of requests that waited for another.
    peak_ps: AtomicU64,
    /// Energy up to `start_ps`, in nanojoules.
    drawn_nj: AtomicU64,
}

impl Meter {
    pub(super) fn count(&self, power: &PowerOf, start_ps: u64, length_ps: u64) {
        let done_ps = start_ps.saturating_add(length_ps);
        let (last_done_ps, is_first) =
            (self.done_ps.load(Relaxed), self.requests.load(Relaxed) == 0);
        if power.by_interval.is_empty() {
            // The part that overlaps the request before is counted already.
            let added_ps = done_ps.saturating_sub(start_ps.max(last_done_ps));
            let is_behind = !is_first && start_ps <= last_done_ps;
            let working = if is_behind { &self.peak_ps } else { &self.active_ps };
            working.store(working.load(Relaxed).saturating_add(added_ps), Relaxed);
        } else {
            let before_ps = self.start_ps.load(Relaxed);
            let gap_ps = start_ps.saturating_sub(last_done_ps);
            let nw = if is_first { power.idle_nw } else { power.at(gap_ps) };
            let drawn_nj = energy_nj(nw, start_ps.saturating_sub(before_ps));
            self.drawn_nj.store(self.drawn_nj.load(Relaxed).saturating_add(drawn_nj), Relaxed);
            self.start_ps.store(start_ps, Relaxed);
        }
        self.requests.store(self.requests.load(Relaxed) + 1, Relaxed);
        self.done_ps.store(self.done_ps.load(Relaxed).max(done_ps), Relaxed);
    }

    fn joules(&self, power: &PowerOf, until_ps: u64) -> f64 {
        let (done_ps, requests) =
            (self.done_ps.load(Relaxed).min(until_ps), self.requests.load(Relaxed));
        if power.by_interval.is_empty() || requests == 0 {
            let peak_ps = self.peak_ps.load(Relaxed).min(until_ps);
            let active_ps = self.active_ps.load(Relaxed).min(until_ps - peak_ps);
            return joules(power.idle_nw, until_ps - peak_ps - active_ps)
                + joules(power.active_nw, active_ps)
                + joules(power.peak_nw, peak_ps);
        }
        let start_ps = self.start_ps.load(Relaxed).min(done_ps);
        // No interval follows the last request, which counts as one of a run without pauses.
        let last = joules(power.at(0), done_ps - start_ps);
        self.drawn_nj.load(Relaxed) as f64 / 1e9 + last + joules(power.idle_nw, until_ps - done_ps)
    }
}

impl Model {
    /// Energy that all units have drawn from 0 to the end of the last request, and to `until_ps` if
    /// that is later.
    #[must_use]
    pub fn energy(&self, until_ps: u64) -> EnergyUse {
        let end_ps =
            self.units.iter().map(|unit| unit.meter.done_ps.load(Relaxed)).max().unwrap_or(0);
        let all = |until_ps| -> f64 {
            self.units.iter().map(|unit| unit.meter.joules(&self.timing.power, until_ps)).sum()
        };
        EnergyUse { execution: Joules(all(end_ps)), equal_time: Joules(all(until_ps.max(end_ps))) }
    }
}

fn joules(nw: u64, ps: u64) -> f64 {
    nw as f64 * ps as f64 / 1e21
}

fn energy_nj(nw: u64, ps: u64) -> u64 {
    // Rounded to a nanojoule: at a watt and a microsecond that is a thousandth.
    ((u128::from(nw) * u128::from(ps) + NJ_HALF) / NJ) as u64
}

/// Products of a nanowatt and a picosecond in a nanojoule.
const NJ: u128 = 1_000_000_000_000;
const NJ_HALF: u128 = NJ / 2;
