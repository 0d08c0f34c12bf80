//! The board: a page of memory in which every program sees which files are served, without asking.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::error::MappedError;
use crate::wire::{BOARD_BYTES, FILES_MAX};

/// The board.
#[derive(Debug)]
pub struct Board {
    memory: OwnedFd,
}

impl Board {
    pub fn new() -> Result<Self, MappedError> {
        let made = memfd_create("perdura-board", MemfdFlags::CLOEXEC).and_then(|memory| {
            ftruncate(&memory, BOARD_BYTES as u64)?;
            Ok(memory)
        });
        let memory = made
            .map_err(|errno| MappedError::System { what: "a memory file", source: errno.into() })?;
        Ok(Self { memory })
    }

    /// Adds the file number of the file that is served as number `at`.
    pub fn add(&self, at: usize, inode: u64) -> Result<(), MappedError> {
        if at >= FILES_MAX {
            return Err(MappedError::TooMany { what: "files that are mapped", most: FILES_MAX });
        }
        // The count comes last, so that nobody sees a file that is not there yet.
        let write = |place: usize, word: u64| {
            rustix::io::pwrite(&self.memory, &word.to_ne_bytes(), place as u64 * 8).map(drop)
        };
        write(1 + at, inode)
            .and_then(|()| write(0, at as u64 + 1))
            .map_err(|errno| MappedError::System { what: "the board", source: errno.into() })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}
