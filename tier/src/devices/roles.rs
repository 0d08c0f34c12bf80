//! Which devices are primaries, and which are idle (Sprint-AEP, section III-A). Decisions only.
//!
//! A *primary* takes batches of values that leave memory. An *idle* device takes none while a
//! primary has room: it is read on a miss only, so that its drive can sleep. How many are primaries
//! is asked for, or found by trials ([`Activation`], the same that models use). Roles are not kept
//! over a start, because no value's place depends on them.

use std::fmt;
use std::str::FromStr;

use crate::activation::{ALPHA, Activation, BEHIND_MAX, Judged, PRESSED_ABOVE, Rates};

/// Time over which rates are measured, and so the time of a trial: the paper's several seconds.
pub(crate) const PERIOD_NS: u64 = 4_000_000_000;
/// Writers that wait for memory for more of the time press the primaries, a share.
const WAITING_ABOVE: f64 = 0.2;

/// How many devices are to be primaries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Primaries {
    /// All: no device is idle.
    #[default]
    All,
    /// As many as trials find worth it.
    Auto,
    /// So many; more if they would have more than [`BEHIND_MAX`] idle devices behind each.
    Number(u16),
}

/// A text does not say how many devices are to be primaries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no number of primaries: expected all, auto, or a number from 1 up")]
pub struct NotPrimaries(pub String);

impl FromStr for Primaries {
    type Err = NotPrimaries;

    fn from_str(text: &str) -> Result<Self, NotPrimaries> {
        match text.parse() {
            _ if text.eq_ignore_ascii_case("all") => Ok(Self::All),
            _ if text.eq_ignore_ascii_case("auto") => Ok(Self::Auto),
            Ok(number) if number > 0 => Ok(Self::Number(number)),
            _ => Err(NotPrimaries(text.into())),
        }
    }
}

impl fmt::Display for Primaries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Auto => f.write_str("auto"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// The fewest primaries of so many devices.
pub(crate) fn primaries_least(devices: u16) -> u16 {
    devices.div_ceil(1 + BEHIND_MAX).max(1)
}

/// A device that takes values, or would if it had room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub number: u16,
    pub is_full: bool,
    /// Its time with a request under way, since any moment.
    pub busy_ns: u64,
}

/// What clients and devices have done, since any moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub now_ns: u64,
    /// Requests of clients.
    pub reads: u64,
    pub writes: u64,
    /// Time in which at least one writer waited for memory.
    pub waiting_ns: u64,
}

/// What people are told of the roles.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RolesStatus {
    /// How many primaries are asked for.
    pub wish: Primaries,
    /// Trials that were begun, with one primary more or fewer.
    pub trials: u64,
    /// Trials whose number of primaries stayed.
    pub trials_kept: u64,
    /// Times that an idle device became a primary: on trial, by order, or in the place of another.
    pub activations: u64,
    /// The outcome of the last trial.
    pub last_trial: Option<Judged>,
}

/// The roles of all devices.
#[derive(Debug)]
pub(crate) struct Roles {
    activation: Activation,
    /// Numbers of the primaries, those that became it last at the end.
    primaries: Vec<u16>,
    /// The beginning of the period that is measured.
    since: Option<(Totals, Vec<Candidate>)>,
    status: RolesStatus,
}

impl Default for Roles {
    fn default() -> Self {
        let activation = Activation::new(1, 1, ALPHA);
        Self { activation, primaries: Vec::new(), since: None, status: RolesStatus::default() }
    }
}

impl Roles {
    pub fn status(&self) -> RolesStatus {
        self.status
    }

    /// Numbers of the primaries, those that became it last at the end.
    pub fn primaries(&self) -> &[u16] {
        &self.primaries
    }

    /// Whether a device is one that takes no values while a primary has room.
    pub fn is_idle(&self, number: u16) -> bool {
        self.status.wish != Primaries::All && !self.primaries.contains(&number)
    }

