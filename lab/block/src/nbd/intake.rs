//! Bytes that were received and not yet taken. They are received straight into spare capacity, so
//! memory for bytes that never arrive is never touched.
//!
//! Invariant: `start <= bytes.len()`; what is before `start` has been taken.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::buffer::spare_capacity;
use rustix::net::{RecvFlags, recv};

use super::wire::{PAYLOAD_MAX_BYTES, REQUEST_BYTES};

/// Bytes received at once where no larger request is expected: 64 requests of 4 KiB.
pub(super) const RECEIVE_BYTES: usize = 320 << 10;

/// Capacity kept between requests. What a larger payload needed beyond it is given back.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// Bytes of the largest request with its payload.
const WHOLE_BYTES_MAX: usize = REQUEST_BYTES + PAYLOAD_MAX_BYTES as usize;

#[derive(Default)]
pub(super) struct Intake {
    bytes: Vec<u8>,
    start: usize,
}

impl Intake {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Removes the next `len` bytes, which the caller has processed.
    pub fn take(&mut self, len: usize) {
        self.start = (self.start + len).min(self.bytes.len());
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    /// Receives bytes that have arrived, without waiting. `whole_bytes` is the length of the first
    /// request, if that is known. Returns `Some(0)` at the end of the stream, and `None` if nothing
    /// is there now.
    pub fn receive(
        &mut self,
        from: BorrowedFd<'_>,
        whole_bytes: usize,
    ) -> io::Result<Option<usize>> {
        self.make_room(whole_bytes.clamp(REQUEST_BYTES, WHOLE_BYTES_MAX));
        match recv(from, spare_capacity(&mut self.bytes), RecvFlags::DONTWAIT) {
            Ok((_, len)) => Ok(Some(len)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives back memory that holds no bytes.
    pub fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    fn make_room(&mut self, whole_bytes: usize) {
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES_MAX.max(whole_bytes) {
            self.bytes = Vec::new();
        }
        // Room for the rest of this request, but not less than the usual amount: to receive little
        // at a time would cost a system call each.
        let rest = whole_bytes.saturating_sub(self.bytes().len()).max(REQUEST_BYTES);
        if self.bytes.capacity() - self.bytes.len() >= rest.max(RECEIVE_BYTES / 4) {
            return;
        }
        self.bytes.drain(..self.start);
        self.start = 0;
        let wanted = whole_bytes.max(RECEIVE_BYTES);
        self.bytes.reserve_exact(wanted.saturating_sub(self.bytes.len()));
    }
}
