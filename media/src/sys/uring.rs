//! The submission ring: writes in, (token, outcome) pairs out. The kernel never holds a buffer
//! after the ring is gone.

use std::os::fd::{AsRawFd, OwnedFd};

use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;

use super::Source;
use super::calls::WriteRing;

/// The kernel's submission ring.
pub struct Ring {
    ring: IoUring,
    /// Writes that were pushed and not yet reaped. `drop` waits for them.
    in_flight: usize,
}

impl WriteRing<OwnedFd> for Ring {
    fn new(entries: u32) -> Result<Self, Errno> {
        let ring = IoUring::new(entries).map_err(|error| errno_of(&error))?;
        Ok(Self { ring, in_flight: 0 })
    }

    fn push_write(
        &mut self,
        file: &OwnedFd,
        offset_bytes: u64,
        source: Source<'static>,
        user_data: u64,
    ) {
        // The kernel counts in u32 and cuts at 2 GiB anyway; the rest is resubmitted.
        let len = source.len_bytes().min(WRITE_BYTES_MAX) as u32;
        let entry = opcode::Write::new(types::Fd(file.as_raw_fd()), source.ptr(), len)
            .offset(offset_bytes)
            .build()
            .user_data(user_data);
        // SAFETY: the bytes stay valid until the completion is reaped (promise of `Source`), and
        // `drop` waits for every completion; the descriptor is owned by the device the queue keeps
        // alive.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "more writes in flight than the ring has entries");
        self.in_flight += 1;
    }

    fn unsubmitted(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    fn enter(&mut self, at_least: usize) -> Result<(), Errno> {
        match self.ring.submit_and_wait(at_least).map_err(|error| errno_of(&error)) {
            Ok(_) | Err(Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn reap(&mut self) -> Option<(u64, Result<usize, Errno>)> {
        let entry = self.ring.completion().next()?;
        self.in_flight -= 1;
        let outcome =
            usize::try_from(entry.result()).map_err(|_| Errno::from_raw_os_error(-entry.result()));
        Some((entry.user_data(), outcome))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            if self.reap().is_some() {
                continue;
            }
            if let Err(errno) = self.enter(1) {
                // The kernel may still read buffers whose owner is about to free them. A crash
                // loses nothing (the holder flushes); going on could write foreign bytes to the
                // device.
                eprintln!("io_uring_enter failed while writes were in flight: {errno}");
                std::process::abort();
            }
        }
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

const WRITE_BYTES_MAX: usize = 1 << 30;
