//! Options as text, parsed as the command line parses them.

use std::time::Duration;

use perdura_media::{Bytes, parse_duration};
use perdura_plan::skew::{Options, Share};
use perdura_plan::trace::{Column, Columns, Op, Ops, Sizes, TimeUnit};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::value_error;

/// The options of an analysis with these windows, and these shares in percent.
pub fn options(windows_ns: Vec<u64>, shares: Vec<f64>) -> PyResult<Options> {
    let shares = shares.into_iter().map(Share::percent).collect::<Result<_, _>>();
    Options::new(windows_ns, shares.map_err(value_error)?).map_err(value_error)
}

/// The nanoseconds of a time such as `10m`.
#[pyfunction]
pub fn parse_time(text: &str) -> PyResult<u64> {
    let time: Duration = parse_duration(text).map_err(value_error)?;
    u64::try_from(time.as_nanos()).map_err(|_| value_error(format_args!("{text}: too long")))
}

/// The bytes of a size such as `1TB`.
#[pyfunction]
pub fn parse_size(text: &str) -> PyResult<u64> {
    text.parse().map(|Bytes(bytes)| bytes).map_err(value_error)
}

/// The columns that `words` choose, in the syntax of `--columns`; `None` takes those that Perdura
/// writes. A column is a name, or a number from 1.
#[pyfunction]
#[pyo3(signature = (words=None))]
pub fn columns<'py>(py: Python<'py>, words: Option<&str>) -> PyResult<Bound<'py, PyDict>> {
    let columns = match words {
        Some(words) => Columns::parse(words).map_err(value_error)?,
        None => Columns::own(),
    };
    let dict = PyDict::new(py);
    let put = |name: &str, column: &Column| match column {
        Column::Name(text) => dict.set_item(name, text),
        Column::Number(number) => dict.set_item(name, number),
    };
    put("time", &columns.time.0)?;
    dict.set_item("time_unit_ns", columns.time.1.map(TimeUnit::ns))?;
    put("offset", &columns.offset.0)?;
    dict.set_item("offset_unit_bytes", columns.offset.1)?;
    match &columns.size {
        Sizes::Column(column, bytes) => {
            put("size", column)?;
            dict.set_item("size_unit_bytes", bytes)?;
        }
        Sizes::All(bytes) => dict.set_item("size_bytes", bytes)?,
    }
    match &columns.op {
        Ops::Column(column, write) => {
            put("op", column)?;
            dict.set_item("write_value", write)?;
        }
        Ops::All(op) => dict.set_item("all_write", *op == Op::Write)?,
    }
    if let Some(volume) = &columns.volume {
        put("volume", volume)?;
    }
    Ok(dict)
}
