//! The second process that keeps the memory, which `python/perdura/holder.py` starts.

use std::ffi::OsString;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Holds memory as the words `--dir DIR --threads N` say, until it is on the SSD or another program
/// has it.
#[pyfunction]
pub fn hold(py: Python<'_>, words: Vec<OsString>) -> PyResult<()> {
    py.detach(|| perdura::holder::hold_as_told(&words))
        .map_err(|error| PyRuntimeError::new_err(error.to_string()))
}
