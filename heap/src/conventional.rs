//! The conventional port: allocator metadata in persistent memory, flushed at every change. For
//! comparison.
//!
//! As pMem describes the port of jemalloc ("Porting DRAM allocators for NVM", about 4 flushes an
//! allocation): the bit of the slot, the counts in the run's header, the class's entry of current
//! runs, the chunk map's entry.
//!
//! Per span 640 B: a header line (objects, allocations so far, last offset) | a line of its class's
//! list | 512 B of bits, one for each 16 B.

use std::sync::Mutex;
use std::sync::atomic::Ordering::*;

use crate::core::Core;
use crate::engine::classes::{SPAN_BYTES, UNIT_BYTES};
use crate::layout::SpanWord;
use crate::log::{Folded, SHADOW_WORDS};

const AT_LIST: u64 = 64;
const AT_BITS: u64 = 128;

/// One lock for all: metadata in place is shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct Conventional {
    lock: Mutex<()>,
}

impl Conventional {
    /// Notes that the object at `offset` begins or ceases to exist; durable when this returns.
    pub fn note(&self, core: &Core, offset: u64, begins: bool) {
        let _held = self.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let memory = &core.memory;
        let at = core.layout.conventional_at(offset / SPAN_BYTES);
        let unit = offset % SPAN_BYTES / UNIT_BYTES;
        // The chunk map's entry and the class's list first, the bit last: it alone says what is
        // allocated.
        let map = core.layout.table_word(offset / SPAN_BYTES);
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

/// Enters what the bits say in the shadow, for the runs that there are.
pub(crate) fn enter_bits(core: &Core, folded: &Folded, runs: &[(u64, SpanWord)]) {
    for (start, word) in runs {
        let spans = match word {
            SpanWord::Slots { class } => {
                u64::from(crate::engine::classes::class_info(usize::from(*class)).spans)
            }
            _ => 1,
        };
        for span in *start..start + spans {
            folded.touch(span as usize);
            let bits = core.layout.conventional_at(span) + AT_BITS;
            for index in 0..SHADOW_WORDS {
                let value = core.memory.load(bits + index as u64 * 8);
                folded.shadow[span as usize * SHADOW_WORDS + index].store(value, Relaxed);
            }
        }
    }
}
