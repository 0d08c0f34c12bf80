//! Reads and writes of a whole range, however many system calls that takes.

use std::io;

use rustix::io::Errno;

use super::progress::{Progress, Step};
use crate::device::{BLOCK_BYTES, DeviceError};
use crate::sys::{OpenFile, Source};

/// The place that a write has reached when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The device, or the page cache.
    Device,
    /// The medium that keeps bytes without power.
    Medium,
}

/// Fills `buf` from the file. A file that ends before is an error.
pub(super) fn read_all(file: &impl OpenFile, offset_bytes: u64, buf: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match file.pread(&mut buf[done..], offset_bytes + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(taken) => {
                done += taken;
                // `O_DIRECT` needs the rest to be aligned, so a part of a block is read again.
                if done < buf.len() && taken >= BLOCK_BYTES as usize {
                    done -= done % BLOCK_BYTES as usize;
                }
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Writes all of `source` to the file.
pub(super) fn write_all(
    file: &impl OpenFile,
    offset_bytes: u64,
    source: Source<'_>,
    reach: Reach,
) -> Result<(), DeviceError> {
    let flags = match reach {
        Reach::Device => 0,
        Reach::Medium => libc::RWF_DSYNC,
    };
    let mut progress = Progress::default();
    loop {
        let done_bytes = progress.done_bytes();
        let rest = source.after(done_bytes);
        let outcome = file.pwritev2(rest, offset_bytes + done_bytes as u64, flags);
        match progress.record(offset_bytes, source.len_bytes(), outcome) {
            Step::Done => return Ok(()),
            Step::Again => {}
            Step::Failed(error) => return Err(error),
        }
    }
}
