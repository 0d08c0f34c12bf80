//! Size classes: multiples of 64 B up to 2 KiB, then eight for each doubling up to 8 KiB, where the
//! largest packed values are, and four up to 64 KiB; and, up to 256 B, some multiples of 16 B
//! between them.
//!
//! Slots of whole grains begin with a grain. Slots of the other classes share grains with their
//! neighbours, which saves memory: a clean neighbour's bytes are then written along with a dirty
//! slot's. For sizes 16 or 32 B above whole grains that costs nothing, because a slot lies in as
//! many grains as if its size were rounded up. At 48 B above, a slot would lie in half a grain more
//! on average, so there are no such classes. Each class costs each lane half a run, so there are no
//! shared classes above 256 B.
//!
//! A class apart has grains for parts of indexes.
//!
//! The first runs of a class are short, because a lane has few objects of most sizes; with the
//! class its runs grow to a block and a little more, so that a large class seldom asks for one.

use perdura_region::BLOCK_BYTES;

use crate::layout::{BLOCK_SPANS, GRAIN_BYTES, OBJECT_ALIGN_BYTES, SPAN_BYTES};

/// Number of size classes.
pub(crate) const CLASSES: usize = LASTING + 1;
/// The class of grains that outlive most objects of their size, which are parts of indexes. Among
/// values that grow into other classes they would keep nearly empty runs from going back.
pub(crate) const LASTING: usize = FIRST_SHARED + SHARED.len();
/// Classes whose sizes are all multiples of a grain. Behind them stand the classes of the later
/// doublings, and then those that share grains.
const WHOLE: usize = 32;
const WHOLE_MAX: u64 = WHOLE as u64 * GRAIN_BYTES;
/// The classes of which there are eight for each doubling end here.
const EIGHTHS_MAX: u64 = 8 << 10;
const FIRST_QUARTER: usize = WHOLE + 2 * 8;
const FIRST_SHARED: usize = FIRST_QUARTER + 3 * 4;
/// Slot bytes of the classes whose slots share grains.
const SHARED: [u64; 8] = [16, 32, 80, 96, 144, 160, 208, 224];
/// The next run of a class is to be one of so many, all of its length, that the class has.
const RUNS_OF_CLASS: u64 = 16;
/// Spans of each class's runs, from the short ones of a small class to those of about a block.
static RUN_SPANS: [[u8; RUN_LENGTHS]; CLASSES] = {
    let mut all = [[0; RUN_LENGTHS]; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let mut length = 0;
        while length < RUN_LENGTHS {
            all[class][length] = spans_from(class_bytes(class), 1 << length) as u8;
            length += 1;
        }
        class += 1;
    }
    all
};
/// Lengths that runs of a class may have.
const RUN_LENGTHS: usize = BLOCK_SPANS.ilog2() as usize + 1;
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
    if bytes > BLOCK_BYTES {
        return None;
    }
    // Eight classes, or four, lie between 2^log and 2^(log+1).
    let log = 63 - (bytes - 1).leading_zeros() as usize;
    let above = bytes - 1 - (1 << log);
    Some(match bytes <= EIGHTHS_MAX {
        true => WHOLE + (log - 11) * 8 + (above >> (log - 3)) as usize,
        false => FIRST_QUARTER + (log - 13) * 4 + (above >> (log - 2)) as usize,
    })
}

/// Bytes of each slot of a class.
pub(crate) const fn class_bytes(class: usize) -> u64 {
    if class < WHOLE {
        return (class as u64 + 1) * GRAIN_BYTES;
    }
    if class == LASTING {
        return GRAIN_BYTES;
    }
    if class >= FIRST_SHARED {
        return SHARED[class - FIRST_SHARED];
    }
    if class < FIRST_QUARTER {
        let (log, step) = (11 + (class - WHOLE) / 8, (class - WHOLE) % 8);
        return (1 << log) + ((step as u64 + 1) << (log - 3));
    }
    let (log, step) = (13 + (class - FIRST_QUARTER) / 4, (class - FIRST_QUARTER) % 4);
    (1 << log) + ((step as u64 + 1) << (log - 2))
}

/// Spans of the next run of a class that a lane has so many bytes of.
pub(crate) fn run_spans(class: usize, run_bytes: u64) -> u64 {
    let wanted = (run_bytes / RUNS_OF_CLASS / SPAN_BYTES).clamp(1, BLOCK_SPANS);
    u64::from(RUN_SPANS[class][wanted.ilog2() as usize])
}

/// Spans of the next shorter run of a class than one of so many spans, if there is one.
pub(crate) fn shorter_run_spans(class: usize, spans: u64) -> Option<u64> {
    RUN_SPANS[class].iter().rev().map(|shorter| u64::from(*shorter)).find(|some| *some < spans)
}

