//! The calls on served files, and on mappings of them.

use std::ffi::c_int;
use std::ptr;

use crate::hosted::descriptors;
use crate::hosted::link;
use crate::hosted::ranges;
use crate::hosted::start;
use crate::hosted::state::{self, Locked, MOVED_MAX, Mapping, PAGE, lock};
use crate::hosted::wire::Ask;
use crate::kernel::{self, Found};

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
    let is_whole = flags & libc::MAP_FIXED == 0 || at.is_multiple_of(PAGE);
    if len == 0 || !is_whole || !offset.is_multiple_of(PAGE as u64) {
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
    let Some(len) = len.checked_next_multiple_of(PAGE) else { return Some(Err(libc::ENOMEM)) };
    if flags & libc::MAP_FIXED != 0
        && let Err(errno) = served.make_way(file, offset, at, len)
    {
        return Some(Err(errno));
    }
    let mapped = served.map(file, offset, len, at, protection, flags);
    if let (Ok(address), true) = (&mapped, is_shared) {
        let address = *address;
        served.is_changed = true;
        served.mappings.push(Mapping { address, len, file, offset, protection, can_write });
    }
    Some(mapped)
}

/// Where the addresses end that a program is given.
const ADDRESSES_END: usize = 1 << 47;

/// Notes that a range is unmapped, or mapped to something else, next.
pub fn forget(address: usize, len: usize) {
    // What begins within a page, or ends behind all addresses, is refused by the kernel.
    let Some(len) = len.checked_next_multiple_of(PAGE) else { return };
    if address.checked_add(len).is_none_or(|ends| ends > ADDRESSES_END) {
        return;
    }
    if start::settings().is_some() && address.is_multiple_of(PAGE) && !state::is_own() {
        lock().forget(address, len);
    }
}

