//! Quantities with their unit in the type, and the text in which people write them.
//!
//! One grammar for all: a decimal number, optional blanks, a unit (in any case of letters except
//! where case is the prefix: `mW` and `MW`). Displayed text can be parsed again.

mod duration;
mod number;
mod picoseconds;
mod quantities;
mod size;

pub use duration::{format_duration, parse_duration};
pub use picoseconds::Picoseconds;
pub use quantities::{Joules, Percent, Watts};
pub use size::{Bytes, BytesPerSecond};

/// Why a text is not the quantity that was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{value}\" is not {} {quantity}: expected {expected}", article(quantity))]
pub struct ParseError {
    /// The expected quantity: `size`, `duration`, …
    pub quantity: &'static str,
    /// The text as given.
    pub value: String,
    /// The accepted forms, with an example.
    pub expected: &'static str,
}

fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_quantity_is_said_in_plain_english() {
        let says = |error: ParseError| error.to_string();
        assert!(
            says("1501".parse::<Joules>().unwrap_err()).contains("\"1501\" is not an energy: ")
        );
        assert!(says("300J".parse::<Watts>().unwrap_err()).contains("\"300J\" is not a power: "));
        assert!(says(parse_duration("x").unwrap_err()).contains("\"x\" is not a duration: "));
    }
}
