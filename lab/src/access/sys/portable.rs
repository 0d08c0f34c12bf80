//! Eight bytes at a time, by what every processor has. What makes stores durable is not among that.
//!
//! Threads of a benchmark access the same words at the same time: so loads and stores are atomic
//! ones, in no order, which are plain moves.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What stores write.
const PATTERN: u64 = 0x0123_4567_89ab_cdef;

/// Loads; gives a number that depends on all of them.
///
/// # Safety
/// `bytes` from `from` on, a multiple of 8 both, stay mapped; Rust holds no references into them.
#[inline(always)]
pub unsafe fn read(from: *const u8, bytes: usize) -> u64 {
    let words = from.cast::<AtomicU64>();
    // SAFETY: the caller's; all accesses to these words at this time are atomic, or assembly.
    black_box((0..bytes / 8).fold(0, |all, at| all | unsafe { (*words.add(at)).load(Relaxed) }))
}

/// Stores.
///
/// # Safety
/// As for [`read`].
#[inline(always)]
pub unsafe fn write(to: *mut u8, bytes: usize) {
    let words = to.cast::<AtomicU64>();
    // SAFETY: as for `read`.
    (0..bytes / 8).for_each(|at| unsafe { (*words.add(at)).store(PATTERN, Relaxed) });
    black_box(to);
}
