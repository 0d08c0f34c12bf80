//! Snapshots: the 16 B units at which objects began when a generation did.
//!
//! A chunk is a header line (index, bytes, sum, chunks) and entries. An entry is a word with the
//! span's number, a word with a bit for each of the span's 64 shadow words that is not zero, and
//! these words. A snapshot does not depend on size classes, so a span that serves another class
//! later is read right.

use std::sync::atomic::Ordering::*;

use xxhash_rust::xxh3::xxh3_64;
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::engine::classes::SPAN_BYTES;
use crate::engine::{Kind, NoMemory};
use crate::error::HeapError;
use crate::layout::{
    AT_SNAP_BYTES, AT_SNAP_CHUNKS, AT_SNAP_INDEX, AT_SNAP_SUM, CHUNK_BYTES, CHUNK_HEAD,
    SHADOW_WORDS, SNAP_BODY_WORDS, SNAP_ENTRY_WORDS_MAX, SpanWord, snapshot_chunks_most,
};
use crate::log::shadow::Folded;
use crate::memory::Memory;

/// Takes room for the largest snapshot that can come next: as many chunks as the last one has, and
/// more for everything that was logged since.
pub(crate) fn reserve(
    core: &Core,
    folded: &Folded,
    logged_bytes: u64,
) -> Result<Vec<u64>, NoMemory> {
    // A record may add an entry of three words for its eight bytes.
    let wanted = folded.chunks.len() as u64 * 2
        + 1
        + (logged_bytes * 3).div_ceil(SNAP_BODY_WORDS as u64 * 8);
    let mut chunks = Vec::new();
    for _ in 0..wanted.min(snapshot_chunks_most(core.layout.spans)) {
        match core.engine.take_spans(Kind::Persistent, 1, 0) {
            Ok(span) => chunks.push(span * SPAN_BYTES),
            Err(error) => {
                for chunk in chunks {
                    core.engine.put_spans(chunk / SPAN_BYTES, 1);
                }
                return Err(error);
            }
        }
    }
    Ok(chunks)
}

/// Writes the shadow durably. Returns the chunks that it took, those left over, and the bytes
/// written.
pub(crate) fn write(core: &Core, folded: &Folded, mut room: Vec<u64>) -> (Vec<u64>, Vec<u64>, u64) {
    let bodies = bodies(folded);
    assert!(bodies.len() <= room.len(), "a snapshot of {} chunks", bodies.len());
    let spare = room.split_off(bodies.len());
    let generation = core.logs.generation_bits();
    let memory = &core.memory;
    let mut bytes = 0;
    for (index, (chunk, body)) in room.iter().zip(&bodies).enumerate() {
        let mut head = [0_u64; (CHUNK_HEAD / 8) as usize];
        head[(AT_SNAP_INDEX / 8) as usize] = index as u64;
        head[(AT_SNAP_BYTES / 8) as usize] = body.len() as u64 * 8;
        head[(AT_SNAP_SUM / 8) as usize] = xxh3_64(body.as_bytes());
        head[(AT_SNAP_CHUNKS / 8) as usize] = bodies.len() as u64;
        let whole = [head.as_bytes(), body.as_bytes()].concat();
        memory.fill(*chunk, &whole);
        bytes += whole.len() as u64;
    }
    memory.fence();
    for chunk in &room {
        let at = core.layout.table_word(chunk / SPAN_BYTES);
        memory.store_word(at, SpanWord::Snapshot { generation }.encode());
        memory.flush(at, 8);
    }
    memory.fence();
    (room, spare, bytes)
}

/// The entries of each chunk. There is at least one chunk, so that the snapshot of an empty heap is
/// one, too.
fn bodies(folded: &Folded) -> Vec<Vec<u64>> {
    let mut bodies = vec![Vec::new()];
    for span in folded.touched_spans() {
        let words = folded.of_span(span);
        let mut entry = [0; SNAP_ENTRY_WORDS_MAX];
        let mut len = 2;
        for (index, word) in words.iter().enumerate() {
            let bits = word.load(Relaxed);
            if bits != 0 {
                entry[1] |= 1 << index;
                entry[len] = bits;
                len += 1;
            }
        }
        if len == 2 {
            folded.touched[span / 64].fetch_and(!(1 << (span % 64)), Relaxed);
            continue;
        }
        entry[0] = span as u64 + 1;
        let last = bodies.len() - 1;
        if bodies[last].len() + len > SNAP_BODY_WORDS {
            bodies.push(Vec::new());
        }
        if let Some(body) = bodies.last_mut() {
            body.extend_from_slice(&entry[..len]);
        }
    }
    bodies
}

