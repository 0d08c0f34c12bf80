//! Links: an object that begins to exist, or ceases to, together with the one word that names it.
//!
//! ```text
//! head     12 | flags (2 bits from bit 4: 1 frees, 2 allocates) | place << 8 | tag (16 from 48)
//! record   of the object that is freed, if one is: 2 in two bits
//! record   of the object that is allocated, if one is: 1 in two bits
//! ```
//! The word at the place becomes the offset of the object that is allocated, or zero. A link is a
//! group of its own: the stamp of its records is its sequence. A link counts when all of its words
//! are there. A log is zero behind its end and none of the words is zero, so no sum is needed to
//! see a link that was cut off; the tag is for damage. The words lie in one line, so that they cost
//! one line and one fence.

use super::append::HOMES_MAX;
use super::group::{Entry, Piece};
use super::logger::{Logger, LoggerState};
use crate::config::Planted;
use crate::core::Core;
use crate::engine::NoMemory;
use crate::engine::classes::UNIT_BYTES;
use crate::layout::{CHUNK_BYTES, GROUP_LAST, Record, STAMP_MASK, tag_of};
use crate::sys::{LINE_BYTES, prefetch_for_write};

const HEAD: u64 = 12;
const HEAD_MASK: u64 = 15;
const FREES: u64 = 1 << 4;
const ALLOCATES: u64 = 2 << 4;
/// Bits of a head that hold its kind, its flags and the place; a place is a multiple of eight.
const UNTAGGED: u64 = (1 << 48) - 1;
const PLACE_SHIFT: u32 = 8;
/// Most words of a link.
const WORDS_MAX: usize = 3;
/// Words of a line, which a link does not leave.
const LINE_WORDS: usize = (LINE_BYTES / 8) as usize;

/// A link: what becomes of one word of persistent memory, and of one or two objects with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    /// Offset of the word.
    pub place: u64,
    /// Offset of the object that ceases to exist.
    pub freed: Option<u64>,
    /// Offset of the object that begins to exist.
    pub made: Option<u64>,
}

/// The words of a chunk that begin as a link does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoundLink {
    /// The link is whole, has so many words, and was made at this time of the clock.
    Whole { link: Link, words: usize, stamp: u32 },
    /// A loss of power left only a part of the link, which does not count.
    Torn,
    /// No correct program writes these words.
    Damaged,
}

impl Link {
    /// The new value of the word.
    pub fn value(&self) -> u64 {
        self.made.unwrap_or(0)
    }

    fn words(&self) -> usize {
        1 + usize::from(self.freed.is_some()) + usize::from(self.made.is_some())
    }

    #[inline]
    pub(super) fn encode(&self, stamp: u32) -> [u64; WORDS_MAX] {
        let mut words = [0; WORDS_MAX];
        let mut flags = 0;
        let mut at = 1;
        if let Some(offset) = self.freed {
            flags |= FREES;
            words[at] = Record::Free { unit: offset / UNIT_BYTES, stamp }.encode();
            at += 1;
        }
        if let Some(offset) = self.made {
            flags |= ALLOCATES;
            words[at] = Record::Alloc { unit: offset / UNIT_BYTES, stamp }.encode();
        }
        words[0] = tagged(HEAD | flags | self.place << PLACE_SHIFT, words[1], words[2]);
        words
    }

    /// Whether a word of a chunk begins a link.
    #[inline]
    pub fn begins(word: u64) -> bool {
        word & HEAD_MASK == HEAD
    }

    /// Reads the link that begins with the first of `words`, the rest of its line.
    #[inline]
    pub fn read(words: &[u64]) -> FoundLink {
        let Some(head) = words.first() else { return FoundLink::Damaged };
        let (frees, allocates) = (head & FREES != 0, head & ALLOCATES != 0);
        let len = 1 + usize::from(frees) + usize::from(allocates);
        let Some(words) = words.get(..len).filter(|_| len > 1) else { return FoundLink::Damaged };
        if words.contains(&0) {
            return FoundLink::Torn;
        }
        let untagged = head & UNTAGGED;
        if *head != tagged(untagged, words[1], words.get(2).copied().unwrap_or(0)) {
            return FoundLink::Damaged;
        }
        let mut link = Self { place: untagged >> PLACE_SHIFT & !7, freed: None, made: None };
        let mut stamps = [0; WORDS_MAX - 1];
        for (stamped, word) in stamps.iter_mut().zip(&words[1..]) {
            match Record::decode(*word) {
                Some(Record::Free { unit, stamp }) if frees && link.freed.is_none() => {
                    link.freed = Some(unit * UNIT_BYTES);
                    *stamped = stamp;
                }
                Some(Record::Alloc { unit, stamp }) if allocates && link.made.is_none() => {
                    link.made = Some(unit * UNIT_BYTES);
                    *stamped = stamp;
                }
                _ => return FoundLink::Damaged,
            }
        }
        FoundLink::Whole { link, words: len, stamp: stamps[0] }
    }

