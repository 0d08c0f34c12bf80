//! Putting the logged changes of transactions in place: redo forward by sequence, undo backward.

use std::collections::HashMap;
use std::sync::atomic::Ordering::*;

use super::fold::{InChunk, flip, for_records};
use super::group::{Entry, Piece, is_inside};
use super::logged::{Group, Logged, Place, Recovered, stray};
use super::shadow::Folded;
use super::spans::Spans;
use crate::config::Planted;
use crate::core::Core;
use crate::damage::{Damage, Findings, Remark};
use crate::engine::classes::SPAN_BYTES;
use crate::error::HeapError;
use crate::layout::*;

/// Applies the groups that committed, and undoes, in each log, the group that had begun to change
/// memory and had not committed.
pub(super) fn replay(
    core: &Core,
    spans: &Spans,
    folded: &Folded,
    logged: &Logged,
    findings: &Findings,
    found: &mut Recovered,
) -> Result<(), HeapError> {
    let mut pending: Vec<&Group> = Vec::new();
    let newest: HashMap<u16, u64> =
        logged.groups.iter().map(|((logger, _), group)| (*logger, group.seq)).collect();
    for ((logger, seq), group) in &logged.groups {
        let is_undo = group.pieces.iter().any(Piece::is_undo);
        let place = logged.place(spans, *logger, *seq);
        if group.is_over() {
            if group.is_undone() {
                continue;
            }
            let objects_whole = || group.pieces.iter().all(|piece| piece.has_objects(&core.memory));
            if !is_undo && place == Place::Pending && !objects_whole() {
                // The group was cut off in the object log, so it counts as one whose last piece is
                // missing.
                findings.remark(Remark::Unfinished { logger: *logger, seq: group.seq });
                continue;
            }
            for entry in group.pieces.iter().flat_map(|piece| &piece.entries) {
                if let Entry::Record(record) = entry {
                    if !flip(folded, *record) {
                        findings.meet(stray(*record))?;
                    }
                    findings.count(*record);
                    found.records += 1;
                }
            }
            match place {
                Place::Pending if !is_undo => pending.push(group),
                Place::InCaches if !is_undo => write_back(core, group),
                _ => {}
            }
        } else if is_undo && *seq >= spans.settled && newest.get(logger) == Some(seq) {
            // A group that is followed by another in its log had ended.
            undo(core, spans, group, findings)?;
            found.undone += 1;
        } else if !is_undo && place == Place::Pending {
            findings.remark(Remark::Unfinished { logger: *logger, seq: group.seq });
        }
    }
    pending.sort_unstable_by_key(|group| group.seq);
    let born = births(core, spans, &pending);
    for group in &pending {
        redo(core, spans, folded, group, &born, findings)?;
        found.redone += 1;
    }
    core.memory.fence();
    Ok(())
}

/// Writes the changes of a group back that a dead process left in the caches, because the group's
/// log is about to be forgotten.
fn write_back(core: &Core, group: &Group) {
    for entry in group.pieces.iter().flat_map(|piece| &piece.entries) {
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

/// The latest stamp with which each object that `pending` groups write to was allocated since the
/// snapshot.
fn births(core: &Core, spans: &Spans, pending: &[&Group]) -> HashMap<u64, u64> {
    let mut born: HashMap<u64, u64> = pending
        .iter()
        .flat_map(|group| &group.pieces)
        .flat_map(|piece| &piece.entries)
        .filter_map(|entry| match entry {
            Entry::Short { offset, .. } | Entry::Object { offset, .. } => spans.unit_of(*offset),
            Entry::Record(_) => None,
        })
        .map(|unit| (unit, 0))
        .collect();
    if born.is_empty() {
        return born;
    }
    // If the clock is damaged, all stamps are later than the first group that is left.
    let first = pending.iter().map(|group| group.seq).min().unwrap_or(0);
    let base = spans.clock.unwrap_or(first);
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
            InChunk::Link(link, stamp) => link.records(stamp).for_each(&mut note),
            InChunk::Piece(piece) => {
                for entry in &piece.entries {
                    if let Entry::Record(record) = entry {
                        note(*record);
                    }
                }
            }
        });
    }
    born
}

