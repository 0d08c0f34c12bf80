//! The functions on files that are replaced: those of a hosted file are answered, all others go on
//! to [`crate::modelled`].
//!
//! Every function has the contract of its manual page; what a hosted file changes is in
//! docs/mapped.md.

#![allow(clippy::missing_safety_doc)] // the manual page of each has it

use std::ffi::{c_char, c_int, c_ulong, c_void};

use libc::{DIR, FILE, iovec, mode_t, off_t, size_t, ssize_t};

use crate::hosted::served::Unmapped;
use crate::hosted::{descriptors, link, served, streams};
use crate::kernel::{self, errno, set_errno};
use crate::modelled::calls as inner;
use crate::{next, say};

/// Requests of `ioctl` by which blocks of a file are shared or listed (linux/fs.h, linux/fiemap.h).
const FICLONE: c_ulong = 0x4004_9409;
const FICLONERANGE: c_ulong = 0x4020_940d;
const FIDEDUPERANGE: c_ulong = 0xc018_9436;
const FIEMAP: c_ulong = 0xc020_660b;
/// Most parts of a read or write.
const PARTS_MAX: usize = 1024;

fn failed(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}

fn moved(outcome: Result<usize, c_int>) -> ssize_t {
    match outcome {
        Ok(len) => len as ssize_t,
        Err(errno) => failed(errno) as ssize_t,
    }
}

fn mapped(outcome: Result<usize, c_int>) -> *mut c_void {
    match outcome {
        Ok(address) => address as *mut c_void,
        Err(errno) => {
            set_errno(errno);
            libc::MAP_FAILED
        }
    }
}

fn new_descriptor(fd: c_int) -> c_int {
    descriptors::forget(fd);
    fd
}

/// Notes an open that may have cut a file to nothing.
fn opened(fd: c_int, flags: c_int) -> c_int {
    descriptors::forget(fd);
    if fd >= 0 && flags & libc::O_TRUNC != 0 {
        return changed(fd, fd);
    }
    fd
}

/// Notes what the C library has opened inside itself.
unsafe fn stream(stream: *mut FILE, mode: *const c_char) -> *mut FILE {
    if !stream.is_null() {
        // SAFETY: a stream that is open, and the mode that opened it.
        let (fd, first) = unsafe { (next::fileno(stream), *mode as u8) };
        opened(fd, if first == b'w' { libc::O_TRUNC } else { 0 });
    }
    stream
}

/// Tells the host of a length that may have changed, after a call that has succeeded.
fn changed(fd: c_int, outcome: c_int) -> c_int {
    if outcome < 0 {
        return outcome;
    }
    match served::length_changed(fd) {
        Ok(()) => outcome,
        Err(errno) => failed(errno),
    }
}

unsafe fn parts<'p>(parts: *const iovec, count: c_int) -> Option<&'p [iovec]> {
    let count = usize::try_from(count).ok().filter(|count| (1..=PARTS_MAX).contains(count))?;
    // SAFETY: the caller passes on what the program gave, of which the manual page says this.
    Some(unsafe { std::slice::from_raw_parts(parts, count) })
}

fn one(base: *const c_void, len: usize) -> [iovec; 1] {
    [iovec { iov_base: base.cast_mut(), iov_len: len }]
}

/// Writes to a file: a served one, or by `run`, the kernel.
fn written(
    fd: c_int,
    parts: Option<&[iovec]>,
    offset: Option<u64>,
    run: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let Some(parts) = parts else { return run() };
    if let Some(outcome) = served::write(fd, parts, offset) {
        return moved(outcome);
    }
    // Where only the kernel knows the place, nobody maps the file meanwhile. Elsewhere the bytes
    // are written again if somebody has.
    let Some(offset) = offset.filter(|_| !served::appends(fd)) else {
        return match served::keep_unmapped(fd) {
            Unmapped::Served => served::write(fd, parts, offset).map_or_else(run, moved),
            Unmapped::Kept(_) | Unmapped::Other => run(),
        };
    };
    let done = run();
    match usize::try_from(done).ok().filter(|done| *done > 0) {
        None => done,
        Some(len) => match served::write_again(fd, parts, len, offset) {
            Ok(()) => done,
            Err(errno) => failed(errno) as ssize_t,
        },
    }
}