    /// The records of the link's objects.
    pub fn records(&self, stamp: u32) -> impl Iterator<Item = Record> {
        let unit = |offset: u64| offset / UNIT_BYTES;
        let freed = self.freed.map(|offset| Record::Free { unit: unit(offset), stamp });
        let made = self.made.map(|offset| Record::Alloc { unit: unit(offset), stamp });
        freed.into_iter().chain(made)
    }

    /// The link as the only piece of a group.
    pub fn as_piece(&self, seq: u64, stamp: u32) -> Piece {
        let mut entries: Vec<_> = self.records(stamp).map(Entry::Record).collect();
        entries.push(Entry::Short { offset: self.place, len: 8, value: self.value() });
        Piece { seq, piece: 0, flags: GROUP_LAST, objects_sum: 0, entries }
    }
}

/// A head with the tag of the whole link. The records are turned by whole bytes, so that a changed
/// byte of any word changes one byte of the mixture, which [`tag_of`] sees.
#[inline]
fn tagged(head: u64, first: u64, second: u64) -> u64 {
    let mixed = head ^ first.rotate_left(24) ^ second.rotate_left(40);
    head | tag_of(mixed) << 48
}

impl Logger {
    /// Appends a link, durably when this returns, and changes its word in memory. Until the word's
    /// line is written back, a recovery puts the word in place from the log.
    ///
    /// # Errors
    /// There is no room for the log; nothing was changed.
    #[inline]
    pub fn link(&self, core: &Core, link: &Link) -> Result<(), NoMemory> {
        let len = link.words() as u64 * 8;
        let mut state = self.own();
        let mut at = first_fitting(state.at, len);
        if state.chunk == 0 || at >= state.end() {
            state = self.with_room(core, state, |state| self.next_chunk_of_links(core, state))?;
            at = state.at;
        }
        if state.homes.len() >= HOMES_MAX {
            self.write_homes_back(core, &mut state);
        }
        let memory = &core.memory;
        // A link must not be durable before the frees that it builds on: they may have freed the
        // very memory that it allocates. Words of one line become durable in their order.
        let is_early = core.config.planted.is(Planted::LinkBeforeFrees);
        if state.fenced / LINE_BYTES != at / LINE_BYTES && !is_early {
            state.make_records_durable(memory);
        }
        // The words between stay zero, and a reader skips them.
        state.at = at;
        let seq = self.draw_seq(core, &mut state);
        let words = link.encode((seq & STAMP_MASK) as u32);
        for (word, place) in words[..link.words()].iter().zip((state.chunk + at..).step_by(8)) {
            memory.store_word(place, *word);
        }
        state.at += len;
        state.note_records();
        if first_fitting(state.at, len) != state.at || state.at.is_multiple_of(LINE_BYTES) {
            // A chunk is zeroed past the caches, so its next line is loaded ahead.
            let next = state.chunk + state.at.next_multiple_of(LINE_BYTES);
            prefetch_for_write(memory.base().wrapping_add(next as usize));
        }
        state.write_records_back(memory);
        memory.fence();
        state.fenced = state.at;
        memory.store_word(link.place, link.value());
        if !core.config.planted.is(Planted::LinkUnnoted) {
            // The line is written back when the link is settled: see `super::settle`.
            state.note_home(link.place, 8);
        }
        state.note_applied(memory);
        Ok(())
    }
}

impl Logger {
    /// Begins a new chunk, unless the clock is so far from the generation's start that a recovery
    /// could not tell the sequences of links.
    fn next_chunk_of_links(&self, core: &Core, state: &mut LoggerState) -> Result<(), NoMemory> {
        if !core.logs.has_stamps() {
            return Err(NoMemory::Exhausted { needed_bytes: CHUNK_BYTES, free_bytes: 0 });
        }
        self.next_chunk(core, state)
    }
}

