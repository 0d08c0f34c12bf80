//! The served files of this process: their mappings, and the window through which their reads and
//! writes go.
//!
//! One lock has everything. It is held while the host is asked and while bytes are copied, whose
//! faults the host's thread serves; the host never waits for a program.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::hosted::descriptors;
use crate::hosted::link::{self, Link};
use crate::hosted::start;
use crate::hosted::wire::Ask;
use crate::kernel::{self, Found};
use crate::say;

const PAGE: usize = 4096;
/// A window is at least so long: a file that grows is not mapped again for every write.
const WINDOW_BYTES: u64 = 1 << 20;

/// What this process knows.
struct Served {
    link: Option<Link>,
    /// Why there is no connection: said once, and not tried again.
    refused: Option<c_int>,
    files: Vec<File>,
    mappings: Vec<Mapping>,
}

/// A file that this process has met.
struct File {
    identity: (u64, u64),
    number: u64,
    /// A mapping from its first byte on, of this library's own.
    window: Option<(usize, usize)>,
}

/// A mapping of the program.
#[derive(Clone, Copy)]
struct Mapping {
    address: usize,
    len: usize,
    file: usize,
    offset: u64,
    protection: c_int,
}

static SERVED: Mutex<Served> =
    Mutex::new(Served { link: None, refused: None, files: Vec::new(), mappings: Vec::new() });

