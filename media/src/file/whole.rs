//! Reads and writes of a whole range, however many system calls that takes.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use super::progress::{Progress, Step};
use crate::device::{BLOCK_BYTES, DeviceError};
use crate::sys::Source;
use crate::sys::file::{self, Reach};

/// Fills `buf` from the file. A file that ends before is an error.
pub(super) fn read_all(fd: BorrowedFd<'_>, offset_bytes: u64, buf: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match file::read(fd, offset_bytes + done as u64, &mut buf[done..]) {
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
    fd: BorrowedFd<'_>,
    offset_bytes: u64,
    source: Source<'_>,
    reach: Reach,
) -> Result<(), DeviceError> {
    let mut progress = Progress::default();
    loop {
        let done_bytes = progress.done_bytes();
        let rest = source.after(done_bytes);
        let outcome = file::write(fd, offset_bytes + done_bytes as u64, rest, reach);
        match progress.record(offset_bytes, source.len_bytes(), outcome) {
            Step::Done => return Ok(()),
            Step::Again => {}
            Step::Failed(error) => return Err(error),
        }
    }
}
