//! The span table of a heap that is opened.

use super::snapshot;
use crate::core::Core;
use crate::damage::{Damage, Findings, Remark};
use crate::engine::classes::{CLASSES, SPAN_BYTES, UNIT_BYTES, class_info};
use crate::error::HeapError;
use crate::layout::*;

/// A chunk of a word log.
pub(super) struct LogChunk {
    pub chunk: u64,
    pub logger: u16,
}

/// The spans of a heap that is opened, by what they hold.
pub(super) struct Spans {
    /// The generation that counts, of snapshot and logs.
    pub generation: u64,
    /// The clock of transactions when the generation began; `None` if its word is damaged.
    pub clock: Option<u64>,
    /// The sequence below which all groups are settled.
    pub settled: u64,
    pub runs: Vec<(u64, SpanWord)>,
    pub logs: Vec<LogChunk>,
    pub snapshot: Vec<u64>,
    /// Offsets of the chunks of object logs.
    pub objects: Vec<u64>,
    /// Offsets of chunks that belong to no generation which counts.
    pub stale: Vec<u64>,
    /// Spans whose words no correct program writes, and spans inside a run whose words are not
    /// zero.
    pub broken: Vec<u64>,
}

impl Spans {
    pub fn read(core: &Core, findings: &Findings) -> Result<Self, HeapError> {
        let generation = generation(core, findings)?;
        let current = (generation & GENERATION_MASK) as u32;
        let next = ((generation + 1) & GENERATION_MASK) as u32;
        let mut found = Self {
            generation,
            clock: clock(core, findings, "clock", AT_CLOCK)?,
            // If the word is damaged, no group is put in place.
            settled: clock(core, findings, "settled clock", AT_SETTLED)?.unwrap_or(CLOCK_MAX),
            runs: Vec::new(),
            logs: Vec::new(),
            snapshot: Vec::new(),
            objects: Vec::new(),
            stale: Vec::new(),
            broken: Vec::new(),
        };
        let mut span = core.layout.first_span();
        while span < core.layout.spans {
            let offset = core.layout.table_word(span);
            let value = core.memory.load(offset);
            let word = SpanWord::decode(value).filter(|word| fits(core, span, *word));
            let Some(word) = word else {
                findings.meet(Damage::SpanWord { span, offset, value })?;
                found.broken.push(span);
                span += 1;
                continue;
            };
            let chunk = span * SPAN_BYTES;
            match word {
                SpanWord::Free => {}
                SpanWord::Slots { .. } | SpanWord::Large { .. } | SpanWord::Compartment { .. } => {
                    found.runs.push((span, word));
                }
                SpanWord::Log { logger, generation } if [current, next].contains(&generation) => {
                    found.logs.push(LogChunk { chunk, logger });
                }
                SpanWord::Snapshot { generation } if generation == current => {
                    found.snapshot.push(chunk);
                }
                SpanWord::Objects { .. } => found.objects.push(chunk),
                SpanWord::Log { .. } | SpanWord::Snapshot { .. } => found.stale.push(chunk),
            }
            let len = run_spans(word);
            found.look_inside(core, findings, span, len);
            span += len;
        }
        Ok(found)
    }

    /// Looks at the words of a run's later spans, which may be left over from earlier runs; a check
    /// names them.
    fn look_inside(&mut self, core: &Core, findings: &Findings, run: u64, len: u64) {
        for span in run + 1..run + len {
            let value = core.memory.load(core.layout.table_word(span));
            // A recovery does not need these words.
            if value != 0 && !findings.is_strict() {
                self.broken.push(span);
                findings.remark(Remark::Inside { span, run, value });
            }
        }
    }

    /// A time of the clock of transactions to which the stamps of links are near. If the clock of
    /// the generation's start is damaged, this is the time of the last settling.
    pub fn clock_base(&self) -> u64 {
        self.clock.unwrap_or(if self.settled < CLOCK_MAX { self.settled } else { 0 })
    }

    /// First span and word of the run that holds `offset`.
    pub fn run_at(&self, offset: u64) -> Option<(u64, SpanWord)> {
        let span = offset / SPAN_BYTES;
        let after = self.runs.partition_point(|(start, _)| *start <= span);
        let (start, word) = *self.runs.get(after.checked_sub(1)?)?;
        (span < start + run_spans(word)).then_some((start, word))
    }

