//! Writes in flight on a simulated device, completed in an order drawn from its seed.

use rand::Rng;

use super::SimDevice;
use super::state::State;
use crate::clock::Clock;
use crate::device::{Completion, DeviceError, WriteQueue, assert_submittable, check_range};
use crate::sys::Source;

pub(super) struct SimQueue {
    pub(super) device: SimDevice,
    pub(super) depth: usize,
    pub(super) in_flight: Vec<InFlight>,
}

pub(super) struct InFlight {
    token: u64,
    number: u64,
    source: Source<'static>,
    /// Instant at which modelled time completes the write; 0 without a model.
    due_ns: u64,
}

impl SimQueue {
    /// Number of writes to complete now. Without modelled time it is random, from the number asked
    /// for up.
    fn draw_count(&self, state: &mut State, at_least: usize) -> usize {
        let all = self.in_flight.len();
        let at_least = at_least.min(all);
        match &state.schedule {
            None => state.rng.random_range(at_least..=all),
            Some(schedule) => {
                let now_ns = schedule.clock.now_ns();
                let due = self.in_flight.iter().filter(|write| write.due_ns <= now_ns).count();
                at_least.max(due)
            }
        }
    }

    /// Index of the next write to complete: a random one, or with modelled time the earliest due.
    fn draw_index(&self, state: &mut State) -> usize {
        if state.schedule.is_none() {
            return state.rng.random_range(0..self.in_flight.len());
        }
        let earliest = self.in_flight.iter().enumerate().min_by_key(|(_, write)| write.due_ns);
        earliest.map_or(0, |(index, _)| index)
    }

    fn complete_one(&mut self, state: &mut State) -> (InFlight, Result<(), DeviceError>) {
        let index = self.draw_index(state);
        let write = self.in_flight.remove(index);
        if let Some(schedule) = &state.schedule {
            schedule.clock.advance_to_ns(write.due_ns);
        }
        let result = state.complete(write.number);
        (write, result)
    }
}

impl WriteQueue for SimQueue {
    unsafe fn submit(
        &mut self,
        token: u64,
        offset_bytes: u64,
        ptr: *const u8,
        len_bytes: usize,
    ) -> Result<(), DeviceError> {
        assert_submittable(offset_bytes, ptr, len_bytes, self.in_flight.len(), self.depth);
        let mut state = self.device.state.lock();
        state.powered()?;
        check_range(offset_bytes, len_bytes as u64, state.capacity_bytes)?;
        // SAFETY: this function's own contract is that of `Source`.
        let source = unsafe { Source::promised(ptr, len_bytes) };
        let due_ns = state.schedule.as_mut().map_or(0, |schedule| schedule.write(len_bytes));
        let number = state.submit(offset_bytes, source.to_vec());
        self.in_flight.push(InFlight { token, number, source, due_ns });
        Ok(())
    }

    fn wait(&mut self, at_least: usize, out: &mut Vec<Completion>) -> Result<(), DeviceError> {
        let device = self.device.clone();
        device.tell();
        let mut state = device.state.lock();
        let mut count = self.draw_count(&mut state, at_least);
        while count > 0 {
            let (write, result) = self.complete_one(&mut state);
            assert!(
                write.source.still_equals(state.submitted_bytes(write.number)),
                "the bytes of write {} were changed while it was in flight",
                write.token
            );
            // Without power there is nothing to wait for, so all writes are returned at once.
            count = if state.off { self.in_flight.len() } else { count - 1 };
            out.push(Completion { token: write.token, result });
        }
        Ok(())
    }

    fn outstanding(&self) -> usize {
        self.in_flight.len()
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        let device = self.device.clone();
        let mut state = device.state.lock();
        while !self.in_flight.is_empty() {
            // Nobody receives the result; the bytes may be gone with the owner's panic.
            let _unheard = self.complete_one(&mut state);
        }
    }
}
