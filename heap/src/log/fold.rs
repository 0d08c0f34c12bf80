//! Folding: the records since the last snapshot are put into the next one, which compacts the log.

use std::collections::HashMap;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use super::group::{Entry, Piece, read_piece};
use super::link::{FoundLink, Link};
use super::settle::settle_held;
use super::shadow::Folded;
use super::snapshot;
use crate::core::{Core, free_chunks};
use crate::engine::NoMemory;
use crate::engine::classes::{SPAN_BYTES, UNIT_BYTES};
use crate::layout::{
    AT_CLOCK, AT_GENERATION, CHUNK_BYTES, CHUNK_HEAD, Record, SHADOW_WORDS, sealed,
};
use crate::memory::Memory;
use crate::sys::{LINE_BYTES, prefetch_for_write};

/// How a fold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fold {
    /// The logs begin anew, in the next generation.
    Done,
    /// The fold was put off, because an undo transaction has changed memory in place and has not
    /// ended.
    Busy,
}

/// Longest wait for the undo transactions of other threads.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// Folds all records so far. Groups of transactions are put in place durably first.
pub(crate) fn fold(core: &Core) -> Result<Fold, NoMemory> {
    let mut folded = core.logs.fold();
    fold_held(core, &mut folded)
}

/// Folds if enough was written since the last fold, unless another thread folds or there is no room
/// now. Everything that was logged holds either way, so a fold that is put off is no failure: it
/// stays due, and the thread that finds no room for a log or an object reports that.
pub(crate) fn fold_if_due(core: &Core) {
    if let Some(mut folded) = core.logs.try_fold()
        && core.logs.is_due()
        && let Err(error) = fold_held(core, &mut folded)
    {
        tracing::debug!(?error, "no room to fold the logs yet");
    }
}

/// Folds, after a short wait for the undo transactions that put the fold off. The wait is short
/// because these transactions may be waiting for a lock that this thread holds. The caller has no
/// undo transaction open and does not use its log.
pub(crate) fn fold_soon(core: &Core) -> Result<Fold, NoMemory> {
    core.logs.ask_for_fold();
    let began = Instant::now();
    while began.elapsed() < WAIT_MAX {
        if !core.logs.is_undoing() && fold(core)? == Fold::Done {
            return Ok(Fold::Done);
        }
        std::thread::yield_now();
    }
    Ok(Fold::Busy)
}

/// Lets a fold go first that is due and that other threads put off; called before an undo
/// transaction begins. Without this there might never be a moment without undo transactions, and
/// the logs would grow for ever.
pub(crate) fn let_fold(core: &Core) {
    let logs = &core.logs;
    let began = Instant::now();
    while began.elapsed() < WAIT_MAX {
        if !logs.is_due() || !logs.is_waiting_worth_it() {
            return;
        }
        if !logs.is_undoing() {
            fold_if_due(core);
        }
        std::thread::yield_now();
    }
    logs.note_waited();
}

fn fold_held(core: &Core, folded: &mut Folded) -> Result<Fold, NoMemory> {
    let Some(Cut { room, words, objects }) = cut(core, folded)? else { return Ok(Fold::Busy) };
    if core.conventional.is_some() {
        // Bits say which objects are allocated, so the logs held transactions only.
        let generation = core.logs.generation.load(Acquire);
        core.memory.persist_word(AT_GENERATION, sealed(generation));
        free_chunks(core, &[words, objects, room].concat());
        core.logs.set_due(0, core.config.log_bytes_max);
        return Ok(Fold::Done);
    }
    let mut in_parts = InParts::new();
    let mut units = Vec::new();
    for chunk in &words {
        apply_chunk(core, *chunk, folded, &mut in_parts, &mut units);
    }
    for (records, end) in in_parts.into_values() {
        if end == Some(Counts(true)) {
            let units = records.into_iter().filter_map(unit_of);
            units.for_each(|unit| flip_alone(folded, unit));
        }
    }
    let (used, spare, bytes) = snapshot::write(core, folded, room);
    let generation = core.logs.generation.load(Acquire);
    core.memory.persist_word(AT_CLOCK, sealed(core.logs.clock_folded.load(Acquire)));
    core.memory.persist_word(AT_GENERATION, sealed(generation));
    let old = std::mem::replace(&mut folded.chunks, used);
    free_chunks(core, &[words, objects, old, spare].concat());
    core.logs.set_due(bytes, core.config.log_bytes_max);
    core.logs.folds.fetch_add(1, Relaxed);
    Ok(Fold::Done)
}

