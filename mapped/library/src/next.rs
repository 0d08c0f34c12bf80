//! The C library's own functions of the names that this library replaces. Calls are passed on by
//! name and not made as system calls, for a thread can be cancelled inside them.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::{mem, ptr};

use libc::{iovec, mode_t, off_t, size_t, ssize_t};

fn find(at: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    // SAFETY: looks for a name in what was loaded after this library.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        crate::kernel::say(&format!("{name:?}: the C library has no such function"));
        // SAFETY: ends the process.
        unsafe { libc::_exit(127) };
    }
    at.store(found, Relaxed);
    found
}

macro_rules! next {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        /// The C library's function of this name.
        ///
        /// # Safety
        /// The contract is that of the function's manual page.
        pub unsafe fn $name($($arg: $kind),*) -> $result {
            static AT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            const NAME: &CStr =
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name with a zero byte"),
                };
            let mut at = AT.load(Relaxed);
            if at.is_null() {
                at = find(&AT, NAME);
            }
            // SAFETY: the function of this name has this type; the arguments are the caller's.
            unsafe {
                let function: unsafe extern "C-unwind" fn($($kind),*) -> $result =
                    mem::transmute(at);
                function($($arg),*)
            }
        }
    )*};
}

next! {
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    creat(path: *const c_char, mode: mode_t) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: u32, last: u32, flags: c_int) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, to: c_int) -> c_int;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl(fd: c_int, command: c_int, word: usize) -> c_int;
    read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t;
    write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t;
    pread(fd: c_int, to: *mut c_void, len: size_t, offset: off_t) -> ssize_t;
    pwrite(fd: c_int, from: *const c_void, len: size_t, offset: off_t) -> ssize_t;
    readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    preadv(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fsync(fd: c_int) -> c_int;
    fdatasync(fd: c_int) -> c_int;
    sync_file_range(fd: c_int, offset: off_t, len: off_t, flags: u32) -> c_int;
    ftruncate(fd: c_int, len: off_t) -> c_int;
    truncate(path: *const c_char, len: off_t) -> c_int;
    fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int;
    posix_fallocate(fd: c_int, offset: off_t, len: off_t) -> c_int;
    mmap(
        at: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t
    ) -> *mut c_void;
    munmap(at: *mut c_void, len: size_t) -> c_int;
    mremap(
        at: *mut c_void, len: size_t, new_len: size_t, flags: c_int, wanted: *mut c_void
    ) -> *mut c_void;
    msync(at: *mut c_void, len: size_t, flags: c_int) -> c_int;
    rename(from: *const c_char, to: *const c_char) -> c_int;
    renameat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int;
    renameat2(
        from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: u32
    ) -> c_int;
    unlink(path: *const c_char) -> c_int;
    unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
    copy_file_range(
        from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, len: size_t,
        flags: u32
    ) -> ssize_t;
    sendfile(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t;
    splice(
        from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, len: size_t,
        flags: u32
    ) -> ssize_t;
}
