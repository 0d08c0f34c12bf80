//! Groups: the records and changes of one transaction in the logs, and how they are read back.
//!
//! ```text
//! piece       head | sequence | sum of its words | sum of the objects' bytes | entries | zeros
//! entry       short  4 | len << 4 | offset << 8    value                up to 8 bytes, anywhere
//!             object 8 | len << 4    offset        place of its bytes   bytes in the object log
//!             record                               an allocation or a free: 1 or 2 in two bits
//! ```
//! A group counts when its last piece is whole: all words of a piece are covered by its sum, and
//! the objects' bytes by the other. So one fence commits, whatever order the lines arrive in. Words
//! are small scattered stores, objects large ones; the paper keeps the two apart ("Hybrid log
//! design") so that neither pays for the other.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::layout::{GROUP_LAST, GROUP_UNDO, GROUP_UNDONE, Record};
use crate::memory::Memory;

/// Words of a piece before its entries.
pub(crate) const HEAD_WORDS: usize = 4;
/// Most words of a piece.
pub(crate) const PIECE_WORDS_MAX: usize = 4000;
/// Bytes of the longest object entry; a longer change has several entries.
pub(crate) const OBJECT_ENTRY_MAX: u64 = 32 << 10;

const SHORT: u64 = 1;
const OBJECT: u64 = 2;

/// One change of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The `len` bytes at `offset` become the first bytes of `value`.
    Short { offset: u64, len: u8, value: u64 },
    /// The `len` bytes at `offset` become those at `from`, in the object log.
    Object { offset: u64, len: u32, from: u64 },
    /// An object begins or ceases to exist.
    Record(Record),
}

impl Entry {
    /// The number of words that the entry takes.
    pub fn words(&self) -> usize {
        match self {
            Self::Short { .. } => 2,
            Self::Object { .. } => 3,
            Self::Record(_) => 1,
        }
    }

    /// Appends the entry's words. A record is one whole word, whose two lowest bits tell it from
    /// other entries.
    pub fn push(&self, to: &mut Vec<u64>) {
        match *self {
            Self::Short { offset, len, value } => {
                to.extend([SHORT << 2 | u64::from(len) << 4 | offset << 8, value]);
            }
            Self::Object { offset, len, from } => {
                to.extend([OBJECT << 2 | u64::from(len) << 4, offset, from]);
            }
            Self::Record(record) => to.push(record.encode()),
        }
    }

    fn read(words: &[u64]) -> Option<Self> {
        let first = *words.first()?;
        if first & 3 != 0 {
            return match Record::decode(first)? {
                Record::Group { .. } => None,
                record => Some(Self::Record(record)),
            };
        }
        let tag = first >> 2 & 3;
        match tag {
            SHORT => {
                let (len, offset) = ((first >> 4 & 15) as u8, first >> 8);
                (1..=8).contains(&len).then_some(())?;
                Some(Self::Short { offset, len, value: *words.get(1)? })
            }
            OBJECT => {
                let len = first >> 4;
                // A longer entry would have recovery read the heap over and over.
                (1..=OBJECT_ENTRY_MAX).contains(&len).then_some(())?;
                let len = len as u32;
                Some(Self::Object { offset: *words.get(1)?, len, from: *words.get(2)? })
            }
            _ => None,
        }
    }
}

/// A piece of a group that was found whole in a chunk.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub seq: u64,
    pub piece: u32,
    pub flags: u8,
    /// Sum of the bytes that the piece's object entries name.
    pub objects_sum: u64,
    pub entries: Vec<Entry>,
}

impl Piece {
    pub fn is_last(&self) -> bool {
        self.flags & GROUP_LAST != 0
    }

    pub fn is_undo(&self) -> bool {
        self.flags & GROUP_UNDO != 0
    }

    /// Whether the piece says that its transaction was undone.
    pub fn is_undone(&self) -> bool {
        self.flags & GROUP_UNDONE != 0
    }

    /// Whether the object log holds the bytes that the piece's object entries name.
    pub fn has_objects(&self, memory: &Memory) -> bool {
        let mut sum = 0;
        let mut bytes = Vec::new();
        for entry in &self.entries {
            if let Entry::Object { len, from, .. } = entry {
                if !is_inside(memory, *from, u64::from(*len)) {
                    return false;
                }
                bytes.resize(*len as usize, 0);
                memory.read(*from, &mut bytes);
                sum = sum_of(sum, &bytes);
            }
        }
        sum == self.objects_sum
    }
}

/// Whether a range is inside a heap's memory.
pub(crate) fn is_inside(memory: &Memory, offset: u64, len: u64) -> bool {
    offset.checked_add(len).is_some_and(|end| end <= memory.len_bytes())
}

/// The sum of the bytes of several objects, with one more object.
#[inline]
pub(crate) fn sum_of(sum: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, sum)
}

