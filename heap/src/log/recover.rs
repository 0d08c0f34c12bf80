//! Recovery of a heap that was there: the objects that are allocated, the transactions that hold,
//! and the engine's tables made anew.
//!
//! Everything up to the new generation's first store can be done again. A crash in the middle of a
//! recovery leaves the snapshot and the logs that the recovery read, and memory in which some
//! writes were put in place that will be put in place again.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Mutex, PoisonError};

use super::claim::claim;
use super::fold::{InChunk, flip, for_records};
use super::group::{Entry, is_inside, read_piece};
use super::link::{FoundLink, Link};
use super::logged::{Group, Logged, Recovered, stray};
use super::parallel::in_parallel;
use super::replay::{replay, whole_stamp};
use super::shadow::Folded;
use super::snapshot;
use super::spans::{Spans, header};
use crate::conventional::enter_bits;
use crate::core::{Core, free_chunks};
use crate::damage::{Damage, Findings, Remark};
use crate::engine::classes::{SPAN_BYTES, UNIT_BYTES};
use crate::error::HeapError;
use crate::layout::*;
use crate::memory::Durability;
use crate::sys::{self, LINE_BYTES};
use zerocopy::IntoBytes;

/// Recovers the heap, whose engine and logs are empty before.
pub(crate) fn recover(core: &Core, findings: &Findings) -> Result<Recovered, HeapError> {
    let same_boot = trusts_caches(core);
    if same_boot {
        // The last stores of the dead process may be in the caches only, and recovery builds on
        // them.
        core.memory.flush(0, core.layout.first_span() * SPAN_BYTES);
        core.memory.fence();
    }
    let mut found = Recovered { same_boot, ..Recovered::default() };
    let spans = Spans::read(core, findings)?;
    let mut folded = core.logs.fold();
    match core.conventional {
        Some(_) => enter_bits(&core.memory, core.layout, &folded, &spans.runs),
        None => enter_snapshot(core, &folded, &spans, findings)?,
    }
    let logged = read_logs(core, &folded, &spans, findings, &mut found)?;
    replay(core, &spans, &folded, &logged, findings, &mut found)?;
    settle_sums(&folded, findings)?;
    let generation = spans.generation;
    let clock = logged.groups.values().map(|group| group.seq + 1).max().unwrap_or(1);
    let clock = clock.max(spans.clock.unwrap_or(0) + 1);
    // A damaged word is made anew below.
    let settled = if spans.settled < CLOCK_MAX { spans.settled } else { 0 };
    let clock = clock.max(settled);
    core.logs.clock.store(clock, Release);
    core.logs.clock_folded.store(clock, Release);
    core.logs.settled.store(settled, Release);
    found.objects = claim(core, &folded, &spans, findings)?;
    // The chunks of a fold that was cut off are the room that this recovery's snapshot needs.
    free_chunks(core, &spans.stale);
    if spans.logs.is_empty() && spans.objects.is_empty() && findings.is_clean() {
        core.logs.generation.store(generation, Release);
        folded.chunks = spans.snapshot.clone();
        core.logs.set_due(folded.chunks.len() as u64 * CHUNK_BYTES, core.config.log_bytes_max);
        return Ok(found);
    }
    // This is neither the generation of the old logs nor the next one, which may have logs, too.
    core.logs.generation.store(generation + 2, Release);
    let logged_bytes = spans.logs.len() as u64 * CHUNK_BYTES;
    folded.chunks = spans.snapshot.clone();
    let (used, spare, bytes) = match core.conventional {
        Some(_) => (Vec::new(), Vec::new(), 0),
        None => snapshot::write(core, &folded, snapshot::reserve(core, &folded, logged_bytes)?),
    };
    core.memory.persist_word(AT_CLOCK, sealed(clock));
    core.memory.persist_word(AT_GENERATION, sealed(generation + 2));
    // This comes after the new generation: before it, a group whose objects were cut off would be
    // taken for one that is in place. The word is durable with the chunks that are freed below.
    core.memory.store_word(AT_SETTLED, sealed(clock));
    core.memory.flush(AT_SETTLED, 8);
    core.logs.settled.store(clock, Release);
    let logs = spans.logs.iter().map(|log| log.chunk);
    let old: Vec<u64> = logs.chain(spans.objects).chain(spans.snapshot).chain(spare).collect();
    free_chunks(core, &old);
    folded.chunks = used;
    core.logs.set_due(bytes, core.config.log_bytes_max);
    Ok(found)
}

