//! What this process knows of served files: their mappings, and the window through which their
//! reads and writes go.
//!
//! One lock has everything. It is held while the host is asked and while bytes are copied, whose
//! faults the host's thread serves; the host never waits for a program.

use std::ffi::c_int;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::hosted::link::{Answer, Link};
use crate::hosted::ranges;
use crate::hosted::start;
use crate::hosted::wire::Ask;
use crate::kernel::{self, Found};
use crate::say;

pub const PAGE: usize = 4096;
/// Bytes that a call moves at most, as the kernel has it.
pub const MOVED_MAX: usize = 0x7fff_f000;

/// What this process knows.
pub struct Served {
    pub link: Option<Link>,
    /// Why there is no connection: said once, and not tried again.
    refused: Option<c_int>,
    pub files: Vec<File>,
    pub mappings: Vec<Mapping>,
    /// Whether the mappings are others than those that were published.
    pub is_changed: bool,
}

/// A file that this process has met.
pub struct File {
    identity: (u64, u64),
    number: u64,
    /// A mapping from its first byte on, of this library's own.
    pub window: Option<(usize, usize)>,
}

/// A mapping of the program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    pub address: usize,
    pub len: usize,
    pub file: usize,
    pub offset: u64,
    pub protection: c_int,
    /// Whether its descriptor was opened for writing, too.
    pub can_write: bool,
}

impl Mapping {
    pub fn ends(&self) -> usize {
        self.address + self.len
    }

    /// The part of this mapping between two addresses in it.
    pub fn part(&self, from: usize, to: usize) -> Self {
        let offset = self.offset + (from - self.address) as u64;
        Self { address: from, len: to - from, offset, ..*self }
    }

    /// Whether `next` goes on where this one ends.
    pub fn goes_on_in(&self, next: &Self) -> bool {
        let own = self.part(self.ends(), self.ends());
        Self { len: 0, ..*next } == own
    }
}

static SERVED: Mutex<Served> = Mutex::new(Served {
    link: None,
    refused: None,
    files: Vec::new(),
    mappings: Vec::new(),
    is_changed: false,
});

/// The thread that has the lock, by the address of a variable of its own; 0: nobody.
static OWNER: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OWN: u8 = const { 0 };
}

fn this_thread() -> usize {
    OWN.with(|own| ptr::from_ref(own) as usize)
}

/// Whether this thread has the lock: it is in a handler of a fault, in the middle of a copy.
pub fn is_own() -> bool {
    OWNER.load(Relaxed) == this_thread()
}

/// The lock, with the thread's signals blocked, for a handler may read and write files, too; and it
/// cannot be cancelled, which would leave files locked.
pub struct Locked {
    /// Let go before signals are let in.
    served: Option<MutexGuard<'static, Served>>,
    signals: u64,
    cancels: c_int,
}

pub fn lock() -> Locked {
    if is_own() {
        say::abort(format_args!(
            "the handler of a fault uses a served file, in the middle of a read or write of one"
        ));
    }
    let (signals, cancels) = (kernel::block_signals(), kernel::set_cancel(false));
    let served = SERVED.lock().unwrap_or_else(PoisonError::into_inner);
    OWNER.store(this_thread(), Relaxed);
    Locked { served: Some(served), signals, cancels }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Some(served) = self.served.as_mut().filter(|served| served.is_changed) {
            ranges::publish(served.mappings.iter().map(|one| (one.address, one.len)));
            served.is_changed = false;
        }
        OWNER.store(0, Relaxed);
        self.served = None;
        kernel::set_cancel(self.cancels == 0);
        kernel::set_signals(self.signals);
    }
}

impl Deref for Locked {
    type Target = Served;
    #[allow(clippy::unwrap_used)] // there until it is dropped
    fn deref(&self) -> &Served {
        self.served.as_ref().unwrap()
    }
}

impl DerefMut for Locked {
    #[allow(clippy::unwrap_used)] // as above
    fn deref_mut(&mut self) -> &mut Served {
        self.served.as_mut().unwrap()
    }
}

