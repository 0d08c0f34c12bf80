//! Workload files in the published format of PerMA-Bench: YAML, each benchmark a matrix of values
//! and fixed ones.
//!
//! ```yaml
//! random_reads:
//!   matrix:
//!     number_threads: [1, 2]
//!     access_size: [64, 256]
//!   args:
//!     memory_range: 1G
//!     exec_mode: random
//! ```
//!
//! A whole file is checked before anything runs; an error names file, line, key, value and rule.
//! Each key may stand once in a benchmark, in the matrix or among the arguments. The cells of a
//! matrix are in the order of its keys, the last one changing fastest. The format is that of
//! PerMA-Bench (PVLDB 15(11), 2022).

mod choices;
mod config;
mod custom;
mod error;
mod keys;
mod sound;
#[cfg(test)]
mod tests;
mod yaml;

use std::cell::Cell as Counter;
use std::path::{Path, PathBuf};

pub use choices::{ExecMode, NumaPattern, Operation, Persist, RandomDistribution};
pub use config::{Config, THREADS_MAX};
pub use custom::{Chain, CustomOp, LINE_BYTES, Memory};
pub use error::{Fault, WorkloadError};
pub use sound::parse_soundly;
use yaml::{Entry, Node, Value};

/// Most cells of one file: more would take longer than anybody waits.
const CELLS_MAX: usize = 10_000;
/// Longest workload file, bytes.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// A benchmark of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Benchmark {
    /// Name of the benchmark, its key at the top of the file.
    pub name: String,
    /// The parts that run together; a single benchmark has one.
    pub parts: Vec<Part>,
    /// Whether the file says that parts run together, even if it has only one.
    pub is_parallel: bool,
}

/// One of the benchmarks that run together.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Name of the part; the benchmark's where there is only one part.
    pub name: String,
    /// Keys that the matrix varies, in the file's order.
    pub matrix: Vec<String>,
    /// The cells of the matrix.
    pub cells: Vec<Cell>,
}

/// One cell of a matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The matrix's values for this cell as they were written, in the order of [`Part::matrix`].
    pub varied: Vec<String>,
    /// All settings of the cell.
    pub config: Config,
}

impl Benchmark {
    /// The runs one after another, each with a cell of each part. The cells of the last part change
    /// fastest.
    pub fn runs(&self) -> impl Iterator<Item = Vec<&Cell>> {
        let count = self.parts.iter().map(|part| part.cells.len()).product();
        (0..count).map(|run: usize| {
            let mut rest = run;
            let mut cells: Vec<&Cell> = self
                .parts
                .iter()
                .rev()
                .map(|part| {
                    let cell = &part.cells[rest % part.cells.len()];
                    rest /= part.cells.len();
                    cell
                })
                .collect();
            cells.reverse();
            cells
        })
    }
}

/// Why a workload file cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is not a workload.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The file or folder cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// Path of the file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// There is nothing to run.
    #[error("{0}: no workload files in it (ending in .yaml or .yml)")]
    Empty(PathBuf),
    /// The file is too long to be a workload.
    #[error("{0}: longer than 1 MiB, the most for a workload")]
    TooLong(PathBuf),
}

/// The workload files of a path: the file itself, or all files in a folder and its subfolders,
/// sorted by path.
///
/// # Errors
/// The path cannot be read, or has no workload files.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let failed = |path: &Path, source| LoadError::Read { path: path.to_owned(), source };
    let about = std::fs::metadata(path).map_err(|source| failed(path, source))?;
    if !about.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let (mut found, mut folders) = (Vec::new(), vec![path.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|source| failed(&folder, source))? {
            let entry = entry.map_err(|source| failed(&folder, source))?;
            // Links are not followed: they may lead back up.
            let kind = entry.file_type().map_err(|source| failed(&entry.path(), source))?;
            let path = entry.path();
            let ends = |end: &str| path.extension().is_some_and(|own| own == end);
            if kind.is_dir() {
                folders.push(path);
            } else if ends("yaml") || ends("yml") {
                found.push(path);
            }
        }
    }
    found.sort();
    if found.is_empty() { Err(LoadError::Empty(path.to_owned())) } else { Ok(found) }
}

