//! A simulated device whose power can be cut at every step, for tests of the rooms above.
//!
//! - Content is durable only after a flush. Until then a write, completed or in flight, is
//!   *pending*: reads see it, a power cut may lose it, keep it or tear it at [`SECTOR_BYTES`], in
//!   any order.
//! - Every completed write and every flush is one *durable operation*. [`SimDevice::cut_after`]
//!   cuts at each of them in turn; so a test that counts the operations of a run can crash it
//!   everywhere.
//! - The same seed and the same calls give the same device: no threads, no clocks, no hash order.
//! - Bytes of a write in flight that change before it completes are a breach of the queue's
//!   contract and asserted.

mod blocks;
mod files;
mod queue;
mod state;
#[cfg(test)]
mod tests;
mod timing;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::SimClock;
use crate::device::{
    BLOCK_BYTES, Device, DeviceError, QUEUE_DEPTH_MAX, WriteQueue, assert_aligned, check_range,
    whole_blocks_up,
};
pub use files::{SimFile, SimFiles};
use queue::SimQueue;
use state::{State, Watch};
use timing::Schedule;
pub use timing::{Channel, Timing};

/// Bytes that a power cut leaves whole.
pub const SECTOR_BYTES: usize = 512;

/// A simulated device. Clones are handles to the same device.
#[derive(Clone)]
pub struct SimDevice {
    state: Arc<Mutex<State>>,
}

impl SimDevice {
    /// A device of `capacity_bytes` (rounded up to whole blocks) of zeros. `seed` decides the order
    /// in which queued writes complete.
    #[must_use]
    pub fn new(capacity_bytes: u64, seed: u64) -> Self {
        Self::over(State::new(whole_blocks_up(capacity_bytes), seed))
    }

    /// Durable operations done so far: completed writes and flushes.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.state.lock().ops
    }

    /// Lets `ops` durable operations (counted from the start) happen, and cuts the power at the
    /// next one: it and every later call fail with [`DeviceError::PowerLost`]. The write at which
    /// the power is cut remains pending, so it may survive.
    pub fn cut_after(&self, ops: u64) {
        self.state.lock().cut_after = Some(ops);
    }

    /// Keeps a copy of the device as it is before each durable operation whose number (counted
    /// from the start) is among `ops`, which are ascending: what [`SimDevice::cut_after`] would
    /// leave.
    pub fn copy_before(&self, ops: impl IntoIterator<Item = u64>) {
        self.state.lock().copies_at = ops.into_iter().collect();
    }

    /// Takes the copies kept since the last call, without power, each with the number of durable
    /// operations done before it.
    #[must_use]
    pub fn take_copies(&self) -> Vec<(u64, SimDevice)> {
        let copies = std::mem::take(&mut self.state.lock().copies);
        copies.into_iter().map(|(ops, state)| (ops, Self::over(state))).collect()
    }

    /// The device as the death of its only user leaves it: with power, and with queued writes
    /// completed in an order drawn from `seed`.
    #[must_use]
    pub fn copy_when_killed(&self, seed: u64) -> SimDevice {
        Self::over(self.state.lock().copy_when_killed(seed))
    }

    /// The device as a power cut would leave it if everything that is not certain to survive were
    /// lost.
    #[must_use]
    pub fn durable_copy(&self) -> SimDevice {
        Self::over(self.state.lock().durable_copy())
    }

    /// Calls `watch` before each call that does durable operations: a write, a flush, and a wait
    /// for queued writes. Copies of the device and the device after a power cycle are not watched.
    pub fn watch(&self, watch: Arc<dyn Fn(&SimDevice) + Send + Sync>) {
        self.state.lock().watch = Watch(Some(watch));
    }

    /// Cuts the power now.
    pub fn power_off(&self) {
        self.state.lock().off = true;
    }

    /// Whether the power is on.
    #[must_use]
    pub fn is_powered(&self) -> bool {
        !self.state.lock().off
    }

    /// Sets a battery that lasts for so many written bytes, or mains power (`None`). The write that
    /// exceeds it cuts the power, and may survive torn like every pending write.
    pub fn set_energy_bytes(&self, energy_bytes: Option<u64>) {
        self.state.lock().energy_bytes = energy_bytes;
    }

    /// Bytes for which the battery still lasts; `None` on mains power.
    #[must_use]
    pub fn energy_bytes(&self) -> Option<u64> {
        self.state.lock().energy_bytes
    }

    /// Cuts the power and returns the device as it comes up again: durable content, and of the
    /// pending writes, in an order drawn from `seed`, each lost, whole or torn; an unflushed growth
    /// may be undone. Mains power, no cut planned, operations counted from 0; flaws and timing are
    /// kept.
    ///
    /// This handle stays off, but keeps what it had: another seed shows another outcome of the same
    /// cut.
    #[must_use]
    pub fn power_cycle(&self, seed: u64) -> SimDevice {
        let mut state = self.state.lock();
        state.off = true;
        Self::over(state.survivors(seed))
    }

    /// Flips one bit (0 the lowest) of one byte, in its durable copy, its pending copy or both.
    ///
    /// # Panics
    /// When the byte is beyond the capacity or the bit beyond 7.
    pub fn flip_bit(&self, offset_bytes: u64, bit: u8) {
        let mut state = self.state.lock();
        assert!(offset_bytes < state.capacity_bytes && bit < 8, "no bit {bit} at {offset_bytes}");
        state.flip_bit(offset_bytes, bit);
    }

    /// All bytes as reads would see them, even without power.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        let state = self.state.lock();
        let mut bytes = vec![0; state.capacity_bytes as usize];
        state.current.read(0, &mut bytes);
        bytes
    }

    /// All bytes that are certain to survive a power cut.
    #[must_use]
    pub fn snapshot_durable(&self) -> Vec<u8> {
        let state = self.state.lock();
        let mut bytes = vec![0; state.capacity_bytes as usize];
        state.durable.read(0, &mut bytes);
        bytes
    }

    /// Bytes of completed writes so far.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.state.lock().written_bytes
    }

    /// Bytes of pending writes, completed or in flight.
    #[must_use]
    pub fn unflushed_bytes(&self) -> u64 {
        self.state.lock().unflushed_bytes()
    }

    /// Plants a bug: flushes report success and make nothing durable. Tests must notice it.
    pub fn ignore_flushes(&self, ignore: bool) {
        self.state.lock().ignore_flushes = ignore;
    }

    /// Models time: from now on operations advance `clock`, and queued writes complete in the order
    /// of their modelled ends instead of a random one. Another call changes the speed.
    pub fn set_timing(&self, clock: Arc<SimClock>, timing: Timing) {
        let mut state = self.state.lock();
        state.schedule = Some(Schedule::new(clock, timing, state.schedule.as_ref()));
    }

    /// Calls the watcher. The state must not be locked.
    fn tell(&self) {
        let watch = self.state.lock().watch.0.clone();
        if let Some(watch) = watch {
            watch(self);
        }
    }

    fn over(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)) }
    }
}

