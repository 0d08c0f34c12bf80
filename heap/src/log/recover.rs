//! Opening a heap that was there: what is allocated, which transactions hold, and the engine's tables made anew.
//!
//! Everything up to the new generation's first store can be done again: a crash in the middle of a recovery leaves the
//! snapshot and logs it read, and memory in which some writes were put in place already that will be again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use super::fold::{InChunk, flip, for_records};
use super::group::{Entry, Piece, is_inside, read_piece};
use super::{Folded, SHADOW_WORDS, snapshot};
use crate::compartment::Compartment;
use crate::config::Planted;
use crate::core::{Core, free_chunks};
use crate::engine::Kind;
use crate::engine::classes::{CLASSES, SPAN_BYTES, UNIT_BYTES, class_info};
use crate::error::HeapError;
use crate::layout::*;
use crate::memory::Durability;
use crate::ptr::Offset;

/// What a recovery found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Objects that are allocated.
    pub objects: u64,
    /// Records applied since the last fold.
    pub records: u64,
    /// Transactions that had committed and were put in place.
    pub redone: u64,
    /// Transactions that had not, and were undone.
    pub undone: u64,
    /// Whether the caches lived on: the process died, not the machine.
    pub same_boot: bool,
}

/// Recovers the heap; its engine and logs are empty before.
pub(crate) fn recover(core: &Core) -> Result<Recovered, HeapError> {
    let same_boot = trusts_caches(core);
    let mut found = Recovered { same_boot, ..Recovered::default() };
    let spans = Spans::read(core)?;
    let mut folded = core.logs.fold();
    match core.conventional {
        Some(_) => crate::conventional::enter_bits(core, &folded, &spans.runs),
        None => enter_snapshot(core, &folded, &spans)?,
    }
    let groups = read_logs(core, &folded, &spans, &mut found)?;
    replay(core, &spans, &folded, &groups, &mut found)?;
    let generation = core.memory.load(AT_GENERATION);
    let clock = groups.values().map(|group| group.seq + 1).max().unwrap_or(1);
    let clock = clock.max(core.memory.load(AT_CLOCK)).max(spans.stamp_max + 1);
    core.logs.clock.store(clock, Release);
    core.logs.clock_folded.store(clock, Release);
    found.objects = claim(core, &folded, &spans)?;
    if spans.logs.is_empty() && spans.stale.is_empty() {
        core.logs.generation.store(generation, Release);
        folded.chunks = spans.snapshot.clone();
        core.logs.set_due(folded.chunks.len() as u64 * CHUNK_BYTES, core.config.log_bytes_max / 2);
        return Ok(found);
    }
    // Neither the old logs' generation nor the next.
    core.logs.generation.store(generation + 2, Release);
    core.logs.since_fold_bytes.store(spans.logs.len() as u64 * CHUNK_BYTES, Relaxed);
    folded.chunks = spans.snapshot.clone();
    let (used, spare, bytes) = match core.conventional {
        Some(_) => (Vec::new(), Vec::new(), 0),
        None => snapshot::write(core, &folded, snapshot::reserve(core, &folded)?),
    };
    core.memory.persist_word(AT_CLOCK, clock);
    core.memory.persist_word(AT_GENERATION, generation + 2);
    let logs = spans.logs.iter().map(|log| log.chunk);
    let old: Vec<u64> = logs.chain(spans.stale).chain(spans.snapshot).chain(spare).collect();
    free_chunks(core, &old);
    folded.chunks = used;
    core.logs.set_due(bytes, core.config.log_bytes_max / 2);
    Ok(found)
}

/// Whether what the last process stored is all there, flushed or not.
fn trusts_caches(core: &Core) -> bool {
    let boot = core.config.boot_id.unwrap_or_else(crate::heap::boot_id);
    let last = [core.memory.load(AT_BOOT), core.memory.load(AT_BOOT + 8)];
    core.memory.durability() == Durability::Ordered || (boot == last && boot != [0, 0])
}

/// A chunk of a word log.
struct LogChunk {
    chunk: u64,
    logger: u16,
    /// Ascending by age within a logger.
    order: (u64, u64),
}

/// What the span table says.
struct Spans {
    runs: Vec<(u64, SpanWord)>,
    logs: Vec<LogChunk>,
    snapshot: Vec<u64>,
    /// Chunks that nothing refers to any more, and those of object logs.
    stale: Vec<u64>,
    stamp_max: u64,
}

