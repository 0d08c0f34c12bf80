//! Reads a result file, of this program or of the published benchmark: every key that only this
//! program writes may be missing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::super::result::Label;
use super::super::workload::Chain;
use perdura_bench::machine::Machine;

/// Longest result file, bytes.
const FILE_MAX_BYTES: u64 = 1 << 28;
/// Settings that do not tell one cell from another.
const IGNORED: [&str; 2] = ["repetitions", "seed"];

/// Why a file cannot be read as a result.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is longer than any result.
    #[error("{0}: longer than 256 MiB, the most for a result file")]
    TooLong(PathBuf),
    /// The file is not JSON, or has another shape.
    #[error(
        "{path}: not a result file of `perdura-lab access run` or the published benchmark: {source}"
    )]
    Shape {
        /// Path of the file.
        path: PathBuf,
        /// Place and reason of the fault.
        source: serde_json::Error,
    },
    /// The file has no benchmarks.
    #[error("{0}: the file has no benchmarks")]
    Empty(PathBuf),
}

/// The benchmarks of a file.
#[derive(Debug, Clone)]
pub struct ResultFile(pub(super) Vec<Told>);

/// A benchmark with the keys of the published format, and those that only this program writes.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Told {
    pub bm_name: String,
    #[serde(default)]
    pub matrix_args: Value,
    pub benchmarks: Vec<ToldCell>,
    pub label: Option<Label>,
    pub place: Option<String>,
    pub instructions: Option<String>,
    #[serde(default)]
    pub bounded: Vec<String>,
    pub machine: Option<Machine>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct ToldCell {
    pub config: BTreeMap<String, Value>,
    pub results: ToldResults,
}

/// Figures of one benchmark, or of several that ran together, by their names.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum ToldResults {
    Nested(BTreeMap<String, ToldNested>),
    One(ToldFigures),
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct ToldNested {
    pub results: ToldFigures,
}

/// Figures of a cell. The published benchmark gives no bandwidth for custom access, and no
/// operations for all other access.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ToldFigures {
    pub bandwidth: Option<f64>,
    pub ops_per_second: Option<f64>,
    #[serde(default)]
    pub repetitions: Vec<f64>,
    pub latency: Option<ToldLatency>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct ToldLatency {
    pub median: f64,
    pub percentile_99: f64,
}

/// Reads a file.
///
/// # Errors
/// [`CompareError`].
pub fn read(path: &Path) -> Result<ResultFile, CompareError> {
    let failed = |source| CompareError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_MAX_BYTES {
        return Err(CompareError::TooLong(path.to_owned()));
    }
    let told: Vec<Told> = serde_json::from_slice(&bytes)
        .map_err(|source| CompareError::Shape { path: path.to_owned(), source })?;
    if told.iter().all(|one| one.benchmarks.is_empty()) {
        return Err(CompareError::Empty(path.to_owned()));
    }
    Ok(ResultFile(told))
}

impl Told {
    /// All settings that some cell of the benchmark has.
    pub fn keys(&self) -> BTreeSet<String> {
        self.benchmarks.iter().flat_map(|cell| cell.settings().into_keys()).collect()
    }

    /// Name of a cell among all cells.
    pub fn named(&self, cell: &ToldCell) -> String {
        match self.varied(cell) {
            none if none.is_empty() => self.bm_name.clone(),
            varied => format!("{}: {varied}", self.bm_name),
        }
    }

    /// The settings that the matrix varies, with the cell's values, as far as the file has them.
    pub fn varied(&self, cell: &ToldCell) -> String {
        let settings = cell.settings();
        let words = |value: &Value| -> Vec<String> {
            let words = value.as_array().into_iter().flatten();
            words.filter_map(|word| word.as_str().map(str::to_owned)).collect()
        };
        let keys: Vec<String> = match &self.matrix_args {
            Value::Object(parts) => parts
                .iter()
                .flat_map(|(part, keys)| {
                    words(keys).into_iter().map(move |k| format!("{part}.{k}"))
                })
                .collect(),
            list => words(list),
        };
        let told = keys
            .iter()
            .map(|key| format!("{key} {}", settings.get(key).map_or("default", String::as_str)));
        told.collect::<Vec<_>>().join(", ")
    }
}

impl ToldCell {
    /// All settings of the cell; a part's settings have the part's name in front.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = BTreeMap::new();
        let mut add = |part: Option<&str>, key: &str, value: &Value| {
            if !IGNORED.contains(&key) {
                let name = part.map_or(key.to_owned(), |part| format!("{part}.{key}"));
                settings.insert(name, one_spelling(key, value));
            }
        };
        for (key, value) in &self.config {
            match value {
                Value::Object(inner) => {
                    inner.iter().for_each(|(own, value)| add(Some(key), own, value));
                }
                value => add(None, key, value),
            }
        }
        settings
    }

    pub fn identity(&self, keys: &BTreeSet<String>) -> Vec<Option<String>> {
        let mut settings = self.settings();
        keys.iter().map(|key| settings.remove(key)).collect()
    }

    /// Figures by their parts.
    pub fn figures(&self) -> Vec<(Option<&String>, &ToldFigures)> {
        match &self.results {
            ToldResults::One(figures) => vec![(None, figures)],
            ToldResults::Nested(parts) => {
                parts.iter().map(|(name, part)| (Some(name), &part.results)).collect()
            }
        }
    }
}

/// One spelling for chains and names that can be written in two ways, and for numbers with and
/// without a point.
fn one_spelling(key: &str, value: &Value) -> String {
    match value {
        Value::String(text) if key == "custom_operations" => {
            text.parse::<Chain>().map_or_else(|_| text.clone(), |chain| chain.to_string())
        }
        Value::String(text) if text == "zipfian" => "zipf".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match (number.as_u64(), number.as_f64()) {
            (None, Some(float)) if float.fract() == 0.0 && float.abs() < 1e15 => {
                format!("{float:.0}")
            }
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}
