//! The processor's own clock: one instruction, no system call.

/// Ticks since the machine started. All processors agree where [`are_steady`] is true.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn now() -> u64 {
    // SAFETY: every x86-64 processor has it; it touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// As [`now`], but read after all earlier loads have their values, for the end of a timed piece of
/// code.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn now_behind() -> u64 {
    // SAFETY: every x86-64 processor has both instructions; they touch no memory.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
}

/// Whether ticks have one rate whatever the processor does.
#[cfg(target_arch = "x86_64")]
pub(crate) fn are_steady() -> bool {
    use core::arch::x86_64::__cpuid;
    let has_leaf = __cpuid(0x8000_0000).eax >= 0x8000_0007;
    has_leaf && __cpuid(0x8000_0007).edx & (1 << 8) != 0
}

/// Ticks of the virtual counter, which architecture and system keep steady.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) fn now() -> u64 {
    let ticks: u64;
    // SAFETY: Linux lets programs read this register; no memory is touched.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// As [`now`], but read after all earlier instructions are done, for the end of a timed piece of
/// code.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) fn now_behind() -> u64 {
    // SAFETY: two barriers, which change no memory.
    unsafe { core::arch::asm!("dsb ld", "isb", options(nostack)) };
    now()
}

/// Whether ticks have one rate whatever the processor does.
#[cfg(target_arch = "aarch64")]
pub(crate) fn are_steady() -> bool {
    true
}

/// 0: this processor has no known clock (see [`are_steady`]).
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn now() -> u64 {
    0
}

/// 0: this processor has no known clock (see [`are_steady`]).
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn now_behind() -> u64 {
    0
}

/// False: this processor has no known clock.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn are_steady() -> bool {
    false
}
