//! Progress of one write, as pure arithmetic that both engines share.

use std::io;

use rustix::io::Errno;

use crate::device::{BLOCK_BYTES, DeviceError};

/// Bytes of one write that the system has taken, and the number of calls in a row that took no
/// block.
#[derive(Debug, Default)]
pub(super) struct Progress {
    done_bytes: usize,
    stalls: u32,
}

/// The next step after an outcome.
#[derive(Debug)]
pub(super) enum Step {
    /// All bytes are taken.
    Done,
    /// The bytes after [`Progress::done_bytes`] must be submitted again.
    Again,
    /// The write failed.
    Failed(DeviceError),
}

impl Progress {
    pub(super) fn done_bytes(&self) -> usize {
        self.done_bytes
    }

    /// Accounts for one system call on the rest of a write of `len_bytes` at `offset_bytes`.
    ///
    /// A short write counts in whole blocks only: the rest must stay aligned for `O_DIRECT`, and
    /// writing a few bytes twice is harmless. ECANCELED comes when the thread that submitted has
    /// ended.
    pub(super) fn record(
        &mut self,
        offset_bytes: u64,
        len_bytes: usize,
        outcome: Result<usize, Errno>,
    ) -> Step {
        let (taken_bytes, stall) = match outcome {
            Ok(taken_bytes) => (taken_bytes, io::Error::from(io::ErrorKind::WriteZero)),
            Err(errno @ (Errno::INTR | Errno::AGAIN | Errno::CANCELED)) => (0, errno.into()),
            Err(errno) => {
                return Step::Failed(write_error("write", offset_bytes, len_bytes, errno));
            }
        };
        let reached_bytes = self.done_bytes + taken_bytes;
        assert!(reached_bytes <= len_bytes, "the system took more bytes than it was given");
        if reached_bytes == len_bytes {
            self.done_bytes = len_bytes;
            return Step::Done;
        }
        let whole_bytes = reached_bytes - reached_bytes % BLOCK_BYTES as usize;
        if whole_bytes > self.done_bytes {
            self.done_bytes = whole_bytes;
            self.stalls = 0;
            return Step::Again;
        }
        self.stalls += 1;
        if self.stalls <= STALLS_MAX {
            return Step::Again;
        }
        let len_bytes = len_bytes as u64;
        Step::Failed(DeviceError::Io { op: "write", offset_bytes, len_bytes, source: stall })
    }
}

/// Makes an error from an errno. A lack of space (or quota) has its own variant.
pub(super) fn write_error(
    op: &'static str,
    offset_bytes: u64,
    len_bytes: usize,
    errno: Errno,
) -> DeviceError {
    let len_bytes = len_bytes as u64;
    match errno {
        Errno::NOSPC | Errno::DQUOT => DeviceError::NoSpace { op, offset_bytes, len_bytes },
        _ => DeviceError::Io { op, offset_bytes, len_bytes, source: errno.into() },
    }
}

/// Calls in a row that may take no whole block before the write is given up.
const STALLS_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 4 * BLOCK_BYTES as usize;
    const BLOCK: usize = BLOCK_BYTES as usize;

    #[test]
    fn a_short_write_goes_on_at_the_last_whole_block() {
        let mut progress = Progress::default();
        assert!(matches!(progress.record(0, LEN, Ok(BLOCK + 512)), Step::Again));
        assert_eq!(progress.done_bytes(), BLOCK);
        assert!(matches!(progress.record(0, LEN, Ok(3 * BLOCK)), Step::Done));
    }

    #[test]
    fn interruptions_are_retried_a_bounded_number_of_times() {
        let mut progress = Progress::default();
        for _ in 0..STALLS_MAX {
            assert!(matches!(progress.record(0, LEN, Err(Errno::INTR)), Step::Again));
        }
        let Step::Failed(error) = progress.record(8192, LEN, Err(Errno::AGAIN)) else {
            panic!("still retrying");
        };
        assert!(
            matches!(error, DeviceError::Io { op: "write", offset_bytes: 8192, .. }),
            "{error}"
        );
    }

    #[test]
    fn a_write_that_takes_nothing_ends_in_an_error() {
        let mut progress = Progress::default();
        let last = (0..=STALLS_MAX).map(|_| progress.record(0, LEN, Ok(0))).last();
        assert!(matches!(last, Some(Step::Failed(DeviceError::Io { .. }))));
    }

    #[test]
    fn no_space_in_the_middle_is_typed() {
        let mut progress = Progress::default();
        assert!(matches!(progress.record(0, LEN, Ok(BLOCK)), Step::Again));
        let step = progress.record(0, LEN, Err(Errno::NOSPC));
        assert!(matches!(step, Step::Failed(DeviceError::NoSpace { op: "write", .. })));
    }
}
