//! Where things lie in a heap's memory. Little-endian; offsets from the first byte; drawn in
//! docs/format.md.
//!
//! ```text
//! 0          superblock      4 KiB
//! 4 KiB      named roots     1,024 times 64 B
//! 68 KiB     span table      8 B per span of 64 KiB
//! then       conventional bookkeeping only: 640 B per span
//! then       spans, from the next multiple of 64 KiB
//! ```

use crate::engine::classes::SPAN_BYTES;

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"PERDDUAL");
pub(crate) const VERSION: u64 = 2;

pub(crate) const AT_MAGIC: u64 = 0;
pub(crate) const AT_VERSION: u64 = 8;
/// Spans that the tables have room for, and there are.
pub(crate) const AT_SPANS: u64 = 16;
/// [`FLAG_CONVENTIONAL`] or nothing.
pub(crate) const AT_FLAGS: u64 = 24;
/// XXH3 of the four words before it.
pub(crate) const AT_CHECKSUM: u64 = 32;
/// Names the snapshot and the logs that count; changes in one store, [`sealed`]. Alone in its line.
pub(crate) const AT_GENERATION: u64 = 64;
/// The boot in which the heap was last open: two words. Alone in its line.
pub(crate) const AT_BOOT: u64 = 128;
/// The tx clock when the generation began, [`sealed`]. Alone in its line.
pub(crate) const AT_CLOCK: u64 = 192;
/// Groups below this sequence are over, [`sealed`]: in place, durably, or given up. Alone in its
/// line.
pub(crate) const AT_SETTLED: u64 = 256;

pub(crate) const FLAG_CONVENTIONAL: u64 = 1;

pub(crate) const AT_ROOTS: u64 = 4096;
pub(crate) const ROOTS_MAX: u64 = 1024;
pub(crate) const ROOT_BYTES: u64 = 64;
/// Longest name of a root, bytes.
pub const ROOT_NAME_MAX: usize = 39;

pub(crate) const AT_TABLE: u64 = AT_ROOTS + ROOTS_MAX * ROOT_BYTES;
/// Conventional bookkeeping: a header line and 4,096 bits a span, and a line for the class's list.
pub(crate) const CONVENTIONAL_BYTES: u64 = 640;

/// Bytes of a log chunk: a span. Its first line is its header.
pub(crate) const CHUNK_BYTES: u64 = SPAN_BYTES;
pub(crate) const CHUNK_HEAD: u64 = 64;
/// In a word log chunk's header, all [`sealed`]: 1 while it is cleared, to be used again: nothing
/// in it counts.
pub(crate) const AT_CLEARING: u64 = 0;
/// In a word log chunk's header: its logger's groups up to this sequence were put in place (trusted
/// within one boot).
pub(crate) const AT_APPLIED: u64 = 8;

/// In a snapshot chunk's header: its place among its generation's.
pub(crate) const AT_SNAP_INDEX: u64 = 0;
/// Bytes of entries.
pub(crate) const AT_SNAP_BYTES: u64 = 8;
/// XXH3 of the entries.
pub(crate) const AT_SNAP_SUM: u64 = 16;
/// Chunks of this snapshot.
pub(crate) const AT_SNAP_CHUNKS: u64 = 24;

/// Clocks, sequences and generations stay below: [`sealed`] words hold them.
pub(crate) const CLOCK_MAX: u64 = 1 << 46;

/// Smallest heap.
pub const HEAP_BYTES_MIN: u64 = 1 << 20;
/// Largest heap: what a record's 36 bits of 16 B units reach.
pub const HEAP_BYTES_MAX: u64 = 1 << 40;

/// Positions that follow from the size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub spans: u64,
    pub conventional: bool,
}

impl Layout {
    pub fn table_word(&self, span: u64) -> u64 {
        AT_TABLE + span * 8
    }

    /// Where the conventional bookkeeping of a span lies.
    pub fn conventional_at(&self, span: u64) -> u64 {
        (AT_TABLE + self.spans * 8).next_multiple_of(64) + span * CONVENTIONAL_BYTES
    }

    /// First span for objects and logs.
    pub fn first_span(&self) -> u64 {
        let spans = if self.conventional { self.spans } else { 0 };
        self.conventional_at(spans).div_ceil(SPAN_BYTES)
    }
}

