//! A device whose flushes wait for the test.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Condvar, Mutex};

use perdura_media::device::{Device, DeviceError, WriteQueue};

/// A gate for flushes, which wait while it is shut.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_shut: bool,
    waiting: usize,
}

impl Gate {
    pub fn shut(&self, shut: bool) {
        self.state.lock().unwrap().is_shut = shut;
        self.changed.notify_all();
    }

    /// Returns once a flush waits.
    pub fn until_reached(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.waiting == 0).unwrap());
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |state| state.is_shut).unwrap();
        state.waiting -= 1;
    }
}

pub struct GatedFlush<D> {
    pub inner: D,
    pub gate: Arc<Gate>,
}

impl<D: Device> Device for GatedFlush<D> {
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
        self.inner.write_at(offset_bytes, buf)
    }

    fn write_durable_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.gate.pass();
        self.inner.write_durable_at(offset_bytes, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.gate.pass();
        self.inner.flush()
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>, DeviceError> {
        self.inner.queue(depth)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}