impl Served {
    pub fn link(&mut self) -> Result<&Link, c_int> {
        if let Some(errno) = self.refused {
            return Err(errno);
        }
        if self.link.is_none() {
            let settings = start::settings().ok_or(libc::ENOTCONN)?;
            let opened = Link::open(&settings.socket).inspect_err(|errno| {
                let why = std::io::Error::from_raw_os_error(*errno);
                say::say(format_args!(
                    "files below {} cannot be served: {why}{}",
                    settings.dir(),
                    match *errno {
                        libc::EPERM => " (userfaultfd: vm.unprivileged_userfaultfd=1, or root)",
                        _ => "",
                    }
                ));
            });
            self.refused = opened.as_ref().err().copied();
            self.link = Some(opened?);
        }
        self.link.as_ref().ok_or(libc::ENOTCONN)
    }

    /// The place of a file in the list; asks the host to serve it, if it does not yet.
    pub fn file(&mut self, fd: c_int, found: &Found) -> Result<usize, c_int> {
        if let Some(at) = self.files.iter().position(|file| file.identity == found.identity) {
            return Ok(at);
        }
        let link = self.link()?;
        // Nobody is in the middle of a write to it: see `served::keep_unmapped`.
        kernel::lock(link.lock, found.identity.1, true)?;
        let answer = link.ask_with(Ask::Serve, Some(fd));
        kernel::lock(link.lock, found.identity.1, false)?;
        let answer = answer?;
        let number = *answer.words().first().ok_or(libc::EIO)?;
        self.files.push(File { identity: found.identity, number, window: None });
        Ok(self.files.len() - 1)
    }

    /// The pieces of memory of a file's first `len` bytes.
    fn pieces(&mut self, file: usize, len: u64) -> Result<Answer, c_int> {
        let number = self.files[file].number;
        self.link()?.ask(Ask::Pieces { file: number, len })
    }

    /// Forgets what lies where a part of a file is mapped next; not if there is no memory for that
    /// part, for then it stays there, and must be tracked.
    pub fn make_way(
        &mut self,
        file: usize,
        offset: u64,
        at: usize,
        len: usize,
    ) -> Result<(), c_int> {
        let end = offset.checked_add(len as u64).ok_or(libc::EOVERFLOW)?;
        self.pieces(file, end)?;
        self.forget(at, len);
        Ok(())
    }

    /// Maps `len` bytes of a file from `offset` on, whole pages. `at` is where, with `MAP_FIXED` or
    /// as a wish. Shared mappings are tracked.
    pub fn map(
        &mut self,
        file: usize,
        offset: u64,
        len: usize,
        at: usize,
        protection: c_int,
        flags: c_int,
    ) -> Result<usize, c_int> {
        let end = offset.checked_add(len as u64).ok_or(libc::EOVERFLOW)?;
        let pieces = self.pieces(file, end)?;
        let link = self.link()?;
        let is_shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
        let kept = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE | libc::MAP_32BIT;
        let room = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the program asked for a mapping there, and gets it.
        let base = unsafe { kernel::map(at, len, libc::PROT_NONE, room | flags & kept, -1, 0)? };
        let of_piece = (flags & !kept) | libc::MAP_FIXED;
        let mut begins = 0;
        for piece in pieces.words().chunks_exact(2) {
            let (from, to) = (offset.max(begins), end.min(begins + piece[1]));
            if from < to {
                let place = base + (from - offset) as usize;
                let (in_memory, part) = (piece[0] + from - begins, (to - from) as usize);
                // SAFETY: inside the range that was mapped just now.
                let mapped = unsafe {
                    kernel::map(place, part, protection, of_piece, link.memory, in_memory)
                };
                let tracked = mapped.and_then(|_| match is_shared {
                    true => {
                        let (address, len) = (place as u64, part as u64);
                        link.ask(Ask::Track { address, offset: in_memory, len }).map(drop)
                    }
                    false => Ok(()),
                });
                if let Err(errno) = tracked {
                    let _ = link.ask(Ask::Untrack { address: base as u64, len: len as u64 });
                    // SAFETY: nobody knows of the range yet.
                    unsafe { kernel::unmap(base, len) };
                    return Err(errno);
                }
            }
            begins += piece[1];
        }
        Ok(base)
    }

