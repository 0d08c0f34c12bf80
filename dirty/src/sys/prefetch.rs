//! Loading cache lines before their use.

/// Starts loading the cache line at `address`; any address is allowed.
#[inline]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults and changes no state a program can see.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Starts loading the cache line at `address` so that it can be stored to: other processors give up
/// their copies now, and not when the store waits for it. Any address is allowed.
#[inline]
pub fn prefetch_to_store(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction reads and writes no memory; a processor without it, which is older
    // than 2014, does nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
