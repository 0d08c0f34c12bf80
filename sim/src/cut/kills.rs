//! Copies of a whole machine, memory and device, at chosen durable operations: what a kill at that
//! instant leaves.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use parking_lot::Mutex;
use perdura_media::SimDevice;
use rustix::fs::{MemfdFlags, SeekFrom, ftruncate, memfd_create, seek};
use rustix::io::Errno;

/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 64 << 10;
/// Bytes of which a copy has a hole if they are zeros.
const PAGE_BYTES: usize = 4 << 10;

/// The kills planned, and the copies made for them.
#[derive(Default)]
pub(crate) struct Kills {
    /// Numbers of the durable operations before which copies are made, ascending.
    pub at: Mutex<VecDeque<u64>>,
    /// Memory and ledger of the process that lives now, once it has opened them.
    pub memory: Mutex<Option<(OwnedFd, OwnedFd)>>,
    pub made: Mutex<Vec<(SimDevice, (OwnedFd, OwnedFd))>>,
}

impl Kills {
    /// Makes the copies that are due before the next operation of the device. What no process has
    /// opened yet cannot outlive one, so such a copy waits for the next process.
    pub fn see(&self, device: &SimDevice) {
        let ops = device.ops();
        let memory = self.memory.lock();
        let Some((memory, ledger)) = &*memory else { return };
        let mut planned = self.at.lock();
        while device.is_powered() && planned.front().is_some_and(|at| *at <= ops) {
            planned.pop_front();
            let copied = || Ok::<_, io::Error>((copy_of(memory)?, copy_of(ledger)?));
            match copied() {
                Ok(held) => self.made.lock().push((device.copy_when_killed(ops), held)),
                Err(error) => panic!("no copy of the memory of a process: {error}"),
            }
        }
    }
}

/// A memory file with the same bytes, and holes where the other has them or a page of zeros.
pub(crate) fn copy_of(fd: &OwnedFd) -> io::Result<OwnedFd> {
    let from = File::from(fd.try_clone()?);
    let len_bytes = from.metadata()?.len();
    let to = memfd_create("perdura-killed", MemfdFlags::CLOEXEC)?;
    ftruncate(&to, len_bytes)?;
    let to = File::from(to);
    let mut piece = vec![0; PIECE_BYTES as usize];
    let mut at = 0;
    loop {
        at = match seek(&from, SeekFrom::Data(at)) {
            Ok(at) => at,
            Err(Errno::NXIO) => return Ok(to.into()),
            Err(errno) => return Err(errno.into()),
        };
        let end = seek(&from, SeekFrom::Hole(at))?;
        while at < end {
            let piece = &mut piece[..PIECE_BYTES.min(end - at) as usize];
            from.read_exact_at(piece, at)?;
            // Of a huge page, most are zeros that nobody wrote: a copy of them takes a page each.
            for page in piece.chunks(PAGE_BYTES) {
                if *page != [0; PAGE_BYTES][..page.len()] {
                    to.write_all_at(page, at)?;
                }
                at += page.len() as u64;
            }
        }
    }
}
