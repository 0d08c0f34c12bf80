//! The keys of a benchmark: their values, and their fields in a [`Config`].

use super::choices::{ExecMode, NumaPattern, Operation, Persist, RandomDistribution};
use super::config::Config;

/// Sets a field from a word, or returns the rule that the word breaks.
type Set = fn(&mut Config, &str) -> Result<(), String>;
/// Formats a field's value.
type Tell = fn(&Config) -> String;

/// A key.
pub(super) struct Key {
    pub name: &'static str,
    pub set: Set,
    pub tell: Tell,
}

macro_rules! key {
    ($field:ident, $parse:expr) => {
        Key {
            name: stringify!($field),
            set: |config, word| {
                config.$field = $parse(word)?;
                Ok(())
            },
            tell: |config| told(&config.$field),
        }
    };
}

pub(super) const KEYS: [Key; 25] = [
    key!(memory_range, size),
    key!(dram_memory_range, size),
    key!(dram_operation_ratio, number),
    key!(access_size, size),
    key!(min_io_chunk_size, size),
    key!(number_operations, count),
    key!(run_time, count),
    key!(number_threads, count),
    key!(number_partitions, count),
    key!(operation, |word| named(word, &Operation::NAMES)),
    key!(exec_mode, |word| named(word, &ExecMode::NAMES)),
    key!(persist_instruction, |word| named(word, &Persist::NAMES)),
    key!(numa_pattern, |word| named(word, &NumaPattern::NAMES)),
    key!(random_distribution, |word| named(word, &RandomDistribution::NAMES)),
    key!(zipf_alpha, number),
    Key {
        name: "custom_operations",
        set: |config, word| {
            config.custom_operations = Some(word.parse()?);
            Ok(())
        },
        tell: |config| {
            config.custom_operations.as_ref().map_or_else(String::new, |c| c.to_string())
        },
    },
    Key {
        name: "trace_file",
        set: |config, word| {
            config.trace_file = Some(word.into());
            Ok(())
        },
        tell: |config| {
            config.trace_file.as_ref().map_or_else(String::new, |file| file.display().to_string())
        },
    },
    key!(latency_sample_frequency, count),
    key!(prefault_file, truth),
    key!(dram_huge_pages, truth),
    key!(mixed_operation_ratio, number),
    key!(rate_limit, count),
    key!(warm_up_time, count),
    key!(repetitions, count),
    key!(seed, count),
];

/// The key with a name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// A key of similar spelling.
pub(super) fn near(name: &str) -> Option<&'static str> {
    const FAR: usize = 4;
    let distance = |key: &Key| (edits(name, key.name), key.name);
    KEYS.iter().map(distance).min().filter(|(edits, _)| *edits < FAR).map(|(_, name)| name)
}

/// Number of letters to change, add or leave out.
fn edits(one: &str, other: &str) -> usize {
    let (one, other) = (&one.as_bytes()[..one.len().min(64)], other.as_bytes());
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let change = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

fn told(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(value) => value.to_string(),
        Err(error) => error.to_string(),
    }
}

/// A size like `4096`, `64k` or `10G`, in powers of 1024.
fn size(word: &str) -> Result<u64, String> {
    let rule = || "bytes, as 4096, 64K, 16M or 10G (powers of 1024), below 2^63".to_owned();
    let (digits, shift) = match word.as_bytes().last() {
        Some(b'k' | b'K') => (&word[..word.len() - 1], 10),
        Some(b'm' | b'M') => (&word[..word.len() - 1], 20),
        Some(b'g' | b'G') => (&word[..word.len() - 1], 30),
        _ => (word, 0),
    };
    let number = count(digits).map_err(|_| rule())?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes < 1 << 63).ok_or_else(rule)
}

fn count(word: &str) -> Result<u64, String> {
    let digits = !word.is_empty() && word.bytes().all(|letter| letter.is_ascii_digit());
    let number = if digits { word.parse().ok() } else { None };
    number.ok_or_else(|| "a whole number, 0 or more".to_owned())
}

fn number(word: &str) -> Result<f64, String> {
    let number: Option<f64> = word.parse().ok();
    number.filter(|number| number.is_finite()).ok_or_else(|| "a number".to_owned())
}

/// A truth value in the words of YAML 1.1, as the published benchmark accepts them.
fn truth(word: &str) -> Result<bool, String> {
    match word.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" => Ok(true),
        "false" | "no" | "off" | "n" => Ok(false),
        _ => Err("true or false".to_owned()),
    }
}

fn named<T: Copy>(word: &str, names: &[(&str, T)]) -> Result<T, String> {
    let found = names.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        format!("one of {}", names.join(", "))
    })
}
