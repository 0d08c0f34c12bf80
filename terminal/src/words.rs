//! Parses the values of options. Each error names the option and its value.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use perdura_media::parse_duration;

/// Passes a parsed value on, or puts the option's name and value before the error.
pub fn named<T, E>(name: &str, value: &str, parsed: Result<T, E>) -> Result<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    parsed.with_context(|| format!("--{name} {value}"))
}

/// Parses the value of an option, if it is given.
pub fn optional<T: FromStr>(name: &str, value: &Option<String>) -> Result<Option<T>>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    value.as_ref().map(|value| named(name, value, value.parse())).transpose()
}

/// Parses a time such as `30s` or `500ms`, if it is given.
pub fn time(name: &str, value: &Option<String>) -> Result<Option<Duration>> {
    value.as_ref().map(|value| named(name, value, parse_duration(value))).transpose()
}

/// Finds the choice with this name; the first one, if no name is given.
pub fn one_of<T: Copy>(name: &str, value: &Option<String>, choices: &[(&str, T)]) -> Result<T> {
    let Some(value) = value else { return Ok(choices[0].1) };
    match choices.iter().find(|(word, _)| word == value) {
        Some((_, choice)) => Ok(*choice),
        None => {
            let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
            bail!("--{name} {value}: expected one of {}", words.join(", "))
        }
    }
}

/// Checks that a number is not zero, and fills in the default.
pub fn at_least_one(name: &str, value: Option<u64>, default: u64) -> Result<u64> {
    match value.unwrap_or(default) {
        0 => bail!("--{name} 0: expected at least 1"),
        value => Ok(value),
    }
}

/// Parses one of the shares in `--budgets LIST`, which are percent with or without the sign.
pub fn percent(list: &str, word: &str) -> Result<f64> {
    let number = word.trim().trim_end_matches('%').trim_end();
    match number.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 1000.0 => Ok(percent),
        _ => bail!("--budgets {list}: {word:?} is not a share such as 11%"),
    }
}