/// Fills in the head of a piece whose entries begin at [`HEAD_WORDS`], padded with zeros to
/// `padded` words.
pub(crate) fn seal(words: &mut [u64], seq: u64, piece: u32, flags: u8, objects_sum: u64) {
    words[0] = Record::Group { words: words.len() as u16, piece, flags }.encode();
    words[1] = seq;
    words[3] = objects_sum;
    words[2] = 0;
    words[2] = sum_of_words(words);
}

fn sum_of_words(words: &[u64]) -> u64 {
    // The sum is never zero, because a word that is not there yet reads as zero.
    xxh3_64(zerocopy::IntoBytes::as_bytes(words)) | 1
}

/// The sum of a piece, without the word that holds the sum.
fn sum_of_sealed(words: &[u64]) -> u64 {
    const SMALL: usize = 32;
    let mut small = [0; SMALL];
    let mut large = Vec::new();
    // Most pieces are small, and there are many, so no memory is taken for small ones.
    let unsummed = match small.get_mut(..words.len()) {
        Some(small) => {
            small.copy_from_slice(words);
            small
        }
        None => {
            large.extend_from_slice(words);
            &mut large[..]
        }
    };
    unsummed[2] = 0;
    sum_of_words(unsummed)
}

/// The piece whose head is the first of `words`, which go on to the end of its chunk. `None` if the
/// piece is not whole.
pub(crate) fn read_piece(words: &[u64]) -> Option<Piece> {
    let Some(Record::Group { words: len, piece, flags }) = Record::decode(*words.first()?) else {
        return None;
    };
    let words = words.get(..usize::from(len))?;
    if words.len() < HEAD_WORDS {
        return None;
    }
    if sum_of_sealed(words) != words[2] {
        return None;
    }
    let mut entries = Vec::new();
    let mut at = HEAD_WORDS;
    while at < words.len() && words[at] != 0 {
        let entry = Entry::read(&words[at..])?;
        at += entry.words();
        entries.push(entry);
    }
    Some(Piece { seq: words[1], piece, flags, objects_sum: words[3], entries })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Durability;

    fn sample() -> Vec<u64> {
        let mut words = vec![0; HEAD_WORDS];
        Entry::Short { offset: 0x1234_5678, len: 3, value: 7 }.push(&mut words);
        Entry::Object { offset: 1 << 39, len: 64, from: 4096 }.push(&mut words);
        Entry::Record(Record::Alloc { unit: 77, stamp: 5 }).push(&mut words);
        words.resize(16, 0);
        seal(&mut words, 42, 1, GROUP_LAST, 99);
        words
    }

    #[test]
    fn a_piece_reads_back() {
        let words = sample();
        let piece = read_piece(&words).unwrap();
        assert_eq!((piece.seq, piece.piece, piece.objects_sum), (42, 1, 99));
        assert!(piece.is_last() && !piece.is_undo());
        assert_eq!(piece.entries.len(), 3);
        assert_eq!(piece.entries[0], Entry::Short { offset: 0x1234_5678, len: 3, value: 7 });
    }

    #[test]
    fn a_piece_has_its_objects_if_all_their_bytes_are_in_the_heap_as_they_were() {
        let memory = Memory::anonymous(1 << 20, Durability::Flushed).unwrap();
        let end = memory.len_bytes();
        let has_objects = |places: &[(u64, u32)], objects_sum| {
            let entries = places.iter().map(|(from, len)| (*from, *len));
            let entries = entries.map(|(from, len)| Entry::Object { offset: 0, len, from });
            let flags = GROUP_LAST;
            let piece = Piece { seq: 1, piece: 0, flags, objects_sum, entries: entries.collect() };
            piece.has_objects(&memory)
        };
        memory.write(4096, &[5; 100]);
        memory.write(end - 7, &[6; 7]);
        let sum = sum_of(sum_of(0, &[5; 100]), &[6; 7]);
        assert!(has_objects(&[(4096, 100), (end - 7, 7)], sum) && has_objects(&[], 0));
        assert!(!has_objects(&[(end - 7, 7), (4096, 100)], sum), "in another order");
        assert!(!has_objects(&[(4096, 100)], sum) && !has_objects(&[], sum));
        // No correct program writes these.
        for (from, len) in [(end - 7, 8), (end, 1), (u64::MAX, 1), (u64::MAX - 3, 100)] {
            assert!(!has_objects(&[(from, len)], 0), "{from:#x}");
        }
        memory.write(4096 + 99, &[4]);
        assert!(!has_objects(&[(4096, 100), (end - 7, 7)], sum), "a byte is another");
    }

    #[test]
    fn a_piece_with_any_bit_changed_or_word_missing_is_none() {
        let words = sample();
        for word in 0..words.len() {
            for bit in [0, 17, 63] {
                let mut damaged = words.clone();
                damaged[word] ^= 1 << bit;
                assert!(read_piece(&damaged).is_none(), "word {word} bit {bit}");
            }
            if words[word] != 0 {
                let mut missing = words.clone();
                missing[word] = 0;
                assert!(read_piece(&missing).is_none(), "word {word}");
            }
        }
        assert!(read_piece(&words[..words.len() - 1]).is_none());
    }
}
