//! Accesses of eight bytes at a time, with instructions that every processor has; none of them
//! makes stores durable.
//!
//! Threads of a benchmark access the same words at the same time, so loads and stores are relaxed
//! atomics, which compile to plain moves.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Word that stores write.
const PATTERN: u64 = 0x0123_4567_89ab_cdef;

/// Loads; returns a number that depends on all loaded words.
///
/// # Safety
/// `bytes` from `from` on, both multiples of 8, stay mapped; Rust holds no references into them.
#[inline(always)]
pub unsafe fn read(from: *const u8, bytes: usize) -> u64 {
    let words = from.cast::<AtomicU64>();
    // SAFETY: the caller's promise; all accesses to these words at this time are atomic, or
    // assembly.
    black_box((0..bytes / 8).fold(0, |all, at| all | unsafe { (*words.add(at)).load(Relaxed) }))
}

/// Stores.
///
/// # Safety
/// As for [`read`].
#[inline(always)]
pub unsafe fn write(to: *mut u8, bytes: usize) {
    let words = to.cast::<AtomicU64>();
    // SAFETY: the caller's promise; all accesses to these words at this time are atomic, or
    // assembly.
    (0..bytes / 8).for_each(|at| unsafe { (*words.add(at)).store(PATTERN, Relaxed) });
    black_box(to);
}
