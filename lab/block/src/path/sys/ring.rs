//! A ring for one request at a time. The kernel uses no buffer after a call has returned.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, squeue, types};

/// The polling that replaces system calls and interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Polling {
    None,
    /// A kernel thread polls for submissions.
    Submission,
    /// A kernel thread polls for submissions, and polls the device.
    Both,
}

pub(crate) struct Ring {
    ring: IoUring,
    polling: Polling,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("polling", &self.polling).finish_non_exhaustive()
    }
}

impl Ring {
    pub(crate) fn new(polling: Polling) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        if polling != Polling::None {
            builder.setup_sqpoll(IDLE_MS);
        }
        if polling == Polling::Both {
            builder.setup_iopoll();
        }
        Ok(Self { ring: builder.build(ENTRIES)?, polling })
    }

    pub(crate) fn read(
        &mut self,
        fd: BorrowedFd<'_>,
        offset_bytes: u64,
        buf: &mut [u8],
    ) -> io::Result<usize> {
        let len = buf.len().min(LEN_MAX) as u32;
        let entry = opcode::Read::new(types::Fd(fd.as_raw_fd()), buf.as_mut_ptr(), len)
            .offset(offset_bytes)
            .build();
        // SAFETY: `buf` is borrowed mutably, and `fd` held, until `carry` has the completion.
        unsafe { self.carry(&entry) }
    }

    pub(crate) fn write(
        &mut self,
        fd: BorrowedFd<'_>,
        offset_bytes: u64,
        buf: &[u8],
    ) -> io::Result<usize> {
        let len = buf.len().min(LEN_MAX) as u32;
        let entry = opcode::Write::new(types::Fd(fd.as_raw_fd()), buf.as_ptr(), len)
            .offset(offset_bytes)
            .build();
        // SAFETY: `buf` and `fd` are borrowed until `carry` has the completion.
        unsafe { self.carry(&entry) }
    }

    /// Submits a request and waits for it.
    ///
    /// # Safety
    /// The memory that the entry points to belongs to the caller until this returns.
    unsafe fn carry(&mut self, entry: &squeue::Entry) -> io::Result<usize> {
        // SAFETY: valid until its completion is reaped below (the caller's promise): no way out
        // before that.
        let pushed = unsafe { self.ring.submission().push(entry) };
        assert!(pushed.is_ok(), "one request at a time, and the ring has room for {ENTRIES}");
        let mut looks = 0u32;
        loop {
            if let Some(done) = self.ring.completion().next() {
                return usize::try_from(done.result())
                    .map_err(|_| io::Error::from_raw_os_error(-done.result()));
            }
            let entered = match self.polling {
                Polling::None => self.ring.submit_and_wait(1),
                // A system call is needed only where the kernel's thread has gone to sleep.
                Polling::Submission | Polling::Both => {
                    looks = looks.wrapping_add(1);
                    if looks.is_multiple_of(LOOKS_IN_A_ROW) {
                        // The kernel's thread may be waiting for this very processor.
                        std::thread::yield_now();
                    }
                    self.ring.submit()
                }
            };
            match entered {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    // The kernel may still use the buffer, which must outlive the request: so the
                    // process ends.
                    eprintln!("io_uring_enter failed while a request was under way: {error}");
                    std::process::abort();
                }
            }
        }
    }
}

/// Whether the kernel was interrupted or short of something for a moment, so that another try
/// helps.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

const ENTRIES: u32 = 4;
/// Looks at the completions in a row, which take some microseconds.
const LOOKS_IN_A_ROW: u32 = 512;
/// Longest request: the kernel cuts longer ones there, and the caller sees a short transfer.
const LEN_MAX: usize = 1 << 30;
/// Time without work after which the kernel's thread sleeps.
const IDLE_MS: u32 = 50;