/// The chunks of a generation that has ended, and room for the snapshot that takes their place.
struct Cut {
    room: Vec<u64>,
    words: Vec<u64>,
    objects: Vec<u64>,
}

/// Turns all loggers to the next generation at one instant. Room is taken first: after that nothing
/// can fail.
fn cut(core: &Core, folded: &Folded) -> Result<Option<Cut>, NoMemory> {
    let _settling = core.logs.settling();
    // The list is held to the end: a logger that was made meanwhile would begin in the old
    // generation, which nobody would fold.
    let loggers = core.logs.all_held();
    let mut held: Vec<_> = loggers.iter().map(|logger| (&**logger, logger.visit())).collect();
    if held.iter().any(|(_, state)| state.undoing().is_some()) {
        return Ok(None);
    }
    // Each logger has an open chunk beside its closed ones; a resting chunk has no records.
    let logged_bytes = core.logs.closed_bytes.load(Relaxed) + held.len() as u64 * CHUNK_BYTES;
    let room = snapshot::reserve(core, folded, logged_bytes)?;
    settle_held(core, &mut held);
    let (mut words, mut objects) = (Vec::new(), Vec::new());
    for (_, state) in &mut held {
        let (some_words, some_objects) = state.detach();
        words.extend(some_words);
        objects.extend(some_objects);
    }
    core.logs.note_cut();
    core.logs.generation.fetch_add(1, AcqRel);
    Ok(Some(Cut { room, words, objects }))
}

/// The groups that have several pieces, by sequence: their records, and whether the last piece
/// makes them count. Their chunks come in any order.
type InParts = HashMap<u64, (Vec<Record>, Option<Counts>)>;

/// Whether a group that has ended counts. A group that was undone does not, and one that failed has
/// no last piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts(bool);

/// Applies the records of a chunk to the shadow. Records of groups of several pieces are gathered.
/// `units` is kept for its capacity.
fn apply_chunk(
    core: &Core,
    chunk: u64,
    folded: &mut Folded,
    in_parts: &mut InParts,
    units: &mut Vec<u64>,
) {
    units.clear();
    let mut note = |unit: u64| {
        // The shadow of a large heap does not stay in the caches: its words are on their way while
        // the rest of the chunk is read.
        if let Some(word) = folded.shadow.get(place_of(unit).0) {
            prefetch_for_write(word.as_ptr().cast());
        }
        units.push(unit);
    };
    for_records(&core.memory, chunk, |what| match what {
        InChunk::Record(record) => unit_of(record).into_iter().for_each(&mut note),
        InChunk::Link(link, _) => {
            link.freed.into_iter().for_each(|offset| note(offset / UNIT_BYTES));
            link.made.into_iter().for_each(|offset| note(offset / UNIT_BYTES));
        }
        InChunk::Piece(piece) => {
            let end = piece.is_last().then_some(Counts(!piece.is_undone()));
            let records = piece.entries.iter().filter_map(|entry| match entry {
                Entry::Record(record) => Some(*record),
                _ => None,
            });
            if piece.piece == 0 && end == Some(Counts(true)) {
                records.filter_map(unit_of).for_each(&mut note);
                return;
            }
            let (gathered, ended) = in_parts.entry(piece.seq).or_default();
            gathered.extend(records);
            *ended = end.or(*ended);
        }
    });
    units.iter().for_each(|unit| flip_alone(folded, *unit));
}

/// Flips the bit of a record's object as [`flip`] does, when no other thread uses the shadow: then
/// a cache miss need not wait for the one before. The record was made by this process.
#[inline]
fn flip_alone(folded: &mut Folded, unit: u64) {
    let (word, bit, span) = place_of(unit);
    assert!(word < folded.shadow.len(), "a record of an object beyond the heap: unit {unit}");
    let word = &folded.shadow[word];
    word.store(word.load(Relaxed) ^ bit, Relaxed);
    folded.touch(span);
}

/// Flips the bit of a record's object. Returns false if the object lies beyond the heap.
#[inline]
pub(crate) fn flip(folded: &Folded, record: Record) -> bool {
    if let Some(unit) = unit_of(record) {
        let (word, bit, span) = place_of(unit);
        let Some(word) = folded.shadow.get(word) else { return false };
        word.fetch_xor(bit, Relaxed);
        folded.touch(span);
    }
    true
}

/// The first unit of a record's object.
#[inline]
fn unit_of(record: Record) -> Option<u64> {
    match record {
        Record::Alloc { unit, .. } | Record::Free { unit, .. } => Some(unit),
        Record::Group { .. } => None,
    }
}

