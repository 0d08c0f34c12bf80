//! Opening a heap that was there: what is allocated, which transactions hold, and the engine's
//! tables made anew.
//!
//! Everything up to the new generation's first store can be done again: a crash in the middle of a
//! recovery leaves the snapshot and logs it read, and memory in which some writes were put in place
//! already that will be again.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Mutex, PoisonError};

use super::claim::claim;
use super::fold::{InChunk, flip, for_records};
use super::group::{Entry, Piece, is_inside, read_piece};
use super::replay::replay;
use super::spans::{Spans, header};
use super::{Folded, snapshot};
use crate::core::{Core, free_chunks};
use crate::damage::{Damage, Findings, Remark};
use crate::engine::classes::{SPAN_BYTES, UNIT_BYTES};
use crate::error::HeapError;
use crate::layout::*;
use crate::memory::Durability;
use crate::sys::LINE_BYTES;
use zerocopy::IntoBytes;

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
pub(crate) fn recover(core: &Core, findings: &Findings) -> Result<Recovered, HeapError> {
    let same_boot = trusts_caches(core);
    if same_boot {
        // What the dead process stored last may be in the caches only, and what is done from here
        // on builds on it.
        core.memory.flush(0, core.layout.first_span() * SPAN_BYTES);
        core.memory.fence();
    }
    let mut found = Recovered { same_boot, ..Recovered::default() };
    let spans = Spans::read(core, findings)?;
    let mut folded = core.logs.fold();
    match core.conventional {
        Some(_) => crate::conventional::enter_bits(core, &folded, &spans.runs),
        None => enter_snapshot(core, &folded, &spans, findings)?,
    }
    let logged = read_logs(core, &folded, &spans, findings, &mut found)?;
    replay(core, &spans, &folded, &logged, findings, &mut found)?;
    settle_sums(&folded, findings)?;
    let generation = spans.generation;
    let clock = logged.groups.values().map(|group| group.seq + 1).max().unwrap_or(1);
    let clock = clock.max(spans.clock.unwrap_or(0) + 1);
    // Damaged, it is made anew below.
    let settled = if spans.settled < CLOCK_MAX { spans.settled } else { 0 };
    let clock = clock.max(settled);
    core.logs.clock.store(clock, Release);
    core.logs.clock_folded.store(clock, Release);
    core.logs.settled.store(settled, Release);
    found.objects = claim(core, &folded, &spans, findings)?;
    // Of a fold that was cut off: what it took is the room that this one needs.
    if !spans.stale.is_empty() {
        free_chunks(core, &spans.stale);
    }
    if spans.logs.is_empty() && spans.objects.is_empty() && findings.is_clean() {
        core.logs.generation.store(generation, Release);
        folded.chunks = spans.snapshot.clone();
        core.logs.set_due(folded.chunks.len() as u64 * CHUNK_BYTES, core.config.log_bytes_max / 2);
        return Ok(found);
    }
    // Neither the old logs' generation nor the next.
    core.logs.generation.store(generation + 2, Release);
    let logged_bytes = spans.logs.len() as u64 * CHUNK_BYTES;
    folded.chunks = spans.snapshot.clone();
    let (used, spare, bytes) = match core.conventional {
        Some(_) => (Vec::new(), Vec::new(), 0),
        None => snapshot::write(core, &folded, snapshot::reserve(core, &folded, logged_bytes)?),
    };
    core.memory.persist_word(AT_CLOCK, sealed(clock));
    core.memory.persist_word(AT_GENERATION, sealed(generation + 2));
    // Not before: a group that was found cut off in the object log would be taken for one that is
    // in place. Durable with what is freed below.
    core.memory.store_word(AT_SETTLED, sealed(clock));
    core.memory.flush(AT_SETTLED, 8);
    core.logs.settled.store(clock, Release);
    let logs = spans.logs.iter().map(|log| log.chunk);
    let old: Vec<u64> = logs.chain(spans.objects).chain(spans.snapshot).chain(spare).collect();
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

fn enter_snapshot(
    core: &Core,
    folded: &Folded,
    spans: &Spans,
    findings: &Findings,
) -> Result<(), HeapError> {
    if spans.generation == 0 {
        return Ok(());
    }
    let places = Mutex::new(Vec::new());
    in_parallel(core, &spans.snapshot, |chunk| {
        let read = snapshot::read(&core.memory, *chunk).and_then(|(index, count, body)| {
            snapshot::enter(folded, *chunk, &body)?;
            Ok((index, count))
        });
        match read {
            Ok(place) => {
                if let Ok(mut places) = places.lock() {
                    places.push(place);
                }
                Ok(())
            }
            Err(HeapError::Corrupt { offset, value, .. }) => {
                findings.meet(Damage::Snapshot { chunk: *chunk, offset, value })
            }
            Err(error) => Err(error),
        }
    })?;
    let places = places.into_inner().unwrap_or_default();
    let found = places.len() as u64;
    match snapshot::is_whole(places) {
        true => Ok(()),
        false => findings.meet(Damage::SnapshotMissing { generation: spans.generation, found }),
    }
}

/// Decides about objects that were allocated or freed twice: one that was allocated at all is kept.
fn settle_sums(folded: &Folded, findings: &Findings) -> Result<(), HeapError> {
    let place = |unit: u64| (folded.shadow.get((unit / 64) as usize), 1 << (unit % 64));
    let bit = |unit: u64| {
        let (word, bit) = place(unit);
        word.is_some_and(|word| word.load(Relaxed) & bit != 0)
    };
    for (unit, sum) in findings.wrong_sums(bit) {
        findings.meet(Damage::Sum { offset: unit * UNIT_BYTES, sum })?;
        if let (Some(word), bit) = place(unit) {
            match sum > 0 {
                true => {
                    folded.touch((unit * UNIT_BYTES / SPAN_BYTES) as usize);
                    word.fetch_or(bit, Relaxed)
                }
                false => word.fetch_and(!bit, Relaxed),
            };
        }
    }
    Ok(())
}

/// Where the changes of a group are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the log; in memory perhaps.
    Pending,
    /// In memory, which trusts its caches, perhaps not written back.
    InCaches,
    /// In memory, durably.
    Durable,
}

