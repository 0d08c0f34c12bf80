//! Copies of bytes that other threads may be reading, or changing, at the same time.
//!
//! Transactions do not lock, so two threads whose users made a mistake may meet in the same bytes.
//! Whole words are copied by relaxed atomics, so a thread reads old or new bytes or some of both,
//! and the result is never undefined.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

const WORD: usize = size_of::<u64>();

/// Copies `from` to memory that other threads may reach.
///
/// # Safety
/// `to` is valid for reads and writes of `from.len()` bytes, which others reach by atomics, or not
/// at all, meanwhile; it overlaps nothing that `from` borrows.
#[inline]
pub unsafe fn copy_in(to: *mut u8, from: &[u8]) {
    let (head, rest) = from.split_at(head_bytes(to, from.len()));
    let words = rest.chunks_exact(WORD);
    // SAFETY: the three parts lie in the range behind each other.
    unsafe {
        bytes_in(to, head);
        bytes_in(to.add(from.len() - words.remainder().len()), words.remainder());
        let first = to.add(head.len()).cast::<u64>();
        for (index, word) in words.enumerate() {
            let mut value = [0; WORD];
            value.copy_from_slice(word);
            // Aligned, since the head ends at a word's boundary.
            AtomicU64::from_ptr(first.add(index)).store(u64::from_ne_bytes(value), Relaxed);
        }
    }
}

/// Copies memory that other threads may reach to `out`.
///
/// # Safety
/// `from` is valid for reads of `out.len()` bytes, which others change by atomics, or not at all,
/// meanwhile; it overlaps nothing that `out` borrows.
#[inline]
pub unsafe fn copy_out(from: *const u8, out: &mut [u8]) {
    let (from, len) = (from.cast_mut(), out.len());
    let (head, rest) = out.split_at_mut(head_bytes(from, len));
    let head_len = head.len();
    let mut words = rest.chunks_exact_mut(WORD);
    // SAFETY: the three parts lie in the range behind each other; atomics only load.
    unsafe {
        bytes_out(from, head);
        let first = from.add(head_len).cast::<u64>();
        for (index, word) in words.by_ref().enumerate() {
            // Aligned, since the head ends at a word's boundary.
            word.copy_from_slice(
                &AtomicU64::from_ptr(first.add(index)).load(Relaxed).to_ne_bytes(),
            );
        }
        let last = words.into_remainder();
        bytes_out(from.add(len - last.len()), last);
    }
}

/// Bytes before the first word's boundary, of `len`.
fn head_bytes(at: *const u8, len: usize) -> usize {
    ((at as usize).wrapping_neg() % WORD).min(len)
}

unsafe fn bytes_in(to: *mut u8, from: &[u8]) {
    for (index, byte) in from.iter().enumerate() {
        // SAFETY: inside the range, as the caller says.
        unsafe { AtomicU8::from_ptr(to.add(index)).store(*byte, Relaxed) };
    }
}

unsafe fn bytes_out(from: *mut u8, out: &mut [u8]) {
    for (index, byte) in out.iter_mut().enumerate() {
        // SAFETY: inside the range, as the caller says.
        *byte = unsafe { AtomicU8::from_ptr(from.add(index)).load(Relaxed) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_wherever_it_goes() {
        let from: Vec<u8> = (1..=40).collect();
        for start in 0..9 {
            for len in 0..=from.len() {
                let mut memory = [0_u64; 8];
                let at = memory.as_mut_ptr().cast::<u8>().wrapping_add(start);
                let mut out = vec![0; len];
                // SAFETY: 9 + 40 bytes are inside the 64, and nobody else has them.
                unsafe {
                    copy_in(at, &from[..len]);
                    copy_out(at, &mut out);
                }
                assert_eq!(out, from[..len], "{len} bytes at {start}");
                let all: Vec<u8> = memory.iter().flat_map(|word| word.to_ne_bytes()).collect();
                assert!(all[..start].iter().chain(&all[start + len..]).all(|byte| *byte == 0));
            }
        }
    }
}
