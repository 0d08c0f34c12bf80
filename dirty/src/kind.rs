//! The kind of a block: persistent memory, or capacity memory, which is memory and nothing else.

/// What a block's memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// Durable: tracked, charged, written to the SSD.
    #[default]
    Persistent,
    /// Plain memory, gone after a restart. Stores cost nothing and are never written anywhere.
    Capacity,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Persistent => "persistent",
            Self::Capacity => "capacity",
        })
    }
}

/// A block's kind as the ledger holds it, in a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KindBits {
    /// Durable memory.
    Persistent,
    /// Plain memory, wherever the system takes it from.
    Capacity,
    /// Plain memory that comes from one NUMA node.
    BoundCapacity,
}

impl KindBits {
    const CAPACITY: u8 = 1;
    const BOUND: u8 = 2;

    /// The byte in the ledger.
    pub fn to_byte(self) -> u8 {
        match self {
            Self::Persistent => 0,
            Self::Capacity => Self::CAPACITY,
            Self::BoundCapacity => Self::CAPACITY | Self::BOUND,
        }
    }

    /// What a byte in the ledger says; `Err`: the byte, which says nothing that is known.
    pub fn from_byte(byte: u8) -> Result<Self, u8> {
        let all = [Self::Persistent, Self::Capacity, Self::BoundCapacity];
        all.into_iter().find(|bits| bits.to_byte() == byte).ok_or(byte)
    }

    /// Whether a byte in the ledger says capacity memory: asked at every write.
    #[inline]
    pub fn is_capacity(byte: u8) -> bool {
        byte & Self::CAPACITY != 0
    }
}
