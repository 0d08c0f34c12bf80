//! Queued writes with faults. Refused writes never reach the device; slow ones are held back.

use std::sync::Arc;

use super::plan::FaultPlan;
use crate::clock::Clock;
use crate::device::{Completion, DeviceError, WriteQueue, assert_submittable};
use crate::latch::Latch;

pub(super) struct FaultyQueue {
    inner: Box<dyn WriteQueue>,
    depth: usize,
    plan: Arc<FaultPlan>,
    clock: Arc<dyn Clock>,
    latch: Arc<Latch>,
    /// Writes that the inner queue has, by the token it was given. The caller's own tokens need not
    /// be unique.
    started: Vec<Option<Started>>,
    /// Writes that are complete but not due, earliest first.
    held: Vec<Held>,
}

#[derive(Clone, Copy)]
struct Started {
    token: u64,
    started_ns: u64,
    booked_ns: u64,
}

struct Held {
    due_ns: u64,
    completion: Completion,
}

impl FaultyQueue {
    pub(super) fn new(
        inner: Box<dyn WriteQueue>,
        depth: usize,
        plan: Arc<FaultPlan>,
        clock: Arc<dyn Clock>,
        latch: Arc<Latch>,
    ) -> Self {
        Self { inner, depth, plan, clock, latch, started: vec![None; depth], held: Vec::new() }
    }

    fn hold(&mut self, due_ns: u64, completion: Completion) {
        let at = self.held.partition_point(|held| held.due_ns <= due_ns);
        self.held.insert(at, Held { due_ns, completion });
    }

    /// Moves completed writes of the inner queue to `held`, and waits for `at_least` of them.
    fn collect(&mut self, at_least: usize) -> Result<(), DeviceError> {
        let mut finished = Vec::new();
        let waited = self.inner.wait(at_least, &mut finished);
        let now_ns = self.clock.now_ns();
        for Completion { token: index, result } in finished {
            let Some(write) = self.started[index as usize].take() else {
                unreachable!("a completion without a write")
            };
            let due_ns = self.plan.due(write.started_ns, now_ns, write.booked_ns);
            self.hold(due_ns, Completion { token: write.token, result });
        }
        waited
    }
}

impl WriteQueue for FaultyQueue {
    unsafe fn submit(
        &mut self,
        token: u64,
        offset_bytes: u64,
        ptr: *const u8,
        len_bytes: usize,
    ) -> Result<(), DeviceError> {
        assert_submittable(offset_bytes, ptr, len_bytes, self.outstanding(), self.depth);
        self.latch.check()?;
        let started_ns = self.clock.now_ns();
        let verdict = self.plan.write().apply("write", offset_bytes, len_bytes as u64);
        if verdict.is_err() {
            self.hold(started_ns, Completion { token, result: verdict });
            return Ok(());
        }
        let Some(index) = self.started.iter().position(Option::is_none) else {
            unreachable!("asserted: fewer than depth outstanding")
        };
        // SAFETY: the same range under the same contract: `wait` returns the write's completion
        // only after the inner queue has, and dropping `self` drops the inner queue, which waits.
        unsafe { self.inner.submit(index as u64, offset_bytes, ptr, len_bytes) }?;
        let booked_ns = self.plan.book(started_ns, len_bytes as u64);
        self.started[index] = Some(Started { token, started_ns, booked_ns });
        Ok(())
    }

    fn wait(&mut self, at_least: usize, out: &mut Vec<Completion>) -> Result<(), DeviceError> {
        let at_least = at_least.min(self.outstanding());
        self.collect(at_least.saturating_sub(self.held.len()))?;
        let mut now_ns = self.clock.now_ns();
        if let Some(last) = at_least.checked_sub(1).and_then(|last| self.held.get(last)) {
            self.clock.sleep_ns(last.due_ns.saturating_sub(now_ns));
            now_ns = self.clock.now_ns().max(last.due_ns);
        }
        let due = self.held.partition_point(|held| held.due_ns <= now_ns);
        out.extend(self.held.drain(..due).map(|held| held.completion));
        Ok(())
    }

    fn outstanding(&self) -> usize {
        self.inner.outstanding() + self.held.len()
    }
}
