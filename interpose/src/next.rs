//! The C library's own functions of the names that this library replaces.
//!
//! Each is looked up when it is first needed, for other libraries' constructors may run before this
//! one's. Calls are passed on by name and not made as system calls, for a thread can be cancelled
//! inside the C library's functions, which unwinds its stack (`C-unwind`).

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use libc::{DIR, FILE, iovec, mmsghdr, mode_t, msghdr, off_t, pid_t, size_t, ssize_t};

use crate::say;

/// The C library's function of a name.
pub fn find(name: &CStr) -> *mut c_void {
    // SAFETY: looks for a name in what was loaded after this library.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        say::refuse(format_args!("{}: the C library has no such function", name.to_string_lossy()));
    }
    found
}

macro_rules! next {
    ($(
        $name:ident: fn($($arg:ident: $kind:ty),* $(; $more:ident: $last:ty)?) $(-> $result:ty)?;
    )*) => {$(
        /// The C library's function of this name.
        ///
        /// # Safety
        /// The contract is that of the function's manual page.
        #[inline]
        pub unsafe fn $name($($arg: $kind,)* $($more: $last)?) $(-> $result)? {
            static AT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            let mut at = AT.load(Relaxed);
            if at.is_null() {
                at = find(next!(@text $name));
                AT.store(at, Relaxed);
            }
            // SAFETY: the function of this name has this type; the arguments are the caller's.
            unsafe {
                let function: next!(@type ($($kind),*) ($($last)?) ($($result)?)) =
                    mem::transmute(at);
                function($($arg,)* $($more)?)
            }
        }
    )*};
    (@type ($($kind:ty),*) () ($($result:ty)?)) => {
        unsafe extern "C-unwind" fn($($kind),*) $(-> $result)?
    };
    (@type ($($kind:ty),*) ($last:ty) ($($result:ty)?)) => {
        unsafe extern "C-unwind" fn($($kind,)* ...) $(-> $result)?
    };
    (@text $name:ident) => {
        const {
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(text) => text,
                Err(_) => panic!("a name with a zero byte"),
            }
        }
    };
}

type Path = *const c_char;

