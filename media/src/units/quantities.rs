//! Energy, power and shares. Parsed values are finite and not negative; the fields are public, so
//! code that builds values otherwise validates them (see [`crate::Energy`]).

use std::fmt;
use std::str::FromStr;

use super::number::{scaled_f64, short_decimal, split};
use super::{Bytes, ParseError};

/// Energy. Parses `500J`, `1.5kJ`, `2MJ`, and the ratings of batteries: `50Wh`, `1kWh`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Joules(pub f64);

/// Power. Parses `300W`, `1.2kW`, `500mW`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Watts(pub f64);

/// A share in percent. Parses `11%`, `0.5%`, up to `100%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Percent(pub f64);

impl Percent {
    /// This share of `whole`, rounded down. A negative share and NaN count as 0 %, one above 100 %
    /// as 100 %.
    #[must_use]
    pub fn of(self, whole: Bytes) -> Bytes {
        if self.0 >= 100.0 {
            return whole;
        }
        // A cast of a negative or NaN float gives 0; below 100 % the product stays below the whole.
        Bytes((whole.0 as f64 * (self.0 / 100.0)) as u64)
    }
}

impl FromStr for Joules {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let expected = "a number with a unit, such as 500J, 1.5kJ or 50Wh (J, kJ, MJ, Wh, kWh)";
        parse(text, &JOULES).map(Self).ok_or_else(|| error("energy", text, expected))
    }
}

impl FromStr for Watts {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let expected = "a number with a unit, such as 300W or 1.2kW (mW, W, kW, MW)";
        parse(text, &WATTS).map(Self).ok_or_else(|| error("power", text, expected))
    }
}

impl FromStr for Percent {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let share = parse(text, &[("%", 1.0)]).filter(|share| *share <= 100.0);
        share.map(Self).ok_or_else(|| error("percentage", text, "0% to 100%, such as 11% or 0.5%"))
    }
}

impl fmt::Display for Joules {
    /// Writes `500 J`, `1.5 kJ`, `2 MJ`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format(self.0, &JOULES[..3]))
    }
}

impl fmt::Display for Watts {
    /// Writes `500 mW`, `300 W`, `1.2 kW`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format(self.0, &WATTS))
    }
}

impl fmt::Display for Percent {
    /// Writes `11%`, `0.5%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}%", short_decimal(self.0)))
    }
}

fn parse(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, unit) = split(text);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    scaled_f64(number, *scale)
}

fn error(quantity: &'static str, text: &str, expected: &'static str) -> ParseError {
    ParseError { quantity, value: text.to_owned(), expected }
}

fn format(value: f64, units: &[(&str, f64)]) -> String {
    let fitting = units.iter().rev().find(|(_, scale)| value.abs() >= *scale);
    let (name, scale) = fitting.copied().unwrap_or(units[0]);
    format!("{} {name}", short_decimal(value / scale))
}

/// Units in ascending order, up to one that is only read and never written.
const JOULES: [(&str, f64); 5] =
    [("J", 1.0), ("kJ", 1e3), ("MJ", 1e6), ("Wh", 3_600.0), ("kWh", 3_600_000.0)];

const WATTS: [(&str, f64); 4] = [("mW", 1e-3), ("W", 1.0), ("kW", 1e3), ("MW", 1e6)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_and_power_are_read_with_their_unit() {
        assert_eq!("500J".parse(), Ok(Joules(500.0)));
        assert_eq!("1.5kJ".parse(), Ok(Joules(1500.0)));
        assert_eq!("50 Wh".parse(), Ok(Joules(180_000.0)));
        assert_eq!("300W".parse(), Ok(Watts(300.0)));
        assert_eq!("2MW".parse::<Watts>().unwrap().0 / "2mW".parse::<Watts>().unwrap().0, 1e9);
        assert_eq!("11%".parse(), Ok(Percent(11.0)));
    }

    #[test]
    fn what_is_no_quantity_is_named_in_the_error() {
        for text in ["", "500", "J", "-5J", "NaNJ", "infJ", "1e3J", "5W"] {
            assert_eq!(text.parse::<Joules>().unwrap_err().value, text);
        }
        assert_eq!("300J".parse::<Watts>().unwrap_err().quantity, "power");
        for text in ["11", "101%", "-1%", "%"] {
            assert_eq!(text.parse::<Percent>().unwrap_err().quantity, "percentage");
        }
    }

    #[test]
    fn quantities_are_shown_in_the_largest_fitting_unit() {
        assert_eq!(Joules(500.0).to_string(), "500 J");
        assert_eq!(Joules(180_000.0).to_string(), "180 kJ");
        assert_eq!(Watts(0.5).to_string(), "500 mW");
        assert_eq!(Percent(0.5).to_string(), "0.5%");
    }

    #[test]
    fn a_share_is_rounded_down_and_never_more_than_the_whole() {
        assert_eq!(Percent(11.0).of(Bytes(1000)), Bytes(110));
        assert_eq!(Percent(100.0).of(Bytes(u64::MAX)), Bytes(u64::MAX));
        assert_eq!(Percent(f64::NAN).of(Bytes(1000)), Bytes(0));
        assert_eq!(Percent(-1.0).of(Bytes(1000)), Bytes(0));
    }
}