impl Spans {
    fn read(core: &Core) -> Result<Self, HeapError> {
        let generation = core.memory.load(AT_GENERATION);
        let current = (generation & GENERATION_MASK) as u32;
        let next = ((generation + 1) & GENERATION_MASK) as u32;
        let mut found = Self {
            runs: Vec::new(),
            logs: Vec::new(),
            snapshot: Vec::new(),
            stale: Vec::new(),
            stamp_max: core.memory.load(AT_CLOCK),
        };
        let mut span = core.layout.first_span();
        while span < core.layout.spans {
            let at = core.layout.table_word(span);
            let value = core.memory.load(at);
            let corrupt = || HeapError::Corrupt { what: "span table", offset: at, value };
            let word = SpanWord::decode(value).ok_or_else(corrupt)?;
            let chunk = span * SPAN_BYTES;
            let len = match word {
                SpanWord::Free => 1,
                SpanWord::Slots { class } => {
                    let class = usize::from(class);
                    if class >= CLASSES {
                        return Err(corrupt());
                    }
                    found.runs.push((span, word));
                    u64::from(class_info(class).spans)
                }
                SpanWord::Large { spans } | SpanWord::Compartment { spans } => {
                    found.runs.push((span, word));
                    u64::from(spans)
                }
                SpanWord::Log { logger, generation } if [current, next].contains(&generation) => {
                    let order = core.memory.load(chunk + AT_ORDER);
                    let is_next = u64::from(generation == next);
                    found.logs.push(LogChunk { chunk, logger, order: (is_next, order) });
                    1
                }
                SpanWord::Snapshot { generation } if generation == current => {
                    found.snapshot.push(chunk);
                    1
                }
                SpanWord::Log { .. } | SpanWord::Objects { .. } | SpanWord::Snapshot { .. } => {
                    found.stale.push(chunk);
                    1
                }
            };
            if span + len > core.layout.spans {
                return Err(corrupt());
            }
            span += len;
        }
        found.logs.sort_unstable_by_key(|log| (log.logger, log.order));
        Ok(found)
    }

    /// The run that holds `offset`: its first span and word.
    fn run_at(&self, offset: u64) -> Option<(u64, SpanWord)> {
        let span = offset / SPAN_BYTES;
        let after = self.runs.partition_point(|(start, _)| *start <= span);
        let (start, word) = *self.runs.get(after.checked_sub(1)?)?;
        (span < start + run_spans(word)).then_some((start, word))
    }

    /// The unit at which the object begins that would hold `offset`; `None`: no object can.
    fn unit_of(&self, offset: u64) -> Option<u64> {
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
}

fn run_spans(word: SpanWord) -> u64 {
    match word {
        SpanWord::Slots { class } => u64::from(class_info(usize::from(class)).spans),
        SpanWord::Large { spans } | SpanWord::Compartment { spans } => u64::from(spans),
        _ => 1,
    }
}

fn enter_snapshot(core: &Core, folded: &Folded, spans: &Spans) -> Result<(), HeapError> {
    if core.memory.load(AT_GENERATION) == 0 {
        return Ok(());
    }
    let places = Mutex::new(Vec::new());
    in_parallel(core, &spans.snapshot, |chunk| {
        let (index, count, body) = snapshot::read(&core.memory, *chunk)?;
        snapshot::enter(folded, *chunk, &body)?;
        if let Ok(mut places) = places.lock() {
            places.push((index, count));
        }
        Ok(())
    })?;
    let mut places = places.into_inner().unwrap_or_default();
    places.sort_unstable();
    let count = places.len() as u64;
    let is_whole = count > 0 && places.iter().zip(0..).all(|(place, at)| *place == (at, count));
    if is_whole {
        return Ok(());
    }
    Err(HeapError::Corrupt { what: "snapshot", offset: AT_GENERATION, value: count })
}

/// Where the changes of a piece are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the log; in memory perhaps.
    Pending,
    /// In memory, which trusts its caches, perhaps not written back.
    InCaches,
    /// In memory, durably.
    Durable,
}

/// A transaction as far as its pieces were found, in order.
struct Group {
    seq: u64,
    pieces: Vec<(Piece, Place)>,
}