/// Checks a snapshot's chunk. Returns its place, the number of the snapshot's chunks, and its
/// entries.
pub(crate) fn read(memory: &Memory, chunk: u64) -> Result<(u64, u64, Vec<u64>), HeapError> {
    let head = |at: u64| memory.load(chunk + at);
    let corrupt = |at: u64| HeapError::Corrupt {
        what: "snapshot",
        offset: chunk + at,
        value: memory.load(chunk + at),
    };
    let bytes = head(AT_SNAP_BYTES);
    if !bytes.is_multiple_of(8) || bytes > CHUNK_BYTES - CHUNK_HEAD {
        return Err(corrupt(AT_SNAP_BYTES));
    }
    let mut body = vec![0_u64; (bytes / 8) as usize];
    memory.read(chunk + CHUNK_HEAD, body.as_mut_bytes());
    if xxh3_64(body.as_bytes()) != head(AT_SNAP_SUM) {
        return Err(corrupt(AT_SNAP_SUM));
    }
    Ok((head(AT_SNAP_INDEX), head(AT_SNAP_CHUNKS), body))
}

/// Whether chunks with these places and counts make a whole snapshot.
pub(crate) fn is_whole(mut places: Vec<(u64, u64)>) -> bool {
    places.sort_unstable();
    let count = places.len() as u64;
    count > 0 && places.iter().zip(0..).all(|(place, at)| *place == (at, count))
}

