//! The served files of this process: their mappings, and the window through which their reads and
//! writes go.
//!
//! One lock has everything. It is held while the host is asked and while bytes are copied, whose
//! faults the host's thread serves; the host never waits for a program.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::hosted::descriptors;
use crate::hosted::link::{self, Link};
use crate::hosted::ranges;
use crate::hosted::start;
use crate::hosted::wire::Ask;
use crate::kernel::{self, Found};
use crate::say;

const PAGE: usize = 4096;
/// Bytes that a call moves at most, as the kernel has it.
const MOVED_MAX: usize = 0x7fff_f000;

/// What this process knows.
struct Served {
    link: Option<Link>,
    /// Why there is no connection: said once, and not tried again.
    refused: Option<c_int>,
    files: Vec<File>,
    mappings: Vec<Mapping>,
    /// Whether the mappings are others than those that were published.
    is_changed: bool,
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
    /// Whether its descriptor was opened for writing, too.
    can_write: bool,
}

static SERVED: Mutex<Served> = Mutex::new(Served {
    link: None,
    refused: None,
    files: Vec::new(),
    mappings: Vec::new(),
    is_changed: false,
});

/// The lock, with the thread's signals blocked: a handler may read and write files, too.
struct Locked {
    /// Let go before signals are let in.
    served: Option<MutexGuard<'static, Served>>,
    signals: u64,
}