/// A transaction as far as its pieces were found, in order.
pub(super) struct Group {
    pub seq: u64,
    pub pieces: Vec<Piece>,
}

impl Group {
    /// Whether it committed or was undone: the last piece is there and none before it is missing.
    pub fn is_over(&self) -> bool {
        let whole = self.pieces.iter().zip(0..).all(|(piece, at)| piece.piece == at);
        whole && self.pieces.last().is_some_and(Piece::is_last)
    }

    /// Whether it was undone, and said so.
    pub fn is_undone(&self) -> bool {
        self.pieces.last().is_some_and(Piece::is_undone)
    }
}

/// What the word logs hold.
pub(super) struct Logged {
    /// By logger and sequence.
    pub groups: BTreeMap<(u16, u64), Group>,
    /// By logger: up to which sequence its groups are in memory, whose caches are trusted, perhaps
    /// not written back.
    pub applied: HashMap<u16, u64>,
}

impl Logged {
    /// Where the changes of a group that has committed are.
    pub fn place(&self, spans: &Spans, logger: u16, seq: u64) -> Place {
        if seq < spans.settled {
            Place::Durable
        } else if self.applied.get(&logger).is_some_and(|applied| seq <= *applied) {
            Place::InCaches
        } else {
            Place::Pending
        }
    }
}