/// Reads and checks a file.
///
/// # Errors
/// The file cannot be read, or is not a workload.
pub fn load(path: &Path) -> Result<Vec<Benchmark>, LoadError> {
    let failed = |source| LoadError::Read { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut text = String::new();
    let mut bounded = std::io::Read::take(file, FILE_MAX_BYTES + 1);
    std::io::Read::read_to_string(&mut bounded, &mut text).map_err(failed)?;
    if text.len() as u64 > FILE_MAX_BYTES {
        return Err(LoadError::TooLong(path.to_owned()));
    }
    Ok(parse(&path.display().to_string(), &text)?)
}

/// Parses and checks the text of a file.
///
/// # Errors
/// The first fault of the text.
pub fn parse(file: &str, text: &str) -> Result<Vec<Benchmark>, WorkloadError> {
    let reader = Reader { file, cells: Counter::new(0) };
    let documents = yaml::documents(text)
        .map_err(|refused| reader.at(refused.line, Fault::Text(refused.why)))?;
    let mut benchmarks = Vec::new();
    let mut seen: Vec<(&str, usize)> = Vec::new();
    for document in &documents {
        for entry in reader.map(document, "the file", "benchmarks by their names")? {
            reader.once(entry, &mut seen)?;
            benchmarks.push(reader.benchmark(entry)?);
        }
    }
    if benchmarks.is_empty() {
        let fault = Fault::Shape { name: "the file".into(), expected: "at least one benchmark" };
        return Err(reader.at(1, fault));
    }
    Ok(benchmarks)
}

struct Reader<'a> {
    file: &'a str,
    /// Cells so far, in all benchmarks: a short file must not need much memory.
    cells: Counter<usize>,
}

/// A value given in a file.
struct Given<'a> {
    key: &'static keys::Key,
    line: usize,
    word: &'a str,
}