next! {
    malloc: fn(bytes: size_t) -> *mut c_void;
    calloc: fn(count: size_t, bytes: size_t) -> *mut c_void;
    realloc: fn(memory: *mut c_void, bytes: size_t) -> *mut c_void;
    free: fn(memory: *mut c_void);
    posix_memalign: fn(out: *mut *mut c_void, align: size_t, bytes: size_t) -> c_int;
    aligned_alloc: fn(align: size_t, bytes: size_t) -> *mut c_void;
    memalign: fn(align: size_t, bytes: size_t) -> *mut c_void;
    valloc: fn(bytes: size_t) -> *mut c_void;
    pvalloc: fn(bytes: size_t) -> *mut c_void;
    malloc_usable_size: fn(memory: *mut c_void) -> size_t;
    open: fn(path: Path, flags: c_int; mode: mode_t) -> c_int;
    openat: fn(dir: c_int, path: Path, flags: c_int; mode: mode_t) -> c_int;
    creat: fn(path: Path, mode: mode_t) -> c_int;
    mkstemp: fn(template: *mut c_char) -> c_int;
    mkostemp: fn(template: *mut c_char, flags: c_int) -> c_int;
    mkstemps: fn(template: *mut c_char, suffix: c_int) -> c_int;
    mkostemps: fn(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    fopen: fn(path: Path, mode: Path) -> *mut FILE;
    freopen: fn(path: Path, mode: Path, stream: *mut FILE) -> *mut FILE;
    fdopen: fn(fd: c_int, mode: Path) -> *mut FILE;
    fclose: fn(stream: *mut FILE) -> c_int;
    fileno: fn(stream: *mut FILE) -> c_int;
    closedir: fn(dir: *mut DIR) -> c_int;
    close: fn(fd: c_int) -> c_int;
    close_range: fn(first: u32, last: u32, flags: c_int) -> c_int;
    dup: fn(fd: c_int) -> c_int;
    dup2: fn(fd: c_int, to: c_int) -> c_int;
    dup3: fn(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl: fn(fd: c_int, command: c_int; word: usize) -> c_int;
    read: fn(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t;
    write: fn(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t;
    pread: fn(fd: c_int, buf: *mut c_void, len: size_t, offset: off_t) -> ssize_t;
    pwrite: fn(fd: c_int, buf: *const c_void, len: size_t, offset: off_t) -> ssize_t;
    readv: fn(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    writev: fn(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    preadv: fn(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    pwritev: fn(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    preadv2: fn(
        fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t;
    pwritev2: fn(
        fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t;
    lseek: fn(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    fsync: fn(fd: c_int) -> c_int;
    fdatasync: fn(fd: c_int) -> c_int;
    sync_file_range: fn(fd: c_int, offset: off_t, len: off_t, flags: u32) -> c_int;
    ftruncate: fn(fd: c_int, len: off_t) -> c_int;
    truncate: fn(path: Path, len: off_t) -> c_int;
    fallocate: fn(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int;
    posix_fallocate: fn(fd: c_int, offset: off_t, len: off_t) -> c_int;
    mmap: fn(
        at: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t
    ) -> *mut c_void;
    munmap: fn(at: *mut c_void, len: size_t) -> c_int;
    mremap: fn(
        at: *mut c_void, len: size_t, new_len: size_t, flags: c_int; wanted: *mut c_void
    ) -> *mut c_void;
    msync: fn(at: *mut c_void, len: size_t, flags: c_int) -> c_int;
    rename: fn(from: Path, to: Path) -> c_int;
    renameat: fn(from_dir: c_int, from: Path, to_dir: c_int, to: Path) -> c_int;
    renameat2: fn(from_dir: c_int, from: Path, to_dir: c_int, to: Path, flags: c_uint) -> c_int;
    unlink: fn(path: Path) -> c_int;
    remove: fn(path: Path) -> c_int;
    link: fn(from: Path, to: Path) -> c_int;
    linkat: fn(from_dir: c_int, from: Path, to_dir: c_int, to: Path, flags: c_int) -> c_int;
    mprotect: fn(at: *mut c_void, len: size_t, protection: c_int) -> c_int;
    pkey_mprotect: fn(at: *mut c_void, len: size_t, protection: c_int, key: c_int) -> c_int;
    ioctl: fn(fd: c_int, request: c_ulong; word: usize) -> c_int;
    unlinkat: fn(dir: c_int, path: Path, flags: c_int) -> c_int;
    copy_file_range: fn(
        from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, len: size_t,
        flags: u32
    ) -> ssize_t;
    sendfile: fn(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t;
    splice: fn(
        from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, len: size_t,
        flags: u32
    ) -> ssize_t;
    sendmsg: fn(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    sendmmsg: fn(socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    fork: fn() -> pid_t;
    execve: fn(path: Path, words: *const Path, environment: *const Path) -> c_int;
    execv: fn(path: Path, words: *const Path) -> c_int;
    execvp: fn(file: Path, words: *const Path) -> c_int;
    execvpe: fn(file: Path, words: *const Path, environment: *const Path) -> c_int;
    fexecve: fn(fd: c_int, words: *const Path, environment: *const Path) -> c_int;
    posix_spawn: fn(
        pid: *mut pid_t, path: Path, actions: *const c_void, attributes: *const c_void,
        words: *const *mut c_char, environment: *const *mut c_char
    ) -> c_int;
    posix_spawnp: fn(
        pid: *mut pid_t, file: Path, actions: *const c_void, attributes: *const c_void,
        words: *const *mut c_char, environment: *const *mut c_char
    ) -> c_int;
    system: fn(command: Path) -> c_int;
    popen: fn(command: Path, mode: Path) -> *mut FILE;
    _exit: fn(status: c_int) -> !;
}
