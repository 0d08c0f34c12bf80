//! The fallback engine: `submit` writes, and `wait` returns the completion.
//!
//! A deeper queue gains nothing here. Measured (ext4, O_DIRECT, overwriting, 2 vCPU guest; against
//! `io_uring` at depth 16): writes of 1 MiB reach about 90 % of the bandwidth of `io_uring`, 256
//! KiB half, 64 KiB a quarter. A pool of threads would help small writes only, and the log above
//! writes large ones.

use std::collections::VecDeque;
use std::sync::Arc;

use super::shared::Shared;
use super::whole::{Reach, write_all};
use crate::device::{Completion, DeviceError, WriteQueue, assert_submittable};
use crate::sys::{OpenFile, Source};

pub(super) struct PwriteQueue<F> {
    shared: Arc<Shared<F>>,
    depth: usize,
    completed: VecDeque<Completion>,
}

impl<F> PwriteQueue<F> {
    pub(super) fn new(shared: Arc<Shared<F>>, depth: usize) -> Self {
        Self { shared, depth, completed: VecDeque::with_capacity(depth) }
    }
}

impl<F: OpenFile> WriteQueue for PwriteQueue<F> {
    unsafe fn submit(
        &mut self,
        token: u64,
        offset_bytes: u64,
        ptr: *const u8,
        len_bytes: usize,
    ) -> Result<(), DeviceError> {
        assert_submittable(offset_bytes, ptr, len_bytes, self.completed.len(), self.depth);
        self.shared.admit_write(offset_bytes, len_bytes as u64)?;
        // SAFETY: this function's own contract is that of `Source`.
        let source = unsafe { Source::promised(ptr, len_bytes) };
        let result = write_all(&self.shared.file, offset_bytes, source, Reach::Device);
        self.completed.push_back(Completion { token, result });
        Ok(())
    }

    fn wait(&mut self, _at_least: usize, out: &mut Vec<Completion>) -> Result<(), DeviceError> {
        out.extend(self.completed.drain(..));
        Ok(())
    }

    fn outstanding(&self) -> usize {
        self.completed.len()
    }
}
