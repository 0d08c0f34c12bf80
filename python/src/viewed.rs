//! Memory that buffers point to, and its closing.
//!
//! - Memory that a buffer points to stays mapped until the buffer is released.
//! - Open memory whose last buffer was released may be closed; with a buffer it is refused, or put
//!   off until the last one is released.
//! - No exception is made under the lock: that may run Python's collector, which releases buffers.

use std::sync::Arc;

use parking_lot::Mutex;
use perdura::{CloseError, TrappedRegion};
use pyo3::prelude::*;

use crate::errors::{buffer, closed, closing, forked};
use crate::sys::close_at_exit;
use crate::terms::Flushed;

/// Memory that is flushed when it is closed.
pub trait Closes: Send + Sync + 'static {
    /// The name of such memory in errors.
    const WHAT: &'static str;

    /// Flushes everything, and takes no more stores.
    fn close(&self) -> Result<Flushed, CloseError>;

    /// Whether another process opened it, of which this one is a fork.
    fn is_forked(&self) -> bool;
}

impl Closes for TrappedRegion {
    const WHAT: &'static str = "region";

    fn close(&self) -> Result<Flushed, CloseError> {
        self.close().map(Flushed::from)
    }

    fn is_forked(&self) -> bool {
        self.is_forked()
    }
}

impl Closes for perdura::Heap {
    const WHAT: &'static str = "heap";

    fn close(&self) -> Result<Flushed, CloseError> {
        self.close().map(|flushed| flushed.map(Flushed::from).unwrap_or_default())
    }

    fn is_forked(&self) -> bool {
        perdura::heap_types::Heap::is_forked(self)
    }
}

/// Memory, and who looks at it.
pub struct Viewed<T: Closes> {
    /// The process that opened the memory.
    process: u32,
    state: Mutex<State<T>>,
}

struct State<T> {
    /// `None` while the memory is being closed, and afterwards.
    memory: Option<Arc<T>>,
    /// Number of buffers that point to the memory.
    views: usize,
    /// Whether the memory is to be closed when the last buffer is released.
    closes_with_views: bool,
    flushed: Option<Flushed>,
}

impl<T: Closes> Viewed<T> {
    pub fn new(memory: T) -> Self {
        let memory = Arc::new(memory);
        close_at_exit(&memory);
        let state =
            State { memory: Some(memory), views: 0, closes_with_views: false, flushed: None };
        Self { process: std::process::id(), state: Mutex::new(state) }
    }

    /// Whether this process is a fork of the one that opened the memory.
    pub fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    fn check_process(&self) -> PyResult<()> {
        if self.is_forked() { Err(forked(T::WHAT, self.process)) } else { Ok(()) }
    }

    /// The memory, if it is not closed.
    pub fn get(&self) -> PyResult<Arc<T>> {
        self.check_process()?;
        let memory = self.state.lock().memory.clone();
        memory.ok_or_else(|| closed(T::WHAT))
    }

    /// The memory, if it is not closed and will not be when its last buffer is released.
    pub fn get_lasting(&self) -> PyResult<Arc<T>> {
        let memory = self.get()?;
        if self.state.lock().closes_with_views { Err(closed(T::WHAT)) } else { Ok(memory) }
    }

    /// Calls `fill` to make a buffer, which counts if that succeeds.
    pub fn view(&self, fill: impl FnOnce(&T) -> PyResult<()>) -> PyResult<()> {
        self.check_process()?;
        let filled = {
            let mut state = self.state.lock();
            let memory = state.memory.as_ref().filter(|_| !state.closes_with_views);
            let filled = memory.map(|memory| fill(memory));
            state.views += usize::from(matches!(filled, Some(Ok(()))));
            filled
        };
        filled.unwrap_or_else(|| Err(closed(T::WHAT)))
    }

    /// A buffer is released.
    pub fn unview(&self, py: Python<'_>) {
        let last = {
            let mut state = self.state.lock();
            state.views -= 1;
            let is_due = state.views == 0 && state.closes_with_views;
            if is_due { state.memory.take() } else { None }
        };
        if let Some(memory) = last
            && let Err(error) = self.end(py, memory)
        {
            // Nobody called who could catch it.
            error.write_unraisable(py, None);
        }
    }

    /// Calls `call` if the memory is open, which does not end meanwhile.
    pub fn while_open(&self, call: impl FnOnce(&T)) {
        if !self.is_forked()
            && let Some(memory) = &self.state.lock().memory
        {
            call(memory);
        }
    }

    /// Number of buffers that point to the memory.
    pub fn views(&self) -> usize {
        self.state.lock().views
    }

    pub fn is_closed(&self) -> bool {
        let state = self.state.lock();
        state.memory.is_none() || state.closes_with_views
    }

    /// Flushes and gives the memory back. A second call repeats the report.
    pub fn close(&self, py: Python<'_>) -> PyResult<Option<Flushed>> {
        self.check_process()?;
        let memory = {
            let mut state = self.state.lock();
            if state.views > 0 && state.memory.is_some() {
                let (what, views) = (T::WHAT, state.views);
                return Err(buffer(format!(
                    "views of this {what} that live: {views}: delete the arrays that lie in it \
                     (del array) and release its memoryviews, and close it again"
                )));
            }
            match state.memory.take() {
                Some(memory) => memory,
                None => return Ok(state.flushed),
            }
        };
        self.end(py, memory).map(Some)
    }

    /// Lets the memory close when its last buffer is released, or now. Until then nobody gets
    /// another buffer.
    pub fn close_with_views(&self, py: Python<'_>) -> PyResult<()> {
        self.check_process()?;
        let memory = {
            let mut state = self.state.lock();
            state.closes_with_views = true;
            if state.views > 0 { None } else { state.memory.take() }
        };
        memory.map_or(Ok(()), |memory| self.end(py, memory).map(drop))
    }

    fn end(&self, py: Python<'_>, memory: Arc<T>) -> PyResult<Flushed> {
        match py.detach(|| memory.close()) {
            Ok(flushed) => {
                self.state.lock().flushed = Some(flushed);
                // The memory may be large, and to give it back may take a while.
                py.detach(|| drop(memory));
                Ok(flushed)
            }
            Err(error) => {
                // The caller may repair the device and close again.
                self.state.lock().memory = Some(memory);
                Err(closing(error))
            }
        }
    }
}

impl<T: Closes> Drop for Viewed<T> {
    /// Memory that nobody has closed is flushed here, which may take a while. Nothing points to it:
    /// a buffer would keep this.
    fn drop(&mut self) {
        let mut memory = self.state.get_mut().memory.take();
        // At the end of the interpreter there is no lock that could be released.
        let _ = Python::try_attach(|py| py.detach(|| drop(memory.take())));
        drop(memory);
    }
}
