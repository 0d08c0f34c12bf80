//! The cells of a matrix by the values of its axes.

use perdura_media::Bytes;
use serde_json::Value;

use crate::access::result::{BenchmarkResult, CellResult, Figures, Results};

/// Cells by the values of their axes.
pub struct Matrix<'r> {
    pub axes: Vec<Axis>,
    /// Names of benchmarks that run together; one entry without a name for a single benchmark.
    pub parts: Vec<Option<String>>,
    pub rows: Vec<(Vec<String>, &'r CellResult)>,
}

/// A key that the matrix varies.
pub struct Axis {
    part: Option<String>,
    key: String,
}

impl<'r> Matrix<'r> {
    pub fn of(result: &'r BenchmarkResult) -> Self {
        let keys = |list: &Value, part: Option<&String>| -> Vec<Axis> {
            let keys = list.as_array().into_iter().flatten().filter_map(Value::as_str);
            keys.map(|key| Axis { part: part.cloned(), key: key.to_owned() }).collect()
        };
        let (parts, axes) = if result.sub_bm_names.is_empty() {
            (vec![None], keys(&result.matrix_args, None))
        } else {
            let names = &result.sub_bm_names;
            let axes = names.iter().flat_map(|name| keys(&result.matrix_args[name], Some(name)));
            (names.iter().cloned().map(Some).collect(), axes.collect())
        };
        let values = |cell: &CellResult| axes.iter().map(|axis| axis.value(&cell.config)).collect();
        let rows = result.benchmarks.iter().map(|cell| (values(cell), cell)).collect();
        Self { axes, parts, rows }
    }

    /// Index of the axis along which a part's charts go.
    pub fn first(&self, part: Option<&str>) -> usize {
        self.axes.iter().position(|axis| axis.part.as_deref() == part).unwrap_or(0)
    }
}

impl Axis {
    pub fn name(&self) -> String {
        self.part.as_ref().map_or(self.key.clone(), |part| format!("{part}: {}", self.key))
    }

    /// The value in a cell's configuration; a key that is off or without effect is missing there.
    fn value(&self, config: &Value) -> String {
        let config = self.part.as_ref().map_or(config, |part| &config[part]);
        let is_size = self.key.ends_with("_size") || self.key.ends_with("_range");
        match &config[&self.key] {
            Value::Null => "off".to_owned(),
            Value::String(text) => text.clone(),
            value => match value.as_u64().filter(|_| is_size) {
                Some(bytes) => Bytes(bytes).to_string(),
                None => value.to_string(),
            },
        }
    }

    /// A value as part of a line's name: words speak for themselves, numbers need their key.
    pub fn told(&self, value: &str) -> String {
        let own = match self.key.as_str() {
            "number_threads" if value == "1" => "1 thread".to_owned(),
            "number_threads" => format!("{value} threads"),
            "access_size" => value.to_owned(),
            "custom_operations" => folded(value),
            _ if value.parse::<f64>().is_ok() || value.contains(' ') || value == "off" => {
                format!("{} {value}", self.key)
            }
            _ => value.to_owned(),
        };
        self.part.as_ref().map_or(own.clone(), |part| format!("{part} {own}"))
    }
}

/// A chain with repeated accesses written once, and no longer than a chart has room for.
fn folded(chain: &str) -> String {
    let mut folded: Vec<(&str, usize)> = Vec::new();
    for access in chain.split(',') {
        match folded.last_mut() {
            Some((last, count)) if *last == access => *count += 1,
            _ => folded.push((access, 1)),
        }
    }
    let shown = folded.iter().map(|(access, count)| match count {
        1 => (*access).to_owned(),
        _ => format!("{count} x {access}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// The figures of one part of a cell.
pub fn figures<'r>(cell: &'r CellResult, part: Option<&str>) -> Option<&'r Figures> {
    match (&cell.results, part) {
        (Results::One(figures), _) => Some(figures),
        (Results::Parallel(parts), Some(part)) => parts.get(part).map(|nested| &nested.results),
        (Results::Parallel(_), None) => None,
    }
}
