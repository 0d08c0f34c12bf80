//! Durable memory for numpy and all else that takes buffers.

use std::ops::Deref;
use std::path::PathBuf;

use perdura::{AccessError, TrappedRegion};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView, PySlice};

use crate::errors::{accessing, opening, refused};
use crate::options;
use crate::sys::Exported;
use crate::terms::{Flushed, Promise};

/// Durable memory: plain stores are noticed by the first fault of their page.
#[pyclass(frozen, extends = Exported, subclass, module = "perdura._native")]
pub struct Region;

#[pymethods]
impl Region {
    #[new]
    #[pyo3(signature = (dir, **options))]
    fn new(
        py: Python<'_>,
        dir: PathBuf,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let options = options::options(py, options)?;
        let opened = py.detach(|| TrappedRegion::open_with(&dir, &options));
        let memory = Exported::new(opened.map_err(opening)?);
        Ok(PyClassInitializer::from(memory).add_subclass(Self))
    }

    fn __len__(slf: PyRef<'_, Self>) -> PyResult<usize> {
        Ok(usize::try_from(slf.as_super().region()?.len_bytes()).unwrap_or(usize::MAX))
    }

    fn commit(slf: PyRef<'_, Self>, py: Python<'_>) -> PyResult<()> {
        let region = slf.as_super().region()?;
        py.detach(|| region.commit()).map_err(refused)
    }

    fn checkpoint(slf: PyRef<'_, Self>, py: Python<'_>) -> PyResult<()> {
        let region = slf.as_super().region()?;
        py.detach(|| region.checkpoint()).map_err(refused)
    }

    /// Calls `call` with a memoryview of a range, into which the kernel may write meanwhile: a
    /// system call that meets a page which is not open for writing fails, where a store would wait.
    fn transfer<'py>(
        slf: PyRef<'py, Self>,
        py: Python<'py>,
        call: &Bound<'py, PyAny>,
        offset: u64,
        length: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let region = slf.as_super().region()?;
        let end = offset.saturating_add(length);
        let whole = PyMemoryView::from(slf.into_pyobject(py)?.as_any())?;
        let prepared: Result<_, AccessError> = py.detach(|| region.prepare_write(offset..end));
        let prepared = prepared.map_err(accessing)?;
        let part =
            whole.get_item(PySlice::new(py, isize::try_from(offset)?, isize::try_from(end)?, 1))?;
        let outcome = call.call1((&part,));
        drop(prepared);
        part.call_method0("release")?;
        whole.call_method0("release")?;
        outcome
    }

    fn close(slf: PyRef<'_, Self>, py: Python<'_>) -> PyResult<Option<Flushed>> {
        slf.as_super().deref().close(py)
    }

    fn _close_with_views(slf: PyRef<'_, Self>, py: Python<'_>) -> PyResult<()> {
        slf.as_super().close_with_views(py)
    }

    #[getter]
    fn views(slf: PyRef<'_, Self>) -> usize {
        slf.as_super().views()
    }

    #[getter]
    fn is_closed(slf: PyRef<'_, Self>) -> bool {
        slf.as_super().is_closed()
    }

    #[getter]
    fn promise(slf: PyRef<'_, Self>) -> PyResult<Promise> {
        Ok(slf.as_super().region()?.promise().into())
    }

    #[getter]
    fn dirty_bytes(slf: PyRef<'_, Self>) -> PyResult<u64> {
        Ok(slf.as_super().region()?.inner().used_bytes())
    }
}
