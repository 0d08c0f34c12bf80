//! A device in memory whose operations take the time of a [`Timing`] on a clock. Modelled, not
//! measured.
//!
//! On the machine's clock a caller really waits. On a virtual one ([`crate::TurnClock`]) other
//! threads go on meanwhile, which a [`crate::SimDevice`] with timing cannot do: it advances its
//! clock under its caller. This device loses and tears no bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::device::{
    Completion, Device, DeviceError, QUEUE_DEPTH_MAX, WriteQueue, assert_aligned,
    assert_submittable, check_range, whole_blocks_up,
};
use crate::sim::{Channel, Timing};
use crate::sys::Source;

/// A device in memory. Clones are handles to the same device.
#[derive(Clone)]
pub struct TimedDevice {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

struct State {
    bytes: Vec<u8>,
    channel: Channel,
    written_bytes: u64,
}

impl TimedDevice {
    /// An empty device on this clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, timing: Timing) -> Self {
        let state = State { bytes: Vec::new(), channel: Channel::new(timing), written_bytes: 0 };
        Self { clock, state: Arc::new(Mutex::new(state)) }
    }

    /// Bytes written so far.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.state.lock().written_bytes
    }

    fn wait_until(&self, due_ns: u64) {
        let now_ns = self.clock.now_ns();
        if due_ns > now_ns {
            self.clock.sleep_ns(due_ns - now_ns);
        }
    }

    /// Puts bytes in place; returns the instant at which that is done.
    fn put(&self, offset_bytes: u64, bytes: &[u8]) -> Result<u64, DeviceError> {
        let now_ns = self.clock.now_ns();
        let mut state = self.state.lock();
        check_range(offset_bytes, bytes.len() as u64, state.bytes.len() as u64)?;
        let at = offset_bytes as usize;
        state.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        state.written_bytes += bytes.len() as u64;
        Ok(state.channel.write(now_ns, bytes.len() as u64))
    }
}

impl Device for TimedDevice {
    fn capacity_bytes(&self) -> u64 {
        self.state.lock().bytes.len() as u64
    }

    fn grow(&self, capacity_bytes: u64) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        let len = whole_blocks_up(capacity_bytes).max(state.bytes.len() as u64) as usize;
        if state.bytes.is_empty() {
            // Memory is taken only for bytes that are written.
            state.bytes = vec![0; len];
        }
        state.bytes.resize(len, 0);
        Ok(())
    }

    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        assert_aligned(offset_bytes, buf.as_ptr(), buf.len());
        let now_ns = self.clock.now_ns();
        let due_ns = {
            let mut state = self.state.lock();
            check_range(offset_bytes, buf.len() as u64, state.bytes.len() as u64)?;
            let at = offset_bytes as usize;
            buf.copy_from_slice(&state.bytes[at..at + buf.len()]);
            state.channel.read(now_ns, buf.len() as u64)
        };
        self.wait_until(due_ns);
        Ok(())
    }

    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        assert_aligned(offset_bytes, buf.as_ptr(), buf.len());
        let due_ns = self.put(offset_bytes, buf)?;
        self.wait_until(due_ns);
        Ok(())
    }

    fn write_durable_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.write_at(offset_bytes, buf)?;
        self.flush()
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let due_ns = self.state.lock().channel.flush(self.clock.now_ns());
        self.wait_until(due_ns);
        Ok(())
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>, DeviceError> {
        assert!((1..=QUEUE_DEPTH_MAX).contains(&depth), "a queue of depth {depth}");
        Ok(Box::new(TimedQueue { device: self.clone(), depth, in_flight: VecDeque::new() }))
    }

    fn describe(&self) -> String {
        "in memory, with modelled time".to_owned()
    }
}

/// Writes in flight, in the order in which they complete, which is that of their submission.
struct TimedQueue {
    device: TimedDevice,
    depth: usize,
    /// Token of each write, and the instant at which it is done.
    in_flight: VecDeque<(u64, u64)>,
}

impl WriteQueue for TimedQueue {
    unsafe fn submit(
        &mut self,
        token: u64,
        offset_bytes: u64,
        ptr: *const u8,
        len_bytes: usize,
    ) -> Result<(), DeviceError> {
        assert_submittable(offset_bytes, ptr, len_bytes, self.in_flight.len(), self.depth);
        // SAFETY: this function's own contract is that of `Source`.
        let bytes = unsafe { Source::promised(ptr, len_bytes) }.to_vec();
        let due_ns = self.device.put(offset_bytes, &bytes)?;
        self.in_flight.push_back((token, due_ns));
        Ok(())
    }

    fn wait(&mut self, at_least: usize, out: &mut Vec<Completion>) -> Result<(), DeviceError> {
        let at_least = at_least.min(self.in_flight.len());
        if let Some((_, due_ns)) = at_least.checked_sub(1).and_then(|at| self.in_flight.get(at)) {
            self.device.wait_until(*due_ns);
        }
        let now_ns = self.device.clock.now_ns();
        while let Some((token, due_ns)) = self.in_flight.front()
            && *due_ns <= now_ns
        {
            out.push(Completion { token: *token, result: Ok(()) });
            self.in_flight.pop_front();
        }
        Ok(())
    }

    fn outstanding(&self) -> usize {
        self.in_flight.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SimClock;
    use crate::sys::BlockBuf;
    use crate::units::BytesPerSecond;

    #[test]
    fn writes_follow_one_another_and_a_flush_follows_them() {
        let clock = Arc::new(SimClock::new(0));
        let timing = Timing {
            bandwidth: BytesPerSecond(4_096_000_000),
            read_latency_ns: 10,
            write_latency_ns: 300,
            flush_latency_ns: 5_000,
        };
        let device = TimedDevice::new(clock.clone(), timing);
        device.grow(64 << 10).unwrap();
        let mut block = BlockBuf::zeroed(4096);
        block.fill(7);
        let mut queue = device.queue(4).unwrap();
        for token in 0..3 {
            // SAFETY: the block outlives the queue's writes and is not changed.
            unsafe { queue.submit(token, token * 4096, block.as_ptr(), 4096) }.unwrap();
        }
        let mut done = Vec::new();
        queue.wait(0, &mut done).unwrap();
        assert!(done.is_empty());
        queue.wait(2, &mut done).unwrap();
        assert_eq!((done.len(), clock.now_ns(), queue.outstanding()), (2, 2_300, 1));
        device.flush().unwrap();
        assert_eq!(clock.now_ns(), 8_000);
        queue.wait(0, &mut done).unwrap();
        assert_eq!((done.len(), device.written_bytes()), (3, 3 * 4096));
        let mut read = BlockBuf::zeroed(4096);
        device.read_at(8192, &mut read).unwrap();
        assert_eq!((read[..] == block[..], clock.now_ns()), (true, 9_010));
        assert!(device.write_at(64 << 10, &block).is_err());
    }
}