/// The whole time of a stamp: the upper bits are those that bring it nearest to the clock at the
/// generation's start.
pub(super) fn whole_stamp(base: u64, stamp: u32) -> u64 {
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
    findings: &Findings,
) -> Result<(), HeapError> {
    let first_object = core.layout.first_span() * SPAN_BYTES;
    for piece in &group.pieces {
        for entry in &piece.entries {
            let Some((offset, bytes)) = change_of(core, entry) else { continue };
            let len_bytes = bytes.len() as u64;
            if offset < first_object && !spans.may_change(offset, len_bytes) {
                findings.meet(Damage::Outside { seq: group.seq, offset, len_bytes })?;
                continue;
            }
            // Writes to roots and other tables always count; writes to an object count only if the
            // object is still the same one.
            let is_same = offset < first_object
                || core.config.planted.is(Planted::ReplayIntoReused)
                || matches!(spans.run_at(offset), Some((_, SpanWord::Compartment { .. })))
                || spans.unit_of(offset).is_some_and(|unit| {
                    let is_allocated =
                        folded.shadow[(unit / 64) as usize].load(Relaxed) & 1 << (unit % 64) != 0;
                    is_allocated && born.get(&unit).is_none_or(|stamp| *stamp <= group.seq)
                });
            // The object may be gone, together with its run.
            if is_same && spans.may_change(offset, len_bytes) {
                core.memory.write(offset, &bytes);
                core.memory.flush(offset, bytes.len() as u64);
            }
        }
    }
    Ok(())
}

fn undo(core: &Core, spans: &Spans, group: &Group, findings: &Findings) -> Result<(), HeapError> {
    for piece in group.pieces.iter().rev() {
        if !piece.has_objects(&core.memory) {
            // The change is made only after its piece is durable.
            continue;
        }
        for entry in piece.entries.iter().rev() {
            let Some((offset, bytes)) = change_of(core, entry) else { continue };
            let len_bytes = bytes.len() as u64;
            if !spans.may_change(offset, len_bytes) {
                findings.meet(Damage::Outside { seq: group.seq, offset, len_bytes })?;
                continue;
            }
            core.memory.write(offset, &bytes);
            core.memory.flush(offset, bytes.len() as u64);
        }
    }
    core.memory.fence();
    Ok(())
}