    /// Takes a range out of the program's mappings, before it is unmapped or mapped again.
    pub fn forget(&mut self, address: usize, len: usize) {
        let end = address.saturating_add(len);
        let meets = |one: &Mapping| one.address < end && address < one.address + one.len;
        if !self.mappings.iter().any(meets) {
            return;
        }
        if let Ok(link) = self.link() {
            // What cannot be said to the host, it finds out by itself.
            let _ = link.ask(Ask::Untrack { address: address as u64, len: len as u64 });
        }
        let mut left = Vec::with_capacity(self.mappings.len() + 1);
        for one in self.mappings.drain(..) {
            if !meets(&one) {
                left.push(one);
                continue;
            }
            if one.address < address {
                left.push(one.part(one.address, address));
            }
            if end < one.ends() {
                left.push(one.part(end, one.ends()));
            }
        }
        self.mappings = left;
        self.is_changed = true;
    }

    /// A pointer to a file's byte `offset`, with `len` bytes behind it.
    pub fn window(&mut self, file: usize, offset: u64, len: usize) -> Result<*mut u8, c_int> {
        let end = offset.checked_add(len as u64).ok_or(libc::EOVERFLOW)?;
        let old = self.files[file].window;
        let base = match old {
            Some((base, room)) if end <= room as u64 => base,
            _ => {
                // All that the file has: the host gives one that grows more each time.
                let pieces = self.pieces(file, end)?;
                let room: u64 = pieces.words().chunks_exact(2).map(|piece| piece[1]).sum();
                let (protection, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
                let base = self.map(file, 0, room as usize, 0, protection, shared)?;
                self.files[file].window = Some((base, room as usize));
                if let Some((base, room)) = old {
                    let gone = Ask::Untrack { address: base as u64, len: room as u64 };
                    self.link()?.ask(gone)?;
                    // SAFETY: a window of this library, which nobody uses without the lock.
                    unsafe { kernel::unmap(base, room) };
                }
                base
            }
        };
        Ok((base as *mut u8).wrapping_add(offset as usize))
    }

    pub fn tell_len(&mut self, file: usize, len: u64) -> Result<(), c_int> {
        let number = self.files[file].number;
        self.link()?.tell_len(number, len)
    }

    /// Sets the length of a file, in the host and in the kernel. Where it cannot be, nothing
    /// changes.
    pub fn set_len(&mut self, file: usize, fd: c_int, from: u64, to: u64) -> Result<(), c_int> {
        // The host first, where it needs memory; and last, where it clears memory.
        if to > from {
            self.tell_len(file, to)?;
        }
        let changed = kernel::set_len(fd, to).map(drop);
        self.tell_len(file, if changed.is_ok() { to } else { from })?;
        changed
    }

    /// Puts bytes into a file, which becomes longer if it must.
    pub fn put(
        &mut self,
        file: usize,
        fd: c_int,
        file_len: u64,
        at: u64,
        parts: &[libc::iovec],
    ) -> Result<usize, c_int> {
        let sum = parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.iov_len));
        let len = sum.min(MOVED_MAX);
        let end = at.checked_add(len as u64).ok_or(libc::EFBIG)?;
        if len > 0 && end > file_len {
            self.set_len(file, fd, file_len, end)?;
        }
        let mut done = 0;
        for part in parts {
            let len = part.iov_len.min(len - done);
            if len > 0 {
                let to = self.window(file, at + done as u64, len)?;
                // SAFETY: as in `read`.
                unsafe { ptr::copy(part.iov_base.cast(), to, len) };
            }
            done += len;
        }
        Ok(done)
    }

    /// Runs a call that uses a file's length, or the offset of a descriptor, while no other process
    /// does. The host knows the length that `run` is given.
    pub fn turn<T>(
        &mut self,
        fd: c_int,
        found: &Found,
        run: impl FnOnce(&mut Self, usize, u64) -> Result<T, c_int>,
    ) -> Result<T, c_int> {
        let file = self.file(fd, found)?;
        let (lock, inode) = (self.link()?.lock, found.identity.1);
        kernel::lock(lock, inode, true)?;
        let outcome = (|| {
            let len = kernel::look(fd).ok_or(libc::EBADF)?.len;
            self.tell_len(file, len)?;
            run(self, file, len)
        })();
        kernel::lock(lock, inode, false)?;
        outcome
    }
}
