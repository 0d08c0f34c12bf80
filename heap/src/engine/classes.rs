//! Size classes of the dual-use heap: multiples of 16 B up to 128 B, then four for each doubling up
//! to 64 KiB.
//!
//! Above 128 B at most a fifth of an object's bytes is wasted. A class's slots lie in runs of one
//! to three spans, so that at most an eighth of a run is left over.

/// Bytes of a span; runs are made of spans.
pub(crate) const SPAN_BYTES: u64 = 64 << 10;
/// Every object's offset is a multiple of this many bytes.
pub(crate) const UNIT_BYTES: u64 = 16;
/// Number of size classes.
pub(crate) const CLASSES: usize = SMALL + 9 * 4;
/// Bytes of the largest class.
pub(crate) const CLASS_BYTES_MAX: u64 = 64 << 10;
/// Most slots of a run.
pub(crate) const SLOTS_MAX: u64 = SPAN_BYTES / UNIT_BYTES;

const SMALL: usize = 8;
const SMALL_MAX: u64 = SMALL as u64 * UNIT_BYTES;

/// Sizes of a class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Class {
    /// Bytes of each slot.
    pub bytes: u32,
    /// Slots of each run.
    pub slots: u32,
    /// Spans of each run.
    pub spans: u32,
    /// 2^32 / units of a slot, rounded up, by which a multiplication divides.
    reciprocal: u32,
    /// Most slots that a thread keeps to itself.
    pub cached_max: u32,
}

static TABLE: [Class; CLASSES] = table();
/// The class of each size up to 1 KiB, by units.
static BY_UNITS: [u8; 65] = by_units();

const fn bytes_of(class: usize) -> u64 {
    if class < SMALL {
        return (class as u64 + 1) * UNIT_BYTES;
    }
    let (doubling, step) = ((class - SMALL) / 4, (class - SMALL) % 4);
    let base = SMALL_MAX << doubling;
    base + (base / 4) * (step as u64 + 1)
}

const fn table() -> [Class; CLASSES] {
    let mut table = [Class { bytes: 0, slots: 0, spans: 0, reciprocal: 0, cached_max: 0 }; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let bytes = bytes_of(class);
        let mut spans = 1;
        while (spans * SPAN_BYTES) % bytes > spans * SPAN_BYTES / 8 {
            spans += 1;
        }
        let units = bytes / UNIT_BYTES;
        let wanted = (64 << 10) / bytes;
        table[class] = Class {
            bytes: bytes as u32,
            slots: (spans * SPAN_BYTES / bytes) as u32,
            spans: spans as u32,
            reciprocal: (1_u64 << 32).div_ceil(units) as u32,
            cached_max: if wanted < 8 {
                8
            } else if wanted > CACHED_MAX as u64 {
                CACHED_MAX as u32
            } else {
                wanted as u32
            },
        };
        class += 1;
    }
    table
}

/// Most slots of any class that a thread keeps to itself.
pub(crate) const CACHED_MAX: usize = 127;

const fn by_units() -> [u8; 65] {
    let mut classes = [0; 65];
    let mut units = 1;
    while units < 65 {
        let mut class = 0;
        while bytes_of(class) < units as u64 * UNIT_BYTES {
            class += 1;
        }
        classes[units] = class as u8;
        units += 1;
    }
    classes
}

/// The smallest class that holds `bytes`; `None` if the object needs a run of spans for itself.
#[inline]
pub(crate) fn class_of(bytes: u64) -> Option<usize> {
    if bytes <= 1024 {
        return Some(usize::from(BY_UNITS[bytes.div_ceil(UNIT_BYTES) as usize]));
    }
    if bytes > CLASS_BYTES_MAX {
        return None;
    }
    let log = 63 - (bytes - 1).leading_zeros() as usize;
    let step = (bytes - 1 - (1 << log)) >> (log - 2);
    Some(SMALL + (log - 7) * 4 + step as usize)
}

/// The smallest class that holds `bytes` and whose slots all lie at multiples of `align`.
pub(crate) fn class_aligned(bytes: u64, align: u64) -> Option<usize> {
    let first = class_of(bytes.max(1))?;
    (first..CLASSES).find(|class| u64::from(class_info(*class).bytes).is_multiple_of(align))
}

/// The sizes of a class.
#[inline]
pub(crate) fn class_info(class: usize) -> &'static Class {
    &TABLE[class]
}

impl Class {
    /// The slot that begins `inside` bytes from the run's first; `None` if no slot begins there.
    #[inline]
    pub fn slot_at(&self, inside: u64) -> Option<u32> {
        let slot = self.slot_holding(inside)?;
        (u64::from(slot) * u64::from(self.bytes) == inside).then_some(slot)
    }

    /// The slot that holds the byte at `inside`; `None` if the byte is behind all slots.
    #[inline]
    pub fn slot_holding(&self, inside: u64) -> Option<u32> {
        let units = inside / UNIT_BYTES;
        let slot =
            if self.bytes == 16 { units } else { (units * u64::from(self.reciprocal)) >> 32 };
        (slot < u64::from(self.slots)).then_some(slot as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        assert!(class_info(CLASSES - 1).bytes as u64 == CLASS_BYTES_MAX);
        for bytes in 1..=CLASS_BYTES_MAX {
            let class = class_of(bytes).unwrap();
            let naive = (0..CLASSES).find(|class| u64::from(class_info(*class).bytes) >= bytes);
            assert_eq!(Some(class), naive, "{bytes}");
        }
        assert_eq!(class_of(0), Some(0));
        assert_eq!(class_of(CLASS_BYTES_MAX + 1), None);
    }

    #[test]
    fn slots_are_found_as_by_division() {
        for class in 0..CLASSES {
            let info = class_info(class);
            let run = u64::from(info.spans) * SPAN_BYTES;
            assert!(u64::from(info.slots) <= SLOTS_MAX && info.cached_max as usize <= CACHED_MAX);
            assert!(run - u64::from(info.slots) * u64::from(info.bytes) <= run / 8, "{class}");
            for inside in 0..run {
                let slot = inside / u64::from(info.bytes);
                let starts = inside % u64::from(info.bytes) == 0 && slot < u64::from(info.slots);
                assert_eq!(info.slot_at(inside), starts.then_some(slot as u32), "{class} {inside}");
                let holding = (slot < u64::from(info.slots)).then_some(slot as u32);
                assert_eq!(info.slot_holding(inside), holding, "{class} {inside}");
            }
        }
    }

    #[test]
    fn aligned_classes_keep_their_alignment() {
        for align in [16, 32, 64, 256, 4096, 65536] {
            for bytes in [1, 100, 5000, 60_000] {
                let class = class_aligned(bytes, align).unwrap();
                assert!(u64::from(class_info(class).bytes) >= bytes);
                assert_eq!(u64::from(class_info(class).bytes) % align, 0);
            }
        }
    }
}
