//! The form in which a guard tells its servers what its sources of warnings say: one line, such as
//! `fresh on-battery 90000ms nut:ups@localhost: OB`.

use std::time::Duration;

use perdura_media::Joules;
use perdura_warning::{Confidence, Left, Reading, State};

/// The states in order, for the words of a line.
const STATES: [State; 4] = [State::Steady, State::OnBattery, State::Low, State::Ending];

/// A reading as a line.
pub(crate) fn encode(reading: &Reading) -> String {
    let confidence = match reading.confidence {
        Confidence::Fresh => "fresh",
        Confidence::Lost => "lost",
    };
    // A time beyond all numbers is one that nobody sees the end of.
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let left = match reading.left {
        None => "-".into(),
        Some(Left::Time(time)) => format!("{}ms", ms(time)),
        Some(Left::Energy(Joules(joules))) => format!("{joules}J"),
        Some(Left::Both(time, Joules(joules))) => format!("{}ms+{joules}J", ms(time)),
    };
    format!("{confidence} {} {left} {}", reading.state.word(), reading.told_by)
}

/// The reading of a line that [`encode`] has made; `None`: it is no such line.
pub(crate) fn decode(line: &str) -> Option<Reading> {
    let mut words = line.splitn(4, ' ');
    let mut next = || words.next();
    let confidence = match next()? {
        "fresh" => Confidence::Fresh,
        "lost" => Confidence::Lost,
        _ => return None,
    };
    let word = next()?;
    let state = *STATES.iter().find(|state| state.word() == word)?;
    let time = |word: &str| Some(Duration::from_millis(word.strip_suffix("ms")?.parse().ok()?));
    let energy = |word: &str| {
        let joules: f64 = word.strip_suffix('J')?.parse().ok()?;
        // Less than nothing, or no number, would count as time without end.
        (joules >= 0.0).then_some(Joules(joules))
    };
    let left = match next()? {
        "-" => None,
        left => Some(match left.split_once('+') {
            Some((first, second)) => Left::Both(time(first)?, energy(second)?),
            None => match (time(left), energy(left)) {
                (Some(time), _) => Left::Time(time),
                (_, Some(energy)) => Left::Energy(energy),
                _ => return None,
            },
        }),
    };
    Some(Reading { state, left, confidence, told_by: next()?.to_owned() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_the_same_behind_the_line() {
        for state in STATES {
            let lefts = [
                None,
                Some(Left::Time(Duration::from_millis(1_500))),
                Some(Left::Energy(Joules(0.25))),
                Some(Left::Both(Duration::from_millis(1_500), Joules(1e30))),
            ];
            for left in lefts {
                for confidence in [Confidence::Fresh, Confidence::Lost] {
                    let told_by = "nut:ups@localhost: OB DISCHRG".to_owned();
                    let reading = Reading { state, left, confidence, told_by };
                    assert_eq!(decode(&encode(&reading)), Some(reading));
                }
            }
        }
    }

    #[test]
    fn another_line_is_none() {
        for line in [
            "",
            "fresh",
            "fresh low",
            "fresh low -",
            "new low - x",
            "fresh high - x",
            "fresh low 5s x",
            "fresh low xms x",
            "fresh low -5J x",
            "fresh low NaNJ x",
            "fresh low 5ms+-5J x",
        ] {
            assert_eq!(decode(line), None, "{line:?}");
        }
    }
}
