//! Conventional bookkeeping: allocator metadata in persistent memory, flushed at every change. It
//! serves for comparison.
//!
//! As pMem describes for jemalloc ("Porting DRAM allocators for NVM", about 4 flushes for each
//! allocation), a change writes the slot's bit, the counts in the run's header, the class's entry
//! of current runs, and the chunk map's entry.
//!
//! A span has 640 B: a header line (objects, allocations so far, last offset), a line of its
//! class's list, and 512 B of bits, one for each 16 B.

use std::sync::Mutex;
use std::sync::atomic::Ordering::*;

use crate::engine::classes::{SPAN_BYTES, UNIT_BYTES};
use crate::layout::{Layout, SHADOW_WORDS, SpanWord};
use crate::log::shadow::Folded;
use crate::memory::Memory;

const AT_LIST: u64 = 64;
const AT_BITS: u64 = 128;

/// The lock that all threads share, because they share the metadata in place.
#[derive(Debug, Default)]
pub(crate) struct Conventional {
    lock: Mutex<()>,
}

impl Conventional {
    /// Notes that the object at `offset` begins or ceases to exist; durable when this returns.
    pub fn note(&self, memory: &Memory, layout: Layout, offset: u64, begins: bool) {
        let _held = self.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let at = layout.conventional_at(offset / SPAN_BYTES);
        let unit = offset % SPAN_BYTES / UNIT_BYTES;
        // The bit alone says that the object is allocated, so it is written behind the chunk map's
        // entry and the class's list.
        let map = layout.table_word(offset / SPAN_BYTES);
        memory.store_word(map, memory.load(map));
        memory.flush(map, 8);
        memory.store_word(at + AT_LIST, offset);
        memory.flush(at + AT_LIST, 8);
        let count = memory.load(at).wrapping_add_signed(if begins { 1 } else { -1 });
        memory.store_word(at, count);
        memory.store_word(at + 8, memory.load(at + 8) + 1);
        memory.flush(at, 16);
        let word = at + AT_BITS + unit / 64 * 8;
        let bits = memory.load(word);
        let bit = 1 << (unit % 64);
        memory.store_word(word, if begins { bits | bit } else { bits & !bit });
        memory.flush(word, 8);
        memory.fence();
    }
}

/// Enters the bits of all runs in the shadow.
pub(crate) fn enter_bits(
    memory: &Memory,
    layout: Layout,
    folded: &Folded,
    runs: &[(u64, SpanWord)],
) {
    for (start, word) in runs {
        let spans = match word {
            SpanWord::Slots { class } => {
                u64::from(crate::engine::classes::class_info(usize::from(*class)).spans)
            }
            _ => 1,
        };
        for span in *start..start + spans {
            folded.touch(span as usize);
            let bits = layout.conventional_at(span) + AT_BITS;
            for index in 0..SHADOW_WORDS {
                let value = memory.load(bits + index as u64 * 8);
                folded.shadow[span as usize * SHADOW_WORDS + index].store(value, Relaxed);
            }
        }
    }
}
