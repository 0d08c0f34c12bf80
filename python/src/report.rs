//! What is shown of counted parts.

use perdura_plan::skew::{Figures, Options, Part};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;

use crate::value_error;
use crate::words::options;

/// The report of a trace as JSON: files with their bad records and what the first of these was; parts by the volume's name.
#[pyfunction]
#[pyo3(signature = (name, files, volumes, all, windows_ns, shares, volume_bytes))]
pub fn report(
    name: &str,
    files: Vec<(String, u64, Vec<String>)>,
    volumes: Vec<(String, Bound<'_, PyBytes>)>,
    all: &Bound<'_, PyBytes>,
    windows_ns: Vec<u64>,
    shares: Vec<f64>,
    volume_bytes: Option<u64>,
) -> PyResult<String> {
    let options = options(windows_ns, shares)?;
    let mut list = Vec::new();
    for (volume, part) in &volumes {
        let mut value = serde_json::to_value(figures(part, &options)?).map_err(value_error)?;
        value["volume"] = json!(volume);
        list.push(value);
    }
    let mut report = serde_json::to_value(figures(all, &options)?).map_err(value_error)?;
    report["trace"] = json!(name);
    report["files"] = json!(files);
    report["volume_bytes"] = json!(volume_bytes);
    report["volumes"] = json!(list);
    serde_json::to_string_pretty(&report).map_err(value_error)
}

fn figures(part: &Bound<'_, PyBytes>, options: &Options) -> PyResult<Figures> {
    let part = Part::from_bytes(part.as_bytes()).map_err(value_error)?;
    part.figures(options).map_err(value_error)
}