    /// The unit at which the object begins whose slot holds `offset`; `None` if no object can lie
    /// there.
    pub fn unit_of(&self, offset: u64) -> Option<u64> {
        let (start, word) = self.run_at(offset)?;
        let inside = offset - start * SPAN_BYTES;
        let first = match word {
            SpanWord::Slots { class } => {
                let info = class_info(usize::from(class));
                u64::from(info.slot_holding(inside)?) * u64::from(info.bytes)
            }
            SpanWord::Large { .. } => 0,
            _ => return None,
        };
        Some((start * SPAN_BYTES + first) / UNIT_BYTES)
    }

    /// Whether a transaction may change a range, which must lie within roots, or within one run.
    pub fn may_change(&self, offset: u64, len: u64) -> bool {
        let Some(end) = offset.checked_add(len) else { return false };
        if offset < AT_TABLE {
            return offset >= AT_ROOTS && end <= AT_TABLE;
        }
        self.run_at(offset)
            .is_some_and(|(start, word)| end <= (start + run_spans(word)) * SPAN_BYTES)
    }
}

/// The number of spans of a run.
pub(crate) fn run_spans(word: SpanWord) -> u64 {
    match word {
        SpanWord::Slots { class } => u64::from(class_info(usize::from(class)).spans),
        SpanWord::Large { spans } | SpanWord::Compartment { spans } => u64::from(spans),
        _ => 1,
    }
}

fn fits(core: &Core, span: u64, word: SpanWord) -> bool {
    if let SpanWord::Slots { class } = word
        && usize::from(class) >= CLASSES
    {
        return false;
    }
    span + run_spans(word) <= core.layout.spans
}

/// A word of the header of a log's chunk; `None` if the word is damaged.
pub(super) fn header(
    core: &Core,
    findings: &Findings,
    chunk: u64,
    at: u64,
) -> Result<Option<u64>, HeapError> {
    let (offset, value) = (chunk + at, core.memory.load(chunk + at));
    let sound = unsealed(value).filter(|value| at != AT_CLEARING || *value <= 1);
    if sound.is_none() {
        findings.meet(Damage::LogHeader { chunk, offset, value })?;
    }
    Ok(sound)
}

fn clock(
    core: &Core,
    findings: &Findings,
    what: &'static str,
    offset: u64,
) -> Result<Option<u64>, HeapError> {
    let value = core.memory.load(offset);
    let clock = unsealed(value).filter(|clock| *clock < CLOCK_MAX);
    if clock.is_none() {
        findings.meet(Damage::Superblock { what, offset, value })?;
    }
    Ok(clock)
}

