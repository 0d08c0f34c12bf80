//! The layout of a heap's memory. Words are little-endian, offsets count from the first byte;
//! docs/format.md has a drawing.
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
pub(crate) const VERSION: u64 = 1;

pub(crate) const AT_MAGIC: u64 = 0;
pub(crate) const AT_VERSION: u64 = 8;
/// The number of spans of the heap, for which its tables have room.
pub(crate) const AT_SPANS: u64 = 16;
/// [`FLAG_CONVENTIONAL`] or 0.
pub(crate) const AT_FLAGS: u64 = 24;
/// The XXH3 sum of the four words before this one.
pub(crate) const AT_CHECKSUM: u64 = 32;
/// The generation, [`sealed`], which names the snapshot and the logs that count. One store changes
/// it. The word is alone in its line.
pub(crate) const AT_GENERATION: u64 = 64;
/// The boot in which the heap was last open, in two words that are alone in their line.
pub(crate) const AT_BOOT: u64 = 128;
/// The clock of transactions when the generation began, [`sealed`]. The word is alone in its line.
pub(crate) const AT_CLOCK: u64 = 192;
/// The sequence below which all groups are settled, [`sealed`]: they are in place durably, or given
/// up. The word is alone in its line.
pub(crate) const AT_SETTLED: u64 = 256;

pub(crate) const FLAG_CONVENTIONAL: u64 = 1;

pub(crate) const AT_ROOTS: u64 = 4096;
pub(crate) const ROOTS_MAX: u64 = 1024;
pub(crate) const ROOT_BYTES: u64 = 64;
/// Bytes of the longest name of a root.
pub const ROOT_NAME_MAX: usize = 39;

pub(crate) const AT_TABLE: u64 = AT_ROOTS + ROOTS_MAX * ROOT_BYTES;
/// Bytes of conventional bookkeeping for a span: a header line, a line for the class's list, and
/// 4,096 bits.
pub(crate) const CONVENTIONAL_BYTES: u64 = 640;

/// Bytes of a chunk of a log: a span, whose first line is the chunk's header.
pub(crate) const CHUNK_BYTES: u64 = SPAN_BYTES;
pub(crate) const CHUNK_HEAD: u64 = 64;
/// In the header of a chunk of words, [`sealed`]: 1 while the chunk is cleared to be used again,
/// and nothing in it counts; else 0.
pub(crate) const AT_CLEARING: u64 = 0;
/// In the header of a chunk of words, [`sealed`]: the sequence up to which the logger's groups were
/// put in place, which is trusted within one boot.
pub(crate) const AT_APPLIED: u64 = 8;

/// In the header of a snapshot chunk: the chunk's number in its snapshot.
pub(crate) const AT_SNAP_INDEX: u64 = 0;
/// In the header of a snapshot chunk: bytes of entries.
pub(crate) const AT_SNAP_BYTES: u64 = 8;
/// In the header of a snapshot chunk: XXH3 sum of the entries.
pub(crate) const AT_SNAP_SUM: u64 = 16;
/// In the header of a snapshot chunk: number of chunks of the snapshot.
pub(crate) const AT_SNAP_CHUNKS: u64 = 24;

/// Words of the shadow for each span: a bit for each 16 B.
pub(crate) const SHADOW_WORDS: usize = 64;
/// Most words of entries in a snapshot chunk.
pub(crate) const SNAP_BODY_WORDS: usize = ((CHUNK_BYTES - CHUNK_HEAD) / 8) as usize;
/// Words of the largest entry of a snapshot: span, mask, and all words of the span's shadow.
pub(crate) const SNAP_ENTRY_WORDS_MAX: usize = 2 + SHADOW_WORDS;

/// Chunks of the largest snapshot of a heap with `spans` spans.
pub(crate) fn snapshot_chunks_most(spans: u64) -> u64 {
    spans.div_ceil((SNAP_BODY_WORDS / SNAP_ENTRY_WORDS_MAX) as u64) + 1
}

/// All clocks, sequences and generations stay below this, so that [`sealed`] words hold them.
pub(crate) const CLOCK_MAX: u64 = 1 << 46;

/// Bytes of the smallest heap.
pub const HEAP_BYTES_MIN: u64 = 1 << 20;
/// Bytes of the largest heap, because a record has 36 bits for a unit of 16 B.
pub const HEAP_BYTES_MAX: u64 = 1 << 40;

/// Positions that follow from the size and kind of a heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub spans: u64,
    pub conventional: bool,
}

impl Layout {
    pub fn table_word(&self, span: u64) -> u64 {
        AT_TABLE + span * 8
    }

