//! The asynchronous engine: one ring a queue, a slot for each outstanding write.
//!
//! A write keeps its slot until its completion has been handed out, however many submissions it
//! took; so the ring, which has at least `depth` entries, never overflows.

use std::sync::Arc;

use rustix::io::Errno;

use super::progress::{Progress, Step};
use super::shared::Shared;
use crate::device::{Completion, DeviceError, WriteQueue, assert_submittable};
use crate::sys::{OpenFile, Source, WriteRing};

pub(super) struct UringQueue<F: OpenFile> {
    /// Before `shared`: the ring waits for its writes while the descriptor is still open.
    ring: F::Ring,
    shared: Arc<Shared<F>>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
}

struct Slot {
    token: u64,
    offset_bytes: u64,
    source: Source<'static>,
    progress: Progress,
}

impl<F: OpenFile> UringQueue<F> {
    pub(super) fn new(shared: Arc<Shared<F>>, depth: usize) -> Result<Self, Errno> {
        let ring = F::Ring::new(depth as u32)?;
        let slots = (0..depth).map(|_| None).collect();
        Ok(Self { ring, shared, slots, free: (0..depth).rev().collect() })
    }

    fn push(&mut self, index: usize) {
        let Some(slot) = &self.slots[index] else { unreachable!("a slot in use") };
        let done_bytes = slot.progress.done_bytes();
        self.ring.push_write(
            &self.shared.file,
            slot.offset_bytes + done_bytes as u64,
            slot.source.after(done_bytes),
            index as u64,
        );
    }

    /// Empties the completion ring: finished writes to `out`, unfinished ones back to the ring.
    fn reap(&mut self, out: &mut Vec<Completion>) {
        while let Some((user_data, outcome)) = self.ring.reap() {
            let index = user_data as usize;
            let Some(slot) = &mut self.slots[index] else { unreachable!("a slot in use") };
            let step = slot.progress.record(slot.offset_bytes, slot.source.len_bytes(), outcome);
            let result = match step {
                Step::Again => {
                    self.push(index);
                    continue;
                }
                Step::Done => Ok(()),
                Step::Failed(error) => Err(error),
            };
            out.push(Completion { token: slot.token, result });
            self.slots[index] = None;
            self.free.push(index);
        }
    }

    fn enter(&mut self, at_least: usize) -> Result<(), DeviceError> {
        self.ring.enter(at_least).map_err(|errno| DeviceError::Io {
            op: "io_uring_enter",
            offset_bytes: 0,
            len_bytes: 0,
            source: errno.into(),
        })
    }
}

impl<F: OpenFile> WriteQueue for UringQueue<F> {
    unsafe fn submit(
        &mut self,
        token: u64,
        offset_bytes: u64,
        ptr: *const u8,
        len_bytes: usize,
    ) -> Result<(), DeviceError> {
        assert_submittable(offset_bytes, ptr, len_bytes, self.outstanding(), self.slots.len());
        self.shared.admit_write(offset_bytes, len_bytes as u64)?;
        // SAFETY: this function's own contract is that of `Source`.
        let source = unsafe { Source::promised(ptr, len_bytes) };
        let Some(index) = self.free.pop() else { unreachable!("asserted: a slot is free") };
        let progress = Progress::default();
        self.slots[index] = Some(Slot { token, offset_bytes, source, progress });
        self.push(index);
        // The buffer is referenced from here on, so a refusal to start now is not this call's
        // error: `wait` enters again and reports it.
        let _started = self.ring.enter(0);
        Ok(())
    }

    fn wait(&mut self, at_least: usize, out: &mut Vec<Completion>) -> Result<(), DeviceError> {
        let goal = out.len() + at_least.min(self.outstanding());
        self.reap(out);
        while out.len() < goal {
            self.enter(goal - out.len())?;
            self.reap(out);
        }
        if self.ring.unsubmitted() {
            self.enter(0)?;
        }
        Ok(())
    }

    fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl<F: OpenFile> Drop for UringQueue<F> {
    fn drop(&mut self) {
        // Short writes are finished here, too. If the ring refuses, the ring's own drop decides.
        let mut unclaimed = Vec::with_capacity(self.outstanding());
        while self.outstanding() > 0 && self.wait(self.outstanding(), &mut unclaimed).is_ok() {}
    }
}