/// Runs a call that moves bytes within the kernel, from one file to another. Where one is served it
/// is refused, and programs read and write instead.
fn moved_within(from: c_int, to: c_int, refusal: c_int, run: impl FnOnce() -> ssize_t) -> ssize_t {
    if served::is_served(from) {
        return failed(refusal) as ssize_t;
    }
    match served::keep_unmapped(to) {
        Unmapped::Served => failed(refusal) as ssize_t,
        Unmapped::Kept(_) | Unmapped::Other => run(),
    }
}

macro_rules! replace {
    (@one $name:ident ($($arg:ident: $kind:ty),*) -> $result:ty $body:block) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(missing_docs)]
        pub unsafe extern "C-unwind" fn $name($($arg: $kind),*) -> $result {
            // SAFETY: the program's own call, passed on; what was served is of this library.
            unsafe { $body }
        }
    };
    ([$($names:ident)+] $args:tt -> $result:ty $body:block) => {
        $(replace! { @one $names $args -> $result $body })+
    };
}

replace! { [open open64] (path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    opened(inner::open(path, flags, mode), flags)
}}
replace! { [__open_2 __open64_2] (path: *const c_char, flags: c_int) -> c_int {
    opened(inner::open(path, flags, 0), flags)
}}
replace! { [openat openat64] (
    dir: c_int, path: *const c_char, flags: c_int, mode: mode_t
) -> c_int {
    opened(inner::openat(dir, path, flags, mode), flags)
}}
replace! { [__openat_2 __openat64_2] (dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    opened(inner::openat(dir, path, flags, 0), flags)
}}
replace! { [creat creat64] (path: *const c_char, mode: mode_t) -> c_int {
    opened(inner::creat(path, mode), libc::O_TRUNC)
}}
replace! { [mkstemp mkstemp64] (template: *mut c_char) -> c_int {
    new_descriptor(inner::mkstemp(template))
}}
replace! { [mkostemp mkostemp64] (template: *mut c_char, flags: c_int) -> c_int {
    new_descriptor(inner::mkostemp(template, flags))
}}
replace! { [mkstemps mkstemps64] (template: *mut c_char, suffix: c_int) -> c_int {
    new_descriptor(inner::mkstemps(template, suffix))
}}
replace! { [mkostemps mkostemps64] (
    template: *mut c_char, suffix: c_int, flags: c_int
) -> c_int {
    new_descriptor(inner::mkostemps(template, suffix, flags))
}}

replace! { [fopen fopen64] (path: *const c_char, mode: *const c_char) -> *mut FILE {
    streams::opened(stream(inner::fopen(path, mode), mode), mode)
}}
replace! { [freopen freopen64] (
    path: *const c_char, mode: *const c_char, old: *mut FILE
) -> *mut FILE {
    if streams::descriptor(old).is_some() {
        // The C library cannot open such a stream again. As after any failure, it is closed.
        fclose(old);
        set_errno(libc::EOPNOTSUPP);
        return std::ptr::null_mut();
    }
    stream(inner::freopen(path, mode, old), mode)
}}
replace! { [fdopen] (fd: c_int, mode: *const c_char) -> *mut FILE {
    streams::of_descriptor(fd, mode).unwrap_or_else(|| inner::fdopen(fd, mode))
}}
replace! { [fclose] (stream: *mut FILE) -> c_int {
    descriptors::forget(next::fileno(stream));
    next::fclose(stream)
}}
replace! { [closedir] (dir: *mut DIR) -> c_int {
    descriptors::forget(libc::dirfd(dir));
    next::closedir(dir)
}}
replace! { [fileno fileno_unlocked] (stream: *mut FILE) -> c_int {
    streams::descriptor(stream).unwrap_or_else(|| next::fileno(stream))
}}
replace! { [close] (fd: c_int) -> c_int {
    if link::is_own(fd) {
        return failed(libc::EBADF);
    }
    descriptors::forget(fd);
    inner::close(fd)
}}
replace! { [close_range] (first: u32, last: u32, flags: c_int) -> c_int {
    descriptors::forget_range(first, last);
    let mut from = first;
    for own in link::own_within(first, last) {
        if from < own {
            let outcome = inner::close_range(from, own - 1, flags);
            if outcome != 0 {
                return outcome;
            }
        }
        from = own + 1;
    }
    if from > last && first <= last { 0 } else { inner::close_range(from, last, flags) }
}}
replace! { [closefrom] (first: c_int) -> () {
    close_range(first.max(0) as u32, u32::MAX, 0);
}}
replace! { [dup] (fd: c_int) -> c_int {
    new_descriptor(inner::dup(fd))
}}
replace! { [dup2] (fd: c_int, to: c_int) -> c_int {
    if link::is_own(to) {
        return failed(libc::EBUSY);
    }
    new_descriptor(inner::dup2(fd, to))
}}
replace! { [dup3] (fd: c_int, to: c_int, flags: c_int) -> c_int {
    if link::is_own(to) {
        return failed(libc::EBUSY);
    }
    new_descriptor(inner::dup3(fd, to, flags))
}}
replace! { [fcntl fcntl64] (fd: c_int, command: c_int, word: usize) -> c_int {
    let outcome = inner::fcntl(fd, command, word);
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        descriptors::forget(outcome);
    }
    outcome
}}

