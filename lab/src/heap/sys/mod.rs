//! The unsafe part of `perdura-lab heap`: rivals' libraries, raw memory, counting.

pub mod hook;
pub mod library;
pub mod malloc;
pub mod own;
pub mod pmemobj;

/// Writes the first `bytes` of an object: `value` in each eight, the rest with the first bytes of
/// `value`.
///
/// # Safety
/// `address` begins a range of at least `bytes` bytes that the caller may write and nobody else
/// accesses.
#[inline]
pub unsafe fn touch(address: *mut u8, bytes: usize, value: u64) {
    let words = bytes / 8;
    // SAFETY: the words and the rest lie within `bytes`, and the stores may be unaligned.
    unsafe {
        let first = address.cast::<u64>();
        (0..words).for_each(|word| first.add(word).write_unaligned(value));
        for (at, byte) in (words * 8..bytes).zip(value.to_le_bytes()) {
            address.add(at).write(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_asked_for_are_written_and_no_more() {
        for bytes in 0..40 {
            let mut memory = [0u8; 48];
            // SAFETY: the array is longer than `bytes`.
            unsafe { touch(memory.as_mut_ptr(), bytes, u64::MAX) };
            assert!(memory.iter().enumerate().all(|(at, byte)| (*byte != 0) == (at < bytes)));
        }
    }
}