/// Whether all stores of the last process are there, flushed or not.
fn trusts_caches(core: &Core) -> bool {
    let boot = core.config.boot_id.unwrap_or_else(sys::boot_id);
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

/// Decides about objects that were allocated or freed twice: an object that was allocated at all is
/// kept.
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

/// Reads the word logs. Their records are applied, and their groups are returned.
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
            InChunk::Link(link, stamp) => {
                pieces.push(link.as_piece(whole_stamp(spans.clock_base(), stamp), stamp));
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
            // The dead process may not have written the log back, and nothing that follows from the
            // log may be durable before it.
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
            // If the word is damaged, no group of this log is put in place.
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

/// Checks the words behind the end of a log. They can only be left from the group or the link that
/// was being written, whose words arrive in any order, or from frees that were not durable.
/// Everything that was written before a group or a link began is durable before it, so nothing lies
/// behind a torn last piece or a torn link, and no group begins behind a torn one.
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
    if Link::begins(first) {
        let rest_of_line = ((end + 1).next_multiple_of(LINE_BYTES) - end) as usize / 8;
        return match (Link::read(&words[..rest_of_line]), used_behind(rest_of_line)) {
            (FoundLink::Torn, 0) => {
                findings.remark(Remark::Torn { chunk, offset });
                Ok(())
            }
            _ => findings.meet(cut(used_behind(1))),
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::heap::Heap;
    use crate::log::group::{HEAD_WORDS, seal};
    use crate::memory::Memory;

    #[test]
    fn chunks_that_the_generation_does_not_name_are_free_after_a_recovery() -> Result<(), HeapError>
    {
        let open = |bytes: &[u8]| {
            let memory = Memory::copy_of_bytes(bytes)?;
            Heap::open(memory, Config::default())
        };
        let heap = Heap::open(Memory::anonymous(2 << 20, Durability::Flushed)?, Config::default())?;
        let object = heap.persist_alloc(100)?;
        heap.compact()?;
        let mut bytes = vec![0; 2 << 20];
        heap.memory().read(0, &mut bytes);
        let free_bytes = open(&bytes)?.stats().free_bytes;
        assert!(free_bytes > 1 << 20);
        let generation = heap.core.logs.generation_bits();
        let span = heap.core.layout.spans - 2;
        let at = heap.core.layout.table_word(span);
        assert_eq!(heap.core.memory.load(at), SpanWord::Free.encode());
        for stale in [
            SpanWord::Snapshot { generation: generation + 1 },
            SpanWord::Snapshot { generation: generation + 2 },
            SpanWord::Log { logger: 3, generation: generation + 2 },
            SpanWord::Log { logger: 3, generation: generation - 1 },
        ] {
            bytes[at as usize..][..8].copy_from_slice(&stale.encode().to_le_bytes());
            let heap = open(&bytes)?;
            assert_eq!(heap.core.memory.load(at), SpanWord::Free.encode(), "{stale:?}");
            assert_eq!(heap.stats().free_bytes, free_bytes, "{stale:?}");
            assert!(heap.is_object(object));
        }
        Ok(())
    }

    #[test]
    fn logs_of_many_objects_are_recovered_into_a_snapshot_of_several_chunks()
    -> Result<(), HeapError> {
        const LEN: u64 = 48 << 20;
        // Each has a word of its span to itself, so that a chunk describes some 120 spans.
        const OBJECTS: u64 = 40_000;
        let heap = Heap::open(Memory::anonymous(LEN, Durability::Flushed)?, Config::default())?;
        for _ in 0..OBJECTS {
            heap.persist_alloc(1_000)?;
        }
        heap.fence();
        let mut bytes = vec![0; LEN as usize];
        heap.memory().read(0, &mut bytes);
        let heap = Heap::open(Memory::copy_of_bytes(&bytes)?, Config::default())?;
        assert!(heap.core.logs.fold().chunks.len() > 3);
        heap.memory().read(0, &mut bytes);
        let heap = Heap::open(Memory::copy_of_bytes(&bytes)?, Config::default())?;
        let crate::heap::Opened::Recovered(found) = heap.opened() else { panic!("no heap") };
        assert_eq!(found.objects, OBJECTS);
        Ok(())
    }

    /// The words of [`check_end`] about what lies behind the end of a log.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Said {
        Nothing,
        Torn,
        Behind(u64),
        Cut(u64),
    }

    #[test]
    fn what_lies_behind_the_end_of_a_log_is_damage_unless_a_loss_of_power_leaves_it_there() {
        const LINE: usize = LINE_BYTES as usize / 8;
        /// Words of a whole piece that are not zero.
        const WHOLE: u64 = 2 * LINE as u64 - 1;
        let memory = Memory::anonymous(2 << 20, Durability::Flushed).unwrap();
        let heap = Heap::open(memory, Config::default()).unwrap();
        let chunk = (heap.core.layout.spans - 1) * SPAN_BYTES;
        // A piece of two lines, and the same with a word missing.
        let whole = |index, flags| {
            let mut words = vec![0; HEAD_WORDS];
            words.extend([Record::Alloc { unit: 7, stamp: 1 }.encode(); 2 * LINE - HEAD_WORDS]);
            seal(&mut words, 5, index, flags, 0);
            words
        };
        let torn = |flags| {
            let mut words = whole(0, flags);
            words[HEAD_WORDS + 1] = 0;
            words
        };
        let record = Record::Free { unit: 9, stamp: 1 }.encode();
        let link = Link { place: 4096, freed: Some(64), made: Some(128) }.encode(1).to_vec();
        let torn_link = vec![link[0], 0, link[2]];
        let zeros = |count| vec![0; count];
        let parts = |parts: &[Vec<u64>]| parts.concat();
        // Words behind the end, which is that of a line.
        let cases: Vec<(Vec<u64>, usize, Said)> = vec![
            (vec![], 0, Said::Nothing),
            (parts(&[zeros(1), vec![record]]), 0, Said::Behind(1)),
            (parts(&[zeros(LINE), vec![record; 3]]), 0, Said::Behind(3)),
            (vec![8], 0, Said::Cut(0)),
            (vec![8, record, 0, 0, record], 0, Said::Cut(2)),
            // The group that was being written, of which nothing comes after the last piece.
            (torn(0), 0, Said::Torn),
            (torn(GROUP_LAST), 0, Said::Torn),
            (parts(&[torn(0), vec![record]]), 0, Said::Torn),
            (parts(&[torn(0), whole(1, GROUP_LAST)]), 0, Said::Torn),
            (parts(&[torn(GROUP_LAST), vec![record]]), 0, Said::Cut(1)),
            (parts(&[torn(GROUP_LAST), zeros(LINE), vec![record; 2]]), 0, Said::Cut(2)),
            // No group begins behind one that is torn, or behind frees that are missing.
            (parts(&[torn(0), whole(0, GROUP_LAST)]), 0, Said::Cut(13 + WHOLE)),
            (parts(&[zeros(LINE), whole(0, 0)]), 0, Said::Cut(WHOLE)),
            (parts(&[zeros(3), whole(0, 0)]), 5, Said::Cut(WHOLE)),
            // These words are a group nowhere but where a line begins.
            (parts(&[zeros(3), whole(0, 0)]), 0, Said::Behind(WHOLE)),
            // A link, which is durable before anything behind it.
            (torn_link.clone(), 0, Said::Torn),
            (torn_link.clone(), 5, Said::Torn),
            (parts(&[torn_link.clone(), zeros(5), vec![record]]), 0, Said::Cut(2)),
            (parts(&[torn_link, vec![record]]), 5, Said::Cut(2)),
            (vec![link[0] ^ 1 << 50, link[1], link[2]], 0, Said::Cut(2)),
        ];
        for (words, in_line, expected) in cases {
            let end = CHUNK_HEAD + 2 * LINE_BYTES + in_line as u64 * 8;
            heap.core.memory.zero(chunk, CHUNK_BYTES);
            heap.core.memory.write(chunk + end, words.as_bytes());
            let findings = Findings::collected();
            check_end(&heap.core, chunk, end, &findings).unwrap();
            let found = findings.into_found();
            let offset = chunk + end;
            let said = match (&found.damage[..], &found.remarks[..]) {
                ([], []) => Said::Nothing,
                ([], [Remark::Torn { chunk: c, offset: o }]) if (*c, *o) == (chunk, offset) => {
                    Said::Torn
                }
                ([], [Remark::Behind { offset: o, words, .. }]) if *o == offset => {
                    Said::Behind(*words)
                }
                ([Damage::LogCut { offset: o, value, words: behind, .. }], [])
                    if (*o, *value) == (offset, words[0]) =>
                {
                    Said::Cut(*behind)
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(said, expected, "{words:x?} from word {in_line} of a line");
        }
        // A log that fills its chunk has nothing behind it.
        check_end(&heap.core, chunk, CHUNK_BYTES, &Findings::strict()).unwrap();
    }
}