replace! { [read] (fd: c_int, to: *mut c_void, len: size_t) -> ssize_t {
    match served::read(fd, &one(to, len), None) {
        Some(outcome) => moved(outcome),
        None => inner::read(fd, to, len),
    }
}}
replace! { [__read_chk] (fd: c_int, to: *mut c_void, len: size_t, room: size_t) -> ssize_t {
    read(fd, to, checked(len, room))
}}
replace! { [pread pread64] (
    fd: c_int, to: *mut c_void, len: size_t, offset: off_t
) -> ssize_t {
    match at(offset).and_then(|offset| served::read(fd, &one(to, len), Some(offset))) {
        Some(outcome) => moved(outcome),
        None => inner::pread(fd, to, len, offset),
    }
}}
replace! { [__pread_chk __pread64_chk] (
    fd: c_int, to: *mut c_void, len: size_t, offset: off_t, room: size_t
) -> ssize_t {
    pread(fd, to, checked(len, room), offset)
}}
replace! { [write] (fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    written(fd, Some(&one(from, len)), None, || inner::write(fd, from, len))
}}
replace! { [pwrite pwrite64] (
    fd: c_int, from: *const c_void, len: size_t, offset: off_t
) -> ssize_t {
    let (list, offset_given) = (one(from, len), at(offset));
    let parts = offset_given.is_some().then_some(&list[..]);
    written(fd, parts, offset_given, || inner::pwrite(fd, from, len, offset))
}}
replace! { [readv] (fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    match parts(list, count).and_then(|parts| served::read(fd, parts, None)) {
        Some(outcome) => moved(outcome),
        None => inner::readv(fd, list, count),
    }
}}
replace! { [writev] (fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    written(fd, parts(list, count), None, || inner::writev(fd, list, count))
}}
replace! { [preadv preadv64] (
    fd: c_int, list: *const iovec, count: c_int, offset: off_t
) -> ssize_t {
    let parts = at(offset).zip(parts(list, count));
    match parts.and_then(|(offset, parts)| served::read(fd, parts, Some(offset))) {
        Some(outcome) => moved(outcome),
        None => inner::preadv(fd, list, count, offset),
    }
}}
replace! { [pwritev pwritev64] (
    fd: c_int, list: *const iovec, count: c_int, offset: off_t
) -> ssize_t {
    let offset_given = at(offset);
    let parts = offset_given.and_then(|_| parts(list, count));
    written(fd, parts, offset_given, || inner::pwritev(fd, list, count, offset))
}}

