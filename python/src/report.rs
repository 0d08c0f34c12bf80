//! The report of a trace whose parts were counted, as the JSON of `perdura plan trace`.

use perdura_plan::report::{FileReport, TraceReport};
use perdura_plan::skew::{Part, SkewError};
use perdura_plan::trace::Format;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::value_error;
use crate::words::options;

/// The report of a trace as JSON. `files` are path, number of bad records, and descriptions of the
/// first of them; `volumes` are name and part; `all` is the part of all volumes; `shares` are in
/// percent.
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
    let part = |bytes: &Bound<'_, PyBytes>| Part::from_bytes(bytes.as_bytes());
    let volumes = volumes.iter().map(|(volume, bytes)| Ok((volume.clone(), part(bytes)?)));
    let volumes = volumes.collect::<Result<Vec<_>, SkewError>>().map_err(value_error)?;
    let all = part(all).map_err(value_error)?;
    let files = files.into_iter().map(|(file, skipped_bad, first_bad)| FileReport {
        file,
        format: Format::Parquet.name(),
        skipped_bad,
        first_bad,
        ignored: 0,
        looks: None,
    });
    let report =
        TraceReport::of_parts(name, files.collect(), &volumes, &all, &options, volume_bytes)
            .map_err(value_error)?;
    serde_json::to_string_pretty(&report).map_err(value_error)
}
