//! The IDs of a stream's entries.

/// The ID of an entry: a time and a number among the entries of that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId {
    /// Milliseconds since 1970, if the ID was not chosen by who added the entry.
    pub ms: u64,
    /// Number among the entries of the same millisecond.
    pub seq: u64,
}

impl StreamId {
    /// The lowest ID, which no entry has.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// The highest ID.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// The next higher ID; `None` behind the highest one.
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The next lower ID; `None` before the lowest one.
    pub fn prev(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// The ID as two words.
    pub(crate) fn words(self) -> [u64; 2] {
        [self.ms, self.seq]
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}
