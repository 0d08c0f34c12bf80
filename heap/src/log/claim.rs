//! Entering the runs, the objects and the logs' own spans that a recovery found in the engine.

use std::sync::atomic::{AtomicUsize, Ordering::*};

use super::parallel::in_parallel;
use super::shadow::Folded;
use super::spans::Spans;
use crate::compartments::Compartment;
use crate::core::Core;
use crate::damage::{Damage, Findings};
use crate::engine::Kind;
use crate::engine::classes::{SPAN_BYTES, UNIT_BYTES, class_info};
use crate::error::HeapError;
use crate::layout::*;
use crate::ptr::Offset;

/// Enters every run and its objects in the engine; a run without objects is free. Returns the
/// number of objects.
pub(super) fn claim(
    core: &Core,
    folded: &Folded,
    spans: &Spans,
    findings: &Findings,
) -> Result<u64, HeapError> {
    let objects = AtomicUsize::new(0);
    for log in &spans.logs {
        core.engine.claim_spans(Kind::Persistent, log.chunk / SPAN_BYTES, 1);
    }
    for chunk in spans.snapshot.iter().chain(&spans.objects).chain(&spans.stale) {
        core.engine.claim_spans(Kind::Persistent, chunk / SPAN_BYTES, 1);
    }
    in_parallel(core, &spans.runs, |(start, word)| {
        let found = claim_run(core, folded, *start, *word)?;
        objects.fetch_add(found, Relaxed);
        Ok(())
    })?;
    for span in &spans.broken {
        set_free(core, *span);
    }
    core.memory.fence();
    let objects = objects.into_inner() as u64;
    let words = folded.touched_spans().flat_map(|span| folded.of_span(span));
    let marked: u64 = words.map(|word| u64::from(word.load(Relaxed).count_ones())).sum();
    if marked != objects {
        drop_strays(folded, spans, findings)?;
    }
    Ok(objects)
}

fn set_free(core: &Core, span: u64) {
    let at = core.layout.table_word(span);
    core.memory.store_word(at, SpanWord::Free.encode());
    core.memory.flush(at, 8);
}

/// Takes objects out of the shadow that lie where no object can begin.
fn drop_strays(folded: &Folded, spans: &Spans, findings: &Findings) -> Result<(), HeapError> {
    let mut lost = (0, 0);
    let is_broken = findings.has(|damage| matches!(damage, Damage::SpanWord { .. }));
    for (index, word) in folded.shadow.iter().enumerate() {
        let mut bits = word.load(Relaxed);
        while bits != 0 {
            let unit = index as u64 * 64 + u64::from(bits.trailing_zeros());
            let bit = bits & bits.wrapping_neg();
            bits ^= bit;
            let offset = unit * UNIT_BYTES;
            if spans.unit_of(offset) == Some(unit) {
                continue;
            }
            word.fetch_and(!bit, Relaxed);
            if is_broken && spans.run_at(offset).is_none() {
                lost = (lost.0 + 1, if lost.0 == 0 { offset } else { lost.1 });
            } else {
                findings.meet(Damage::Stray { offset })?;
            }
        }
    }
    match lost {
        (0, _) => Ok(()),
        (objects, first) => findings.meet(Damage::SpanLost { objects, first }),
    }
}

fn claim_run(core: &Core, folded: &Folded, start: u64, word: SpanWord) -> Result<usize, HeapError> {
    let bit = |unit: u64| folded.shadow[(unit / 64) as usize].load(Relaxed) & 1 << (unit % 64) != 0;
    let first = start * SPAN_BYTES / UNIT_BYTES;
    let used = match word {
        SpanWord::Slots { class } => {
            let info = class_info(usize::from(class));
            let step = u64::from(info.bytes) / UNIT_BYTES;
            let is_used = |slot: u32| bit(first + u64::from(slot) * step);
            let used = (0..info.slots).filter(|slot| is_used(*slot)).count();
            if used > 0 {
                core.engine.claim_slots(start, usize::from(class), is_used);
            }
            used
        }
        SpanWord::Large { spans } => {
            let used = usize::from(bit(first));
            if used > 0 {
                core.engine.claim_large(start, spans);
            }
            used
        }
        SpanWord::Compartment { spans } => {
            core.engine.claim_spans(Kind::Persistent, start, u64::from(spans));
            core.compartments.enter(Compartment {
                kind: Kind::Persistent,
                offset: Offset::of(start * SPAN_BYTES),
                len_bytes: u64::from(spans) * SPAN_BYTES,
            });
            return Ok(0);
        }
        _ => 0,
    };
    if used == 0 {
        set_free(core, start);
    }
    Ok(used)
}

const _: () = assert!(SHADOW_WORDS as u64 * 64 * UNIT_BYTES == SPAN_BYTES);
