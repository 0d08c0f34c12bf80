//! Several reads of one file at a time, by a submission ring of the calling thread's own.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, types};
use rustix::io::{Errno, pread};

/// Most reads that are under way together.
const READS_MAX: usize = 64;

thread_local! {
    /// The thread's ring; `None` before its first use, and where the system refuses one.
    static RING: RefCell<Option<IoUring>> = const { RefCell::new(None) };
}

/// Makes all reads and returns the bytes that each has read. Without a ring they are made one by
/// one.
pub(crate) fn pread_many(
    file: BorrowedFd<'_>,
    reads: &mut [(u64, &mut [u8])],
) -> Vec<Result<usize, Errno>> {
    RING.with_borrow_mut(|ring| {
        if ring.is_none() {
            *ring = IoUring::new(READS_MAX as u32).ok();
        }
        let Some(ring) = ring else {
            return reads.iter_mut().map(|(at, buf)| pread(file, &mut **buf, *at)).collect();
        };
        reads.chunks_mut(READS_MAX).flat_map(|reads| together(ring, file, reads)).collect()
    })
}

/// Makes at most [`READS_MAX`] reads on an idle ring, which is idle again on return.
fn together(
    ring: &mut IoUring,
    file: BorrowedFd<'_>,
    reads: &mut [(u64, &mut [u8])],
) -> Vec<Result<usize, Errno>> {
    for (index, (offset_bytes, buf)) in reads.iter_mut().enumerate() {
        let len = u32::try_from(buf.len()).unwrap_or(u32::MAX);
        let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), buf.as_mut_ptr(), len)
            .offset(*offset_bytes)
            .build()
            .user_data(index as u64);
        // SAFETY: buffer and descriptor are borrowed until this function returns, which it does
        // only after the completion of every read was reaped.
        let pushed = unsafe { ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "more reads than the ring has entries");
    }
    let mut results = vec![Ok(0); reads.len()];
    let mut left = reads.len();
    while left > 0 {
        if let Err(error) = ring.submit_and_wait(1) {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            if !matches!(errno, Errno::INTR | Errno::AGAIN | Errno::BUSY) {
                // The kernel may still write to buffers that would be freed. A crash loses nothing.
                eprintln!("io_uring_enter failed while reads were in flight: {errno}");
                std::process::abort();
            }
        }
        for done in ring.completion() {
            let outcome = usize::try_from(done.result());
            results[done.user_data() as usize] =
                outcome.map_err(|_| Errno::from_raw_os_error(-done.result()));
            left -= 1;
        }
    }
    results
}
