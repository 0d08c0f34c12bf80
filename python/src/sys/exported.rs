//! Memory that Python's buffer protocol hands out: that of a region, and capacity memory of a heap.
//!
//! Each buffer holds a reference to the object that made it, and counts in [`Viewed`] until it is
//! released, so that nothing is unmapped while the buffer lives.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use perdura::TrappedRegion;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::errors::{buffer, heaping};
use crate::terms::Flushed;
use crate::viewed::Viewed;

/// The alignment of capacity memory, which suits every type of numpy and every cache line.
const CAPACITY_ALIGN: u64 = 64;

/// Fills a buffer that may be written, of the memory of `owner`, to which it holds a reference.
///
/// # Safety
/// The interpreter gave `view`, and the memory may be read and stored to as long as the buffer
/// lives.
unsafe fn fill(
    view: *mut ffi::Py_buffer,
    owner: &Bound<'_, PyAny>,
    first: *mut c_void,
    len: ffi::Py_ssize_t,
    flags: c_int,
) -> PyResult<()> {
    // SAFETY: the caller vouches for `view` and the memory; `owner` is a living object.
    let filled = unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), first, len, 0, flags) };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py())) }
}

/// The memory of a region, and who looks at it.
#[pyclass(frozen, subclass, module = "perdura._native")]
pub struct Exported(Viewed<TrappedRegion>);

#[pymethods]
impl Exported {
    /// # Safety
    /// Called by the interpreter, which gives a `view` that may be written.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        slf.get().0.view(|region| {
            let len = ffi::Py_ssize_t::try_from(region.len_bytes())
                .map_err(|_| buffer("the region is larger than Python's sizes"))?;
            let first = region.as_ptr().cast();
            // SAFETY: the interpreter gave `view`. The memory is mapped, may be read and stored to
            // by all threads, and stays as long as this buffer counts, which holds a reference to
            // this object, too.
            unsafe { fill(view, &slf, first, len, flags) }
        })
    }

    /// # Safety
    /// Called by the interpreter, once for each buffer that it got.
    unsafe fn __releasebuffer__(&self, py: Python<'_>, _view: *mut ffi::Py_buffer) {
        self.0.unview(py);
    }
}

impl Exported {
    pub fn new(region: TrappedRegion) -> Self {
        Self(Viewed::new(region))
    }

    /// The open region.
    pub fn region(&self) -> PyResult<Arc<TrappedRegion>> {
        self.0.get()
    }

    /// Number of buffers that point to the memory.
    pub fn views(&self) -> usize {
        self.0.views()
    }

    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Flushes and gives the memory back. A second call repeats the report.
    pub fn close(&self, py: Python<'_>) -> PyResult<Option<Flushed>> {
        self.0.close(py)
    }

    /// Lets the region close when its last buffer is released, or now.
    pub fn close_with_views(&self, py: Python<'_>) -> PyResult<()> {
        self.0.close_with_views(py)
    }
}

/// Capacity memory of a heap, all zeros at first: it is free again when nothing refers to it, and
/// forgotten when the heap is closed.
#[pyclass(frozen, module = "perdura._native")]
pub struct Capacity {
    heap: Arc<Viewed<perdura::Heap>>,
    first: Address,
    len_bytes: usize,
}

/// The address of memory that belongs to one [`Capacity`].
struct Address(NonNull<u8>);

// SAFETY: an address is a number. What it leads to is read and written by Python's threads through
// buffers only, as with a `bytearray`.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

#[pymethods]
impl Capacity {
    /// # Safety
    /// Called by the interpreter, which gives a `view` that may be written.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        this.heap.view(|_| {
            let (first, len) = (this.first.0.as_ptr().cast(), this.len_bytes.cast_signed());
            // SAFETY: the interpreter gave `view`. The heap is open, so the memory is mapped, and
            // stays so as long as this buffer counts. The buffer holds a reference to this object,
            // which alone has the memory and frees it when it is dropped.
            unsafe { fill(view, &slf, first, len, flags) }
        })
    }

    /// # Safety
    /// Called by the interpreter, once for each buffer that it got.
    unsafe fn __releasebuffer__(&self, py: Python<'_>, _view: *mut ffi::Py_buffer) {
        self.heap.unview(py);
    }

    fn __len__(&self) -> usize {
        self.len_bytes
    }
}

impl Capacity {
    /// Takes capacity memory from the heap.
    pub fn take(py: Python<'_>, heap: &Arc<Viewed<perdura::Heap>>, bytes: u64) -> PyResult<Self> {
        // A close that came between would leave memory that takes no more stores.
        heap.view(|_| Ok(()))?;
        let taken = Self::take_open(py, heap, bytes);
        heap.unview(py);
        taken
    }

    fn take_open(py: Python<'_>, heap: &Arc<Viewed<perdura::Heap>>, bytes: u64) -> PyResult<Self> {
        let open = heap.get()?;
        let len_bytes = isize::try_from(bytes).map_or(usize::MAX, isize::cast_unsigned);
        let taken = py.detach(|| {
            let first = open.cap_alloc_aligned(bytes, CAPACITY_ALIGN)?;
            // SAFETY: the heap has just given these bytes, to nobody else, and `open` keeps them
            // mapped. An allocation that was granted fits the address space.
            unsafe { first.as_ptr().write_bytes(0, len_bytes) };
            Ok(Address(first))
        });
        let first = taken.map_err(heaping)?;
        Ok(Self { heap: Arc::clone(heap), first, len_bytes })
    }
}

impl Drop for Capacity {
    fn drop(&mut self) {
        self.heap.while_open(|heap| {
            // The heap gave this memory and nobody else frees it, so that it is not refused.
            let _ = heap.cap_free(self.first.0);
        });
    }
}
