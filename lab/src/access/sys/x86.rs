//! x86-64: accesses of 64, 32 and 16 bytes at a time.
//!
//! Safety of all functions here: pointers are multiples of 64 B to memory of at least the accessed
//! length that stays mapped and that Rust holds no references into. Other threads may access the
//! same bytes at the same time, which is no race in assembly, because no value that is read means
//! anything. The processor has the instructions, which is checked before a kernel is handed out.
//! Vector registers up to number 15 are used, and declared as changed by their names of 128 bits,
//! which stand for the whole register.

use core::arch::asm;

/// Word that stores write.
const PATTERN: u64 = 0x0123_4567_89ab_cdef;

/// A set of instructions: accesses to a line, and to four lines at once.
pub trait Lines {
    /// Loads a line.
    ///
    /// # Safety
    /// See the module.
    unsafe fn read_64(from: *const u8);
    /// Loads four lines.
    ///
    /// # Safety
    /// See the module.
    unsafe fn read_256(from: *const u8);
    /// Stores a line.
    ///
    /// # Safety
    /// See the module.
    unsafe fn write_64(to: *mut u8);
    /// Stores a line past the caches.
    ///
    /// # Safety
    /// See the module.
    unsafe fn stream_64(to: *mut u8);
    /// Called after the widest registers were used: without it, narrow instructions that follow are
    /// slow.
    ///
    /// # Safety
    /// See the module.
    unsafe fn leave();
}

/// Instructions of AVX-512F.
pub struct Avx512;
/// Instructions of AVX2.
pub struct Avx2;
/// Instructions that every x86-64 has.
pub struct Sse2;

/// Loads `count` registers of `step` bytes each from `from`, into the registers 0 to `count - 1` in
/// turn.
macro_rules! loads {
    ($from:ident, $($line:literal),+; $($register:tt),+) => {
        asm!(
            $($line,)+
            from = in(reg) $from, $(out($register) _,)+
            options(nostack, preserves_flags, readonly)
        )
    };
}

impl Lines for Avx512 {
    #[inline(always)]
    unsafe fn read_64(from: *const u8) {
        // SAFETY: the caller's promise (see the module).
        unsafe { loads!(from, "vmovdqa64 zmm0, [{from}]"; "xmm0") }
    }

    #[inline(always)]
    unsafe fn read_256(from: *const u8) {
        // SAFETY: the caller's promise (see the module).
        unsafe {
            loads!(
                from,
                "vmovdqa64 zmm0, [{from}]",
                "vmovdqa64 zmm1, [{from} + 64]",
                "vmovdqa64 zmm2, [{from} + 128]",
                "vmovdqa64 zmm3, [{from} + 192]";
                "xmm0", "xmm1", "xmm2", "xmm3"
            )
        }
    }

    #[inline(always)]
    unsafe fn write_64(to: *mut u8) {
        // SAFETY: the caller's promise (see the module).
        unsafe {
            asm!(
                "vpbroadcastq zmm0, {word}",
                "vmovdqa64 [{to}], zmm0",
                to = in(reg) to, word = in(reg) PATTERN, out("xmm0") _,
                options(nostack, preserves_flags)
            )
        }
    }

    #[inline(always)]
    unsafe fn stream_64(to: *mut u8) {
        // SAFETY: the caller's promise (see the module).
        unsafe {
            asm!(
                "vpbroadcastq zmm0, {word}",
                "vmovntdq [{to}], zmm0",
                to = in(reg) to, word = in(reg) PATTERN, out("xmm0") _,
                options(nostack, preserves_flags)
            )
        }
    }

    #[inline(always)]
    unsafe fn leave() {
        // SAFETY: registers only, all declared.
        unsafe { forget_upper_halves() }
    }
}

impl Lines for Avx2 {
    #[inline(always)]
    unsafe fn read_64(from: *const u8) {
        // SAFETY: the caller's promise (see the module).
        unsafe {
            loads!(from, "vmovdqa ymm0, [{from}]", "vmovdqa ymm1, [{from} + 32]"; "xmm0", "xmm1")
        }
    }

    #[inline(always)]
    unsafe fn read_256(from: *const u8) {
        // SAFETY: the caller's promise (see the module).
        unsafe {
            loads!(
                from,
                "vmovdqa ymm0, [{from}]",
                "vmovdqa ymm1, [{from} + 32]",
                "vmovdqa ymm2, [{from} + 64]",
                "vmovdqa ymm3, [{from} + 96]",
                "vmovdqa ymm4, [{from} + 128]",
                "vmovdqa ymm5, [{from} + 160]",
                "vmovdqa ymm6, [{from} + 192]",
                "vmovdqa ymm7, [{from} + 224]";
                "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7"
            )
        }
    }