impl Group {
    /// Whether the last piece is there and none before it is missing.
    fn is_committed(&self) -> bool {
        let whole = self.pieces.iter().zip(0..).all(|((piece, _), at)| piece.piece == at);
        whole && self.pieces.last().is_some_and(|(piece, _)| piece.is_last())
    }

    /// Whether recovery must put it in place: its last piece lies behind what is in place already.
    fn is_pending(&self) -> bool {
        self.pieces.last().is_some_and(|(_, place)| *place == Place::Pending)
    }
}

/// Reads the word logs: records are applied, groups returned by logger and sequence.
fn read_logs(
    core: &Core,
    folded: &Folded,
    spans: &Spans,
    found: &mut Recovered,
) -> Result<BTreeMap<(u16, u64), Group>, HeapError> {
    let groups: Mutex<BTreeMap<(u16, u64), Group>> = Mutex::default();
    let records = AtomicUsize::new(0);
    let same_boot = found.same_boot;
    in_parallel(core, &spans.logs, |log| {
        let chunk = log.chunk;
        let mark = if same_boot { AT_APPLIED } else { AT_RETIRED };
        // Both are kept up: what is durably in place is in place in any case.
        let retired = core.memory.load(chunk + AT_RETIRED);
        let in_place = core.memory.load(chunk + mark).max(retired);
        let mut pieces = Vec::new();
        let end = for_records(&core.memory, chunk, |what| match what {
            InChunk::Record(record) => {
                flip(folded, record);
                records.fetch_add(1, Relaxed);
            }
            InChunk::Piece { at, words } => pieces.extend(read_piece(words).map(|p| (at, p))),
        });
        check_end(core, chunk, end)?;
        if same_boot {
            // The dead process may not have written it back; nothing that follows from it may be durable before it.
            core.memory.flush(chunk, end);
            let entries = pieces.iter().flat_map(|(_, piece)| &piece.entries);
            for entry in entries {
                if let Entry::Object { len, from, .. } = entry
                    && is_inside(&core.memory, *from, u64::from(*len))
                {
                    core.memory.flush(*from, u64::from(*len));
                }
            }
        }
        if let Ok(mut groups) = groups.lock() {
            for (at, piece) in pieces {
                let group = groups
                    .entry((log.logger, piece.seq))
                    .or_insert_with(|| Group { seq: piece.seq, pieces: Vec::new() });
                let place = if at >= in_place {
                    Place::Pending
                } else if at >= retired {
                    Place::InCaches
                } else {
                    Place::Durable
                };
                group.pieces.push((piece, place));
            }
        }
        Ok(())
    })?;
    if same_boot {
        core.memory.fence();
    }
    found.records += records.into_inner() as u64;
    let mut groups = groups.into_inner().unwrap_or_default();
    for group in groups.values_mut() {
        group.pieces.sort_by_key(|(piece, _)| piece.piece);
    }
    Ok(groups)
}

/// Behind the end of a log there can only be what is left of one piece that was cut off.
fn check_end(core: &Core, chunk: u64, end: u64) -> Result<(), HeapError> {
    if end >= CHUNK_BYTES {
        return Ok(());
    }
    let first = core.memory.load(chunk + end);
    let Some(Record::Group { words, .. }) = Record::decode(first) else { return Ok(()) };
    let mut at = end + u64::from(words) * 8;
    while at < CHUNK_BYTES {
        let value = core.memory.load(chunk + at);
        if value != 0 {
            return Err(HeapError::Corrupt { what: "log", offset: chunk + end, value: first });
        }
        at += 8;
    }
    Ok(())
}