/// The place of an object in the shadow, by its first unit: word, bit, and span.
#[inline]
fn place_of(unit: u64) -> (usize, u64, usize) {
    ((unit / 64) as usize, 1 << (unit % 64), (unit * UNIT_BYTES / SPAN_BYTES) as usize)
}

const _: () = assert!(SHADOW_WORDS as u64 * 64 * 16 == CHUNK_BYTES);

/// A part of a chunk of words.
pub(crate) enum InChunk {
    Record(Record),
    /// A link, and the stamp of its records.
    Link(Link, u32),
    Piece(Piece),
}

/// Goes through a chunk of words up to its end, which is a line that begins with zero, or a group
/// or a link that is not whole. Returns the end, in bytes from the chunk's beginning.
pub(crate) fn for_records(memory: &Memory, chunk: u64, mut each: impl FnMut(InChunk)) -> u64 {
    const LINE_WORDS: usize = (LINE_BYTES / 8) as usize;
    let mut words = vec![0_u64; (CHUNK_BYTES / 8) as usize];
    memory.read(chunk, zerocopy::IntoBytes::as_mut_bytes(words.as_mut_slice()));
    let mut at = (CHUNK_HEAD / 8) as usize;
    while at < words.len() {
        let line_end = (at + 1).next_multiple_of(LINE_WORDS);
        if Link::begins(words[at]) {
            match Link::read(&words[at..line_end]) {
                FoundLink::Whole { link, words, stamp } => {
                    each(InChunk::Link(link, stamp));
                    at += words;
                }
                // A link is durable before anything behind it is written.
                FoundLink::Torn | FoundLink::Damaged => break,
            }
            continue;
        }
        match Record::decode(words[at]) {
            // A word that is neither zero nor a record was never written whole.
            None if at.is_multiple_of(LINE_WORDS) || words[at] != 0 => break,
            None => at = line_end,
            Some(Record::Group { words: len, .. }) => {
                if !at.is_multiple_of(LINE_WORDS) {
                    break;
                }
                let Some(piece) = read_piece(&words[at..]) else { break };
                each(InChunk::Piece(piece));
                at += usize::from(len);
            }
            Some(record) => {
                each(InChunk::Record(record));
                at += 1;
            }
        }
    }
    at as u64 * 8
}

const _: () = assert!(CHUNK_HEAD.is_multiple_of(LINE_BYTES));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::heap::Heap;
    use crate::layout::{GROUP_LAST, GROUP_UNDO, GROUP_UNDONE};
    use crate::log::append::PieceHead;
    use crate::log::group::HEAD_WORDS;
    use crate::memory::{Durability, Memory};

    #[test]
    fn the_records_of_a_group_are_folded_if_its_last_piece_says_that_it_counts() {
        const UNDO_LAST: u8 = GROUP_UNDO | GROUP_LAST;
        let cases: [(&[u8], bool); 8] = [
            (&[GROUP_LAST], true),
            (&[UNDO_LAST], true),
            (&[UNDO_LAST | GROUP_UNDONE], false),
            // What failed, or is being written, has no last piece.
            (&[0], false),
            (&[0, 0], false),
            (&[0, GROUP_LAST], true),
            (&[GROUP_UNDO, GROUP_UNDO, UNDO_LAST], true),
            (&[GROUP_UNDO, UNDO_LAST | GROUP_UNDONE], false),
        ];
        for (pieces, counts) in cases {
            let memory = Memory::anonymous(2 << 20, Durability::Flushed).unwrap();
            let heap = Heap::open(memory, Config::default()).unwrap();
            let core = &heap.core;
            let logger = core.logs.acquire().unwrap();
            let mut state = logger.begin_group(core, 64, 0).unwrap();
            let seq = logger.draw_seq(core, &mut state);
            // Each piece has a record of one object, in a span of its own.
            let span = |index: u32| core.layout.spans - 1 - u64::from(index);
            for (index, flags) in (0..).zip(pieces) {
                let unit = span(index) * SPAN_BYTES / UNIT_BYTES;
                state.words = vec![0; HEAD_WORDS];
                Entry::Record(Record::Alloc { unit, stamp: 0 }).push(&mut state.words);
                let head = PieceHead { seq, index, flags: *flags, objects_sum: 0 };
                logger.append_piece(core, &mut state, head).unwrap();
                state.note_records();
            }
            state.end_group();
            drop(state);
            assert_eq!(fold(core).unwrap(), Fold::Done);
            let folded = core.logs.fold();
            for index in 0..pieces.len() as u32 {
                let shadow = folded.of_span(span(index) as usize)[0].load(Relaxed);
                assert_eq!(shadow, u64::from(counts), "{pieces:?}, piece {index}");
            }
        }
    }
}