fn lock() -> Locked {
    let signals = kernel::block_signals();
    Locked { served: Some(SERVED.lock().unwrap_or_else(PoisonError::into_inner)), signals }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Some(served) = self.served.as_mut().filter(|served| served.is_changed) {
            ranges::publish(served.mappings.iter().map(|one| (one.address, one.len)));
            served.is_changed = false;
        }
        self.served = None;
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
        self.is_changed = true;
    }

    /// A pointer to a file's byte `offset`, with `len` bytes behind it.
    fn window(&mut self, file: usize, offset: u64, len: usize) -> Result<*mut u8, c_int> {
        let end = offset.checked_add(len as u64).ok_or(libc::EOVERFLOW)?;
        let old = self.files[file].window;
        let base = match old {
            Some((base, room)) if end <= room as u64 => base,
            _ => {
                // All that the file has: the host gives one that grows more each time.
                let number = self.files[file].number;
                let pieces = self.link()?.ask(Ask::Pieces { file: number, len: end })?;
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

    fn tell_len(&mut self, file: usize, len: u64) -> Result<(), c_int> {
        let number = self.files[file].number;
        self.link()?.tell_len(number, len)
    }

    /// Puts bytes into a file, which becomes longer if it must.
    fn put(
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
            // The host first: there is memory for what the file has.
            self.tell_len(file, end)?;
            if let Err(errno) = kernel::set_len(fd, end) {
                self.tell_len(file, file_len)?;
                return Err(errno);
            }
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
    fn turn<T>(
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
    let mode = kernel::flags_of(fd) & libc::O_ACCMODE;
    let can_write = mode == libc::O_RDWR;
    let wants_write = is_shared && protection & libc::PROT_WRITE != 0;
    if mode == libc::O_WRONLY || wants_write && !can_write {
        return Some(Err(libc::EACCES));
    }
    let file = match served.file(fd, &found) {
        Ok(file) => file,
        // A file that the host may not write is nobody's durable memory.
        Err(libc::EACCES) => return None,
        Err(errno) => return Some(Err(errno)),
    };
    let len = len.next_multiple_of(PAGE);
    if flags & libc::MAP_FIXED != 0 {
        served.forget(at, len);
    }
    let mapped = served.map(file, offset, len, at, protection, flags);
    if let (Ok(address), true) = (&mapped, is_shared) {
        let address = *address;
        served.is_changed = true;
        served.mappings.push(Mapping { address, len, file, offset, protection, can_write });
    }
    Some(mapped)
}

/// Notes that a range is unmapped, or mapped to something else, next.
pub fn forget(address: usize, len: usize) {
    // What begins within a page is refused by the kernel.
    if start::settings().is_some() && address.is_multiple_of(PAGE) {
        lock().forget(address, len.next_multiple_of(PAGE));
    }
}

/// Whether a range begins in a mapping of a served file.
pub fn is_mapped(address: usize) -> bool {
    let holds = |one: &Mapping| (one.address..one.address + one.len).contains(&address);
    let look = || lock().mappings.iter().any(holds);
    start::settings().is_some() && ranges::hold(address).unwrap_or_else(look)
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
        served.is_changed = true;
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
    let found = descriptors::below(fd).filter(is_on_board)?;
    Some(lock().turn(fd, &found, |served, file, file_len| {
        if kernel::flags_of(fd) & libc::O_ACCMODE == libc::O_WRONLY {
            return Err(libc::EBADF);
        }
        let at = offset.map_or_else(|| kernel::seek(fd, 0, libc::SEEK_CUR), Ok)?;
        let left = usize::try_from(file_len.saturating_sub(at)).unwrap_or(usize::MAX);
        let most = left.min(MOVED_MAX);
        let mut done = 0;
        for part in parts {
            let len = part.iov_len.min(most - done);
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
    }))
}

/// Writes to a served file at `offset`, or at the descriptor's own. `None`: it is no served file.
pub fn write(
    fd: c_int,
    parts: &[libc::iovec],
    offset: Option<u64>,
) -> Option<Result<usize, c_int>> {
    let found = descriptors::below(fd).filter(is_on_board)?;
    Some(lock().turn(fd, &found, |served, file, file_len| {
        let flags = kernel::flags_of(fd);
        if flags & libc::O_ACCMODE == libc::O_RDONLY {
            return Err(libc::EBADF);
        }
        let at = match (flags & libc::O_APPEND != 0, offset) {
            (true, _) => file_len,
            (false, Some(offset)) => offset,
            (false, None) => kernel::seek(fd, 0, libc::SEEK_CUR)?,
        };
        let done = served.put(file, fd, file_len, at, parts)?;
        if offset.is_none() {
            kernel::seek(fd, (at + done as u64) as i64, libc::SEEK_SET)?;
        }
        Ok(done)
    }))
}

/// Writes the first `len` bytes of `parts` again, which the kernel has written to a file at
/// `offset`, or just before the descriptor's own: somebody may have mapped the file meanwhile.
pub fn write_again(
    fd: c_int,
    parts: &[libc::iovec],
    len: usize,
    offset: Option<u64>,
) -> Result<(), c_int> {
    let Some(found) = descriptors::below(fd).filter(is_on_board) else { return Ok(()) };
    lock().turn(fd, &found, |served, file, file_len| {
        let ends = || kernel::seek(fd, 0, libc::SEEK_CUR);
        let at = offset.map_or_else(|| ends().map(|end| end.saturating_sub(len as u64)), Ok)?;
        let mut left = len;
        let cut = |part: &libc::iovec| {
            let iov_len = part.iov_len.min(left);
            left -= iov_len;
            libc::iovec { iov_len, ..*part }
        };
        let parts: Vec<_> = parts.iter().map(cut).collect();
        served.put(file, fd, file_len, at, &parts).map(drop)
    })
}

/// Sets the length of a served file. `None`: it is no served file.
pub fn set_len(fd: c_int, len: u64) -> Option<Result<(), c_int>> {
    let found = descriptors::below(fd).filter(is_on_board)?;
    Some(lock().turn(fd, &found, |served, file, _| {
        kernel::set_len(fd, len)?;
        served.tell_len(file, len)
    }))
}

/// Notes that a file may have another length. The host hears it, if it serves the file.
pub fn length_changed(fd: c_int) -> Result<(), c_int> {
    let Some(found) = descriptors::below(fd).filter(is_on_board) else { return Ok(()) };
    lock().turn(fd, &found, |_, _, _| Ok(()))
}

/// Notes the same of a file that is not open.
pub fn length_changed_of(found: &Found) -> Result<(), c_int> {
    if start::settings().is_none() || !found.is_file || !is_on_board(found) {
        return Ok(());
    }
    let mut served = lock();
    let ((device, inode), lock) = (found.identity, served.link()?.lock);
    kernel::lock(lock, inode, true)?;
    let told = served.link()?.ask(Ask::Changed { device, inode });
    kernel::lock(lock, inode, false)?;
    told.map(drop)
}

/// The place of data in a served file, or of a hole, as `lseek` has it from `offset` on: all of it is
/// data. `None`: it is no served file.
pub fn seek_data(fd: c_int, offset: u64, is_hole: bool) -> Option<Result<u64, c_int>> {
    let found = descriptors::below(fd).filter(is_on_board)?;
    let at = if is_hole { found.len } else { offset };
    Some(match offset < found.len {
        true => kernel::seek(fd, at as i64, libc::SEEK_SET),
        false => Err(libc::ENXIO),
    })
}

/// Notes that a range has another protection next. `None`: no part of it is of a served file.
pub fn protect(address: usize, len: usize, protection: c_int) -> Option<Result<(), c_int>> {
    start::settings()?;
    let mut served = lock();
    let end = address.checked_add(len.next_multiple_of(PAGE))?;
    let meets = |one: &Mapping| one.address < end && address < one.address + one.len;
    let met: Vec<_> = served.mappings.iter().copied().filter(meets).collect();
    if met.is_empty() {
        return None;
    }
    if protection & libc::PROT_WRITE != 0 && met.iter().any(|one| !one.can_write) {
        return Some(Err(libc::EACCES));
    }
    served.mappings.retain(|one| !meets(one));
    served.is_changed = true;
    for one in met {
        let (from, to) = (one.address.max(address), (one.address + one.len).min(end));
        for (start, stop, protection) in [
            (one.address, from, one.protection),
            (from, to, protection),
            (to, one.address + one.len, one.protection),
        ] {
            if start < stop {
                let offset = one.offset + (start - one.address) as u64;
                let part = Mapping { address: start, len: stop - start, offset, protection, ..one };
                served.mappings.push(part);
            }
        }
    }
    Some(Ok(()))
}

/// Notes that files may have other names. The program need not have met the files itself.
pub fn names_changed() {
    if start::settings().is_none() {
        return;
    }
    let mut served = lock();
    if let Ok(link) = served.link() {
        // The host looks again at the end.
        let _ = link.ask(Ask::Renamed);
    }
}

/// The lock, held from before a fork until after it.
struct Held(UnsafeCell<Option<Locked>>);

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
        let Mapping { address, len, file, offset, protection, .. } = *one;
        let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
        served.map(file, offset, len, address, protection, fixed).map(drop)
    });
    if again.is_err() {
        say::say(format_args!("a forked process cannot be tracked, and ends"));
        // SAFETY: ends the process before it stores anything untracked.
        unsafe { libc::_exit(127) };
    }
}
