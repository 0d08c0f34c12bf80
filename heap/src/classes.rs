//! Size classes: multiples of 64 B up to 2 KiB, then four per doubling up to 64 KiB.

use crate::layout::{GRAIN_BYTES, SPAN_BYTES};

/// Number of classes.
pub(crate) const CLASSES: usize = FINE + 20;
const FINE: usize = 32;
const FINE_MAX: u64 = FINE as u64 * GRAIN_BYTES;

/// The smallest class that holds `bytes`; `None`: a run of whole spans is needed.
pub(crate) fn class_of(bytes: u64) -> Option<usize> {
    if bytes <= FINE_MAX {
        return Some(bytes.max(1).div_ceil(GRAIN_BYTES) as usize - 1);
    }
    if bytes > SPAN_BYTES {
        return None;
    }
    // Between 2^log and 2^(log+1): four steps.
    let log = 63 - (bytes - 1).leading_zeros() as usize;
    let step = (bytes - 1 - (1 << log)) >> (log - 2);
    Some(FINE + (log - 11) * 4 + step as usize)
}

/// Bytes of a class's slots.
pub(crate) fn class_bytes(class: usize) -> u64 {
    if class < FINE {
        return (class as u64 + 1) * GRAIN_BYTES;
    }
    let (log, step) = (11 + (class - FINE) / 4, (class - FINE) % 4);
    (1 << log) + ((step as u64 + 1) << (log - 2))
}

/// Spans of one run of a class: more than one where a single span would waste over an eighth.
pub(crate) fn class_spans(class: usize) -> u64 {
    match class_bytes(class) >> 10 {
        20 | 24 | 48 => 3,
        40 => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for bytes in 1..=SPAN_BYTES {
            let class = class_of(bytes).unwrap();
            assert!(class_bytes(class) >= bytes, "{bytes}");
            assert!(class == 0 || class_bytes(class - 1) < bytes, "{bytes}");
        }
        assert_eq!(class_of(SPAN_BYTES + 1), None);
        assert_eq!(class_of(SPAN_BYTES), Some(CLASSES - 1));
    }

    #[test]
    fn slots_are_whole_grains_and_runs_waste_little() {
        for class in 0..CLASSES {
            let run = class_spans(class) * SPAN_BYTES;
            assert_eq!(class_bytes(class) % GRAIN_BYTES, 0);
            assert!(run % class_bytes(class) <= run / 8, "class {class}");
        }
    }
}