/// Whether a page of a mapping of a served file begins there.
pub fn has_page(address: usize) -> bool {
    let holds = |one: &Mapping| (one.address..one.address + one.len).contains(&address);
    let look = || lock().mappings.iter().any(holds);
    address.is_multiple_of(PAGE)
        && start::settings().is_some()
        && ranges::hold(address).unwrap_or_else(look)
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
    let whole = |len: usize| len.checked_next_multiple_of(PAGE).filter(|len| *len > 0);
    let lens = whole(old_len).filter(|len| *len <= one.ends() - old).zip(whole(new_len));
    let Some((old_len, new_len)) = lens.filter(|_| old.is_multiple_of(PAGE)) else {
        return Some(Err(libc::EINVAL));
    };
    let ends = wanted.saturating_add(new_len);
    let is_apart = ends <= old || wanted >= old + old_len;
    let is_place = wanted.is_multiple_of(PAGE) && is_apart && flags & libc::MREMAP_MAYMOVE != 0;
    if flags & libc::MREMAP_FIXED != 0 && !is_place {
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
        _ => match served.make_way(one.file, offset, wanted, new_len) {
            Ok(()) => (wanted, libc::MAP_FIXED),
            Err(errno) => return Some(Err(errno)),
        },
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
/// `offset`: somebody may have mapped the file meanwhile.
pub fn write_again(fd: c_int, parts: &[libc::iovec], len: usize, offset: u64) -> Result<(), c_int> {
    let Some(found) = descriptors::below(fd).filter(is_on_board) else { return Ok(()) };
    lock().turn(fd, &found, |served, file, file_len| {
        let mut left = len;
        let cut = |part: &libc::iovec| {
            let iov_len = part.iov_len.min(left);
            left -= iov_len;
            libc::iovec { iov_len, ..*part }
        };
        let parts: Vec<_> = parts.iter().map(cut).collect();
        served.put(file, fd, file_len, offset, &parts).map(drop)
    })
}

/// What [`keep_unmapped`] has done with a file.
pub enum Unmapped {
    /// It is none below the directory, or there is no host.
    Other,
    /// It is served.
    Served,
    /// It is not served, and will not be while this lives.
    Kept(#[allow(dead_code)] Kept), // held, not read
}

/// Keeps all processes from mapping a file for the first time.
pub struct Kept {
    /// Let go last.
    _served: Locked,
    lock: c_int,
    inode: u64,
}

impl Drop for Kept {
    fn drop(&mut self) {
        // It ends with the process at the latest.
        let _ = kernel::lock(self.lock, self.inode, false);
    }
}

/// Keeps a file from being mapped for the first time, while the kernel writes to it at a place that
/// only the kernel knows: at the end of the file, or at the offset of a descriptor that others may
/// share.
pub fn keep_unmapped(fd: c_int) -> Unmapped {
    let Some(found) = descriptors::below(fd) else { return Unmapped::Other };
    let mut served = lock();
    let (inode, Ok(link)) = (found.identity.1, served.link()) else { return Unmapped::Other };
    let lock = link.lock;
    if kernel::lock(lock, inode, true).is_err() {
        return Unmapped::Other;
    }
    let kept = Kept { _served: served, lock, inode };
    match link::is_on_board(inode) {
        Some(true) => Unmapped::Served,
        _ => Unmapped::Kept(kept),
    }
}

/// Whether the kernel writes to a descriptor at the end of its file, wherever it is told to.
pub fn appends(fd: c_int) -> bool {
    descriptors::below(fd).is_some() && kernel::flags_of(fd) & libc::O_APPEND != 0
}

/// Sets the length of a served file. `None`: it is no served file.
pub fn set_len(fd: c_int, len: u64) -> Option<Result<(), c_int>> {
    let found = descriptors::below(fd).filter(is_on_board)?;
    Some(lock().turn(fd, &found, |served, file, file_len| served.set_len(file, fd, file_len, len)))
}

/// Runs a call that may make a served file `len` bytes long. `None`: it is no served file.
pub fn reach(fd: c_int, len: u64, run: impl FnOnce() -> c_int) -> Option<Result<c_int, c_int>> {
    let found = descriptors::below(fd).filter(is_on_board)?;
    Some(lock().turn(fd, &found, |served, file, file_len| {
        // The host first, which may have no memory.
        served.tell_len(file, file_len.max(len))?;
        let outcome = run();
        let file_len = kernel::look(fd).map_or(file_len, |found| found.len);
        served.tell_len(file, file_len)?;
        Ok(outcome)
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

/// The place of data in a served file, or of a hole, as `lseek` has it from `offset` on: all of it
/// is data. `None`: it is no served file.
pub fn seek_data(fd: c_int, offset: u64, is_hole: bool) -> Option<Result<u64, c_int>> {
    let found = descriptors::below(fd).filter(is_on_board)?;
    let at = if is_hole { found.len } else { offset };
    Some(match offset < found.len {
        true => kernel::seek(fd, at as i64, libc::SEEK_SET),
        false => Err(libc::ENXIO),
    })
}

/// Runs a call that gives a range another protection, and notes it.
///
/// # Errors
/// A file that was not opened for writing cannot be mapped for it.
pub fn protect(
    address: usize,
    len: usize,
    protection: c_int,
    run: impl FnOnce() -> c_int,
) -> Result<c_int, c_int> {
    let end = address.saturating_add(len.saturating_add(PAGE - 1) / PAGE * PAGE);
    // Without the lock: a handler of a fault may open pages, its thread being in a copy.
    let is_other = start::settings().is_none() || ranges::meet(address, end) == Some(false);
    if is_other || state::is_own() {
        return Ok(run());
    }
    let mut served = lock();
    let meets = |one: &Mapping| one.address < end && address < one.ends();
    let wants_write = protection & libc::PROT_WRITE != 0;
    if wants_write && served.mappings.iter().any(|one| meets(one) && !one.can_write) {
        return Err(libc::EACCES);
    }
    let outcome = run();
    if outcome == 0 {
        let mut parts: Vec<Mapping> = Vec::with_capacity(served.mappings.len() + 2);
        for one in served.mappings.drain(..) {
            let (from, to) = (one.address.max(address), one.ends().min(end));
            if !meets(&one) {
                parts.push(one);
                continue;
            }
            let changed = Mapping { protection, ..one.part(from, to) };
            parts.extend([one.part(one.address, from), changed, one.part(to, one.ends())]);
        }
        parts.retain(|one| one.len > 0);
        parts.sort_by_key(|one| one.address);
        // As the kernel does with neighbours that differ in nothing.
        parts.dedup_by(|next, one| {
            let is_one = one.goes_on_in(next);
            one.len += if is_one { next.len } else { 0 };
            is_one
        });
        served.mappings = parts;
        served.is_changed = true;
    }
    Ok(outcome)
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
