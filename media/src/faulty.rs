//! A wrapper that gives any device scripted faults, for tests of the rooms above and for rehearsals
//! on a real machine.
//!
//! - A scripted failure happens in front of the device: a refused write leaves its content as it
//!   was.
//! - Writes are counted in order of submission, through every handle and queue together.
//! - A scripted flush failure latches this wrapper, as the contract demands; [`FaultPlan::heal`]
//!   does not release it.
//! - Slowness holds completions back on the given clock, so it costs no real time on a simulated
//!   one.

mod plan;
mod queue;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use crate::clock::Clock;
use crate::device::{Device, DeviceError, WriteQueue, assert_aligned, whole_blocks_up};
use crate::latch::Latch;
pub use plan::{FaultPlan, Slowdown};
use queue::FaultyQueue;

/// `inner` with the faults of a [`FaultPlan`]. With a shared handle (`Arc<dyn Device>`, or a clone)
/// the caller keeps access to the device without faults.
pub struct FaultyDevice<D> {
    inner: D,
    plan: Arc<FaultPlan>,
    clock: Arc<dyn Clock>,
    latch: Arc<Latch>,
}

impl<D: Device> FaultyDevice<D> {
    /// Wraps `inner`. The plan may be changed at any time, even while writes are in flight.
    pub fn new(inner: D, plan: Arc<FaultPlan>, clock: Arc<dyn Clock>) -> Self {
        Self { inner, plan, clock, latch: Arc::new(Latch::default()) }
    }

    /// The device without the faults.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn write_slowly(
        &self,
        offset_bytes: u64,
        buf: &[u8],
        write: impl FnOnce(&D) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        assert_aligned(offset_bytes, buf.as_ptr(), buf.len());
        self.latch.check()?;
        self.plan.write().apply("write", offset_bytes, buf.len() as u64)?;
        let started_ns = self.clock.now_ns();
        let booked_ns = self.plan.book(started_ns, buf.len() as u64);
        write(&self.inner)?;
        let now_ns = self.clock.now_ns();
        let due_ns = self.plan.due(started_ns, now_ns, booked_ns);
        self.clock.sleep_ns(due_ns.saturating_sub(now_ns));
        Ok(())
    }
}

impl<D: Device> Device for FaultyDevice<D> {
    fn capacity_bytes(&self) -> u64 {
        self.inner.capacity_bytes()
    }

    fn grow(&self, capacity_bytes: u64) -> Result<(), DeviceError> {
        self.latch.check()?;
        let old_bytes = self.inner.capacity_bytes();
        let len_bytes = whole_blocks_up(capacity_bytes).saturating_sub(old_bytes);
        self.plan.grow().apply("grow", old_bytes, len_bytes)?;
        self.inner.grow(capacity_bytes)
    }

    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        assert_aligned(offset_bytes, buf.as_ptr(), buf.len());
        self.plan.read().apply("read", offset_bytes, buf.len() as u64)?;
        self.inner.read_at(offset_bytes, buf)
    }

    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.write_slowly(offset_bytes, buf, |inner| inner.write_at(offset_bytes, buf))
    }

    /// The plan counts this as one write and one flush.
    fn write_durable_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        let write = |inner: &D| match self.plan.flush().apply("flush", 0, 0) {
            Ok(()) => inner.write_durable_at(offset_bytes, buf),
            Err(error) => inner.write_at(offset_bytes, buf).and(Err(error)),
        };
        self.write_slowly(offset_bytes, buf, write).map_err(|error| self.latch.set(error))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.latch.check()?;
        self.plan.flush().apply("flush", 0, 0).map_err(|error| self.latch.set(error))?;
        self.inner.flush()
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>, DeviceError> {
        Ok(Box::new(FaultyQueue::new(
            self.inner.queue(depth)?,
            depth,
            Arc::clone(&self.plan),
            Arc::clone(&self.clock),
            Arc::clone(&self.latch),
        )))
    }

    fn describe(&self) -> String {
        format!("{}, with scripted faults", self.inner.describe())
    }
}

impl<D: fmt::Debug> fmt::Debug for FaultyDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyDevice")
            .field("inner", &self.inner)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}
