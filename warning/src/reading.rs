//! What a source says: a state, the time that is left, and how far the source can be believed.

use std::fmt;
use std::time::Duration;

use perdura_media::{Joules, Watts, format_duration, parse_duration};

use crate::error::WarningError;

/// How near the end of the power, or of this process, is. A later state is a worse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Nothing threatens: mains power, and no notice.
    Steady,
    /// The machine lives on stored energy. Power may come back.
    OnBattery,
    /// The stored energy comes to its end. Power may still come back.
    Low,
    /// The machine, or this process, is being ended, and nothing takes that back.
    Ending,
}

impl State {
    const WORDS: [(&str, State); 4] = [
        ("steady", Self::Steady),
        ("on-battery", Self::OnBattery),
        ("low", Self::Low),
        ("ending", Self::Ending),
    ];

    /// The word for this state in status lines and reports.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize].0
    }
}

/// What is left until the end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Left {
    /// Time at the present load.
    Time(Duration),
    /// Energy, where the source does not know the load.
    Energy(Joules),
    /// Both, of several sources: which is less depends on the load.
    Both(Duration, Joules),
}

impl Left {
    /// The time that is left on a machine that draws `power`. Energy lasts no time that could be
    /// relied on where the power is not known, or the energy is no number above 0.
    pub fn time(self, power: Option<Watts>) -> Duration {
        match (self, power) {
            (Self::Time(time), _) => time,
            (Self::Energy(Joules(joules)), Some(Watts(watts))) if joules > 0.0 && watts > 0.0 => {
                Duration::try_from_secs_f64(joules / watts).unwrap_or(Duration::MAX)
            }
            (Self::Energy(_), _) => Duration::ZERO,
            (Self::Both(time, energy), power) => time.min(Self::Energy(energy).time(power)),
        }
    }

    /// The least of what two sources say.
    fn least(self, other: Self) -> Self {
        let parts = |left| match left {
            Self::Time(time) => (Some(time), None),
            Self::Energy(energy) => (None, Some(energy)),
            Self::Both(time, energy) => (Some(time), Some(energy)),
        };
        let ((time, energy), (other_time, other_energy)) = (parts(self), parts(other));
        let least_time = time.into_iter().chain(other_time).min();
        let energies = energy.into_iter().chain(other_energy);
        let least_energy = energies.min_by(|Joules(one), Joules(two)| one.total_cmp(two));
        match (least_time, least_energy) {
            (Some(time), Some(energy)) => Self::Both(time, energy),
            (Some(time), None) => Self::Time(time),
            (None, Some(energy)) => Self::Energy(energy),
            (None, None) => self,
        }
    }
}

/// How far a reading can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confidence {
    /// The source tells its own present state.
    Fresh,
    /// The source cannot be reached, or does not know its own state, so an outage would not be
    /// seen. The state is a guess: [`State::OnBattery`] after a steady one.
    Lost,
}

/// What a source says.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// How near the end is.
    pub state: State,
    /// What is left until the end. `None`: the source does not know.
    pub left: Option<Left>,
    /// How far the source can be believed.
    pub confidence: Confidence,
    /// The source and its words, such as `SIGTERM` or `ups@localhost: OB DISCHRG`.
    pub told_by: String,
}

impl Reading {
    /// A reading of a source that knows its own present state, and not what is left.
    pub fn new(state: State, told_by: impl Into<String>) -> Self {
        Self { state, left: None, confidence: Confidence::Fresh, told_by: told_by.into() }
    }

    /// The reading of a source that cannot be reached, or does not know its own state.
    pub fn lost(told_by: impl Into<String>) -> Self {
        Self { confidence: Confidence::Lost, ..Self::new(State::OnBattery, told_by) }
    }

    /// This reading, made by a source whose reading before was `last`. A source that is lost while
    /// on battery counts as [`State::Low`], as NUT's `upsmon` has it. An end is never taken back.
    pub(crate) fn after(self, last: &Reading) -> Self {
        let least = match (self.confidence, last.confidence, last.state) {
            (_, _, State::Ending) => State::Ending,
            (Confidence::Lost, Confidence::Fresh, State::OnBattery)
            | (Confidence::Lost, _, State::Low) => State::Low,
            _ => State::Steady,
        };
        Self { state: self.state.max(least), ..self }
    }

    /// Reads a status line, as files and commands give it: a state and perhaps what is left, such
    /// as `steady`, `on-battery 5m` or `low 1500J`. An empty line means `ending`.
    ///
    /// # Errors
    /// The line says something else.
    pub fn parse(line: &str, told_by: &str) -> Result<Self, WarningError> {
        let refused = || WarningError::StatusLine {
            told_by: told_by.to_owned(),
            line: line.chars().take(80).collect(),
        };
        let mut words = line.split_whitespace();
        let state = match words.next() {
            None => State::Ending,
            Some(word) => {
                let known = State::WORDS.iter().find(|(known, _)| *known == word);
                known.ok_or_else(refused)?.1
            }
        };
        let left = match words.next() {
            None => None,
            Some(word) => Some(match (parse_duration(word), word.parse()) {
                (Ok(time), _) => Left::Time(time),
                (_, Ok(energy)) => Left::Energy(energy),
                _ => return Err(refused()),
            }),
        };
        if words.next().is_some() {
            return Err(refused());
        }
        let told_by = match line.trim() {
            "" => told_by.to_owned(),
            line => format!("{told_by}: {line}"),
        };
        Ok(Self { left, ..Self::new(state, told_by) })
    }

