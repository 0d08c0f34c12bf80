//! The unsafe part of `insights`: reads with gaps between them, which workload files cannot
//! express.

use std::time::Instant;

use perdura_heap::Memory;

use super::super::kernel::{Isa, Kernel, Places, Run};

/// Reads `read_bytes` at every `stride_bytes` of a range, ascending, once; returns reads a second,
/// 0 if none fits.
///
/// # Panics
/// If the range is longer than the memory, or a size is not a multiple of a line: the caller's
/// mistake.
pub fn strided(memory: &Memory, range_bytes: u64, read_bytes: u64, stride_bytes: u64) -> f64 {
    const LINE_BYTES: u64 = 64;
    assert!(range_bytes <= memory.len_bytes(), "{range_bytes} of {}", memory.len_bytes());
    assert!(read_bytes.is_multiple_of(LINE_BYTES) && stride_bytes.is_multiple_of(LINE_BYTES));
    assert!(read_bytes <= stride_bytes && read_bytes > 0);
    // The widest instructions are always present.
    let Ok(kernel) = Kernel::new(Isa::widest(), &[]) else { return 0.0 };
    let count = range_bytes / stride_bytes;
    let base = memory.base();
    let places = Run { first: base, step_bytes: stride_bytes as isize, count: count as usize };
    let began = Instant::now();
    // SAFETY: multiples of 64 B inside `memory`, which stays mapped while it is borrowed, with
    // `read_bytes` behind each; Rust holds no references into it.
    unsafe { kernel.read_all(Places::Run(places), read_bytes as usize) };
    count as f64 / began.elapsed().as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use perdura_heap::Durability;

    use super::*;

    #[test]
    fn strides_stay_in_their_range_and_have_a_rate() {
        let memory = Memory::anonymous(1 << 20, Durability::Ordered).unwrap();
        assert!(strided(&memory, 1 << 20, 256, 1024) > 0.0);
        assert!(strided(&memory, 1 << 20, 64, 320) > 0.0, "a last stride that is cut short");
        assert_eq!(strided(&memory, 64, 64, 256), 0.0);
    }
}