/// Applies the groups that committed, and undoes the one of each log that had begun to change memory and had not.
fn replay(
    core: &Core,
    spans: &Spans,
    folded: &Folded,
    groups: &BTreeMap<(u16, u64), Group>,
    found: &mut Recovered,
) -> Result<(), HeapError> {
    let mut pending: Vec<&Group> = Vec::new();
    let newest: HashMap<&u16, u64> =
        groups.iter().map(|((logger, _), g)| (logger, g.seq)).collect();
    for ((logger, _), group) in groups {
        let is_undo = group.pieces.iter().any(|(piece, _)| piece.is_undo());
        if group.is_committed() {
            let objects_whole =
                || group.pieces.iter().all(|(piece, _)| piece.has_objects(&core.memory));
            if !is_undo && group.is_pending() && !objects_whole() {
                // Cut off in the object log: as if its last piece were missing.
                continue;
            }
            for entry in group.pieces.iter().flat_map(|(piece, _)| &piece.entries) {
                if let Entry::Record(record) = entry {
                    flip(folded, *record);
                    found.records += 1;
                }
            }
            if !is_undo && group.is_pending() {
                pending.push(group);
            } else if !is_undo {
                write_back(core, group);
            }
        } else if is_undo && newest.get(logger) == Some(&group.seq) {
            // With a later group in its log it had ended.
            undo(core, group)?;
            found.undone += 1;
        }
    }
    pending.sort_unstable_by_key(|group| group.seq);
    let born = births(core, spans, &pending);
    for group in &pending {
        redo(core, spans, folded, group, &born)?;
        found.redone += 1;
    }
    core.memory.fence();
    Ok(())
}

/// Writes the homes of a group back whose changes a dead process left in the caches: its log is about to be forgotten.
fn write_back(core: &Core, group: &Group) {
    let in_caches = group.pieces.iter().filter(|(_, place)| *place == Place::InCaches);
    for entry in in_caches.flat_map(|(piece, _)| &piece.entries) {
        let (offset, len) = match entry {
            Entry::Short { offset, len, .. } => (*offset, u64::from(*len)),
            Entry::Object { offset, len, .. } => (*offset, u64::from(*len)),
            Entry::Record(_) => continue,
        };
        if is_inside(&core.memory, offset, len) {
            core.memory.flush(offset, len);
        }
    }
}

/// For the objects that `pending` groups write to: the latest stamp with which each was allocated since the snapshot.
fn births(core: &Core, spans: &Spans, pending: &[&Group]) -> HashMap<u64, u64> {
    let mut born: HashMap<u64, u64> = pending
        .iter()
        .flat_map(|group| &group.pieces)
        .flat_map(|(piece, _)| &piece.entries)
        .filter_map(|entry| match entry {
            Entry::Short { offset, .. } | Entry::Object { offset, .. } => spans.unit_of(*offset),
            Entry::Record(_) => None,
        })
        .map(|unit| (unit, 0))
        .collect();
    if born.is_empty() {
        return born;
    }
    let base = core.memory.load(AT_CLOCK);
    let mut note = |record: Record| {
        if let Record::Alloc { unit, stamp } = record
            && let Some(latest) = born.get_mut(&unit)
        {
            *latest = (*latest).max(whole_stamp(base, stamp));
        }
    };
    for log in &spans.logs {
        for_records(&core.memory, log.chunk, |what| match what {
            InChunk::Record(record) => note(record),
            InChunk::Piece { words, .. } => {
                for entry in read_piece(words).iter().flat_map(|piece| &piece.entries) {
                    if let Entry::Record(record) = entry {
                        note(*record);
                    }
                }
            }
        });
    }
    born
}

/// A stamp's upper bits are those that bring it nearest to the clock of the generation's start.
fn whole_stamp(base: u64, stamp: u32) -> u64 {
    let ahead = u64::from(stamp).wrapping_sub(base) & STAMP_MASK;
    let half = 1 << (STAMP_BITS - 1);
    if ahead < half { base + ahead } else { (base + ahead).saturating_sub(1 << STAMP_BITS) }
}

fn redo(
    core: &Core,
    spans: &Spans,
    folded: &Folded,
    group: &Group,
    born: &HashMap<u64, u64>,
) -> Result<(), HeapError> {
    let first_object = core.layout.first_span() * SPAN_BYTES;
    for (piece, _) in &group.pieces {
        for entry in &piece.entries {
            let (offset, bytes) = match entry {
                Entry::Short { offset, len, value } => {
                    (*offset, value.to_le_bytes()[..usize::from(*len)].to_vec())
                }
                Entry::Object { offset, len, from } => {
                    let mut bytes = vec![0; *len as usize];
                    core.memory.read(*from, &mut bytes);
                    (*offset, bytes)
                }
                Entry::Record(_) => continue,
            };
            if !is_inside(&core.memory, offset, bytes.len() as u64) {
                return Err(HeapError::Corrupt { what: "log", offset, value: group.seq });
            }
            // Roots and other tables always count; objects only if they are the same ones still.
            let is_same = offset < first_object
                || matches!(spans.run_at(offset), Some((_, SpanWord::Compartment { .. })))
                || core.config.planted == Planted::ReplayIntoReused
                || spans.unit_of(offset).is_some_and(|unit| {
                    let is_allocated =
                        folded.shadow[(unit / 64) as usize].load(Relaxed) & 1 << (unit % 64) != 0;
                    is_allocated && born.get(&unit).is_none_or(|stamp| *stamp <= group.seq)
                });
            if is_same {
                core.memory.write(offset, &bytes);
                core.memory.flush(offset, bytes.len() as u64);
            }
        }
    }
    Ok(())
}

