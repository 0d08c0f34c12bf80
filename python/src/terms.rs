//! The promise of what is open, and the report of its closing.

use pyo3::prelude::*;

/// How much may be dirty, and how long its flush takes.
#[pyclass(frozen, get_all, module = "perdura")]
#[derive(Debug, Clone, Copy)]
pub struct Promise {
    /// Bytes that may be dirty.
    budget_bytes: u64,
    /// Time of their flush at the proven rate, seconds.
    flush_time_s: f64,
    /// Whether everything may be dirty at once.
    covers_everything: bool,
}

#[pymethods]
impl Promise {
    fn __repr__(&self) -> String {
        let Self { budget_bytes, flush_time_s, covers_everything } = self;
        let covers = if *covers_everything { "True" } else { "False" };
        format!(
            "Promise(budget_bytes={budget_bytes}, flush_time_s={flush_time_s}, \
             covers_everything={covers})"
        )
    }
}

impl From<perdura::Promise> for Promise {
    fn from(promise: perdura::Promise) -> Self {
        Self {
            budget_bytes: promise.budget_bytes,
            flush_time_s: promise.flush_time.as_secs_f64(),
            covers_everything: promise.covers_whole_region,
        }
    }
}

/// The report of a final flush.
#[pyclass(frozen, get_all, module = "perdura")]
#[derive(Debug, Clone, Copy, Default)]
pub struct Flushed {
    /// Bytes that were dirty when the flush began.
    dirty_bytes: u64,
    /// Bytes written to the SSD for them.
    device_bytes: u64,
    /// Time until the SSD had everything, seconds.
    elapsed_s: f64,
    /// Whether that was within the warning.
    is_in_time: bool,
}

#[pymethods]
impl Flushed {
    fn __repr__(&self) -> String {
        let Self { dirty_bytes, device_bytes, elapsed_s, is_in_time } = self;
        let in_time = if *is_in_time { "True" } else { "False" };
        format!(
            "Flushed(dirty_bytes={dirty_bytes}, device_bytes={device_bytes}, \
             elapsed_s={elapsed_s}, is_in_time={in_time})"
        )
    }
}

impl From<perdura::Flushed> for Flushed {
    fn from(flushed: perdura::Flushed) -> Self {
        Self {
            dirty_bytes: flushed.dirty_bytes,
            device_bytes: flushed.device_bytes,
            elapsed_s: flushed.elapsed.as_secs_f64(),
            is_in_time: flushed.is_in_time,
        }
    }
}