replace! { [preadv2 preadv64v2] (
    fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int
) -> ssize_t {
    // -1 stands for the file's own offset.
    let offset_given = (offset != -1).then_some(offset);
    let place = offset_given.map_or(Some(None), |offset| at(offset).map(Some));
    let parts = place.zip(parts(list, count));
    match parts.and_then(|(place, parts)| served::read(fd, parts, place)) {
        Some(outcome) => moved(outcome),
        None => inner::preadv2(fd, list, count, offset, flags),
    }
}}
replace! { [pwritev2 pwritev64v2] (
    fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int
) -> ssize_t {
    if flags & libc::RWF_APPEND != 0 && served::is_served(fd) {
        return failed(libc::EOPNOTSUPP) as ssize_t;
    }
    let parts = if offset < -1 { None } else { parts(list, count) };
    let place = at(offset).filter(|_| flags & libc::RWF_APPEND == 0);
    written(fd, parts, place, || inner::pwritev2(fd, list, count, offset, flags))
}}
replace! { [lseek lseek64] (fd: c_int, offset: off_t, whence: c_int) -> off_t {
    // The kernel keeps the offset of a hosted file, and knows nothing of its data.
    if matches!(whence, libc::SEEK_DATA | libc::SEEK_HOLE)
        && let Some(from) = at(offset)
        && let Some(outcome) = served::seek_data(fd, from, whence == libc::SEEK_HOLE)
    {
        return match outcome {
            Ok(found) => found as off_t,
            Err(errno) => off_t::from(failed(errno)),
        };
    }
    inner::lseek(fd, offset, whence)
}}

// Memory is safe within the warning, so nothing is left to be done.
replace! { [fsync] (fd: c_int) -> c_int {
    if served::is_served(fd) { 0 } else { inner::fsync(fd) }
}}
replace! { [fdatasync] (fd: c_int) -> c_int {
    if served::is_served(fd) { 0 } else { inner::fdatasync(fd) }
}}
replace! { [sync_file_range] (fd: c_int, offset: off_t, len: off_t, flags: u32) -> c_int {
    if served::is_served(fd) { 0 } else { inner::sync_file_range(fd, offset, len, flags) }
}}
replace! { [msync] (address: *mut c_void, len: size_t, flags: c_int) -> c_int {
    // The system refuses what is not well formed.
    let is_known = matches!(flags & !libc::MS_INVALIDATE, 0 | libc::MS_SYNC | libc::MS_ASYNC);
    if is_known && served::has_page(address as usize) {
        return 0;
    }
    next::msync(address, len, flags)
}}

replace! { [ftruncate ftruncate64] (fd: c_int, len: off_t) -> c_int {
    match at(len).and_then(|len| served::set_len(fd, len)) {
        Some(Ok(())) => 0,
        Some(Err(errno)) => failed(errno),
        None => changed(fd, inner::ftruncate(fd, len)),
    }
}}
replace! { [truncate truncate64] (path: *const c_char, len: off_t) -> c_int {
    // Not opened: a descriptor that is closed gives up the locks of this process on the file.
    let before = kernel::look_at(path);
    let outcome = inner::truncate(path, len);
    match before.filter(|_| outcome == 0).map(|found| (found, served::length_changed_of(&found))) {
        Some((found, Err(errno))) => {
            // The host has no memory for it.
            inner::truncate(path, found.len as off_t);
            let _ = served::length_changed_of(&found);
            failed(errno)
        }
        _ => outcome,
    }
}}
replace! { [fallocate fallocate64] (
    fd: c_int, mode: c_int, offset: off_t, len: off_t
) -> c_int {
    if mode & !libc::FALLOC_FL_KEEP_SIZE != 0 && served::is_served(fd) {
        return failed(libc::EOPNOTSUPP);
    }
    let end = if mode & libc::FALLOC_FL_KEEP_SIZE != 0 { 0 } else { sum(offset, len) };
    match served::reach(fd, end, || inner::fallocate(fd, mode, offset, len)) {
        Some(Ok(outcome)) => outcome,
        Some(Err(errno)) => failed(errno),
        None => changed(fd, inner::fallocate(fd, mode, offset, len)),
    }
}}
replace! { [posix_fallocate posix_fallocate64] (fd: c_int, offset: off_t, len: off_t) -> c_int {
    match served::reach(fd, sum(offset, len), || inner::posix_fallocate(fd, offset, len)) {
        Some(Ok(number) | Err(number)) => number,
        None => match inner::posix_fallocate(fd, offset, len) {
            0 => if changed(fd, 0) == 0 { 0 } else { errno() },
            number => number,
        },
    }
}}