fn undo(core: &Core, group: &Group) -> Result<(), HeapError> {
    for (piece, _) in group.pieces.iter().rev() {
        if !piece.has_objects(&core.memory) {
            // Nothing was changed before this piece was durable.
            continue;
        }
        for entry in piece.entries.iter().rev() {
            let (offset, bytes) = match entry {
                Entry::Short { offset, len, value } => {
                    (*offset, value.to_le_bytes()[..usize::from(*len)].to_vec())
                }
                Entry::Object { offset, len, from } => {
                    let mut bytes = vec![0; *len as usize];
                    core.memory.read(*from, &mut bytes);
                    (*offset, bytes)
                }
                Entry::Record(_) => continue,
            };
            if !is_inside(&core.memory, offset, bytes.len() as u64) {
                return Err(HeapError::Corrupt { what: "log", offset, value: group.seq });
            }
            core.memory.write(offset, &bytes);
            core.memory.flush(offset, bytes.len() as u64);
        }
    }
    core.memory.fence();
    Ok(())
}

/// Enters every run and its objects in the engine; a run without any is free. Returns how many objects there are.
fn claim(core: &Core, folded: &Folded, spans: &Spans) -> Result<u64, HeapError> {
    let objects = AtomicUsize::new(0);
    for log in &spans.logs {
        core.engine.claim_spans(Kind::Persistent, log.chunk / SPAN_BYTES, 1);
    }
    for chunk in spans.snapshot.iter().chain(&spans.stale) {
        core.engine.claim_spans(Kind::Persistent, chunk / SPAN_BYTES, 1);
    }
    in_parallel(core, &spans.runs, |(start, word)| {
        let found = claim_run(core, folded, *start, *word)?;
        objects.fetch_add(found, Relaxed);
        Ok(())
    })?;
    let objects = objects.into_inner() as u64;
    let words = folded.touched_spans().flat_map(|span| folded.of_span(span));
    let marked: u64 = words.map(|word| u64::from(word.load(Relaxed).count_ones())).sum();
    if marked != objects {
        // An object where nothing can hold one.
        return Err(HeapError::Corrupt { what: "log", offset: AT_GENERATION, value: marked });
    }
    core.memory.fence();
    Ok(objects)
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
            core.enter_compartment(Compartment {
                kind: Kind::Persistent,
                offset: Offset::of(start * SPAN_BYTES),
                len_bytes: u64::from(spans) * SPAN_BYTES,
            });
            return Ok(0);
        }
        _ => 0,
    };
    if used == 0 {
        let at = core.layout.table_word(start);
        core.memory.store_word(at, SpanWord::Free.encode());
        core.memory.flush(at, 8);
    }
    Ok(used)
}

const _: () = assert!(SHADOW_WORDS as u64 * 64 * UNIT_BYTES == SPAN_BYTES);

/// Runs `f` on all items, by several threads if there are many.
fn in_parallel<T: Sync>(
    core: &Core,
    items: &[T],
    f: impl Fn(&T) -> Result<(), HeapError> + Sync,
) -> Result<(), HeapError> {
    const WORTH_A_THREAD: usize = 64;
    let most = match core.config.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let threads = most.min(items.len() / WORTH_A_THREAD).max(1);
    if threads == 1 {
        return items.iter().try_for_each(f);
    }
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let from = next.fetch_add(16, Relaxed);
            let Some(some) = items.get(from..(from + 16).min(items.len())) else { return Ok(()) };
            if some.is_empty() {
                return Ok(());
            }
            some.iter().try_for_each(&f)?;
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mine = work();
        others.into_iter().fold(mine, |so_far, other| {
            so_far.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    })
}