/// The generation that counts. If its word is damaged, this is the generation of the newest whole
/// snapshot.
fn generation(core: &Core, findings: &Findings) -> Result<u64, HeapError> {
    let value = core.memory.load(AT_GENERATION);
    if let Some(generation) = unsealed(value).filter(|generation| *generation < CLOCK_MAX) {
        return Ok(generation);
    }
    findings.meet(Damage::Superblock { what: "generation", offset: AT_GENERATION, value })?;
    let mut places: std::collections::BTreeMap<u32, Vec<(u64, u64)>> = Default::default();
    for span in core.layout.first_span()..core.layout.spans {
        let word = SpanWord::decode(core.memory.load(core.layout.table_word(span)));
        if let Some(SpanWord::Snapshot { generation }) = word
            && let Ok((index, count, _)) = snapshot::read(&core.memory, span * SPAN_BYTES)
        {
            places.entry(generation).or_default().push((index, count));
        }
    }
    // A snapshot is written before its spans' words, so the newest whole one has everything of
    // older ones.
    let whole = places.into_iter().filter(|(_, places)| snapshot::is_whole(places.clone()));
    Ok(whole.map(|(generation, _)| u64::from(generation)).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::heap::Heap;
    use crate::memory::{Durability, Memory};

    fn heap() -> Result<Heap, HeapError> {
        Heap::open(Memory::anonymous(2 << 20, Durability::Flushed)?, Config::default())
    }

    #[test]
    fn a_damaged_header_of_a_log_is_named_by_place_and_value() -> Result<(), HeapError> {
        let heap = heap()?;
        let (core, chunk) = (&heap.core, (heap.core.layout.spans - 1) * SPAN_BYTES);
        for (at, value, sound) in [
            (AT_CLEARING, sealed(0), Some(0)),
            (AT_CLEARING, sealed(1), Some(1)),
            (AT_CLEARING, sealed(2), None),
            (AT_CLEARING, 1, None),
            (AT_APPLIED, sealed(2), Some(2)),
            (AT_APPLIED, sealed(2) ^ 1 << 40, None),
        ] {
            core.memory.store_word(chunk + at, value);
            let findings = Findings::collected();
            assert_eq!(header(core, &findings, chunk, at)?, sound);
            let found = findings.into_found().damage;
            let named = found.iter().map(|damage| match damage {
                Damage::LogHeader { chunk, offset, value } => (*chunk, *offset, *value),
                other => panic!("{other}"),
            });
            let blamed = sound.is_none().then_some((chunk, chunk + at, value));
            assert!(named.eq(blamed), "{at} {value:#x}: {found:?}");
            assert_eq!(header(core, &Findings::strict(), chunk, at).is_err(), sound.is_none());
        }
        Ok(())
    }

    #[test]
    fn stamps_are_near_the_clock_or_if_it_is_damaged_near_the_last_settling()
    -> Result<(), HeapError> {
        let mut spans = Spans::read(&heap()?.core, &Findings::strict())?;
        for (clock, settled, base) in [
            (Some(1 << 40), 7, 1 << 40),
            (Some(0), 7, 0),
            (None, 1 << 40, 1 << 40),
            (None, CLOCK_MAX - 1, CLOCK_MAX - 1),
            // Both are damaged.
            (None, CLOCK_MAX, 0),
        ] {
            (spans.clock, spans.settled) = (clock, settled);
            assert_eq!(spans.clock_base(), base, "{clock:?} {settled}");
        }
        Ok(())
    }

    #[test]
    fn a_transaction_may_change_roots_and_whole_runs_and_nothing_else() -> Result<(), HeapError> {
        let heap = heap()?;
        let small = heap.persist_alloc(100)?.get();
        let large = heap.persist_alloc(3 * SPAN_BYTES)?.get();
        let spans = Spans::read(&heap.core, &Findings::strict())?;
        for (begin, end) in [(AT_ROOTS, AT_TABLE), (large, large + 3 * SPAN_BYTES)] {
            let len = end - begin;
            assert!(spans.may_change(begin, len) && spans.may_change(end - 1, 1));
            assert!(!spans.may_change(begin, len + 1), "{begin:#x}");
            assert!(!spans.may_change(end - 1, 2), "{begin:#x}");
            assert!(!spans.may_change(begin - 1, 1) || begin == large, "{begin:#x}");
        }
        assert!(!spans.may_change(0, 8) && !spans.may_change(AT_TABLE, 8));
        assert!(!spans.may_change(AT_ROOTS, u64::MAX) && !spans.may_change(large, u64::MAX));
        let free = (heap.core.layout.spans - 1) * SPAN_BYTES;
        assert!(!spans.may_change(free, 1));

        // An object is found by every byte of its slot, and by no other.
        let (start, word) = spans.run_at(small).unwrap_or((0, SpanWord::Free));
        let SpanWord::Slots { class } = word else { panic!("{word:?}") };
        let slot_bytes = u64::from(class_info(usize::from(class)).bytes);
        assert!(start <= small / SPAN_BYTES && slot_bytes >= 100);
        let unit = small / UNIT_BYTES;
        for (offset, found) in [
            (small, unit),
            (small + slot_bytes - 1, unit),
            (small + slot_bytes, unit + slot_bytes / UNIT_BYTES),
            (large, large / UNIT_BYTES),
            (large + 3 * SPAN_BYTES - 1, large / UNIT_BYTES),
        ] {
            assert_eq!(spans.unit_of(offset), Some(found), "{offset:#x}");
        }
        assert_eq!((spans.unit_of(AT_ROOTS), spans.unit_of(free)), (None, None));
        Ok(())
    }
}
