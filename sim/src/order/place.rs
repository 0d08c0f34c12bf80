//! The name of a crash state: the place of the loss, and the state that the loss left.
//!
//! `power:17:3` is state 3 after event 17 of the operation; `kill:17` the process killed there;
//! `power:17:3/power:5:1` the state after another loss during the recovery from the first.

use std::fmt;
use std::str::FromStr;

/// One loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Power was lost after an event.
    Power {
        /// Events that had happened.
        events: usize,
        /// Number of the state, among those that are possible there.
        selection: usize,
    },
    /// The process was killed after an event, or half-way through the store that follows.
    Kill {
        /// Events that had happened.
        events: usize,
        /// Whether half of the store that follows had happened, too.
        is_half: bool,
    },
}

/// Losses in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place(pub Vec<Step>);

/// A text that names no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} names no state: expected power:EVENTS:STATE, kill:EVENTS or half:EVENTS, joined by /"
)]
pub struct NotAPlace(String);

impl Place {
    /// The place of another loss behind this one.
    pub(crate) fn then(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }
}

impl FromStr for Place {
    type Err = NotAPlace;

    fn from_str(text: &str) -> Result<Self, NotAPlace> {
        let step = |text: &str| {
            let (kind, numbers) = text.split_once(':')?;
            let (events, selection) = match numbers.split_once(':') {
                Some((events, selection)) => (events, Some(selection)),
                None => (numbers, None),
            };
            let events = events.parse().ok()?;
            match (kind, selection) {
                ("power", Some(selection)) => {
                    Some(Step::Power { events, selection: selection.parse().ok()? })
                }
                ("kill", None) => Some(Step::Kill { events, is_half: false }),
                ("half", None) => Some(Step::Kill { events, is_half: true }),
                _ => None,
            }
        };
        let steps: Option<Vec<_>> = text.split('/').map(step).collect();
        steps.map(Self).ok_or_else(|| NotAPlace(text.to_owned()))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("/")?;
            }
            match step {
                Step::Power { events, selection } => write!(f, "power:{events}:{selection}")?,
                Step::Kill { events, is_half: false } => write!(f, "kill:{events}")?,
                Step::Kill { events, is_half: true } => write!(f, "half:{events}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for name in ["power:17:3", "kill:0", "half:9/power:5:1/power:4:0"] {
            assert_eq!(name.parse::<Place>().unwrap().to_string(), name);
        }
        for wrong in ["", "power:1", "kill:1:2", "power:x:1", "power:1:1/", "loss:1:1"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