    /// What both readings together say: the worse state; and of two of the same state the least
    /// that is left, and lost if either is. In the words of the worse one.
    pub(crate) fn joined(&self, other: &Reading) -> Reading {
        let worse = if other.is_worse_than(self) { other } else { self };
        if self.state != other.state {
            return worse.clone();
        }
        let is_lost = [self, other].iter().any(|it| it.confidence == Confidence::Lost);
        let left = match (self.left, other.left) {
            (Some(left), Some(other)) => Some(left.least(other)),
            (left, other) => left.or(other),
        };
        let confidence = if is_lost { Confidence::Lost } else { Confidence::Fresh };
        Reading { left, confidence, ..worse.clone() }
    }

    /// Whether this reading is worse than `other`: first by the state, then by the confidence, then
    /// by what is left.
    pub(crate) fn is_worse_than(&self, other: &Reading) -> bool {
        let rank = |reading: &Reading| {
            let left = reading.left.map_or(Duration::MAX, |left| left.time(None));
            (reading.state, reading.confidence == Confidence::Lost, std::cmp::Reverse(left))
        };
        rank(self) > rank(other)
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told_by)?;
        match self.left {
            None => Ok(()),
            Some(Left::Time(time)) => write!(f, " ({} left)", format_duration(time)),
            Some(Left::Energy(joules)) => write!(f, " ({joules} left)"),
            Some(Left::Both(time, joules)) => {
                write!(f, " ({} and {joules} left)", format_duration(time))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_is_a_state_and_what_is_left() {
        let read = |line| Reading::parse(line, "the file").unwrap();
        for (word, state) in State::WORDS {
            assert_eq!(read(word), Reading::new(state, format!("the file: {word}")));
            assert_eq!(state.word(), word);
        }
        let minutes = read("  on-battery \t5m ");
        assert_eq!(minutes.left, Some(Left::Time(Duration::from_secs(300))));
        assert_eq!(minutes.to_string(), "the file: on-battery \t5m (5m left)");
        assert_eq!(read("low 1.5kJ").left, Some(Left::Energy(Joules(1_500.0))));
        assert_eq!(read(""), Reading::new(State::Ending, "the file"));
    }

    #[test]
    fn another_line_is_refused_with_its_words() {
        for line in ["fine", "Steady", "low 5", "low 5m 6m", "5m", "on-battery -5m", "low nanJ"] {
            let error = Reading::parse(line, "the file").unwrap_err().to_string();
            assert!(error.contains(line) && error.contains("the file"), "{error}");
        }
        let long = Reading::parse(&"x".repeat(1_000_000), "the file").unwrap_err().to_string();
        assert!(long.len() < 300, "{long}");
    }

    #[test]
    fn a_source_that_is_lost_is_never_steady_and_low_if_it_was_on_battery() {
        let after = |state| {
            let lost = Reading::lost("").after(&Reading::new(state, ""));
            (lost.state, Reading::lost("").after(&lost).state)
        };
        assert_eq!(after(State::Steady), (State::OnBattery, State::OnBattery));
        assert_eq!(after(State::OnBattery), (State::Low, State::Low));
        assert_eq!(after(State::Low), (State::Low, State::Low));
        assert_eq!(after(State::Ending), (State::Ending, State::Ending));
    }

    #[test]
    fn what_a_source_says_later_counts_but_an_end_is_never_taken_back() {
        let said = [State::Steady, State::OnBattery, State::Low, State::Ending];
        for (before, now) in said.into_iter().flat_map(|a| said.map(|b| (a, b))) {
            let counts = Reading::new(now, "").after(&Reading::new(before, "")).state;
            assert_eq!(counts, if before == State::Ending { before } else { now });
        }
        let found = Reading::new(State::Steady, "").after(&Reading::lost(""));
        assert_eq!(found.state, State::Steady);
    }

    #[test]
    fn the_worse_of_two_has_the_worse_state_then_less_confidence_then_less_left() {
        let on_battery = Reading::new(State::OnBattery, "");
        let with = |seconds| Reading {
            left: Some(Left::Time(Duration::from_secs(seconds))),
            ..on_battery.clone()
        };
        let ascending = [
            Reading::new(State::Steady, ""),
            on_battery.clone(),
            with(60),
            with(5),
            Reading::lost(""),
            Reading::new(State::Low, ""),
            Reading::new(State::Ending, ""),
        ];
        for (index, worse) in ascending.iter().enumerate() {
            for (other, better) in ascending.iter().enumerate() {
                assert_eq!(worse.is_worse_than(better), index > other, "{worse:?} {better:?}");
            }
        }
    }

    #[test]
    fn energy_lasts_as_long_as_the_power_lets_it() {
        let energy = Left::Energy(Joules(3_000.0));
        assert_eq!(energy.time(Some(Watts(300.0))), Duration::from_secs(10));
        assert_eq!(energy.time(Some(Watts(0.0))), Duration::ZERO);
        assert_eq!(energy.time(None), Duration::ZERO);
        for joules in [-1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(Left::Energy(Joules(joules)).time(Some(Watts(1.0))), Duration::ZERO);
        }
        let time = Left::Time(Duration::from_secs(7));
        assert_eq!(time.time(Some(Watts(300.0))), Duration::from_secs(7));
    }
}
