//! Instructions that make stores durable on byte-addressable media, chosen when a program starts to
//! use them.
//!
//! `clwb` writes a line back and may keep it, `clflushopt` and `clflush` drop it. On arm64 `dc
//! cvap` cleans to the point of persistence. Lines that were written back are durable once
//! [`fence`] has returned.

/// Bytes of a line, which is written back as a whole.
pub const LINE_BYTES: u64 = 64;

/// The instruction that writes a line back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushKind {
    /// The x86-64 instruction that writes a line back and may keep it in the cache.
    Clwb,
    /// The x86-64 instruction that writes a line back and drops it, not ordered with other flushes.
    ClflushOpt,
    /// The x86-64 instruction that writes a line back and drops it, one after the other.
    Clflush,
    /// The arm64 instruction that cleans a line to the point of persistence.
    DcCvap,
}

impl FlushKind {
    /// The cheapest instruction that this processor has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            // Leaf 7 says which of the newer two there are; every x86-64 has `clflush`.
            let leaf = std::arch::x86_64::__cpuid_count(7, 0);
            if leaf.ebx & 1 << 24 != 0 {
                return Self::Clwb;
            }
            if leaf.ebx & 1 << 23 != 0 {
                return Self::ClflushOpt;
            }
            Self::Clflush
        }
        #[cfg(target_arch = "aarch64")]
        Self::DcCvap
    }

    /// The instruction's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clwb => "clwb",
            Self::ClflushOpt => "clflushopt",
            Self::Clflush => "clflush",
            Self::DcCvap => "dc cvap",
        }
    }
}

/// Writes the line that holds `at` back.
///
/// # Safety
/// `at` lies in mapped memory.
#[inline]
pub unsafe fn flush_line(kind: FlushKind, at: *const u8) {
    // SAFETY: writing a line of mapped memory back changes no byte; `kind` was found on this
    // processor.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        match kind {
            FlushKind::Clwb => {
                std::arch::asm!("clwb [{}]", in(reg) at, options(nostack, preserves_flags));
            }
            FlushKind::ClflushOpt => {
                std::arch::asm!("clflushopt [{}]", in(reg) at, options(nostack, preserves_flags));
            }
            FlushKind::Clflush | FlushKind::DcCvap => {
                std::arch::asm!("clflush [{}]", in(reg) at, options(nostack, preserves_flags));
            }
        }
    }
    // SAFETY: as above. `dc cvap` is encoded as a system instruction: assemblers know its name from
    // armv8.2 on only.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        let _ = kind;
        std::arch::asm!("sys #3, c7, c12, #1, {}", in(reg) at, options(nostack, preserves_flags));
    }
}

/// Starts loading the line that holds `at`, to be changed. Any address is allowed, because nothing
/// is read.
#[inline]
pub fn prefetch_for_write(at: *const u8) {
    // SAFETY: prefetching has no effect on memory and faults nowhere; `prefetchw` is a no-op where
    // it is unknown.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "prfm pstl1keep, [{}]",
            in(reg) at,
            options(nostack, preserves_flags, readonly)
        );
    }
}

/// Waits until all lines that this thread wrote back are durable.
#[inline]
pub fn fence() {
    // SAFETY: a fence touches no memory. `sfence` is part of every x86-64.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("dsb osh", options(nostack, preserves_flags));
    }
}

/// Copies with stores that go past the caches, if the processor has such stores. They are durable
/// after [`fence`] without a flush. Returns false if it has none, and nothing was copied.
///
/// # Safety
/// `to` is valid for writes of `from.len()` bytes, aligned to 16, and overlaps nothing that `from`
/// borrows.
///
/// # Panics
/// The length is no multiple of [`LINE_BYTES`].
#[inline]
pub unsafe fn stream(to: *mut u8, from: &[u8]) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let (lines, rest) = from.as_chunks::<{ LINE_BYTES as usize }>();
        assert!(rest.is_empty(), "{} bytes are not whole lines", from.len());
        for (index, line) in lines.iter().enumerate() {
            // SAFETY: inside both ranges; SSE2 is part of x86-64.
            unsafe {
                let from = line.as_ptr().cast::<__m128i>();
                let to = to.add(index * line.len()).cast::<__m128i>();
                for quarter in 0..4 {
                    _mm_stream_si128(to.add(quarter), _mm_loadu_si128(from.add(quarter)));
                }
            }
        }
        true
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (to, from);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_lines_back_changes_nothing() {
        let bytes = [7_u8; 256];
        for at in 0..bytes.len() {
            // SAFETY: inside the array.
            unsafe { flush_line(FlushKind::detect(), bytes.as_ptr().add(at)) };
        }
        fence();
        assert_eq!(bytes, [7; 256]);
    }

    #[repr(align(16))]
    struct Aligned([u8; 64]);

    #[test]
    fn streamed_bytes_arrive() {
        let from: Vec<u8> = (0..64).collect();
        let mut to = Aligned([0; 64]);
        // SAFETY: an aligned array of the same length.
        if unsafe { stream(to.0.as_mut_ptr(), &from) } {
            fence();
            assert_eq!(to.0.as_slice(), from);
        }
    }
}
