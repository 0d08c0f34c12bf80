//! Durable memory that Python's buffer protocol hands out.
//!
//! - Memory that a buffer points to stays mapped until the buffer is released.
//! - An open region whose last buffer was released may be closed; with a buffer it is refused, or
//!   put off until the last one is released.

use std::ffi::c_int;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura::{CloseError, TrappedRegion};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::errors::{buffer, closed, closing, forked};
use crate::sys::exit;
use crate::terms::Flushed;

const WHAT: &str = "region";

/// The memory of a region, and who looks at it.
#[pyclass(frozen, subclass, module = "perdura._native")]
pub struct Exported {
    /// The process that opened the region.
    process: u32,
    state: Mutex<State>,
}

struct State {
    /// `None` while the region is being closed, and afterwards.
    region: Option<Arc<TrappedRegion>>,
    /// Number of buffers that point to the memory.
    views: usize,
    /// Whether the region is to be closed when the last buffer is released.
    closes_with_views: bool,
    flushed: Option<Flushed>,
}

#[pymethods]
impl Exported {
    /// # Safety
    /// Called by the interpreter, which gives a `view` that may be written.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        this.check_process()?;
        let mut state = this.state.lock();
        let region = match &state.region {
            Some(region) if !state.closes_with_views => region,
            _ => return Err(closed(WHAT)),
        };
        let len = ffi::Py_ssize_t::try_from(region.len_bytes())
            .map_err(|_| buffer("the region is larger than Python's sizes"))?;
        let first = region.as_ptr().cast();
        // SAFETY: the interpreter gave `view`. The memory is mapped, may be read and stored to by
        // all threads, and stays as long as `views` counts this buffer, which holds a reference to
        // this object, too.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), first, len, 0, flags) };
        if filled != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        state.views += 1;
        Ok(())
    }

    /// # Safety
    /// Called by the interpreter, once for each buffer that it got.
    unsafe fn __releasebuffer__(&self, py: Python<'_>, _view: *mut ffi::Py_buffer) {
        let last = {
            let mut state = self.state.lock();
            state.views -= 1;
            let is_due = state.views == 0 && state.closes_with_views;
            if is_due { state.region.take() } else { None }
        };
        if let Some(region) = last
            && let Err(error) = self.end(py, region)
        {
            // Nobody called who could catch it.
            error.write_unraisable(py, None);
        }
    }
}

impl Exported {
    pub fn new(region: TrappedRegion) -> Self {
        let region = Arc::new(region);
        exit::close_at_exit(&region);
        let state =
            State { region: Some(region), views: 0, closes_with_views: false, flushed: None };
        Self { process: std::process::id(), state: Mutex::new(state) }
    }

    fn check_process(&self) -> PyResult<()> {
        match std::process::id() == self.process {
            true => Ok(()),
            false => Err(forked(WHAT, self.process)),
        }
    }

    /// The open region.
    pub fn region(&self) -> PyResult<Arc<TrappedRegion>> {
        self.check_process()?;
        self.state.lock().region.clone().ok_or_else(|| closed(WHAT))
    }

    /// Number of buffers that point to the memory.
    pub fn views(&self) -> usize {
        self.state.lock().views
    }

    pub fn is_closed(&self) -> bool {
        let state = self.state.lock();
        state.region.is_none() || state.closes_with_views
    }

    /// Flushes and gives the memory back. A second call repeats the report.
    pub fn close(&self, py: Python<'_>) -> PyResult<Option<Flushed>> {
        self.check_process()?;
        let region = {
            let mut state = self.state.lock();
            if state.views > 0 && state.region.is_some() {
                let views = state.views;
                return Err(buffer(format!(
                    "views of this region that live: {views}: delete the arrays that lie in it (del \
                     array) and release its memoryviews, and close it again"
                )));
            }
            match state.region.take() {
                Some(region) => region,
                None => return Ok(state.flushed),
            }
        };
        self.end(py, region).map(Some)
    }

    /// Lets the region close when its last buffer is released, or now. Until then nobody gets
    /// another buffer.
    pub fn close_with_views(&self, py: Python<'_>) -> PyResult<()> {
        self.check_process()?;
        let region = {
            let mut state = self.state.lock();
            state.closes_with_views = true;
            if state.views > 0 { None } else { state.region.take() }
        };
        region.map_or(Ok(()), |region| self.end(py, region).map(drop))
    }

    fn end(&self, py: Python<'_>, region: Arc<TrappedRegion>) -> PyResult<Flushed> {
        let outcome: Result<_, CloseError> = py.detach(|| region.close());
        match outcome {
            Ok(flushed) => {
                let flushed = Flushed::from(flushed);
                self.state.lock().flushed = Some(flushed);
                // The memory may be large, and to give it back may take a while.
                py.detach(|| drop(region));
                Ok(flushed)
            }
            Err(error) => {
                // The caller may repair the device and close again.
                self.state.lock().region = Some(region);
                Err(closing(error))
            }
        }
    }
}

impl Drop for Exported {
    /// A region that nobody has closed is flushed here, which may take a while. Nothing points to
    /// its memory: a buffer would hold a reference to this object.
    fn drop(&mut self) {
        let mut region = self.state.get_mut().region.take();
        // At the end of the interpreter there is no lock that could be released.
        let _ = Python::try_attach(|py| py.detach(|| drop(region.take())));
        drop(region);
    }
}
