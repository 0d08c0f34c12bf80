//! The processor's own clock: one instruction, no system call.

/// Ticks since the machine started; all processors agree where [`are_steady`] says so.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn now() -> u64 {
    // SAFETY: every x86-64 processor has it; it touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// As [`now`], but read when all loads before it have their values: for the end of what is timed.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn now_behind() -> u64 {
    // SAFETY: every x86-64 processor has both instructions; they touch no memory.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
}

/// Whether ticks go on at one rate whatever the processor does.
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

/// As [`now`], but read when everything before it is done: for the end of what is timed.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) fn now_behind() -> u64 {
    // SAFETY: two barriers; what is in memory stays as it is.
    unsafe { core::arch::asm!("dsb ld", "isb", options(nostack)) };
    now()
}

/// Whether ticks go on at one rate whatever the processor does.
#[cfg(target_arch = "aarch64")]
pub(crate) fn are_steady() -> bool {
    true
}

/// No such clock is known here: see [`are_steady`].
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn now() -> u64 {
    0
}

/// As [`now`].
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn now_behind() -> u64 {
    0
}

/// Never: there are none.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn are_steady() -> bool {
    false
}