fn lock() -> MutexGuard<'static, Served> {
    SERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Served {
    fn link(&mut self) -> Result<&Link, c_int> {
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
    fn file(&mut self, fd: c_int, found: &Found) -> Result<usize, c_int> {
        if let Some(at) = self.files.iter().position(|file| file.identity == found.identity) {
            return Ok(at);
        }
        let answer = self.link()?.ask_with(Ask::Serve, Some(fd))?;
        let number = *answer.words().first().ok_or(libc::EIO)?;
        self.files.push(File { identity: found.identity, number, window: None });
        Ok(self.files.len() - 1)
    }

    /// Maps `len` bytes of a file from `offset` on, whole pages. `at` is where, with `MAP_FIXED` or
    /// as a wish. Shared mappings are tracked.
    fn map(
        &mut self,
        file: usize,
        offset: u64,
        len: usize,
        at: usize,
        protection: c_int,
        flags: c_int,
    ) -> Result<usize, c_int> {
        let end = offset.checked_add(len as u64).ok_or(libc::EOVERFLOW)?;
        let number = self.files[file].number;
        let link = self.link()?;
        let pieces = link.ask(Ask::Pieces { file: number, len: end })?;
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
    fn forget(&mut self, address: usize, len: usize) {
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
                left.push(Mapping { len: address - one.address, ..one });
            }
            let ends = one.address + one.len;
            if end < ends {
                let offset = one.offset + (end - one.address) as u64;
                left.push(Mapping { address: end, len: ends - end, offset, ..one });
            }
        }
        self.mappings = left;
    }

    /// A pointer to a file's byte `offset`, with `len` bytes behind it.
    fn window(&mut self, file: usize, offset: u64, len: usize) -> Result<*mut u8, c_int> {
        let end = offset.checked_add(len as u64).ok_or(libc::EOVERFLOW)?;
        let old = self.files[file].window;
        let base = match old {
            Some((base, room)) if end <= room as u64 => base,
            _ => {
                let room = end.max(WINDOW_BYTES).saturating_mul(2).next_multiple_of(PAGE as u64);
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

    fn tell_len(&mut self, file: usize, len: u64) -> Result<(), c_int> {
        let number = self.files[file].number;
        self.link()?.ask(Ask::Length { file: number, len }).map(drop)
    }
}

/// Whether a file is served. Takes the lock only to connect for the first time, so that a signal
/// handler may ask about other files.
fn is_on_board(found: &Found) -> bool {
    let inode = found.identity.1;
    link::is_on_board(inode).unwrap_or_else(|| {
        let mut served = lock();
        served.link().is_ok() && link::is_on_board(inode) == Some(true)
    })
}

/// Maps a file below the directory. `None`: the file is not to be served, and is mapped as ever.
pub fn map(
    at: usize,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: u64,
) -> Option<Result<usize, c_int>> {
    let found = descriptors::below(fd)?;
    let is_shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
    if !is_on_board(&found) && !is_shared {
        return None;
    }
    let mut served = lock();
    // Without a host it is mapped as ever.
    served.link().ok()?;
    if len == 0 || !offset.is_multiple_of(PAGE as u64) {
        return Some(Err(libc::EINVAL));
    }
    let can_write = kernel::flags_of(fd) & libc::O_ACCMODE == libc::O_RDWR;
    if is_shared && protection & libc::PROT_WRITE != 0 && !can_write {
        return Some(Err(libc::EACCES));
    }
    // A file that the host may not write is nobody's durable memory.
    let file = served.file(fd, &found).ok()?;
    let len = len.next_multiple_of(PAGE);
    if flags & libc::MAP_FIXED != 0 {
        served.forget(at, len);
    }
    let mapped = served.map(file, offset, len, at, protection, flags);
    if let (Ok(address), true) = (&mapped, is_shared) {
        let address = *address;
        served.mappings.push(Mapping { address, len, file, offset, protection });
    }
    Some(mapped)
}

/// Notes that a range is unmapped, or mapped to something else, next.
pub fn forget(address: usize, len: usize) {
    if start::settings().is_some() {
        lock().forget(address, len.next_multiple_of(PAGE));
    }
}

/// Whether a range begins in a mapping of a served file.
pub fn is_mapped(address: usize) -> bool {
    let holds = |one: &Mapping| (one.address..one.address + one.len).contains(&address);
    start::settings().is_some() && lock().mappings.iter().any(holds)
}

/// Changes the size of a mapping, or moves it. `None`: it is none of a served file.
pub fn remap(
    old: usize,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    wanted: usize,
) -> Option<Result<usize, c_int>> {
    start::settings()?;
    let mut served = lock();
    let holds = |one: &&Mapping| (one.address..one.address + one.len).contains(&old);
    let one = *served.mappings.iter().find(holds)?;
    let (old_len, new_len) = (old_len.next_multiple_of(PAGE), new_len.next_multiple_of(PAGE));
    if new_len == 0 || old_len == 0 || old + old_len > one.address + one.len {
        return Some(Err(libc::EINVAL));
    }
    if new_len <= old_len && flags & libc::MREMAP_FIXED == 0 {
        served.forget(old + new_len, old_len - new_len);
        // SAFETY: the program gives this part up.
        unsafe { kernel::unmap(old + new_len, old_len - new_len) };
        return Some(Ok(old));
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return Some(Err(libc::ENOMEM));
    }
    let offset = one.offset + (old - one.address) as u64;
    let (at, fixed) = match flags & libc::MREMAP_FIXED {
        0 => (0, 0),
        _ => {
            served.forget(wanted, new_len);
            (wanted, libc::MAP_FIXED)
        }
    };
    let shared = libc::MAP_SHARED | fixed;
    let mapped = served.map(one.file, offset, new_len, at, one.protection, shared);
    if let Ok(address) = mapped {
        served.mappings.push(Mapping { address, len: new_len, offset, ..one });
        served.forget(old, old_len);
        // SAFETY: the program's mapping has moved.
        unsafe { kernel::unmap(old, old_len) };
    }
    Some(mapped)
}

/// Whether a descriptor is of a served file.
pub fn is_served(fd: c_int) -> bool {
    descriptors::below(fd).is_some_and(|found| is_on_board(&found))
}

/// Reads from a served file at `offset`, or at the descriptor's own. `None`: it is no served file.
pub fn read(fd: c_int, parts: &[libc::iovec], offset: Option<u64>) -> Option<Result<usize, c_int>> {
    let found = descriptors::below(fd)?;
    if !is_on_board(&found) {
        return None;
    }
    let mut served = lock();
    Some((|| {
        if kernel::flags_of(fd) & libc::O_ACCMODE == libc::O_WRONLY {
            return Err(libc::EBADF);
        }
        let file = served.file(fd, &found)?;
        let at = offset.map_or_else(|| kernel::seek(fd, 0, libc::SEEK_CUR), Ok)?;
        let mut done = 0;
        for part in parts {
            let left = found.len.saturating_sub(at + done as u64);
            let len = part.iov_len.min(usize::try_from(left).unwrap_or(usize::MAX));
            if len > 0 {
                let from = served.window(file, at + done as u64, len)?;
                // SAFETY: the window has this many bytes, and the program says that its own place
                // has. They may be one another's, if the program reads into its own mapping.
                unsafe { ptr::copy(from, part.iov_base.cast(), len) };
            }
            done += len;
        }
        if offset.is_none() {
            kernel::seek(fd, done as i64, libc::SEEK_CUR)?;
        }
        Ok(done)
    })())
}

/// Writes to a served file at `offset`, or at the descriptor's own. `None`: it is no served file.
pub fn write(
    fd: c_int,
    parts: &[libc::iovec],
    offset: Option<u64>,
) -> Option<Result<usize, c_int>> {
    let found = descriptors::below(fd)?;
    if !is_on_board(&found) {
        return None;
    }
    let mut served = lock();
    Some((|| {
        let flags = kernel::flags_of(fd);
        if flags & libc::O_ACCMODE == libc::O_RDONLY {
            return Err(libc::EBADF);
        }
        let file = served.file(fd, &found)?;
        let appends = flags & libc::O_APPEND != 0;
        let at = match (appends, offset) {
            (true, _) => found.len,
            (false, Some(offset)) => offset,
            (false, None) => kernel::seek(fd, 0, libc::SEEK_CUR)?,
        };
        let len: usize = parts.iter().map(|part| part.iov_len).sum();
        let end = at.checked_add(len as u64).ok_or(libc::EFBIG)?;
        if end > found.len {
            kernel::set_len(fd, end)?;
            served.tell_len(file, end)?;
        }
        let mut place = at;
        for part in parts.iter().filter(|part| part.iov_len > 0) {
            let to = served.window(file, place, part.iov_len)?;
            // SAFETY: as in `read`.
            unsafe { ptr::copy(part.iov_base.cast(), to, part.iov_len) };
            place += part.iov_len as u64;
        }
        if offset.is_none() {
            kernel::seek(fd, end as i64, libc::SEEK_SET)?;
        }
        Ok(len)
    })())
}

/// Notes that a file may have another length. The host hears it, if it serves the file.
pub fn length_changed(fd: c_int) -> Result<(), c_int> {
    let Some(found) = descriptors::below(fd) else { return Ok(()) };
    if !is_on_board(&found) {
        return Ok(());
    }
    let mut served = lock();
    let file = served.file(fd, &found)?;
    served.tell_len(file, found.len)
}

/// Notes that files may have other names.
pub fn names_changed() {
    if start::settings().is_none() {
        return;
    }
    let served = lock();
    if let Some(link) = served.link.as_ref().filter(|_| !served.files.is_empty()) {
        // The host looks again at the end.
        let _ = link.ask(Ask::Renamed);
    }
}

/// The lock, held from before a fork until after it.
struct Held(UnsafeCell<Option<MutexGuard<'static, Served>>>);

// SAFETY: only the thread that holds the lock uses it.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

pub unsafe extern "C" fn before_fork() {
    let held = lock();
    // SAFETY: this thread holds the lock.
    unsafe { *HELD.0.get() = Some(held) };
}

pub unsafe extern "C" fn in_parent() {
    // SAFETY: this thread took the lock before the fork.
    drop(unsafe { (*HELD.0.get()).take() });
}

/// The child has the mappings, but no tracking: it gets a connection of its own before it stores
/// anything.
pub unsafe extern "C" fn in_child() {
    // SAFETY: this is the only thread, and has the lock.
    let Some(mut served) = (unsafe { (*HELD.0.get()).take() }) else { return };
    let Some(parents) = served.link.take() else { return };
    parents.abandon();
    let windows = served.files.iter_mut().filter_map(|file| file.window.take());
    for (base, len) in windows.collect::<Vec<_>>() {
        // SAFETY: a window of this library, which nobody uses without the lock.
        unsafe { kernel::unmap(base, len) };
    }
    let mappings = served.mappings.clone();
    let again = mappings.iter().try_for_each(|one| {
        let Mapping { address, len, file, offset, protection } = *one;
        let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
        served.map(file, offset, len, address, protection, fixed).map(drop)
    });
    if again.is_err() {
        say::say(format_args!("a forked process cannot be tracked, and ends"));
        // SAFETY: ends the process before it stores anything untracked.
        unsafe { libc::_exit(127) };
    }
}
