//! A simulated device that lets a writer act before each of its durable operations.

use std::sync::Arc;

use parking_lot::Mutex;
use perdura_media::{
    Completion, Device, DeviceError, FaultPlan, FaultyDevice, SimClock, SimDevice, WriteQueue,
};

/// The writer that acts beside the operations of a device. It is told whether the operation writes
/// to a place of its own, as only commits and frames that are written again do.
pub(in crate::tests) type Writer = Arc<Mutex<Option<Box<dyn FnMut(bool) + Send>>>>;

/// A device with planned faults and a writer beside it.
pub(in crate::tests) struct Beside {
    inner: FaultyDevice<SimDevice>,
    writer: Writer,
}

impl Beside {
    pub(in crate::tests) fn new(device: SimDevice, faults: Arc<FaultPlan>, writer: Writer) -> Self {
        let clock = Arc::new(SimClock::new(1_000));
        Self { inner: FaultyDevice::new(device, faults, clock), writer }
    }
}

/// Lets the writer act, unless it is acting already.
fn act(writer: &Writer, is_alone: bool) {
    let taken = writer.lock().take();
    if let Some(mut taken) = taken {
        taken(is_alone);
        *writer.lock() = Some(taken);
    }
}

impl Device for Beside {
    fn capacity_bytes(&self) -> u64 {
        self.inner.capacity_bytes()
    }

    fn grow(&self, capacity_bytes: u64) -> Result<(), DeviceError> {
        self.inner.grow(capacity_bytes)
    }

    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read_at(offset_bytes, buf)
    }

    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        act(&self.writer, true);
        self.inner.write_at(offset_bytes, buf)
    }

    fn write_durable_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        act(&self.writer, false);
        self.inner.write_durable_at(offset_bytes, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        act(&self.writer, false);
        self.inner.flush()
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>, DeviceError> {
        let (inner, writer) = (self.inner.queue(depth)?, Arc::clone(&self.writer));
        Ok(Box::new(BesideQueue { inner, writer }))
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

struct BesideQueue {
    inner: Box<dyn WriteQueue>,
    writer: Writer,
}

impl WriteQueue for BesideQueue {
    unsafe fn submit(
        &mut self,
        token: u64,
        offset_bytes: u64,
        ptr: *const u8,
        len_bytes: usize,
    ) -> Result<(), DeviceError> {
        act(&self.writer, false);
        // SAFETY: the caller's promise.
        unsafe { self.inner.submit(token, offset_bytes, ptr, len_bytes) }
    }

    fn wait(&mut self, at_least: usize, out: &mut Vec<Completion>) -> Result<(), DeviceError> {
        self.inner.wait(at_least, out)
    }

    fn outstanding(&self) -> usize {
        self.inner.outstanding()
    }
}