impl Reader<'_> {
    fn at(&self, line: usize, fault: Fault) -> WorkloadError {
        WorkloadError { file: self.file.to_owned(), line, fault }
    }

    fn map<'n>(
        &self,
        node: &'n Node,
        name: &str,
        expected: &'static str,
    ) -> Result<&'n [Entry], WorkloadError> {
        match &node.value {
            Value::Map(entries) => Ok(entries),
            _ => Err(self.at(node.line, Fault::Shape { name: name.into(), expected })),
        }
    }

    fn once<'n>(
        &self,
        entry: &'n Entry,
        seen: &mut Vec<(&'n str, usize)>,
    ) -> Result<(), WorkloadError> {
        if let Some((_, first_line)) = seen.iter().find(|(key, _)| *key == entry.key) {
            let (key, first_line) = (entry.key.clone(), *first_line);
            return Err(self.at(entry.line, Fault::DuplicateKey { key, first_line }));
        }
        seen.push((&entry.key, entry.line));
        Ok(())
    }

    fn benchmark(&self, entry: &Entry) -> Result<Benchmark, WorkloadError> {
        const SHAPE: &str = "matrix and args, or parallel_benchmark";
        let name = entry.key.clone();
        let inner = self.map(&entry.value, &name, SHAPE)?;
        let Some(parallel) = inner.iter().find(|entry| entry.key == "parallel_benchmark") else {
            let parts = vec![self.part(entry)?];
            return Ok(Benchmark { name, parts, is_parallel: false });
        };
        if let Some(other) = inner.iter().find(|entry| entry.key != "parallel_benchmark") {
            let fault = Fault::UnknownKey { key: other.key.clone(), near: None };
            return Err(self.at(other.line, fault));
        }
        let mut seen = Vec::new();
        let mut parts = Vec::new();
        for entry in self.map(&parallel.value, "parallel_benchmark", "benchmarks by their names")? {
            self.once(entry, &mut seen)?;
            parts.push(self.part(entry)?);
        }
        let cells = parts.iter().try_fold(1usize, |all, part| all.checked_mul(part.cells.len()));
        if cells.is_none_or(|cells| cells > CELLS_MAX) {
            return Err(self.at(entry.line, Fault::Cells { name, max: CELLS_MAX }));
        }
        if parts.is_empty() {
            let fault = Fault::Shape { name, expected: "at least one benchmark" };
            return Err(self.at(parallel.line, fault));
        }
        Ok(Benchmark { name, parts, is_parallel: true })
    }

    fn part(&self, entry: &Entry) -> Result<Part, WorkloadError> {
        let name = entry.key.clone();
        let mut seen = Vec::new();
        let (mut matrix, mut args) = (None, None);
        for inner in self.map(&entry.value, &name, "matrix and args")? {
            self.once(inner, &mut seen)?;
            match inner.key.as_str() {
                "matrix" => matrix = Some(inner),
                "args" => args = Some(inner),
                other => {
                    let fault = Fault::UnknownKey { key: other.into(), near: None };
                    return Err(self.at(inner.line, fault));
                }
            }
        }
        let Some(args) = args else {
            return Err(self.at(entry.line, Fault::MissingKey { name, key: "args" }));
        };
        // A key may have one value only, in the matrix or among the arguments.
        let mut seen = Vec::new();
        let mut axes = Vec::new();
        if let Some(matrix) = matrix {
            for axis in self.map(&matrix.value, "matrix", "keys, each with a list of values")? {
                self.once(axis, &mut seen)?;
                axes.push(self.axis(axis)?);
            }
        }
        let mut fixed = Vec::new();
        for entry in self.map(&args.value, "args", "keys, each with a value")? {
            self.once(entry, &mut seen)?;
            fixed.push(self.given(entry, &entry.value)?);
        }
        let cells = self.cells(&name, entry.line, &axes, &fixed)?;
        let matrix = axes.iter().map(|axis| axis[0].key.name.to_owned()).collect();
        Ok(Part { name, matrix, cells })
    }

    fn axis<'n>(&self, axis: &'n Entry) -> Result<Vec<Given<'n>>, WorkloadError> {
        let Value::List(list) = &axis.value.value else {
            let fault =
                Fault::Shape { name: axis.key.clone(), expected: "a list of values, as [1, 2]" };
            return Err(self.at(axis.line, fault));
        };
        if list.is_empty() {
            let fault = Fault::Shape { name: axis.key.clone(), expected: "at least one value" };
            return Err(self.at(axis.line, fault));
        }
        list.iter().map(|node| self.given(axis, node)).collect()
    }

    fn given<'n>(&self, entry: &'n Entry, node: &'n Node) -> Result<Given<'n>, WorkloadError> {
        let Some(key) = keys::find(&entry.key) else {
            let (key, near) = (entry.key.clone(), keys::near(&entry.key));
            return Err(self.at(entry.line, Fault::UnknownKey { key, near }));
        };
        match &node.value {
            Value::Word(word) => Ok(Given { key, line: node.line, word }),
            _ => {
                let fault = Fault::Shape { name: entry.key.clone(), expected: "one value" };
                Err(self.at(node.line, fault))
            }
        }
    }

    fn cells(
        &self,
        name: &str,
        line: usize,
        axes: &[Vec<Given<'_>>],
        fixed: &[Given<'_>],
    ) -> Result<Vec<Cell>, WorkloadError> {
        let count = axes.iter().try_fold(1usize, |all, axis| all.checked_mul(axis.len()));
        let all = count.and_then(|count| self.cells.get().checked_add(count));
        let (Some(count), Some(all)) = (count, all.filter(|all| *all <= CELLS_MAX)) else {
            let fault = Fault::Cells { name: name.into(), max: CELLS_MAX };
            return Err(self.at(line, fault));
        };
        self.cells.set(all);
        (0..count)
            .map(|cell| {
                let mut rest = cell;
                let mut given: Vec<&Given<'_>> = axes
                    .iter()
                    .rev()
                    .map(|axis| {
                        let one = &axis[rest % axis.len()];
                        rest /= axis.len();
                        one
                    })
                    .collect();
                given.reverse();
                let varied = given.iter().map(|given| given.word.to_owned()).collect();
                given.extend(fixed);
                Ok(Cell { varied, config: self.config(line, &given)? })
            })
            .collect()
    }

    fn config(&self, line: usize, given: &[&Given<'_>]) -> Result<Config, WorkloadError> {
        let mut config = Config::default();
        for one in given {
            (one.key.set)(&mut config, one.word).map_err(|rule| {
                let (key, value) = (one.key.name.to_owned(), one.word.to_owned());
                self.at(one.line, Fault::Value { key, value, rule })
            })?;
        }
        let Some((key, rule)) = config.broken_rule() else {
            // Relative to the workload file, wherever the program runs.
            let folder = Path::new(self.file).parent();
            config.trace_file = config
                .trace_file
                .map(|file| folder.map_or(file.clone(), |folder| folder.join(file)));
            return Ok(config);
        };
        let stated = given.iter().find(|given| given.key.name == key);
        let value = match (stated, keys::find(key)) {
            (Some(given), _) => given.word.to_owned(),
            (None, Some(known)) => match (known.tell)(&config) {
                none if none.is_empty() => "not given".to_owned(),
                value => format!("{value} (not given; the default)"),
            },
            (None, None) => String::new(),
        };
        let line = stated.map_or(line, |given| given.line);
        Err(self.at(line, Fault::Value { key: key.to_owned(), value, rule }))
    }
}
