//! Checking a heap of slots in a region's bytes: its header, its span table, its undo logs.
//!
//! The heap keeps no list of the objects that are allocated. They can be checked only by following
//! the store's index, which opening the store does.

use perdura_region::BLOCK_BYTES;

use crate::layout::{
    AT_LANES, AT_MAGIC, AT_SPANS, AT_TABLE, AT_VERSION, BLOCK_SPANS, MAGIC, SPAN_BYTES, VERSION,
    header_blocks,
};
use crate::log::read;
use crate::span_word::SpanWord;

/// A word of a heap of slots that no correct program writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} at {offset:#x} holds the impossible value {value:#x}")]
pub struct SlotsDamage {
    /// Table that the word belongs to: `header`, `span table` or `undo log`.
    pub what: &'static str,
    /// Offset of the word in the region.
    pub offset: u64,
    /// The word found.
    pub value: u64,
}

/// The findings of a check of a heap of slots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlotsReport {
    /// Lanes that the heap was made for, the meta lane included.
    pub lanes: u64,
    /// Spans that hold slots.
    pub small_spans: u64,
    /// Spans that hold large objects.
    pub large_spans: u64,
    /// Spans that belong to no lane, within the region's present size.
    pub free_spans: u64,
    /// Operations that were cut off and will be undone when the heap is opened.
    pub unfinished: u64,
    /// Words that no correct program writes.
    pub damage: Vec<SlotsDamage>,
}

/// Whether a region's bytes begin as a heap of slots does.
pub fn is_slots_heap(bytes: &[u8]) -> bool {
    word(bytes, AT_MAGIC) == MAGIC
}

/// Checks the heap of slots in a region's bytes.
pub fn region_bytes(bytes: &[u8]) -> SlotsReport {
    let mut report = SlotsReport { lanes: word(bytes, AT_LANES), ..SlotsReport::default() };
    let mut wrong = |what, offset| {
        let value = word(bytes, offset);
        report.damage.push(SlotsDamage { what, offset, value });
    };
    let (version, spans_max) = (word(bytes, AT_VERSION), word(bytes, AT_SPANS));
    if version != VERSION {
        wrong("header", AT_VERSION);
    }
    let spans = bytes.len() as u64 / SPAN_BYTES;
    let header = header_blocks(spans_max);
    if header >= spans / BLOCK_SPANS || spans_max < spans {
        wrong("header", AT_SPANS);
        return report;
    }
    let shards = word(bytes, AT_LANES).wrapping_sub(1);
    if shards == 0 || shards > u64::from(u16::MAX) || header + shards > spans / BLOCK_SPANS {
        wrong("header", AT_LANES);
        return report;
    }
    check_table(bytes, (header + shards) * BLOCK_SPANS, spans, &mut report);
    let at = |offset: u64, len: usize| {
        let start = usize::try_from(offset).ok()?;
        bytes.get(start..start.checked_add(len)?)
    };
    for lane in 0..shards {
        let head = (header + lane) * BLOCK_BYTES;
        match read(&at, head) {
            Ok(entries) => report.unfinished += u64::from(!entries.is_empty()),
            Err((offset, value)) => {
                report.damage.push(SlotsDamage { what: "undo log", offset, value });
            }
        }
    }
    report
}

fn check_table(bytes: &[u8], first: u64, spans: u64, report: &mut SlotsReport) {
    let mut span = first;
    // The end of the run before, and its lane.
    let mut before = (first, None);
    while span < spans {
        let offset = AT_TABLE + span * 8;
        let value = word(bytes, offset);
        let decoded = SpanWord::from_table(value).filter(|word| {
            // The last lane is the meta lane, which has no objects.
            word.run().is_none_or(|(lane, len)| {
                let shares_block = span / BLOCK_SPANS * BLOCK_SPANS < before.0;
                u64::from(lane.0) + 1 < report.lanes
                    && span + len <= spans
                    && !(shares_block && before.1.is_some_and(|before| before != lane))
            })
        });
        let len = match decoded {
            Some(SpanWord::Small { spans: len, .. }) => {
                report.small_spans += u64::from(len);
                u64::from(len)
            }
            Some(SpanWord::Large { spans: len, .. }) => {
                report.large_spans += u64::from(len);
                u64::from(len)
            }
            Some(SpanWord::Free) => {
                report.free_spans += 1;
                1
            }
            None => {
                report.damage.push(SlotsDamage { what: "span table", offset, value });
                1
            }
        };
        for later in span + 1..span + len {
            let offset = AT_TABLE + later * 8;
            let value = word(bytes, offset);
            if value != 0 {
                report.damage.push(SlotsDamage { what: "span table", offset, value });
            }
        }
        span += len;
        if let Some((lane, _)) = decoded.and_then(SpanWord::run) {
            before = (span, Some(lane));
        }
    }
}

fn word(bytes: &[u8], at: u64) -> u64 {
    let word = usize::try_from(at).ok().and_then(|at| bytes.get(at..at + 8));
    word.and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}