replace! { [mmap mmap64] (
    address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t
) -> *mut c_void {
    if flags & libc::MAP_ANONYMOUS == 0
        && let Some(from) = at(offset)
        && let Some(outcome) = served::map(address as usize, len, protection, flags, fd, from)
    {
        return mapped(outcome);
    }
    if flags & libc::MAP_FIXED != 0 {
        served::forget(address as usize, len);
    }
    inner::mmap(address, len, protection, flags, fd, offset)
}}
replace! { [mprotect] (address: *mut c_void, len: size_t, protection: c_int) -> c_int {
    let run = || next::mprotect(address, len, protection);
    served::protect(address as usize, len, protection, run).unwrap_or_else(failed)
}}
replace! { [pkey_mprotect] (
    address: *mut c_void, len: size_t, protection: c_int, key: c_int
) -> c_int {
    let run = || next::pkey_mprotect(address, len, protection, key);
    served::protect(address as usize, len, protection, run).unwrap_or_else(failed)
}}
replace! { [munmap] (address: *mut c_void, len: size_t) -> c_int {
    served::forget(address as usize, len);
    next::munmap(address, len)
}}
replace! { [mremap] (
    address: *mut c_void, len: size_t, new_len: size_t, flags: c_int, wanted: *mut c_void
) -> *mut c_void {
    match served::remap(address as usize, len, new_len, flags, wanted as usize) {
        Some(outcome) => mapped(outcome),
        None => next::mremap(address, len, new_len, flags, wanted),
    }
}}

replace! { [rename] (from: *const c_char, to: *const c_char) -> c_int {
    renamed(next::rename(from, to))
}}
replace! { [renameat] (
    from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char
) -> c_int {
    renamed(next::renameat(from_dir, from, to_dir, to))
}}
replace! { [renameat2] (
    from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: u32
) -> c_int {
    renamed(next::renameat2(from_dir, from, to_dir, to, flags))
}}
replace! { [unlink] (path: *const c_char) -> c_int {
    renamed(next::unlink(path))
}}
replace! { [remove] (path: *const c_char) -> c_int {
    renamed(next::remove(path))
}}
replace! { [link] (from: *const c_char, to: *const c_char) -> c_int {
    renamed(next::link(from, to))
}}
replace! { [linkat] (
    from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int
) -> c_int {
    renamed(next::linkat(from_dir, from, to_dir, to, flags))
}}
replace! { [unlinkat] (dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    renamed(next::unlinkat(dir, path, flags))
}}

// Programs read and write instead, where these are refused.
replace! { [copy_file_range] (
    from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, len: size_t, flags: u32
) -> ssize_t {
    moved_within(from, to, libc::EXDEV, || {
        inner::copy_file_range(from, from_offset, to, to_offset, len, flags)
    })
}}
replace! { [ioctl] (fd: c_int, request: c_ulong, word: usize) -> c_int {
    // Those that take a file's blocks from the file system. `FICLONE` has its source for a word.
    let takes_blocks = matches!(request, FICLONE | FICLONERANGE | FIDEDUPERANGE | FIEMAP);
    let is_source = || request == FICLONE && served::is_served(word as c_int);
    if takes_blocks && (served::is_served(fd) || is_source()) {
        return failed(libc::EOPNOTSUPP);
    }
    next::ioctl(fd, request, word)
}}
replace! { [sendfile sendfile64] (
    to: c_int, from: c_int, offset: *mut off_t, len: size_t
) -> ssize_t {
    moved_within(from, to, libc::EINVAL, || inner::sendfile(to, from, offset, len))
}}
replace! { [splice] (
    from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, len: size_t, flags: u32
) -> ssize_t {
    moved_within(from, to, libc::EINVAL, || {
        inner::splice(from, from_offset, to, to_offset, len, flags)
    })
}}

fn renamed(outcome: c_int) -> c_int {
    if outcome == 0 {
        served::names_changed();
    }
    outcome
}

/// The end of a range; 0: it is none, which the kernel refuses.
fn sum(offset: off_t, len: off_t) -> u64 {
    offset.checked_add(len).and_then(at).unwrap_or(0)
}

/// An offset; `None`: it is negative, which the kernel refuses.
fn at(offset: off_t) -> Option<u64> {
    u64::try_from(offset).ok()
}

/// A length that fits the buffer, as the compiler knows it.
fn checked(len: usize, room: usize) -> usize {
    if len > room {
        say::abort(format_args!("a buffer is too small for what is read into it"));
    }
    len
}
