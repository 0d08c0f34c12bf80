//! What can be wrong with a workload file.

use std::fmt;

/// A file that is no workload, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {fault}")]
pub struct WorkloadError {
    /// As it was named.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// What is wrong there.
    pub fault: Fault,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// No YAML, or more of it than workloads use.
    Text(String),
    /// Something else was expected here.
    Shape {
        /// Of what.
        name: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A key that no workload has.
    UnknownKey {
        /// The key.
        key: String,
        /// One that is spelled much like it.
        near: Option<&'static str>,
    },
    /// A key that was given before.
    DuplicateKey {
        /// The key.
        key: String,
        /// Where it was given first, from 1.
        first_line: usize,
    },
    /// A key that must be there.
    MissingKey {
        /// Of which benchmark.
        name: String,
        /// The key.
        key: &'static str,
    },
    /// A value that breaks a rule.
    Value {
        /// The key.
        key: String,
        /// As it was written, or the default.
        value: String,
        /// What holds of every workload.
        rule: String,
    },
    /// More cells than are run.
    Cells {
        /// The benchmark that has one too many.
        name: String,
        /// How many there are at most, in one file.
        max: usize,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(why) => f.write_str(why),
            Self::Shape { name, expected } => write!(f, "{name}: expected {expected}"),
            Self::UnknownKey { key, near: Some(near) } => {
                write!(f, "{key}: no such key; did you mean {near}?")
            }
            Self::UnknownKey { key, near: None } => write!(f, "{key}: no such key"),
            Self::DuplicateKey { key, first_line } => {
                write!(f, "{key}: given on line {first_line} already; leave one out")
            }
            Self::MissingKey { name, key } => write!(f, "{name}: {key} is missing"),
            Self::Value { key, value, rule } => write!(f, "{key}: {value}: {rule}"),
            Self::Cells { name, max } => {
                write!(f, "{name}: more than {max} cells in one file; split it over several")
            }
        }
    }
}