/// Reads the word logs: records are applied, groups returned.
fn read_logs(
    core: &Core,
    folded: &Folded,
    spans: &Spans,
    findings: &Findings,
    found: &mut Recovered,
) -> Result<Logged, HeapError> {
    let all = Mutex::new(Logged { groups: BTreeMap::new(), applied: HashMap::new() });
    let records = AtomicUsize::new(0);
    let same_boot = found.same_boot;
    in_parallel(core, &spans.logs, |log| {
        let chunk = log.chunk;
        if header(core, findings, chunk, AT_CLEARING)? == Some(1) {
            return Ok(());
        }
        let applied = header(core, findings, chunk, AT_APPLIED)?;
        let mut pieces = Vec::new();
        let mut strays = Vec::new();
        let end = for_records(&core.memory, chunk, |what| match what {
            InChunk::Record(record) => {
                if !flip(folded, record) {
                    strays.push(record);
                }
                findings.count(record);
                records.fetch_add(1, Relaxed);
            }
            InChunk::Piece(piece) => pieces.push(piece),
        });
        strays.into_iter().try_for_each(|record| findings.meet(stray(record)))?;
        check_end(core, chunk, end, findings)?;
        if let Some(piece) = pieces.iter().find(|piece| piece.seq >= CLOCK_MAX) {
            let value = piece.seq;
            findings.meet(Damage::LogCut { chunk, offset: chunk, value, words: 0 })?;
            pieces.clear();
        }
        if same_boot {
            // The dead process may not have written it back; nothing that follows from it may be
            // durable before it.
            core.memory.flush(chunk, end);
            let entries = pieces.iter().flat_map(|piece| &piece.entries);
            for entry in entries {
                if let Entry::Object { len, from, .. } = entry
                    && is_inside(&core.memory, *from, u64::from(*len))
                {
                    core.memory.flush(*from, u64::from(*len));
                }
            }
        }
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        if same_boot {
            // Damaged: nothing of it is put in place.
            let latest = all.applied.entry(log.logger).or_default();
            *latest = applied.unwrap_or(CLOCK_MAX).max(*latest);
        }
        for piece in pieces {
            let group = all
                .groups
                .entry((log.logger, piece.seq))
                .or_insert_with(|| Group { seq: piece.seq, pieces: Vec::new() });
            group.pieces.push(piece);
        }
        Ok(())
    })?;
    if same_boot {
        core.memory.fence();
    }
    found.records += records.into_inner() as u64;
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    for group in all.groups.values_mut() {
        group.pieces.sort_by_key(|piece| piece.piece);
    }
    Ok(all)
}

/// A record that no heap of this size has.
pub(super) fn stray(record: Record) -> Damage {
    match record {
        Record::Alloc { unit, .. } | Record::Free { unit, .. } => {
            Damage::Stray { offset: unit * UNIT_BYTES }
        }
        Record::Group { .. } => Damage::Stray { offset: 0 },
    }
}

/// Behind the end of a log there can only be what is left of the group that was being written,
/// whose lines arrive in any order, or of frees that were not durable. All that was written before
/// a group began is durable before it, so nothing lies behind a torn last piece, and no group
/// begins behind a torn one.
fn check_end(core: &Core, chunk: u64, end: u64, findings: &Findings) -> Result<(), HeapError> {
    if end >= CHUNK_BYTES {
        return Ok(());
    }
    let mut words = vec![0_u64; ((CHUNK_BYTES - end) / 8) as usize];
    core.memory.read(chunk + end, words.as_mut_bytes());
    let (offset, first) = (chunk + end, words[0]);
    let used_behind =
        |from: usize| words.iter().skip(from).filter(|word| **word != 0).count() as u64;
    let cut = |words| Damage::LogCut { chunk, offset, value: first, words };
    let begins_group = |at: &usize| {
        let is_line = (end + *at as u64 * 8).is_multiple_of(LINE_BYTES);
        is_line && read_piece(&words[*at..]).is_some_and(|piece| piece.piece == 0)
    };
    if used_behind(1) > 0 && (1..words.len()).any(|at| begins_group(&at)) {
        return findings.meet(cut(used_behind(1)));
    }
    match Record::decode(first) {
        Some(Record::Group { words: len, flags, .. }) => {
            match used_behind(usize::from(len).max(1)) {
                behind if behind > 0 && flags & GROUP_LAST != 0 => findings.meet(cut(behind))?,
                _ => findings.remark(Remark::Torn { chunk, offset }),
            }
        }
        _ if first != 0 => findings.meet(cut(used_behind(1)))?,
        _ => match used_behind(1) {
            0 => {}
            words => findings.remark(Remark::Behind { chunk, offset, words }),
        },
    }
    Ok(())
}

/// Runs `f` on all items, by several threads if there are many.
pub(super) fn in_parallel<T: Sync>(
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
            let Some(some) = items.get(from..(from + 16).min(items.len())) else { break };
            if some.is_empty() {
                break;
            }
            some.iter().try_for_each(&f)?;
        }
        // What it wrote back: the fences of whoever waits for it do not cover that.
        core.memory.fence();
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mine = work();
        others.into_iter().fold(mine, |so_far, other| {
            so_far.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    })
}