    /// Offset of the conventional bookkeeping of a span.
    pub fn conventional_at(&self, span: u64) -> u64 {
        (AT_TABLE + self.spans * 8).next_multiple_of(64) + span * CONVENTIONAL_BYTES
    }

    /// The first span that objects and logs may use.
    pub fn first_span(&self) -> u64 {
        let spans = if self.conventional { self.spans } else { 0 };
        self.conventional_at(spans).div_ceil(SPAN_BYTES)
    }
}

/// A word of the span table, which tells the contents of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanWord {
    /// The span holds nothing, or is a later span of a run.
    Free,
    /// The span begins a run of slots of a size class.
    Slots { class: u16 },
    /// The span begins a run that holds one object.
    Large { spans: u32 },
    /// The span is a chunk of a word log.
    Log { logger: u16, generation: u32 },
    /// The span is a chunk of an object log.
    Objects { logger: u16, generation: u32 },
    /// The span is a chunk of a snapshot.
    Snapshot { generation: u32 },
    /// The span begins a persistent compartment.
    Compartment { spans: u32 },
}

/// A factor that spreads a value over bits which depend on all of its bits. It is odd, and chosen
/// so that no change of one byte of any value keeps the upper bits; a test proves that.
const TAGGING: u64 = 0x9e37_79b9_7f4a_7c15;
const TAG_SHIFT: u32 = 48;

/// A value below 2^48 as it lies on media, with 16 bits that follow from the value, so that damage
/// is seen although one store changes the whole word.
#[inline]
pub(crate) fn sealed(value: u64) -> u64 {
    value | tag_of(value) << TAG_SHIFT
}

/// Sixteen bits that change with every change of one byte of `value`.
#[inline]
pub(crate) fn tag_of(value: u64) -> u64 {
    value.wrapping_add(1).wrapping_mul(TAGGING) >> TAG_SHIFT
}

/// The value of a [`sealed`] word; `None` if the word is damaged.
#[inline]
pub(crate) fn unsealed(word: u64) -> Option<u64> {
    let value = word & ((1 << TAG_SHIFT) - 1);
    (sealed(value) == word).then_some(value)
}

/// Bits of a span word that hold a generation or a count.
pub(crate) const GENERATION_MASK: u64 = (1 << 24) - 1;

impl SpanWord {
    /// `what | a << 4 | spans << 16 | generation << 40`. A word needs one of the last two fields;
    /// the other holds bits that follow from the rest.
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

    /// Reads a word of the span table; `None` if no correct program writes it.
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

/// A record of a word log: one word of 8 B, which a crash leaves whole or absent. A word of zeros
/// is no record.
///
/// `what (2) | stamp (26) | unit (36)`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// An object begins to exist, at this time of the clock of transactions.
    Alloc { unit: u64, stamp: u32 },
    /// An object ceases to exist, at this time of the clock of transactions.
    Free { unit: u64, stamp: u32 },
    /// A piece of a group begins, which has `words` words with this one.
    Group { words: u16, piece: u32, flags: u8 },
}

/// Flag of the last piece of a group, which is the commit.
pub(crate) const GROUP_LAST: u8 = 1;
/// Flag of a piece that holds old values, for an undo transaction.
pub(crate) const GROUP_UNDO: u8 = 2;
/// Flag of the last piece of a transaction that was undone, whose records do not count.
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

    /// Reads a word of a log; `None` if no correct program writes it.
    pub fn decode(word: u64) -> Option<Self> {
        let (unit, stamp) = (word >> 28, (word >> 2 & STAMP_MASK) as u32);
        match word & 3 {
            1 => Some(Self::Alloc { unit, stamp }),
            2 => Some(Self::Free { unit, stamp }),
            3 => {
                let (words, piece, flags) = ((word >> 16) as u16, (word >> 32) as u32, word >> 2);
                let group = Self::Group { words, piece, flags: flags as u8 };
                let is_known = flags as u8 <= GROUP_LAST | GROUP_UNDO | GROUP_UNDONE;
                (is_known && group.encode() == word).then_some(group)
            }
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
        // A flag that there is not, and a bit between the fields.
        let group = Record::Group { words: 16, piece: 1, flags: GROUP_LAST }.encode();
        for bit in [5, 9, 10, 15] {
            assert_eq!(Record::decode(group | 1 << bit), None, "bit {bit}");
        }
    }

    #[test]
    fn one_byte_changed_is_seen() {
        // Whatever the value was, a changed byte adds or takes these; the tag must not stay.
        for byte in 0..8 {
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
