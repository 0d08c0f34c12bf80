//! The findings of a check, and their summary.

use std::fmt;

use super::{classes, recovered};
use crate::damage::{Damage, Findings, Remark};
use crate::engine::Kind;
use crate::engine::classes::SPAN_BYTES;
use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::SpanWord;
use crate::leaks::Leak;
use crate::log::logged::Recovered;
use crate::roots::Root;

/// Most leaks that a summary names.
const LEAKS_SHOWN: usize = 5;

/// The use of the runs of one size class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassUse {
    /// Bytes of each slot.
    pub slot_bytes: u64,
    /// Number of runs.
    pub runs: u64,
    /// Number of slots in these runs.
    pub slots: u64,
    /// Number of slots that hold an object.
    pub used: u64,
}

/// The use of the heap's spans of 64 KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpanUse {
    /// All spans, those of the heap's own tables included.
    pub total: u64,
    /// Spans of the heap's own tables.
    pub tables: u64,
    /// Spans in runs of slots.
    pub slots: u64,
    /// Spans of large objects.
    pub large: u64,
    /// Spans of persistent compartments.
    pub compartments: u64,
    /// Spans of logs and snapshots.
    pub logs: u64,
    /// Spans that hold nothing, with those of capacity memory, which is gone when a heap is closed.
    pub free: u64,
}

/// Objects to which no reference leads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeakCount {
    /// Number of leaks.
    pub objects: u64,
    /// Bytes of the slots of these leaks.
    pub bytes: u64,
    /// The first leaks, by offset.
    pub listed: Vec<Leak>,
}

/// The findings of a check.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// Bytes of the heap; 0 if it cannot be opened.
    pub len_bytes: u64,
    /// The findings of recovery; `None` if the heap cannot be opened.
    pub recovered: Option<Recovered>,
    /// Number of objects.
    pub objects: u64,
    /// Bytes of the slots of all objects.
    pub object_bytes: u64,
    /// The use of runs, by size class.
    pub classes: Vec<ClassUse>,
    /// Number of objects that take whole spans.
    pub large_objects: u64,
    /// The use of the heap's spans.
    pub spans: SpanUse,
    /// Named roots, without those that are damaged.
    pub roots: Vec<Root>,
    /// Number of persistent compartments.
    pub compartments: u64,
    /// Leaks; `None` if they were not searched for, because of damage.
    pub leaks: Option<LeakCount>,
    /// All damage, up to [`crate::FINDINGS_MAX`] findings.
    pub damage: Vec<Damage>,
    /// Number of further findings of damage.
    pub damage_more: u64,
    /// Findings that may be damage, or that a loss of power leaves.
    pub remarks: Vec<Remark>,
}

impl CheckReport {
    pub(super) fn unopened(findings: Findings, error: HeapError) -> Self {
        let mut report = Self::default();
        report.add(findings);
        report.damage.push(Damage::Unopenable(error));
        report
    }

    pub(super) fn of(heap: &Heap) -> Self {
        Self {
            len_bytes: heap.core.layout.spans * SPAN_BYTES,
            recovered: recovered(heap),
            ..Self::default()
        }
    }

    /// Counts the heap's contents, and searches for leaks.
    pub(super) fn look_at(&mut self, heap: &Heap) {
        self.classes = classes(heap);
        self.spans = spans(heap);
        let compartments = heap.compartments();
        self.compartments =
            compartments.iter().filter(|found| found.kind == Kind::Persistent).count() as u64;
        match (heap.roots(), heap.leaks()) {
            (Ok(roots), Ok(leaks)) => {
                self.roots = roots;
                self.objects = leaks.objects;
                self.object_bytes = leaks.object_bytes;
                let (objects, bytes) = (leaks.leaks, leaks.leaked_bytes);
                self.leaks = Some(LeakCount { objects, bytes, listed: leaks.listed });
            }
            (Err(error), _) | (_, Err(error)) => self.damage.push(Damage::Unopenable(error)),
        }
        let slots: u64 = self.classes.iter().map(|class| class.used).sum();
        self.large_objects = self.objects.saturating_sub(slots);
    }