/// What the span table says of a span on media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanWord {
    /// Nobody's, or a later one of a run.
    Free,
    /// The first of a run of slots.
    Slots { class: u16 },
    /// The first of one object.
    Large { spans: u32 },
    /// A chunk of a word log.
    Log { logger: u16, generation: u32 },
    /// A chunk of an object log.
    Objects { logger: u16, generation: u32 },
    /// A chunk of a snapshot.
    Snapshot { generation: u32 },
    /// The first of a persistent compartment.
    Compartment { spans: u32 },
}

/// Multiplies a value into bits that depend on all of its bits; odd, and chosen so that no change
/// of one byte of a value, whichever it was, keeps them (tested).
const TAGGING: u64 = 0x9e37_79b9_7f4a_7c15;
const TAG_SHIFT: u32 = 48;

/// A value below 2^48 as it lies on media: with 16 bits that follow from it, so that damage to it
/// is seen although it changes in one store.
#[inline]
pub(crate) fn sealed(value: u64) -> u64 {
    value | (value.wrapping_add(1).wrapping_mul(TAGGING) >> TAG_SHIFT) << TAG_SHIFT
}

/// The value; `None`: the word is damaged.
#[inline]
pub(crate) fn unsealed(word: u64) -> Option<u64> {
    let value = word & ((1 << TAG_SHIFT) - 1);
    (sealed(value) == word).then_some(value)
}

/// Bits of generations and counts in a span word.
pub(crate) const GENERATION_MASK: u64 = (1 << 24) - 1;

impl SpanWord {
    /// `what | a << 4 | spans << 16 | generation << 40`, and in the place of the one of the last
    /// two that a word does not need, bits that follow from the rest.
    pub fn encode(self) -> u64 {
        let tag = |word: u64| word.wrapping_add(1).wrapping_mul(TAGGING) >> 40;
        let run = |what: u64, a: u16, spans: u32| {
            let word = what | u64::from(a) << 4 | u64::from(spans) << 16;
            word | tag(word) << 40
        };
        let chunk = |what: u64, a: u16, generation: u32| {
            let word = what | u64::from(a) << 4 | u64::from(generation) << 40;
            word | tag(word) << 16
        };
        match self {
            Self::Free => 0,
            Self::Slots { class } => run(1, class, 0),
            Self::Large { spans } => run(2, 0, spans),
            Self::Log { logger, generation } => chunk(3, logger, generation),
            Self::Objects { logger, generation } => chunk(4, logger, generation),
            Self::Snapshot { generation } => chunk(5, 0, generation),
            Self::Compartment { spans } => run(6, 0, spans),
        }
    }

    /// `None`: no correct program writes this.
    pub fn decode(word: u64) -> Option<Self> {
        let a = (word >> 4) as u16 & 0xfff;
        let spans = (word >> 16 & GENERATION_MASK) as u32;
        let generation = (word >> 40) as u32;
        let found = match word & 15 {
            0 => Self::Free,
            1 => Self::Slots { class: a },
            2 => Self::Large { spans },
            3 => Self::Log { logger: a, generation },
            4 => Self::Objects { logger: a, generation },
            5 => Self::Snapshot { generation },
            6 => Self::Compartment { spans },
            _ => return None,
        };
        let is_sound = match found {
            Self::Large { spans } | Self::Compartment { spans } => spans > 0,
            _ => true,
        };
        (is_sound && found.encode() == word).then_some(found)
    }
}

/// A record of the word log: one 8 B word, whole or absent after a crash. Zero: none.
///
/// `what (2) | stamp (26) | unit (36)`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// An object begins to exist; the stamp is of the tx clock.
    Alloc { unit: u64, stamp: u32 },
    /// An object ceases to.
    Free { unit: u64, stamp: u32 },
    /// The head of a piece of a group, of `words` words with this one.
    Group { words: u16, piece: u32, flags: u8 },
}

/// The last piece of its group: the commit.
pub(crate) const GROUP_LAST: u8 = 1;
/// What follows are old values (undo).
pub(crate) const GROUP_UNDO: u8 = 2;
/// With the last piece: the transaction was undone, and its records do not count.
pub(crate) const GROUP_UNDONE: u8 = 4;
pub(crate) const STAMP_BITS: u32 = 26;
pub(crate) const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;

