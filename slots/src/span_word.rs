//! A word of the span table, which holds the lane that a run of spans belongs to, and the run's
//! contents.

use perdura_region::LaneId;

use crate::classes::is_run;

/// The contents of a run of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanWord {
    /// The span belongs to no lane.
    Free,
    /// The run holds slots of one size class.
    Small { class: u8, lane: LaneId, spans: u32 },
    /// The run holds one object.
    Large { lane: LaneId, spans: u32 },
}

impl SpanWord {
    /// `kind | class << 8 | lane << 16 | spans << 32`.
    pub fn encode(self) -> u64 {
        match self {
            Self::Free => 0,
            Self::Small { class, lane, spans } => {
                1 | u64::from(class) << 8 | u64::from(lane.0) << 16 | u64::from(spans) << 32
            }
            Self::Large { lane, spans } => 2 | u64::from(lane.0) << 16 | u64::from(spans) << 32,
        }
    }

    /// Reads a word of the span table; `None` if no correct program writes it.
    pub fn from_table(word: u64) -> Option<Self> {
        Self::from_copy(word).filter(|known| match known {
            Self::Small { class, spans, .. } => is_run(usize::from(*class), u64::from(*spans)),
            Self::Free | Self::Large { .. } => true,
        })
    }

    /// Reads a word that this process has encoded; `None` if it has not.
    pub fn from_copy(word: u64) -> Option<Self> {
        let (class, lane, spans) = ((word >> 8) as u8, LaneId((word >> 16) as u16), word >> 32);
        let spans = spans as u32;
        match word as u8 {
            0 if word == 0 => Some(Self::Free),
            1 if spans > 0 => Some(Self::Small { class, lane, spans }),
            2 if spans > 0 && class == 0 => Some(Self::Large { lane, spans }),
            _ => None,
        }
    }

    /// The lane that the run belongs to, and how many spans the run has; `None` for a free span.
    pub fn run(self) -> Option<(LaneId, u64)> {
        match self {
            Self::Free => None,
            Self::Small { lane, spans, .. } | Self::Large { lane, spans } => {
                Some((lane, u64::from(spans)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_the_table_is_read_only_if_a_program_could_have_written_it() {
        for class in 0..=u8::MAX {
            for spans in 0..80 {
                let word = SpanWord::Small { class, lane: LaneId(7), spans };
                let is_right = is_run(usize::from(class), u64::from(spans));
                let read = SpanWord::from_table(word.encode());
                assert_eq!(read, is_right.then_some(word));
                let copy = SpanWord::from_copy(word.encode());
                assert_eq!(copy, (spans > 0).then_some(word));
            }
        }
        let large = SpanWord::Large { lane: LaneId(u16::MAX), spans: u32::MAX };
        assert_eq!(SpanWord::from_table(large.encode()), Some(large));
        assert_eq!(large.run(), Some((LaneId(u16::MAX), u64::from(u32::MAX))));
        assert_eq!(SpanWord::from_table(0), Some(SpanWord::Free));
        assert_eq!(SpanWord::Free.run(), None);
        let none = SpanWord::Large { lane: LaneId(1), spans: 0 }.encode();
        for damaged in [none, large.encode() | 1 << 8, 1 << 16, 3 | 1 << 32, 0xff | 1 << 32] {
            assert_eq!(SpanWord::from_table(damaged), None, "{damaged:#x}");
        }
    }
}
