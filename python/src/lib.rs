//! The Python module `perdura._native`, on which the Python package `perdura` is built: the durable
//! map, durable memory, the heap of objects, and the analysis of `perdura plan trace` for
//! `perdura.plan`, which chooses settings, sorts records and distributes the work.
//!
//! A trace's records come in as Arrow batches, which are borrowed and not copied. Parts of results
//! pass between processes as bytes.

mod analysis;
mod columns;
mod errors;
mod heap;
mod holder;
mod key;
mod octets;
mod options;
mod region;
mod report;
mod shards;
mod store;
mod sys;
mod terms;
mod turn;
mod viewed;
mod words;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The module `perdura._native`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("PAGE_BYTES", perdura_plan::trace::PAGE_BYTES)?;
    module.add("RANGE_PAGES", perdura_plan::shards::RANGE_PAGES)?;
    module.add("REST", shards::REST)?;
    module.add("ACCESS_BYTES_MAX", perdura_plan::trace::ACCESS_BYTES_MAX)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<store::Store>()?;
    module.add_class::<region::Region>()?;
    module.add_class::<heap::Heap>()?;
    module.add_class::<heap::HeapSteps>()?;
    module.add_class::<sys::Capacity>()?;
    module.add_class::<terms::Promise>()?;
    module.add_class::<terms::Flushed>()?;
    module.add_function(wrap_pyfunction!(holder::hold, module)?)?;
    module.add_class::<analysis::Analysis>()?;
    module.add_class::<shards::Shards>()?;
    module.add_class::<shards::Joined>()?;
    module.add_function(wrap_pyfunction!(shards::merge, module)?)?;
    module.add_function(wrap_pyfunction!(report::report, module)?)?;
    module.add_function(wrap_pyfunction!(words::columns, module)?)?;
    module.add_function(wrap_pyfunction!(words::parse_time, module)?)?;
    module.add_function(wrap_pyfunction!(words::parse_size, module)?)?;
    Ok(())
}

/// A `ValueError` with the text of `error`: every error of an analysis is caused by an argument.
fn value_error(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}