    pub(super) fn add(&mut self, findings: Findings) {
        let found = findings.into_found();
        self.damage.extend(found.damage);
        self.damage_more += found.damage_more;
        self.remarks.extend(found.remarks);
    }

    /// Whether the heap has no damage. Leaks are no damage.
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }

    /// Whether all damage can be mended without losing objects.
    pub fn is_repairable(&self) -> bool {
        self.damage_more == 0 && self.damage.iter().all(Damage::is_repairable)
    }
}

fn spans(heap: &Heap) -> SpanUse {
    let layout = heap.core.layout;
    let mut spans =
        SpanUse { total: layout.spans, tables: layout.first_span(), ..SpanUse::default() };
    let mut span = layout.first_span();
    while span < layout.spans {
        let word = SpanWord::decode(heap.core.memory.load(layout.table_word(span)));
        let len = word.map_or(1, crate::log::spans::run_spans).clamp(1, layout.spans - span);
        match word {
            Some(SpanWord::Slots { .. }) => spans.slots += len,
            Some(SpanWord::Large { .. }) => spans.large += len,
            Some(SpanWord::Compartment { .. }) => spans.compartments += len,
            Some(SpanWord::Log { .. } | SpanWord::Objects { .. } | SpanWord::Snapshot { .. }) => {
                spans.logs += len
            }
            Some(SpanWord::Free) | None => spans.free += len,
        }
        span += len;
    }
    spans
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.len_bytes > 0 {
            writeln!(
                f,
                "heap of {} bytes: {} objects in {} bytes, {} roots, {} persistent compartments",
                self.len_bytes,
                self.objects,
                self.object_bytes,
                self.roots.len(),
                self.compartments
            )?;
        }
        if let Some(found) = &self.recovered {
            writeln!(
                f,
                "log: {} records, {} transactions to put in place, {} to undo",
                found.records, found.redone, found.undone
            )?;
        }
        if !self.classes.is_empty() || self.large_objects > 0 {
            let spans = &self.spans;
            writeln!(
                f,
                "spans of 64 KiB: {} of slots, {} of large objects, {} of compartments, {} of \
                 logs, {} of tables, {} free",
                spans.slots, spans.large, spans.compartments, spans.logs, spans.tables, spans.free
            )?;
            for class in &self.classes {
                writeln!(
                    f,
                    "  slots of {:>5} B: {:>9} of {:>9} used ({:.1} %), in {} runs",
                    class.slot_bytes,
                    class.used,
                    class.slots,
                    share(class.used, class.slots),
                    class.runs
                )?;
            }
            if self.large_objects > 0 {
                writeln!(f, "  large objects: {}", self.large_objects)?;
            }
        }
        match &self.leaks {
            None if self.len_bytes > 0 => writeln!(f, "leaks: not searched for")?,
            None => {}
            Some(leaks) => {
                writeln!(f, "leaks: {} objects in {} bytes", leaks.objects, leaks.bytes)?;
                for leak in leaks.listed.iter().take(LEAKS_SHOWN) {
                    writeln!(f, "  {}, {} bytes", leak.object, leak.len_bytes)?;
                }
            }
        }
        for remark in &self.remarks {
            writeln!(f, "note: {remark}")?;
        }
        for damage in &self.damage {
            writeln!(f, "damage: {damage}\n  repair: {}", damage.remedy())?;
        }
        if self.damage_more > 0 {
            writeln!(f, "damage: {} more findings", self.damage_more)?;
        }
        match self.is_sound() {
            true => write!(f, "sound"),
            false => write!(f, "damaged: {} findings", self.damage.len() as u64 + self.damage_more),
        }
    }
}
