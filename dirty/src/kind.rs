//! The kind of a block: persistent memory, or capacity memory, which is plain memory.

/// The use of a block's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// Durable memory: tracked, counted in the budget, written to the SSD.
    #[default]
    Persistent,
    /// Plain memory, lost with a restart. Stores to it cost no budget and are never written to the
    /// SSD.
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

/// The kind of a block as the ledger holds it, in a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KindBits {
    /// Persistent memory.
    Persistent,
    /// Capacity memory from any NUMA node.
    Capacity,
    /// Capacity memory that is bound to one NUMA node.
    BoundCapacity,
}

impl KindBits {
    const CAPACITY: u8 = 1;
    const BOUND: u8 = 2;

    /// The byte that the ledger holds for this kind.
    pub fn to_byte(self) -> u8 {
        match self {
            Self::Persistent => 0,
            Self::Capacity => Self::CAPACITY,
            Self::BoundCapacity => Self::CAPACITY | Self::BOUND,
        }
    }

    /// The kind that a byte of the ledger stands for; `Err` has the byte if it stands for none.
    pub(crate) fn from_byte(byte: u8) -> Result<Self, u8> {
        let all = [Self::Persistent, Self::Capacity, Self::BoundCapacity];
        all.into_iter().find(|bits| bits.to_byte() == byte).ok_or(byte)
    }

    /// Whether a byte of the ledger stands for capacity memory, bound or not. Every write asks
    /// this.
    #[inline]
    pub fn is_capacity(byte: u8) -> bool {
        byte & Self::CAPACITY != 0
    }
}
