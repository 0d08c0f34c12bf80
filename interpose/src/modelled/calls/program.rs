//! Calls that start other programs, which inherit descriptors as the kernel knows them.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{FILE, mmsghdr, msghdr, pid_t};

use crate::modelled::process::{self, replace, share};
use crate::modelled::table;
use crate::next;

type Text = *const c_char;

macro_rules! replacing {
    ($($name:ident($($arg:ident: $kind:ty),*);)*) => {$(
        /// Takes the place of the C library's function of this name, which replaces the program.
        ///
        /// # Safety
        /// The contract is that of the C function.
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
        /// Takes the place of the C library's function of this name. The program that it starts
        /// shares the open files.
        ///
        /// # Safety
        /// The contract is that of the C function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name($($arg: $kind),*) -> $result {
            share();
            // SAFETY: passed on.
            unsafe { next::$name($($arg),*) }
        }
    )*};
}

starting! {
    posix_spawn(
        pid: *mut pid_t, path: Text, actions: *const c_void, attributes: *const c_void,
        words: *const *mut c_char, environment: *const *mut c_char
    ) -> c_int;
    posix_spawnp(
        pid: *mut pid_t, file: Text, actions: *const c_void, attributes: *const c_void,
        words: *const *mut c_char, environment: *const *mut c_char
    ) -> c_int;
    system(command: Text) -> c_int;
    popen(command: Text, mode: Text) -> *mut FILE;
}

/// The C library's `vfork`; null: forks instead.
static VFORK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Passes `vfork` on from now on: no table of descriptors is kept.
pub fn pass_on_vfork() {
    VFORK.store(next::find(c"vfork"), Relaxed);
}

/// Takes the place of `vfork(2)`. While a table of descriptors is kept it forks, because a child
/// that shares its parent's memory would change that table. Otherwise the C library's function
/// returns to the caller itself: no function may return between the two returns of `vfork`.
///
/// # Safety
/// The contract is that of the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn vfork() -> pid_t {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "mov rax, qword ptr [rip + {vfork}]",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "jmp {forks}",
        vfork = sym VFORK,
        forks = sym forks,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "adrp x9, {vfork}",
        "ldr x9, [x9, :lo12:{vfork}]",
        "cbz x9, 2f",
        "br x9",
        "2:",
        "b {forks}",
        vfork = sym VFORK,
        forks = sym forks,
    );
}

unsafe extern "C" fn forks() -> pid_t {
    // SAFETY: passed on.
    unsafe { next::fork() }
}

/// Takes the place of `_exit(2)`, which runs no destructors.
///
/// # Safety
/// The contract is that of the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn _exit(status: c_int) -> ! {
    process::exit(status)
}

/// Takes the place of `_Exit(3)`, which is `_exit(2)` by another name.
///
/// # Safety
/// The contract is that of the C function.
#[allow(non_snake_case)] // the C library's name
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn _Exit(status: c_int) -> ! {
    process::exit(status)
}

/// Takes the place of `sendmsg(2)`: a process that receives a descriptor shares its offset.
///
/// # Safety
/// The contract is that of the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendmsg(
    socket: c_int,
    message: *const msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's; passed on.
    unsafe {
        if table::is_used() {
            hand_over_sent(message);
        }
        next::sendmsg(socket, message, flags)
    }
}

/// Takes the place of `sendmmsg(2)`: a process that receives a descriptor shares its offset.
///
/// # Safety
/// The contract is that of the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendmmsg(
    socket: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's, so many; passed on.
    unsafe {
        if table::is_used() && !messages.is_null() {
            for at in 0..count as usize {
                hand_over_sent(&raw const (*messages.add(at)).msg_hdr);
            }
        }
        next::sendmmsg(socket, messages, count, flags)
    }
}

/// Hands the offsets of all descriptors in a message to the kernel.
///
/// # Safety
/// `message` is a message or null.
unsafe fn hand_over_sent(message: *const msghdr) {
    // SAFETY: the caller's promise. A part that claims to be longer than the message is read only
    // to the message's end.
    unsafe {
        let Some(whole) = message.as_ref().filter(|whole| !whole.msg_control.is_null()) else {
            return;
        };
        let end = whole.msg_control as usize + whole.msg_controllen;
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(part) = header.as_ref() {
            if part.cmsg_level == libc::SOL_SOCKET && part.cmsg_type == libc::SCM_RIGHTS {
                let start = libc::CMSG_DATA(header);
                let part_end = (header as usize).saturating_add(part.cmsg_len).min(end);
                let count = part_end.saturating_sub(start as usize) / size_of::<c_int>();
                for at in 0..count {
                    let fd = start.cast::<c_int>().add(at).read_unaligned();
                    if table::is_served(fd) {
                        table::turn().hand_over_of(fd);
                    }
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}