impl Record {
    pub fn encode(self) -> u64 {
        match self {
            Self::Alloc { unit, stamp } => 1 | u64::from(stamp) << 2 | unit << 28,
            Self::Free { unit, stamp } => 2 | u64::from(stamp) << 2 | unit << 28,
            Self::Group { words, piece, flags } => {
                3 | u64::from(flags) << 2 | u64::from(words) << 16 | u64::from(piece) << 32
            }
        }
    }

    pub fn decode(word: u64) -> Option<Self> {
        let (unit, stamp) = (word >> 28, (word >> 2 & STAMP_MASK) as u32);
        match word & 3 {
            1 => Some(Self::Alloc { unit, stamp }),
            2 => Some(Self::Free { unit, stamp }),
            3 => Some(Self::Group {
                words: (word >> 16) as u16,
                piece: (word >> 32) as u32,
                flags: (word >> 2) as u8,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let generation = GENERATION_MASK as u32;
        for word in [
            SpanWord::Free,
            SpanWord::Slots { class: 43 },
            SpanWord::Large { spans: 1 << 23 },
            SpanWord::Log { logger: 0xfff, generation },
            SpanWord::Objects { logger: 7, generation: 1 },
            SpanWord::Snapshot { generation },
            SpanWord::Compartment { spans: 3 },
        ] {
            assert_eq!(SpanWord::decode(word.encode()), Some(word));
        }
        let (unit, stamp) = ((1 << 36) - 1, STAMP_MASK as u32);
        for record in [
            Record::Alloc { unit, stamp },
            Record::Free { unit: 1, stamp: 0 },
            Record::Group { words: 8191, piece: u32::MAX, flags: 7 },
        ] {
            assert_eq!(Record::decode(record.encode()), Some(record));
            assert_ne!(record.encode(), 0);
        }
        assert_eq!(SpanWord::decode(7), None);
        assert_eq!(SpanWord::decode(2), None);
        assert_eq!(Record::decode(0), None);
    }

    #[test]
    fn one_byte_changed_is_seen() {
        // Whatever the value was, a changed byte adds or takes these; the tag must not stay.
        for byte in 0..6 {
            for change in 1..256_u64 {
                for change in [change << (8 * byte), (change << (8 * byte)).wrapping_neg()] {
                    let moved = change.wrapping_mul(TAGGING);
                    let stays =
                        moved < 1 << TAG_SHIFT || moved > (1_u64 << TAG_SHIFT).wrapping_neg();
                    assert!(!stays, "{change:#x}");
                }
            }
        }
        let words = [
            SpanWord::Slots { class: 0 },
            SpanWord::Slots { class: 43 },
            SpanWord::Large { spans: 2 },
            SpanWord::Log { logger: 1, generation: 2 },
            SpanWord::Objects { logger: 0, generation: GENERATION_MASK as u32 },
            SpanWord::Snapshot { generation: 77 },
            SpanWord::Compartment { spans: 1 << 20 },
        ];
        for byte in 0..8 {
            for change in 1..256_u64 {
                let change = change << (8 * byte);
                for word in words {
                    assert_eq!(
                        SpanWord::decode(word.encode() ^ change),
                        None,
                        "{word:?} {change:#x}"
                    );
                }
                assert_eq!(SpanWord::decode(change), None);
                for value in [0, 64, 65_536, (1 << 48) - 1] {
                    assert_eq!(unsealed(sealed(value)), Some(value));
                    assert_eq!(unsealed(sealed(value) ^ change), None);
                }
            }
        }
        assert_eq!(unsealed(0), None);
    }

    #[test]
    fn tables_and_spans_do_not_overlap() {
        for conventional in [false, true] {
            for mib in [1, 5, 64, 1 << 20] {
                let layout = Layout { spans: (mib << 20) / SPAN_BYTES, conventional };
                assert!(layout.table_word(layout.spans) <= layout.conventional_at(0));
                let end = layout.conventional_at(if conventional { layout.spans } else { 0 });
                assert!(end <= layout.first_span() * SPAN_BYTES);
                assert!(layout.first_span() < layout.spans);
            }
        }
    }
}