    #[inline(always)]
    unsafe fn write_64(to: *mut u8) {
        // SAFETY: the caller's promise (see the module).
        unsafe {
            asm!(
                "vmovq xmm0, {word}",
                "vpbroadcastq ymm0, xmm0",
                "vmovdqa [{to}], ymm0",
                "vmovdqa [{to} + 32], ymm0",
                to = in(reg) to, word = in(reg) PATTERN, out("xmm0") _,
                options(nostack, preserves_flags)
            )
        }
    }

    #[inline(always)]
    unsafe fn stream_64(to: *mut u8) {
        // SAFETY: the caller's promise (see the module).
        unsafe {
            asm!(
                "vmovq xmm0, {word}",
                "vpbroadcastq ymm0, xmm0",
                "vmovntdq [{to}], ymm0",
                "vmovntdq [{to} + 32], ymm0",
                to = in(reg) to, word = in(reg) PATTERN, out("xmm0") _,
                options(nostack, preserves_flags)
            )
        }
    }

    #[inline(always)]
    unsafe fn leave() {
        // SAFETY: registers only, all declared.
        unsafe { forget_upper_halves() }
    }
}

impl Lines for Sse2 {
    #[inline(always)]
    unsafe fn read_64(from: *const u8) {
        // SAFETY: the caller's promise (see the module).
        unsafe {
            loads!(
                from,
                "movdqa xmm0, [{from}]",
                "movdqa xmm1, [{from} + 16]",
                "movdqa xmm2, [{from} + 32]",
                "movdqa xmm3, [{from} + 48]";
                "xmm0", "xmm1", "xmm2", "xmm3"
            )
        }
    }

    #[inline(always)]
    unsafe fn read_256(from: *const u8) {
        // SAFETY: the caller's promise (see the module).
        unsafe {
            Self::read_64(from);
            Self::read_64(from.add(64));
            Self::read_64(from.add(128));
            Self::read_64(from.add(192));
        }
    }

    #[inline(always)]
    unsafe fn write_64(to: *mut u8) {
        // SAFETY: the caller's promise (see the module).
        unsafe {
            asm!(
                "movq xmm0, {word}",
                "punpcklqdq xmm0, xmm0",
                "movdqa [{to}], xmm0",
                "movdqa [{to} + 16], xmm0",
                "movdqa [{to} + 32], xmm0",
                "movdqa [{to} + 48], xmm0",
                to = in(reg) to, word = in(reg) PATTERN, out("xmm0") _,
                options(nostack, preserves_flags)
            )
        }
    }

    #[inline(always)]
    unsafe fn stream_64(to: *mut u8) {
        // SAFETY: the caller's promise (see the module).
        unsafe {
            asm!(
                "movq xmm0, {word}",
                "punpcklqdq xmm0, xmm0",
                "movntdq [{to}], xmm0",
                "movntdq [{to} + 16], xmm0",
                "movntdq [{to} + 32], xmm0",
                "movntdq [{to} + 48], xmm0",
                to = in(reg) to, word = in(reg) PATTERN, out("xmm0") _,
                options(nostack, preserves_flags)
            )
        }
    }

    #[inline(always)]
    unsafe fn leave() {}
}

/// A word that depends on the word at a place and on another word.
///
/// # Safety
/// See the module.
#[inline(always)]
pub unsafe fn or_word(from: *const u8, other: u64) -> u64 {
    let mut word = other;
    // SAFETY: the caller's promise (see the module).
    unsafe {
        asm!(
            "or {word}, [{from}]",
            from = in(reg) from, word = inout(reg) word, options(nostack, readonly)
        )
    }
    word
}

#[inline(always)]
unsafe fn forget_upper_halves() {
    // SAFETY: registers only, all declared; the caller has used AVX, so the processor has it.
    unsafe {
        asm!(
            "vzeroupper",
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
            out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _,
            out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _,
            out("xmm15") _, options(nostack, preserves_flags, nomem)
        )
    }
}

/// Writes a line back and keeps it in the caches (`clwb`).
///
/// # Safety
/// See the module.
#[inline(always)]
pub unsafe fn write_back(line: *mut u8) {
    // SAFETY: the caller's promise (see the module).
    unsafe { asm!("clwb [{line}]", line = in(reg) line, options(nostack, preserves_flags)) }
}

/// Writes a line back and drops it from the caches (`clflushopt`).
///
/// # Safety
/// See the module.
#[inline(always)]
pub unsafe fn flush(line: *mut u8) {
    // SAFETY: the caller's promise (see the module).
    unsafe { asm!("clflushopt [{line}]", line = in(reg) line, options(nostack, preserves_flags)) }
}

/// Waits until the stores and write-backs before it are on their way to memory (`sfence`).
#[inline(always)]
pub fn fence() {
    // SAFETY: every x86-64 has this instruction.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}
