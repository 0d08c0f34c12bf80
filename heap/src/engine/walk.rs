//! Going through all persistent objects, and finding the object around an offset quickly.
//!
//! The engine enters a large object in its first span only, so a caller that looks up many offsets
//! makes a [`Map`] first. Both show one moment only if no thread allocates or frees meanwhile.

use std::sync::atomic::Ordering::Relaxed;

use super::classes::{CLASSES, SPAN_BYTES, class_info};
use super::spans::{CACHED, Span, USED};
use super::{Engine, Kind};

/// The large persistent objects by first span and number of spans, ascending.
#[derive(Debug, Default)]
pub(crate) struct Map {
    large: Vec<(u64, u64)>,
}

/// How the runs of a class are filled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Filled {
    pub runs: u64,
    pub slots: u64,
    pub used: u64,
    /// Slots that threads keep to themselves.
    pub cached: u64,
}

impl Engine {
    /// Makes a map of the large objects.
    pub fn map(&self) -> Map {
        let mut large = Vec::new();
        for start in 0..self.spans.len() {
            if let Span::Large { kind: Kind::Persistent, spans } = self.spans.get(start) {
                large.push((start, u64::from(spans)));
            }
        }
        Map { large }
    }

    /// First byte and length of the persistent object that holds the byte at `offset`.
    #[inline]
    pub fn object_in(&self, map: &Map, offset: u64) -> Option<(u64, u64)> {
        let span = offset / SPAN_BYTES;
        match self.spans.get(span) {
            Span::Slots { .. } => self.object_around(offset),
            Span::Other => None,
            Span::Large { .. } | Span::Nothing => {
                let after = map.large.partition_point(|(start, _)| *start <= span);
                let (start, spans) = *map.large.get(after.checked_sub(1)?)?;
                (span < start + spans).then_some((start * SPAN_BYTES, spans * SPAN_BYTES))
            }
        }
    }

    /// Hands first byte and length of every persistent object to `each`, ascending.
    pub fn for_objects(&self, mut each: impl FnMut(u64, u64)) {
        for start in 0..self.spans.len() {
            match self.spans.get(start) {
                Span::Slots { kind: Kind::Persistent, class, back: 0, states } => {
                    let info = class_info(usize::from(class));
                    let bytes = u64::from(info.bytes);
                    let states = self.spans.states_of(states, info.slots);
                    for (slot, state) in states.iter().enumerate() {
                        if state.load(Relaxed) == USED {
                            each(start * SPAN_BYTES + slot as u64 * bytes, bytes);
                        }
                    }
                }
                Span::Large { kind: Kind::Persistent, spans } => {
                    each(start * SPAN_BYTES, u64::from(spans) * SPAN_BYTES);
                }
                _ => {}
            }
        }
    }

    /// How the runs of persistent memory are filled, by class.
    pub fn filled(&self) -> [Filled; CLASSES] {
        let mut filled = [Filled::default(); CLASSES];
        for start in 0..self.spans.len() {
            let Span::Slots { kind: Kind::Persistent, class, back: 0, states } =
                self.spans.get(start)
            else {
                continue;
            };
            let info = class_info(usize::from(class));
            let states = self.spans.states_of(states, info.slots);
            let count =
                |what: u8| states.iter().filter(|state| state.load(Relaxed) == what).count();
            let class = &mut filled[usize::from(class)];
            class.runs += 1;
            class.slots += u64::from(info.slots);
            class.used += count(USED) as u64;
            class.cached += count(CACHED) as u64;
        }
        filled
    }
}