/// The first place from `at` on where `len` bytes lie in one line.
#[inline]
fn first_fitting(at: u64, len: u64) -> u64 {
    if at % LINE_BYTES + len > LINE_BYTES { at.next_multiple_of(LINE_BYTES) } else { at }
}

const _: () = assert!(WORDS_MAX <= LINE_WORDS);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::CHUNK_HEAD;

    fn links() -> Vec<Link> {
        let last = (1 << 40) - 16;
        let mut links = Vec::new();
        for place in [8, 4096, (1 << 40) - 8] {
            links.push(Link { place, freed: None, made: Some(last) });
            links.push(Link { place, freed: Some(64), made: None });
            links.push(Link { place, freed: Some(last), made: Some(16) });
        }
        links
    }

    #[test]
    fn a_link_reads_back() {
        for link in links() {
            for stamp in [0, 1, STAMP_MASK as u32] {
                let mut line = [0; LINE_WORDS];
                line[..WORDS_MAX].copy_from_slice(&link.encode(stamp));
                let words = link.words();
                assert!(Link::begins(line[0]) && Record::decode(line[0]).is_none());
                assert_eq!(Link::read(&line), FoundLink::Whole { link, words, stamp });
                // At the end of a line there is no word behind it.
                assert_eq!(Link::read(&line[..words]), FoundLink::Whole { link, words, stamp });
                assert_eq!(Link::read(&line[..words - 1]), FoundLink::Damaged);
            }
        }
    }

    #[test]
    fn a_link_lies_in_one_line_and_leaves_no_word_before_it_without_need() {
        for len in [16, 24] {
            for at in (CHUNK_HEAD..CHUNK_HEAD + 2 * LINE_BYTES).step_by(8) {
                let in_one_line = |at: &u64| at / LINE_BYTES == (at + len - 1) / LINE_BYTES;
                let expected = (at..).step_by(8).find(in_one_line);
                assert_eq!(Some(first_fitting(at, len)), expected, "{len} bytes from {at}");
            }
        }
    }

    #[test]
    fn a_link_without_one_of_its_words_is_torn() {
        for link in links() {
            let whole = link.encode(77);
            for missing in 1..link.words() {
                let mut torn = whole;
                torn[missing] = 0;
                assert_eq!(Link::read(&torn), FoundLink::Torn, "{link:?} word {missing}");
            }
        }
    }

    #[test]
    fn a_link_whose_records_are_not_those_that_its_head_names_is_damaged() {
        let free = Record::Free { unit: 4, stamp: 77 };
        let alloc = Record::Alloc { unit: 5, stamp: 77 };
        let group = Record::Group { words: 8, piece: 0, flags: GROUP_LAST };
        let heads: [(u64, &[Record]); 3] =
            [(FREES, &[free]), (ALLOCATES, &[alloc]), (FREES | ALLOCATES, &[free, alloc])];
        for (flags, named) in heads {
            for first in [free, alloc, group] {
                for second in [free, alloc, group] {
                    let found = &[first, second][..named.len()];
                    let mut words = [0; WORDS_MAX];
                    for (word, record) in words[1..].iter_mut().zip(found) {
                        *word = record.encode();
                    }
                    words[0] = tagged(HEAD | flags | 4096 << PLACE_SHIFT, words[1], words[2]);
                    let is_whole = matches!(Link::read(&words), FoundLink::Whole { .. });
                    let is_right = named.iter().all(|record| found.contains(record));
                    assert_eq!(is_whole, is_right, "{named:?} {found:?}");
                }
            }
        }
    }

    #[test]
    fn one_byte_changed_is_seen() {
        for link in links() {
            let whole = link.encode(77);
            for word in 0..link.words() {
                for byte in 0..8 {
                    for change in 1..256_u64 {
                        let mut damaged = whole;
                        damaged[word] ^= change << (8 * byte);
                        let found = Link::read(&damaged);
                        let is_seen = !matches!(found, FoundLink::Whole { .. });
                        let is_other = word == 0 && !Link::begins(damaged[0]);
                        assert!(is_seen || is_other, "{link:?} {word} {byte} {change:#x}");
                    }
                }
            }
        }
    }
}
