//! Eight bytes at a time, by what every processor has. What makes stores durable is not among that.

/// What stores write.
const PATTERN: u64 = 0x0123_4567_89ab_cdef;

/// Loads; gives a number that depends on all of them.
///
/// # Safety
/// `bytes` from `from` on, a multiple of 8 both, stay mapped; Rust holds no references into them.
#[inline(always)]
pub unsafe fn read(from: *const u8, bytes: usize) -> u64 {
    let words = from.cast::<u64>();
    // SAFETY: the caller's.
    (0..bytes / 8).fold(0, |all, at| all | unsafe { words.add(at).read_volatile() })
}

/// Stores.
///
/// # Safety
/// As for [`read`].
#[inline(always)]
pub unsafe fn write(to: *mut u8, bytes: usize) {
    let words = to.cast::<u64>();
    // SAFETY: the caller's.
    (0..bytes / 8).for_each(|at| unsafe { words.add(at).write_volatile(PATTERN) });
}
