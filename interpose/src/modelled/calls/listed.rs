//! `execl` and its variants, which take the new program's words as arguments.
//!
//! Rust cannot define functions with a variable number of arguments, and the C library's own ones
//! enter the kernel directly, past this library. So a few instructions note the registers and the
//! stack that hold the arguments, and the words are collected from there.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int};

use crate::modelled::process::replace;
use crate::next;

type Text = *const c_char;

/// Arguments after the first that a caller passes in registers.
const REGISTERS: usize = if cfg!(target_arch = "x86_64") { 5 } else { 7 };

/// The arguments of a call after the first.
struct Listed {
    registers: *const Text,
    stack: *const Text,
    taken: usize,
}

impl Listed {
    /// The next argument.
    ///
    /// # Safety
    /// The caller passed so many arguments.
    unsafe fn take(&mut self) -> Text {
        let at = self.taken;
        self.taken += 1;
        // SAFETY: the caller's promise; each argument has eight bytes, in the order in which they
        // were passed.
        unsafe {
            match at < REGISTERS {
                true => self.registers.add(at).read(),
                false => self.stack.add(at - REGISTERS).read(),
            }
        }
    }

    /// All words, with the null at their end.
    ///
    /// # Safety
    /// A null ends the caller's words.
    unsafe fn words(&mut self) -> Vec<Text> {
        let mut words = Vec::new();
        loop {
            // SAFETY: the caller's promise: none was null yet.
            let word = unsafe { self.take() };
            words.push(word);
            if word.is_null() {
                return words;
            }
        }
    }
}

macro_rules! listed {
    ($($name:ident by $gathered:ident;)*) => {$(
        /// Takes the place of `execl(3)`.
        ///
        /// # Safety
        /// The contract is that of the C function.
        #[cfg(target_arch = "x86_64")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() -> c_int {
            naked_asm!(
                "push r9", "push r8", "push rcx", "push rdx", "push rsi",
                "mov rsi, rsp",
                // The stack's arguments are above the five saved registers and the return address.
                "lea rdx, [rsp + 48]",
                "call {gathered}",
                "add rsp, 40",
                "ret",
                gathered = sym $gathered,
            )
        }

        /// Takes the place of `execl(3)`.
        ///
        /// # Safety
        /// The contract is that of the C function.
        #[cfg(target_arch = "aarch64")]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() -> c_int {
            naked_asm!(
                "sub sp, sp, #80",
                "stp x1, x2, [sp]", "stp x3, x4, [sp, #16]", "stp x5, x6, [sp, #32]",
                "str x7, [sp, #48]",
                "stp x29, x30, [sp, #64]",
                "mov x1, sp",
                "add x2, sp, #80",
                "bl {gathered}",
                "ldp x29, x30, [sp, #64]",
                "add sp, sp, #80",
                "ret",
                gathered = sym $gathered,
            )
        }
    )*};
}

listed! {
    execl by gathered_execl;
    execlp by gathered_execlp;
    execle by gathered_execle;
}

unsafe extern "C" fn gathered_execl(
    path: Text,
    registers: *const Text,
    stack: *const Text,
) -> c_int {
    // SAFETY: arguments as the manual page has them.
    let words = unsafe { Listed { registers, stack, taken: 0 }.words() };
    // SAFETY: passed on.
    replace(|| unsafe { next::execv(path, words.as_ptr()) })
}

unsafe extern "C" fn gathered_execlp(
    file: Text,
    registers: *const Text,
    stack: *const Text,
) -> c_int {
    // SAFETY: as above.
    let words = unsafe { Listed { registers, stack, taken: 0 }.words() };
    // SAFETY: passed on.
    replace(|| unsafe { next::execvp(file, words.as_ptr()) })
}

unsafe extern "C" fn gathered_execle(
    path: Text,
    registers: *const Text,
    stack: *const Text,
) -> c_int {
    let mut listed = Listed { registers, stack, taken: 0 };
    // SAFETY: as above; the environment follows the null.
    let (words, environment) = unsafe { (listed.words(), listed.take()) };
    // SAFETY: passed on.
    replace(|| unsafe { next::execve(path, words.as_ptr(), environment.cast()) })
}
