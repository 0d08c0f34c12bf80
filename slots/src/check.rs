//! Checking the heap that the key-value store stands on, in a region's bytes: header, span table,
//! undo logs.
//!
//! It keeps no list of what is allocated, so nothing more can be said of it without the store's
//! index, which is walked when the store is opened.

use crate::classes::CLASSES;
use crate::layout::{
    AT_KINDS, AT_LANES, AT_MAGIC, AT_SPANS, AT_TABLE, AT_VERSION, LOG_BYTES, MAGIC, SPAN_BYTES,
    SpanWord, VERSION, VERSION_WHOLE_GRAINS,
};
use crate::log::read;

/// Something wrong with such a heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} at {offset:#x} holds the impossible value {value:#x}")]
pub struct SlotsDamage {
    /// `header`, `span table`, `undo log`.
    pub what: &'static str,
    /// Where in the region.
    pub offset: u64,
    /// What was found.
    pub value: u64,
}

/// What a check of such a heap found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlotsReport {
    /// Lanes.
    pub lanes: u64,
    /// Spans of slots.
    pub small_spans: u64,
    /// Spans of large objects.
    pub large_spans: u64,
    /// Spans that serve nobody, within the region's present size.
    pub free_spans: u64,
    /// Operations that were cut off and will be undone when it is opened.
    pub unfinished: u64,
    /// What is wrong.
    pub damage: Vec<SlotsDamage>,
}

/// Whether a region's bytes begin as such a heap.
pub fn is_slots_heap(bytes: &[u8]) -> bool {
    word(bytes, AT_MAGIC) == MAGIC
}

/// Checks such a heap.
pub fn region_bytes(bytes: &[u8]) -> SlotsReport {
    let mut report = SlotsReport { lanes: word(bytes, AT_LANES), ..SlotsReport::default() };
    let mut wrong = |what, offset| {
        let value = word(bytes, offset);
        report.damage.push(SlotsDamage { what, offset, value });
    };
    let (version, spans_max) = (word(bytes, AT_VERSION), word(bytes, AT_SPANS));
    if !(VERSION_WHOLE_GRAINS..=VERSION).contains(&version) {
        wrong("header", AT_VERSION);
    }
    let spans = bytes.len() as u64 / SPAN_BYTES;
    let table_end = spans_max.checked_mul(9).and_then(|len| len.checked_add(AT_TABLE));
    let header_spans = table_end.map(|end| end.div_ceil(SPAN_BYTES)).filter(|own| *own < spans);
    let Some(header_spans) = header_spans.filter(|_| spans_max >= spans) else {
        wrong("header", AT_SPANS);
        return report;
    };
    if word(bytes, AT_KINDS) != AT_TABLE + spans_max * 8 {
        wrong("header", AT_KINDS);
    }
    let shards = word(bytes, AT_LANES).wrapping_sub(1);
    if shards == 0 || shards > u64::from(u16::MAX) || header_spans + shards > spans {
        wrong("header", AT_LANES);
        return report;
    }
    check_table(bytes, header_spans + shards, spans, &mut report);
    let at = |offset: u64, len: usize| {
        let start = usize::try_from(offset).ok()?;
        bytes.get(start..start.checked_add(len)?)
    };
    for lane in 0..shards {
        let head = (header_spans + lane) * SPAN_BYTES;
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
    while span < spans {
        let offset = AT_TABLE + span * 8;
        let value = word(bytes, offset);
        let decoded = SpanWord::decode(value).filter(|word| match word {
            SpanWord::Free => true,
            SpanWord::Small { class, lane, spans: len } => {
                usize::from(*class) < CLASSES
                    && u64::from(lane.0) < report.lanes
                    && span + u64::from(*len) <= spans
            }
            SpanWord::Large { lane, spans: len } => {
                u64::from(lane.0) < report.lanes && span + u64::from(*len) <= spans
            }
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
        span += len;
    }
}

const _: () = assert!(LOG_BYTES < SPAN_BYTES);

fn word(bytes: &[u8], at: u64) -> u64 {
    let word = usize::try_from(at).ok().and_then(|at| bytes.get(at..at + 8));
    word.and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}
