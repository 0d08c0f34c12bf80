//! Size classes: multiples of 64 B up to 2 KiB, then four for each doubling up to 64 KiB; and, up
//! to 256 B, some multiples of 16 B between them.
//!
//! Slots of whole grains begin with a grain. Slots of the other classes share grains with their
//! neighbours, which saves memory: a clean neighbour's bytes are then written along with a dirty
//! slot's. For sizes 16 or 32 B above whole grains that costs nothing, because a slot lies in as
//! many grains as if its size were rounded up. At 48 B above, a slot would lie in half a grain more
//! on average, so there are no such classes. Each class costs each lane half a span, so there are
//! no shared classes above 256 B.

use crate::layout::{GRAIN_BYTES, OBJECT_ALIGN_BYTES, SPAN_BYTES};

/// Number of size classes.
pub(crate) const CLASSES: usize = FIRST_SHARED + SHARED.len();
/// Classes whose sizes are all multiples of a grain. Behind them stand the classes of the later
/// doublings, and then those that share grains.
const WHOLE: usize = 32;
const WHOLE_MAX: u64 = WHOLE as u64 * GRAIN_BYTES;
const FIRST_SHARED: usize = WHOLE + 20;
/// Slot bytes of the classes whose slots share grains.
const SHARED: [u64; 7] = [32, 80, 96, 144, 160, 208, 224];
/// Entries of the table that names the class of a small size, counted in 16 B.
const LOOKED_UP: usize = 17;
const LOOKED_UP_MAX: u64 = (LOOKED_UP as u64 - 1) * OBJECT_ALIGN_BYTES;
static BY_SIXTEENTHS: [u8; LOOKED_UP] = by_sixteenths();

const fn by_sixteenths() -> [u8; LOOKED_UP] {
    let mut classes = [0; LOOKED_UP];
    let mut sixteenths = 0;
    while sixteenths < LOOKED_UP {
        let bytes = sixteenths as u64 * OBJECT_ALIGN_BYTES;
        let grains = if bytes == 0 { 1 } else { bytes.div_ceil(GRAIN_BYTES) };
        let mut class = grains as usize - 1;
        let mut shared = SHARED.len();
        while shared > 0 {
            shared -= 1;
            if bytes <= SHARED[shared] && SHARED[shared] < grains * GRAIN_BYTES {
                class = FIRST_SHARED + shared;
            }
        }
        classes[sixteenths] = class as u8;
        sixteenths += 1;
    }
    classes
}

/// The smallest class that holds `bytes`; `None` if the object needs a run of spans for itself.
pub(crate) fn class_of(bytes: u64) -> Option<usize> {
    if bytes <= LOOKED_UP_MAX {
        return Some(usize::from(BY_SIXTEENTHS[bytes.div_ceil(OBJECT_ALIGN_BYTES) as usize]));
    }
    if bytes <= WHOLE_MAX {
        return Some(bytes.div_ceil(GRAIN_BYTES) as usize - 1);
    }
    if bytes > SPAN_BYTES {
        return None;
    }
    // Four classes lie between 2^log and 2^(log+1).
    let log = 63 - (bytes - 1).leading_zeros() as usize;
    let step = (bytes - 1 - (1 << log)) >> (log - 2);
    Some(WHOLE + (log - 11) * 4 + step as usize)
}

/// Bytes of each slot of a class.
pub(crate) fn class_bytes(class: usize) -> u64 {
    if class < WHOLE {
        return (class as u64 + 1) * GRAIN_BYTES;
    }
    if class >= FIRST_SHARED {
        return SHARED[class - FIRST_SHARED];
    }
    let (log, step) = (11 + (class - WHOLE) / 4, (class - WHOLE) % 4);
    (1 << log) + ((step as u64 + 1) << (log - 2))
}

/// Spans of one run of a class: more than one where slots would waste over an eighth of a single
/// span.
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
        let mut sizes: Vec<u64> = (0..CLASSES).map(class_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        assert_eq!(sizes.len(), CLASSES);
        for bytes in 0..=SPAN_BYTES {
            let class = class_of(bytes).unwrap();
            let fits = sizes.iter().find(|size| **size >= bytes);
            assert_eq!(Some(&class_bytes(class)), fits, "{bytes}");
        }
        assert_eq!(class_of(SPAN_BYTES + 1), None);
        assert_eq!(class_bytes(class_of(SPAN_BYTES).unwrap()), SPAN_BYTES);
    }

    #[test]
    fn what_spans_on_media_name_keeps_its_meaning() {
        let sizes = |classes: std::ops::Range<usize>| classes.map(class_bytes).collect::<Vec<_>>();
        assert_eq!(sizes(0..WHOLE), (1..=32).map(|grains| grains * 64).collect::<Vec<_>>());
        assert_eq!(sizes(32..38), [2560, 3072, 3584, 4096, 5120, 6144]);
        assert_eq!(sizes(50..55), [57344, 65536, 32, 80, 96]);
        assert_eq!(CLASSES, 59);
    }

    #[test]
    fn slots_are_whole_grains_or_small_and_runs_waste_little() {
        for class in 0..CLASSES {
            let (bytes, run) = (class_bytes(class), class_spans(class) * SPAN_BYTES);
            let unit = if bytes < 256 { OBJECT_ALIGN_BYTES } else { GRAIN_BYTES };
            assert_eq!(bytes % unit, 0);
            assert!(run % bytes <= run / 8, "class {class}");
        }
    }
}