impl Device for SimDevice {
    fn capacity_bytes(&self) -> u64 {
        self.state.lock().capacity_bytes
    }

    fn grow(&self, capacity_bytes: u64) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        state.powered()?;
        state.capacity_bytes = state.capacity_bytes.max(whole_blocks_up(capacity_bytes));
        Ok(())
    }

    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        assert_aligned(offset_bytes, buf.as_ptr(), buf.len());
        let mut state = self.state.lock();
        state.powered()?;
        check_range(offset_bytes, buf.len() as u64, state.capacity_bytes)?;
        if let Some(schedule) = &mut state.schedule {
            let due_ns = schedule.read(buf.len());
            schedule.clock.advance_to_ns(due_ns);
        }
        state.current.read(offset_bytes, buf);
        Ok(())
    }

    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        assert_aligned(offset_bytes, buf.as_ptr(), buf.len());
        self.tell();
        let mut state = self.state.lock();
        state.powered()?;
        check_range(offset_bytes, buf.len() as u64, state.capacity_bytes)?;
        if let Some(schedule) = &mut state.schedule {
            let due_ns = schedule.write(buf.len());
            schedule.clock.advance_to_ns(due_ns);
        }
        let number = state.submit(offset_bytes, buf.to_vec());
        state.complete(number)
    }

    fn write_durable_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.write_at(offset_bytes, buf)?;
        self.tell();
        let mut state = self.state.lock();
        if let Some(schedule) = &state.schedule {
            schedule.clock.advance_to_ns(schedule.flush());
        }
        state.flush_range(offset_bytes, buf.len() as u64)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.tell();
        let mut state = self.state.lock();
        state.powered()?;
        if let Some(schedule) = &state.schedule {
            schedule.clock.advance_to_ns(schedule.flush());
        }
        state.flush()
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>, DeviceError> {
        assert!((1..=QUEUE_DEPTH_MAX).contains(&depth), "a queue of depth {depth}");
        self.state.lock().powered()?;
        Ok(Box::new(SimQueue { device: self.clone(), depth, in_flight: Vec::new() }))
    }

    fn describe(&self) -> String {
        match &self.state.lock().schedule {
            None => "simulated".to_owned(),
            Some(schedule) => format!("simulated, modelled {}", schedule.bandwidth()),
        }
    }
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("SimDevice")
            .field("capacity_bytes", &state.capacity_bytes)
            .field("ops", &state.ops)
            .field("unflushed_bytes", &state.unflushed_bytes())
            .field("off", &state.off)
            .finish()
    }
}

const _: () = assert!(BLOCK_BYTES.is_multiple_of(SECTOR_BYTES as u64));
