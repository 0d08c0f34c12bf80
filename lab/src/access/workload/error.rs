//! The faults of workload files.

use std::fmt;

/// A fault in a workload file, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {fault}")]
pub struct WorkloadError {
    /// Path of the file as it was given.
    pub file: String,
    /// Line of the fault, from 1.
    pub line: usize,
    /// The fault.
    pub fault: Fault,
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The text is not YAML, or uses more of YAML than workloads do.
    Text(String),
    /// Another kind of value is expected here.
    Shape {
        /// Name of the value.
        name: String,
        /// The expected kind.
        expected: &'static str,
    },
    /// A key that no workload has.
    UnknownKey {
        /// The key as it was written.
        key: String,
        /// A key of similar spelling.
        near: Option<&'static str>,
    },
    /// A key that was given before.
    DuplicateKey {
        /// The repeated key.
        key: String,
        /// Line where the key was given first, from 1.
        first_line: usize,
    },
    /// A required key is missing.
    MissingKey {
        /// Name of the benchmark.
        name: String,
        /// The missing key.
        key: &'static str,
    },
    /// A value breaks a rule.
    Value {
        /// Key of the value.
        key: String,
        /// The value as it was written, or the default.
        value: String,
        /// The rule that holds for every workload.
        rule: String,
    },
    /// The file has more cells than can be run.
    Cells {
        /// The benchmark that exceeds the limit.
        name: String,
        /// Most cells of one file.
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