/// Whether a run of this class can have so many spans.
pub(crate) fn is_run(class: usize, spans: u64) -> bool {
    RUN_SPANS.get(class).is_some_and(|all| all.iter().any(|some| u64::from(*some) == spans))
}

/// Spans of a run that is to have at least so many: a part of a block of which slots leave no more
/// than a 16th unused; of a large class up to three blocks, of which they leave no more than a 32nd.
/// Where slots are too large for that it is the fewest blocks of which they leave no more than an
/// eighth. So runs of all lengths fit together in blocks.
const fn spans_from(slot_bytes: u64, wanted: u64) -> u64 {
    let mut spans = wanted;
    while spans <= BLOCK_SPANS && wanted < BLOCK_SPANS {
        if fill(slot_bytes, spans, 16) {
            return spans;
        }
        spans *= 2;
    }
    spans = BLOCK_SPANS;
    while spans <= 3 * BLOCK_SPANS && wanted == BLOCK_SPANS {
        if fill(slot_bytes, spans, 32) {
            return spans;
        }
        spans += BLOCK_SPANS;
    }
    spans = BLOCK_SPANS;
    while !fill(slot_bytes, spans, 8) {
        spans += BLOCK_SPANS;
    }
    spans
}

/// Whether slots fill a run but for one of so many parts.
const fn fill(slot_bytes: u64, spans: u64, parts: u64) -> bool {
    let run = spans * SPAN_BYTES;
    run >= slot_bytes && run % slot_bytes * parts <= run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        let mut sizes: Vec<u64> = (0..LASTING).map(class_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        assert_eq!(sizes.len(), LASTING);
        for bytes in 0..=BLOCK_BYTES {
            let class = class_of(bytes).unwrap();
            let fits = sizes.iter().find(|size| **size >= bytes);
            assert_eq!(Some(&class_bytes(class)), fits, "{bytes}");
        }
        assert_eq!(class_of(BLOCK_BYTES + 1), None);
        assert_eq!(class_bytes(class_of(BLOCK_BYTES).unwrap()), BLOCK_BYTES);
    }

    #[test]
    fn what_spans_on_media_name_keeps_its_meaning() {
        let sizes = |classes: std::ops::Range<usize>| classes.map(class_bytes).collect::<Vec<_>>();
        assert_eq!(sizes(0..WHOLE), (1..=32).map(|grains| grains * 64).collect::<Vec<_>>());
        assert_eq!(sizes(32..35), [2304, 2560, 2816]);
        assert_eq!(
            sizes(39..51),
            [4096, 4608, 5120, 5632, 6144, 6656, 7168, 7680, 8192, 10240, 12288, 14336]
        );
        assert_eq!(sizes(58..64), [57344, 65536, 16, 32, 80, 96]);
        assert_eq!((CLASSES, class_bytes(68)), (69, 64));
    }

    #[test]
    fn slots_are_whole_grains_or_small_and_runs_waste_little() {
        for (class, lengths) in RUN_SPANS.iter().enumerate() {
            let bytes = class_bytes(class);
            let unit = if bytes < 256 { OBJECT_ALIGN_BYTES } else { GRAIN_BYTES };
            assert_eq!(bytes % unit, 0);
            for (length, spans) in lengths.iter().enumerate() {
                let (spans, run) = (u64::from(*spans), u64::from(*spans) * SPAN_BYTES);
                let part = if bytes <= 4 << 10 { 16 } else { 8 };
                assert!(bytes <= run && run % bytes <= run / part, "class {class}: {run} B");
                assert!(is_run(class, spans) && (1 << length..=24).contains(&spans));
                assert!(spans.is_power_of_two() || spans.is_multiple_of(BLOCK_SPANS));
            }
            assert!(!is_run(class, 0) && !is_run(class, 3));
        }
    }

    #[test]
    fn runs_grow_with_their_class() {
        let spans = |kib: u64| run_spans(0, kib << 10);
        assert_eq!([0, 255, 256, 511, 512, 1024, 10_000].map(spans), [1, 1, 2, 2, 4, 8, 8]);
        assert_eq!([8, 9, 1].map(|spans| shorter_run_spans(0, spans)), [Some(4), Some(8), None]);
        // Slots of 3.5 KiB: nine fill four spans but for 512 B. Slots of 48 KiB: four fill 24.
        assert_eq!([3_500, 49_152].map(|bytes| run_spans(class_of(bytes).unwrap(), 0)), [4, 24]);
        assert!(!is_run(CLASSES, 1));
    }
}
