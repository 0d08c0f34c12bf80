//! Going through all persistent objects. That shows one moment only if no thread allocates or frees
//! meanwhile.

use std::sync::atomic::Ordering::Relaxed;

use super::classes::{CLASSES, SPAN_BYTES, class_info};
use super::spans::{CACHED, Span, USED};
use super::{Engine, Kind};

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
