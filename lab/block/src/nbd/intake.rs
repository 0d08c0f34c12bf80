//! Bytes received and not yet taken. They come straight into spare capacity, so what never arrives
//! is never touched.
//!
//! Invariant: `start <= bytes.len()`; what is before `start` has been taken.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::buffer::spare_capacity;
use rustix::net::{RecvFlags, recv};

use super::wire::{PAYLOAD_MAX_BYTES, REQUEST_BYTES};

/// Received at once where nothing larger is expected: 64 requests of 4 KiB.
pub(super) const RECEIVE_BYTES: usize = 320 << 10;

/// Kept between requests; what a larger payload needed is given back.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// The largest request, whole.
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

    /// The next `len` bytes are dealt with.
    pub fn take(&mut self, len: usize) {
        self.start = (self.start + len).min(self.bytes.len());
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    /// Receives what is there, without waiting. `whole_bytes`: what the request at the beginning
    /// needs in all, if that is known. `Some(0)`: the end of the stream; `None`: nothing now.
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

    /// Gives memory back that holds nothing.
    pub fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    fn make_room(&mut self, whole_bytes: usize) {
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES_MAX.max(whole_bytes) {
            self.bytes = Vec::new();
        }
        // Room for the rest of this request; and to ask for little at a time would cost a call
        // each.
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
