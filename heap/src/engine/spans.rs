//! The contents of each span, in DRAM: a word for each span, a byte for each slot.
//!
//! A run of slots has a word in each of its spans, so that any slot finds its run, and so has a
//! large object. The byte of a slot says whether the slot is free, in a
//! thread's cache, or used, so a second free is seen.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};

use rustix::io::Errno;

use super::Kind;
use super::classes::{SLOTS_MAX, SPAN_BYTES, class_info};
use crate::sys::Table;

/// State of a slot that is free in its run.
pub(crate) const FREE: u8 = 0;
/// State of a slot that a thread keeps in its cache.
pub(crate) const CACHED: u8 = 1;
/// State of a slot that holds an object.
pub(crate) const USED: u8 = 2;

/// The contents of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    /// The span holds nothing.
    Nothing,
    /// The span holds slots of a class; its run begins `back` spans before.
    Slots { kind: Kind, class: u8, back: u8, states: u32 },
    /// The span begins an object of whole spans.
    Large { kind: Kind, spans: u32 },
    /// The span is a later one of an object of whole spans, which begins `back` spans before.
    Inside { back: u32 },
    /// The span is the heap's own, or a compartment's, and holds no object.
    Other,
}

impl Span {
    fn encode(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Slots { kind, class, back, states } => {
                1 | (kind as u64) << 2
                    | u64::from(class) << 8
                    | u64::from(back) << 16
                    | u64::from(states) << 32
            }
            Self::Large { kind, spans } => 2 | (kind as u64) << 2 | u64::from(spans) << 32,
            Self::Other => 3,
            Self::Inside { back } => 7 | u64::from(back) << 32,
        }
    }

    #[inline]
    fn decode(word: u64) -> Self {
        let kind = if word & 4 == 0 { Kind::Persistent } else { Kind::Capacity };
        let high = (word >> 32) as u32;
        match word & 3 {
            0 => Self::Nothing,
            1 => Self::Slots {
                kind,
                class: (word >> 8) as u8,
                back: (word >> 16) as u8,
                states: high,
            },
            2 => Self::Large { kind, spans: high },
            _ if word & 4 != 0 => Self::Inside { back: high },
            _ => Self::Other,
        }
    }
}

/// Fields of a run's entry that only the holder of its class's list uses.
pub(crate) mod listed {
    /// The number of free slots, without those in caches.
    pub const FREE: usize = 0;
    /// The next run of the list, by its first span plus one.
    pub const NEXT: usize = 1;
    /// The run before in the list, by its first span plus one.
    pub const BEFORE: usize = 2;
    /// The slot at which the search for free slots goes on.
    pub const CURSOR: usize = 3;
}

/// The contents of all spans.
#[derive(Debug)]
pub(crate) struct SpanTable {
    words: Table<AtomicU64>,
    pub lists: Table<[AtomicU32; 4]>,
    states: Table<AtomicU8>,
}

/// Bytes of the pieces that states are handed out in.
pub(crate) const STATES_PIECE: usize = 64;
/// Most states that a span needs: pieces of each size, for every use that a span ever had.
pub(crate) const STATES_PER_SPAN: u64 = SLOTS_MAX * 2;

impl SpanTable {
    pub fn new(spans: u64) -> Result<Self, Errno> {
        Ok(Self {
            words: Table::new(spans as usize)?,
            lists: Table::new(spans as usize)?,
            states: Table::new((spans * STATES_PER_SPAN) as usize)?,
        })
    }

    /// The number of spans that the table has room for.
    pub fn len(&self) -> u64 {
        self.words.len() as u64
    }

    #[inline]
    pub fn get(&self, span: u64) -> Span {
        self.words.get(span as usize).map_or(Span::Nothing, |word| Span::decode(word.load(Acquire)))
    }

    pub fn set(&self, span: u64, what: Span) {
        self.words[span as usize].store(what.encode(), Release);
    }

    /// Takes a large object out. Of several threads that free it one succeeds.
    pub fn remove_large(&self, span: u64, what: Span) -> bool {
        let word = &self.words[span as usize];
        word.compare_exchange(what.encode(), 0, AcqRel, Relaxed).is_ok()
    }

    /// Enters a large object.
    pub fn set_large(&self, start: u64, kind: Kind, spans: u32) {
        for back in 1..spans {
            self.set(start + u64::from(back), Span::Inside { back });
        }
        self.set(start, Span::Large { kind, spans });
    }

    /// Enters a run of slots.
    pub fn set_run(&self, start: u64, kind: Kind, class: usize, states: u32) {
        for back in 0..u64::from(class_info(class).spans) {
            let run = Span::Slots { kind, class: class as u8, back: back as u8, states };
            self.set(start + back, run);
        }
    }

    /// The state of a slot.
    #[inline]
    pub fn state(&self, states: u32, slot: u32) -> &AtomicU8 {
        &self.states[states as usize * STATES_PIECE + slot as usize]
    }

    /// The states of a run's slots.
    pub fn states_of(&self, states: u32, slots: u32) -> &[AtomicU8] {
        let at = states as usize * STATES_PIECE;
        &self.states[at..at + slots as usize]
    }

    /// The slot whose first byte is at `offset`.
    #[inline]
    pub fn slot_at(&self, offset: u64) -> Option<Slot> {
        let span = offset / SPAN_BYTES;
        let Span::Slots { kind, class, back, states } = self.get(span) else { return None };
        let start = span - u64::from(back);
        let slot = class_info(usize::from(class)).slot_at(offset - start * SPAN_BYTES)?;
        Some(Slot { kind, class: usize::from(class), start, states, slot })
    }
}

/// A slot that was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub kind: Kind,
    pub class: usize,
    pub start: u64,
    pub states: u32,
    pub slot: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_span_holds_comes_back() {
        let table = SpanTable::new(8).unwrap();
        for kind in [Kind::Persistent, Kind::Capacity] {
            for what in [
                Span::Nothing,
                Span::Slots { kind, class: 43, back: 2, states: u32::MAX },
                Span::Large { kind, spans: 1 << 24 },
                Span::Inside { back: 1 << 24 },
                Span::Other,
            ] {
                table.set(3, what);
                assert_eq!(table.get(3), what);
            }
        }
        assert_eq!(table.get(99), Span::Nothing);
    }
}
