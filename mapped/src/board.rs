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

    /// Adds the file that is served as number `at`.
    pub fn add(&self, at: usize, inode: u64, len: u64) -> Result<(), MappedError> {
        if at >= FILES_MAX {
            return Err(MappedError::TooMany { what: "files that are mapped", most: FILES_MAX });
        }
        // The count comes last, so that nobody sees a file that is not there yet.
        self.write(1 + at, inode)?;
        self.set_len(at, len)?;
        self.write(0, at as u64 + 1)
    }

    /// Takes the last file away again, which is number `at`.
    pub fn take_back(&self, at: usize) -> Result<(), MappedError> {
        self.write(0, at as u64)
    }

    /// Notes the length of a file.
    pub fn set_len(&self, at: usize, len: u64) -> Result<(), MappedError> {
        self.write(1 + FILES_MAX + at, len)
    }

    fn write(&self, place: usize, word: u64) -> Result<(), MappedError> {
        rustix::io::pwrite(&self.memory, &word.to_ne_bytes(), place as u64 * 8)
            .map(drop)
            .map_err(|errno| MappedError::System { what: "the board", source: errno.into() })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use super::*;

    #[test]
    fn one_file_more_than_there_is_room_for_is_refused_and_changes_no_length() {
        let board = Board::new().unwrap();
        board.add(0, 5, 6).unwrap();
        board.add(FILES_MAX - 1, 7, 8).unwrap();
        let refused = board.add(FILES_MAX, 9, 10);
        assert!(matches!(refused, Err(MappedError::TooMany { most: FILES_MAX, .. })));
        let mut bytes = [0; BOARD_BYTES];
        assert_eq!(rustix::io::pread(&board.memory, &mut bytes, 0).unwrap(), BOARD_BYTES);
        let word = |at: usize| u64::from_ne_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap());
        assert_eq!([0, FILES_MAX, 1 + FILES_MAX, 2 * FILES_MAX].map(word), [4_000, 7, 6, 8]);
    }
}
