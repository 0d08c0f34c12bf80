//! What the looks at one meter add up to.

use super::Look;
use crate::units::{Joules, Watts};

/// The energy that one meter has shown.
#[derive(Debug, Default)]
pub(super) struct Account {
    last: Option<Seen>,
    joules: f64,
    has_interval: bool,
    power: Option<Watts>,
}

#[derive(Debug, Clone, Copy)]
enum Seen {
    Counted { at_ns: u64, microjoules: u64 },
    Power { at_ns: u64, watts: f64 },
}

impl Account {
    /// Adds what was used since the look before. A count that is lower than the one before has
    /// begun at zero again: at the end of its range if it has one, else because it was reset, and
    /// then what was lost is not known and not added.
    pub fn note(&mut self, now_ns: u64, look: &Look) {
        let seconds_since = |at_ns: u64| now_ns.saturating_sub(at_ns) as f64 / 1e9;
        let interval = match (self.last, look) {
            (
                Some(Seen::Counted { at_ns, microjoules: before }),
                Look::Counted { microjoules, range },
            ) => {
                let now = *microjoules;
                let used = match (now.checked_sub(before), range) {
                    (Some(used), _) => used,
                    (None, Some(range)) => range.saturating_sub(before).saturating_add(now),
                    (None, None) => now,
                };
                Some((used as f64 / 1e6, seconds_since(at_ns)))
            }
            (Some(Seen::Power { at_ns, watts }), Look::Power(now)) => {
                let seconds = seconds_since(at_ns);
                Some(((watts + now.0) / 2.0 * seconds, seconds))
            }
            _ => None,
        };
        if let Some((joules, seconds)) = interval {
            self.joules += joules;
            self.has_interval = true;
            if seconds > 0.0 {
                self.power = Some(Watts(joules / seconds));
            }
        }
        self.last = Some(match look {
            Look::Counted { microjoules, .. } => {
                Seen::Counted { at_ns: now_ns, microjoules: *microjoules }
            }
            Look::Power(watts) => {
                self.power = Some(*watts);
                Seen::Power { at_ns: now_ns, watts: watts.0 }
            }
        });
    }

    /// Notes that a look failed: nothing is known until the next one but one.
    pub fn interrupt(&mut self) {
        self.last = None;
        self.power = None;
    }

    /// The energy of all intervals between two looks.
    pub fn energy(&self) -> Option<Joules> {
        self.has_interval.then_some(Joules(self.joules))
    }

    /// The power of the last interval, or the last one that the meter said.
    pub fn power(&self) -> Option<Watts> {
        self.power
    }
}
