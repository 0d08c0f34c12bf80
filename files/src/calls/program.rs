//! Other programs: what they inherit must be as the kernel knows it.

use std::ffi::{c_char, c_int, c_void};

use libc::{FILE, pid_t};

use crate::process::{self, replace, share};
use crate::sys::next;

type Text = *const c_char;

macro_rules! replacing {
    ($($name:ident($($arg:ident: $kind:ty),*);)*) => {$(
        /// As `execve(2)`.
        ///
        /// # Safety
        /// As there.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($arg: $kind),*) -> c_int {
            // SAFETY: passed on.
            replace(|| unsafe { next::$name($($arg),*) })
        }
    )*};
}

replacing! {
    execve(path: Text, words: *const Text, environment: *const Text);
    execv(path: Text, words: *const Text);
    execvp(file: Text, words: *const Text);
    execvpe(file: Text, words: *const Text, environment: *const Text);
    fexecve(fd: c_int, words: *const Text, environment: *const Text);
}

macro_rules! starting {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        /// As the C library's: the program it starts shares what is open.
        ///
        /// # Safety
        /// As there.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($arg: $kind),*) -> $result {
            share();
            // SAFETY: passed on.
            unsafe { next::$name($($arg),*) }
        }
    )*};
}

starting! {
    posix_spawn(pid: *mut pid_t, path: Text, actions: *const c_void, attributes: *const c_void, words: *const *mut c_char, environment: *const *mut c_char) -> c_int;
    posix_spawnp(pid: *mut pid_t, file: Text, actions: *const c_void, attributes: *const c_void, words: *const *mut c_char, environment: *const *mut c_char) -> c_int;
    system(command: Text) -> c_int;
    popen(command: Text, mode: Text) -> *mut FILE;
}

/// As `fork(2)`: a child that has its parent's memory would change its table of descriptors.
///
/// # Safety
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn vfork() -> pid_t {
    // SAFETY: passed on.
    unsafe { next::fork() }
}

/// As `_exit(2)`, which runs no destructors.
///
/// # Safety
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn _exit(status: c_int) -> ! {
    process::exit(status)
}

/// The same.
///
/// # Safety
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn _Exit(status: c_int) -> ! {
    process::exit(status)
}