    /// Asks for so many primaries.
    pub fn set_wish(&mut self, wish: Primaries, candidates: &[Candidate]) {
        if wish != self.status.wish {
            self.activation.end_trial();
            (self.status.wish, self.since) = (wish, None);
        }
        self.assign(candidates);
    }

    /// Gives every device its role. A primary that cannot take values any more is replaced at once;
    /// no other one changes for it.
    pub fn assign(&mut self, candidates: &[Candidate]) {
        let with_room = candidates.iter().filter(|one| !one.is_full);
        let mut pool: Vec<u16> = with_room.map(|one| one.number).collect();
        if pool.is_empty() {
            // It makes no difference then, but there is always a primary.
            pool = candidates.iter().map(|one| one.number).collect();
        }
        pool.sort_unstable();
        if self.status.wish == Primaries::All {
            self.primaries = pool;
            return;
        }
        let before = self.primaries.len();
        self.primaries.retain(|number| pool.contains(number));
        if self.primaries.len() < before {
            // What is measured would be the effect of the loss.
            self.activation.end_trial();
            self.since = None;
        }
        let wanted = usize::from(self.wanted(candidates.len() as u16)).min(pool.len());
        self.primaries.truncate(wanted);
        for number in pool {
            if self.primaries.len() < wanted && !self.primaries.contains(&number) {
                self.primaries.push(number);
                self.status.activations += 1;
            }
        }
    }

    fn wanted(&mut self, devices: u16) -> u16 {
        let least = primaries_least(devices);
        match self.status.wish {
            Primaries::All => devices,
            Primaries::Number(number) => number.max(least),
            Primaries::Auto => {
                self.activation.set_bounds(least, devices.max(least));
                self.activation.primaries()
            }
        }
    }

    /// Notes what was done until now. At the end of a period the number of primaries may change, if
    /// trials find it.
    pub fn observe(&mut self, totals: Totals, candidates: &[Candidate]) {
        if self.status.wish != Primaries::Auto {
            return;
        }
        let end = (totals, candidates.to_vec());
        let Some(since) = &self.since else {
            self.since = Some(end);
            return;
        };
        if end.0.now_ns.saturating_sub(since.0.now_ns) < PERIOD_NS {
            return;
        }
        let rates = self.rates(since, &end);
        self.since = Some(end);
        // Without rates the totals began anew, and the period tells nothing.
        let Some(rates) = rates else { return };
        let decision = self.activation.decide(rates);
        self.status.trials += u64::from(decision.is_trial);
        if let Some(judged) = decision.judged {
            self.status.trials_kept += u64::from(judged.stays);
            self.status.last_trial = Some(judged);
        }
        self.assign(candidates);
    }

    fn rates(
        &self,
        (begin, devices_before): &(Totals, Vec<Candidate>),
        (end, devices): &(Totals, Vec<Candidate>),
    ) -> Option<Rates> {
        let seconds = (end.now_ns - begin.now_ns) as f64 / 1e9;
        let share = |begin_ns: u64, end_ns: u64| {
            end_ns.checked_sub(begin_ns).map(|ns| ns as f64 / 1e9 / seconds)
        };
        let busy_of = |number: u16, of: &[Candidate]| {
            of.iter().find(|one| one.number == number).map(|one| one.busy_ns)
        };
        let busy = self.primaries.iter().filter_map(|number| {
            share(busy_of(*number, devices_before)?, busy_of(*number, devices)?)
        });
        let (number, sum) = busy.fold((0, 0.0), |(number, sum), share| (number + 1, sum + share));
        let is_busy = sum > PRESSED_ABOVE * f64::from(number.max(1));
        let is_waited_for = share(begin.waiting_ns, end.waiting_ns)? > WAITING_ABOVE;
        Some(Rates {
            reads_per_s: end.reads.checked_sub(begin.reads)? as f64 / seconds,
            writes_per_s: end.writes.checked_sub(begin.writes)? as f64 / seconds,
            is_pressed: is_busy || is_waited_for,
        })
    }
}

#[cfg(test)]
mod tests;