/// The place that an entry changes, and the bytes that it puts there.
fn change_of(core: &Core, entry: &Entry) -> Option<(u64, Vec<u8>)> {
    match entry {
        Entry::Short { offset, len, value } => {
            Some((*offset, value.to_le_bytes()[..usize::from(*len)].to_vec()))
        }
        Entry::Object { offset, len, from } => {
            let mut bytes = vec![0; *len as usize];
            core.memory.read(*from, &mut bytes);
            Some((*offset, bytes))
        }
        Entry::Record(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Logging};
    use crate::heap::{Heap, Opened};
    use crate::memory::{Durability, Memory};
    use crate::ptr::Offset;

    const LEN: usize = 6_000;

    /// Opens what is in `memory` in this boot, with zeros where an object of [`LEN`] bytes lies if
    /// `is_lost`. Returns what the recovery found, and the object.
    fn recovered(
        heap: &Heap,
        boot: u64,
        object: Offset,
        is_lost: bool,
    ) -> Result<(Recovered, Vec<u8>), HeapError> {
        let mut bytes = vec![0; heap.memory().len_bytes() as usize];
        heap.memory().read(0, &mut bytes);
        if is_lost {
            bytes[object.get() as usize..][..LEN].fill(0);
        }
        let heap = Heap::open(Memory::copy_of_bytes(&bytes)?, config(boot, Logging::Redo))?;
        let Opened::Recovered(found) = heap.opened() else { panic!("no heap was there") };
        let mut found_bytes = vec![0; LEN];
        heap.read_bytes(object, &mut found_bytes)?;
        Ok((found, found_bytes))
    }

    fn config(boot: u64, logging: Logging) -> Config {
        Config { boot_id: Some([boot, 1]), logging, ..Config::default() }
    }

    fn heap(logging: Logging) -> Result<(Heap, Offset), HeapError> {
        let memory = Memory::anonymous(2 << 20, Durability::Flushed)?;
        let heap = Heap::open(memory, config(1, logging))?;
        let object = heap.persist_alloc(LEN as u64)?;
        heap.transaction(|tx| tx.write_bytes(object, &[1; LEN]))?;
        heap.compact()?;
        Ok((heap, object))
    }

    #[test]
    fn what_committed_is_put_in_place_if_the_caches_were_lost() -> Result<(), HeapError> {
        let (heap, object) = heap(Logging::Redo)?;
        for round in 2..5_u8 {
            heap.transaction(|tx| tx.write_bytes(object, &[round; LEN]))?;
            // The later writes of a group come over the earlier ones, and both over older groups.
            heap.transaction(|tx| {
                tx.write_bytes(object, &[0; 8])?;
                tx.write_bytes(object, &[round; 16])
            })?;
            let (found, bytes) = recovered(&heap, 2, object, true)?;
            let groups = 2 * (u64::from(round) - 1);
            assert_eq!((found.redone, found.undone, found.same_boot), (groups, 0, false));
            assert_eq!(bytes, [round; LEN]);
            let (found, bytes) = recovered(&heap, 1, object, false)?;
            assert_eq!((found.redone, found.undone, found.same_boot), (0, 0, true));
            assert_eq!(bytes, [round; LEN]);
        }
        // What is settled is in place, whatever lies there now.
        heap.persist(object, LEN as u64);
        let (found, bytes) = recovered(&heap, 2, object, true)?;
        assert_eq!((found.redone, bytes), (0, vec![0; LEN]));
        Ok(())
    }

    #[test]
    fn objects_of_a_settled_group_exist_though_the_object_log_was_used_again()
    -> Result<(), HeapError> {
        let (heap, object) = heap(Logging::Redo)?;
        heap.transaction(|tx| {
            tx.alloc(100)?;
            tx.write_bytes(object, &[2; LEN])
        })?;
        heap.persist(object, LEN as u64);
        // These bytes come over those of the group before.
        heap.transaction(|tx| tx.write_bytes(object, &[3; LEN]))?;
        let (found, bytes) = recovered(&heap, 2, object, true)?;
        assert_eq!((found.redone, found.records, found.objects), (1, 1, 2));
        assert_eq!(bytes, [3; LEN]);
        Ok(())
    }

    #[test]
    fn links_are_put_in_place_whatever_the_time_was_when_the_logs_began() -> Result<(), HeapError> {
        const RANGE: u64 = 1 << STAMP_BITS;
        for clock in [3, RANGE / 2 + 7, RANGE - 1, 5 * RANGE + 1, 9 * RANGE - 2] {
            let (heap, object) = heap(Logging::Redo)?;
            heap.core.logs.clock.store(clock, Release);
            heap.compact()?;
            let mut last = heap.alloc_into(object, 40)?;
            for _ in 0..3 {
                last = heap.replace_at(object, 40)?;
            }
            let (found, bytes) = recovered(&heap, 2, object, true)?;
            assert_eq!((found.redone, found.records, found.objects), (4, 7, 2), "{clock}");
            assert_eq!(bytes[..8], last.get().to_le_bytes(), "{clock}");
        }
        Ok(())
    }

    #[test]
    fn what_had_not_committed_is_undone_in_either_boot() -> Result<(), HeapError> {
        let (heap, object) = heap(Logging::Undo)?;
        for round in 2..4_u8 {
            heap.transaction(|tx| {
                tx.write_bytes(object, &[round + 10; LEN])?;
                tx.write_bytes(object, &[round + 20; 8])?;
                for boot in [1, 2] {
                    let (found, bytes) = recovered(&heap, boot, object, false)?;
                    assert_eq!((found.redone, found.undone), (0, 1), "boot {boot}");
                    assert_eq!(bytes, [round - 1; LEN], "boot {boot}");
                }
                tx.write_bytes(object, &[round; LEN])
            })?;
            let (found, bytes) = recovered(&heap, 2, object, false)?;
            assert_eq!((found.redone, found.undone, bytes), (0, 0, vec![round; LEN]));
        }
        Ok(())
    }

    #[test]
    fn the_time_of_a_stamp_is_that_which_is_nearest_to_the_clock() {
        const RANGE: u64 = 1 << STAMP_BITS;
        let half = RANGE / 2;
        for base in [0, 5, half - 1, half, RANGE - 1, RANGE, 3 * RANGE + 7, 9 * RANGE + half] {
            let around = [0, 1, 2, 1_000, half - 2, half - 1];
            let later = around.map(|ahead| base + ahead);
            let earlier = around.map(|behind| base.saturating_sub(behind));
            for time in later.into_iter().chain(earlier) {
                let stamp = (time & STAMP_MASK) as u32;
                assert_eq!(whole_stamp(base, stamp), time, "{base} + {}", time.wrapping_sub(base));
            }
        }
    }
}
