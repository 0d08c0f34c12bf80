//! Bugs that can be planted, so that the tests prove they would be caught.
//!
//! Each is one wrong turn at one place, taken only if a region's settings name it and the program
//! was built with the feature `planted`: [`Planted::is`] is constant without it, so a release holds
//! the names of the bugs and none of the wrong turns.

/// One wrong turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Planted {
    /// The right program.
    #[default]
    None,
    /// The device flush before the commit slot is left out.
    SkipFlush,
    /// Payload checksums are not compared on recovery.
    DropChecksum,
    /// A grain is opened for writing without being entered in the ledger.
    OpenBeforeAccounting,
    /// Bytes leave the budget when copied, not when durable.
    CleanAtCopy,
    /// A group commit reports success before its device flush.
    AcknowledgeBeforeCommit,
    /// Segments are reused before the checkpoint that lets them go has committed.
    FreeBeforeCommit,
    /// A block counts as loaded when the first segment that has a part of it was read.
    LoadedTooEarly,
    /// The bytes of a compressed frame are let go when the device has taken them, not when they are
    /// durable.
    LetGoWhenWritten,
    /// What a compressed frame does not need is given back though another frame was begun behind
    /// it.
    GiveBackAlways,
    /// Grains that a freed object shares with its neighbours cease to count as dirty, too.
    DropNeighbours,
    /// A group commit's frame is made durable by itself though frames before it are not.
    SingleAlways,
    /// A segment that zeros are being written to is left among the free ones.
    ZeroUntaken,
    /// Capacity memory that a holder kept is handed on as it is, not emptied.
    KeepCapacity,
}

impl Planted {
    /// All bugs, for tests that must catch each.
    pub const ALL: [Self; 13] = [
        Self::SkipFlush,
        Self::DropChecksum,
        Self::OpenBeforeAccounting,
        Self::CleanAtCopy,
        Self::AcknowledgeBeforeCommit,
        Self::FreeBeforeCommit,
        Self::LoadedTooEarly,
        Self::LetGoWhenWritten,
        Self::GiveBackAlways,
        Self::DropNeighbours,
        Self::SingleAlways,
        Self::ZeroUntaken,
        Self::KeepCapacity,
    ];

    /// Whether this program was built so that bugs can be planted.
    pub const CAN_PLANT: bool = cfg!(feature = "planted");

    /// Whether this bug is planted; never so without the feature `planted`.
    #[inline]
    pub fn is(self, bug: Self) -> bool {
        Self::CAN_PLANT && self == bug
    }

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SkipFlush => "skip-flush",
            Self::DropChecksum => "drop-checksum",
            Self::OpenBeforeAccounting => "open-before-accounting",
            Self::CleanAtCopy => "clean-at-copy",
            Self::AcknowledgeBeforeCommit => "acknowledge-before-commit",
            Self::FreeBeforeCommit => "free-before-commit",
            Self::LoadedTooEarly => "loaded-too-early",
            Self::LetGoWhenWritten => "let-go-when-written",
            Self::GiveBackAlways => "give-back-always",
            Self::DropNeighbours => "drop-neighbours",
            Self::SingleAlways => "single-always",
            Self::ZeroUntaken => "zero-untaken",
            Self::KeepCapacity => "keep-capacity",
        }
    }
}