/// Enters the entries of a chunk in the shadow.
pub(crate) fn enter(folded: &Folded, chunk: u64, body: &[u64]) -> Result<(), HeapError> {
    let mut at = 0;
    while at < body.len() {
        let corrupt = |value| HeapError::Corrupt {
            what: "snapshot",
            offset: chunk + CHUNK_HEAD + at as u64 * 8,
            value,
        };
        let first = (body[at].wrapping_sub(1) as usize).saturating_mul(SHADOW_WORDS);
        let mask = *body.get(at + 1).ok_or_else(|| corrupt(body[at]))?;
        let len = mask.count_ones() as usize;
        let words = body.get(at + 2..at + 2 + len).ok_or_else(|| corrupt(mask))?;
        let shadow = first.checked_add(SHADOW_WORDS).and_then(|end| folded.shadow.get(first..end));
        let shadow = shadow.ok_or_else(|| corrupt(body[at]))?;
        let places = (0..SHADOW_WORDS).filter(|index| mask & 1 << index != 0);
        folded.touch(first / SHADOW_WORDS);
        for (index, bits) in places.zip(words) {
            shadow[index].fetch_xor(*bits, Relaxed);
        }
        at += 2 + len;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::heap::Heap;
    use crate::memory::Durability;

    const SPANS: u64 = 2_000;

    /// A shadow with one to 64 words in some spans, and spans that were touched in vain.
    fn sample() -> Folded {
        let folded = Folded::new(SPANS).unwrap();
        for span in (3..SPANS as usize).step_by(2) {
            folded.touch(span);
            let words = folded.of_span(span);
            (0..span % 66).for_each(|n| words[n * 7 % 64].store(span as u64 + 1, Relaxed));
        }
        folded
    }

    fn words(folded: &Folded) -> Vec<u64> {
        folded.shadow.iter().map(|word| word.load(Relaxed)).collect()
    }

    #[test]
    fn what_is_entered_from_a_snapshot_is_what_it_was_made_of() {
        let folded = sample();
        let found = Folded::new(SPANS).unwrap();
        let bodies = bodies(&folded);
        assert!(bodies.len() > 3, "this test shows nothing");
        for body in bodies.iter().rev() {
            assert!(body.len() <= SNAP_BODY_WORDS);
            enter(&found, 0, body).unwrap();
        }
        assert_eq!(words(&found), words(&folded));
        let with_bits: Vec<_> = (0..SPANS as usize)
            .filter(|span| folded.of_span(*span).iter().any(|word| word.load(Relaxed) != 0))
            .collect();
        assert!(found.touched_spans().eq(with_bits.iter().copied()));
        assert!(folded.touched_spans().eq(with_bits), "what was touched in vain is still noted");
        let nothing = self::bodies(&Folded::new(SPANS).unwrap());
        assert_eq!(nothing, [Vec::<u64>::new()], "the snapshot of an empty heap");
    }

    #[test]
    fn the_largest_snapshot_fits_the_chunks_that_are_kept_for_it() {
        const FULL: usize = SNAP_BODY_WORDS / SNAP_ENTRY_WORDS_MAX;
        for (spans, chunks) in [(FULL, 1), (FULL + 1, 2), (3 * FULL, 3)] {
            let folded = Folded::new(spans as u64).unwrap();
            folded.shadow.iter().for_each(|word| word.store(u64::MAX, Relaxed));
            (0..spans).for_each(|span| folded.touch(span));
            let lens: Vec<_> = bodies(&folded).iter().map(Vec::len).collect();
            assert_eq!(lens.len(), chunks, "{spans} spans");
            assert_eq!(lens.iter().sum::<usize>(), spans * SNAP_ENTRY_WORDS_MAX);
            assert!(lens.iter().all(|len| *len <= SNAP_BODY_WORDS), "{lens:?}");
            assert!(chunks as u64 <= snapshot_chunks_most(spans as u64));
        }
    }

    #[test]
    fn room_is_taken_for_what_the_last_snapshot_and_all_records_can_come_to_or_none() {
        // Not so small that the largest snapshot of the heap is the limit.
        let memory = Memory::anonymous(128 << 20, Durability::Flushed).unwrap();
        let heap = Heap::open(memory, Config::default()).unwrap();
        let core = &heap.core;
        let mut folded = Folded::new(core.layout.spans).unwrap();
        for chunks in 0..3 {
            folded.chunks = vec![0; chunks as usize];
            for logged_bytes in [0, 8, CHUNK_BYTES / 3, CHUNK_BYTES, 3 * CHUNK_BYTES] {
                // Each record adds an entry of three words, of an object in a span of its own.
                let added = (logged_bytes / 8 * 3).div_ceil(SNAP_BODY_WORDS as u64);
                let room = reserve(core, &folded, logged_bytes).unwrap();
                let found = room.len() as u64;
                let enough = (chunks + added).max(1)..=2 * chunks + 1 + added;
                assert!(enough.contains(&found), "{chunks}, {logged_bytes}: {found}");
                assert!(*enough.end() <= snapshot_chunks_most(core.layout.spans));
                room.iter().for_each(|chunk| core.engine.put_spans(chunk / SPAN_BYTES, 1));
            }
        }
        let most = reserve(core, &folded, u64::MAX / 4).unwrap().len() as u64;
        assert_eq!(most, snapshot_chunks_most(core.layout.spans));
        // If there is less room, what was taken is given back.
        while core.engine.free_for_persistent() > 1 {
            core.engine.take_spans(Kind::Persistent, 1, 0).unwrap();
        }
        assert!(reserve(core, &folded, CHUNK_BYTES).is_err());
        assert_eq!(core.engine.free_for_persistent(), 1);
    }

    #[test]
    fn an_entry_that_cannot_be_is_named_by_its_place_and_value() {
        let enter = |body: &[u64]| enter(&Folded::new(SPANS).unwrap(), 1 << 20, body);
        // Two whole entries, of which the second begins with the fourth word.
        let whole = [5, 1 << 9, 77, SPANS, 3, 1, 2];
        enter(&whole).unwrap();
        enter(&[]).unwrap();
        let mut beyond = whole;
        beyond[3] = SPANS + 1;
        let (mut none, mut far) = (whole, whole);
        (none[3], far[3]) = (0, u64::MAX);
        let damaged: [(&[u64], u64); 6] = [
            (&whole[..4], SPANS),
            (&whole[..5], 3),
            (&whole[..6], 3),
            (&beyond, SPANS + 1),
            (&none, 0),
            (&far, u64::MAX),
        ];
        for (body, blamed) in damaged {
            match enter(body) {
                Err(HeapError::Corrupt { what: "snapshot", offset, value }) => {
                    let at = (1 << 20) + CHUNK_HEAD + 3 * 8;
                    assert_eq!((offset, value), (at, blamed), "{body:?}");
                }
                other => panic!("{body:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_snapshot_is_whole_when_each_of_its_chunks_is_there_once() {
        assert!(is_whole(vec![(0, 1)]) && is_whole(vec![(2, 3), (0, 3), (1, 3)]));
        for places in [
            vec![],
            vec![(0, 2)],
            vec![(1, 1)],
            vec![(0, 2), (0, 2)],
            vec![(0, 1), (1, 2)],
            vec![(0, 3), (1, 3), (3, 3)],
            vec![(0, 2), (1, 2), (2, 2)],
        ] {
            assert!(!is_whole(places.clone()), "{places:?}");
        }
    }
}
