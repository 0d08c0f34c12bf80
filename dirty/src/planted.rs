//! Bugs that can be planted, so that the tests prove they would be caught.
//!
//! Each bug is one wrong decision at one place. It is taken only if a region's settings name the
//! bug and the program was built with the feature `planted`. Without the feature [`Planted::is`] is
//! constant, so a release holds the names of the bugs and none of the wrong code.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Planted {
    /// No bug: the correct program.
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
    /// Segments are reused before the checkpoint that frees them has committed.
    FreeBeforeCommit,
    /// A block counts as loaded when the first segment with a part of the block was read.
    LoadedTooEarly,
    /// The bytes of a compressed frame are overwritten when the device has taken them, not when
    /// they are durable.
    LetGoWhenWritten,
    /// The space that a compressed frame does not need is given back though another frame was begun
    /// behind it.
    GiveBackAlways,
    /// Grains that a freed object shares with its neighbours are dropped from the dirty ones, too.
    DropNeighbours,
    /// A group commit's frame is made durable by itself though frames before it are not.
    SingleAlways,
    /// A segment that is being prezeroed stays among the free ones.
    ZeroUntaken,
    /// Capacity memory that a holder kept is not emptied when a process takes over.
    KeepCapacity,
    /// The number of keys that was saved stays when the number changes.
    KeepSavedCount,
    /// A push to a list fills room that its own operation has made, and keeps no old bytes.
    FillFreedRoom,
    /// An entry of a stream is flagged as deleted, and the old flags are not kept.
    UnloggedDeletion,
    /// The number of fields of a large hash, or of members of a large set, stays when one is
    /// removed.
    KeepFieldCount,
    /// A field that goes, or gets another value, stays in the tree of those that expire.
    KeepFieldExpiry,
    /// A value that was built ahead gets a key though the operation wants another one by now.
    LinkUnseen,
    /// A record that moves to another key is freed with its table, tree or chunks.
    FreeMoved,
    /// The server counts a group as durable before its commit has returned.
    ReplyBeforeGroup,
    /// The server counts groups that were ordered during a commit as durable with it.
    CountLateGroups,
    /// The server counts a group as durable whose commit has failed.
    ReplyThoughFailed,
    /// The server leaves the commit of a small group out.
    SkipSmallGroups,
    /// A loop of the server sends what it has read of another loop's writes before these are
    /// durable.
    ReadOthersWrites,
    /// *server*: a client that begins to wait for a key is not looked at again once it is noted.
    LookOnce,
    /// *server*: the command of a client that waits is carried out twice.
    ServeTwice,
    /// *server*: a push serves one of the clients that wait for its key, and not the next.
    ServeOne,
    /// *server*: EXEC happens though a watched key has changed.
    IgnoreWatch,
    /// Keys lead to values on a device before the device has flushed them.
    FarBeforeFlush,
    /// Room of a device is written again without a checkpoint of the store before.
    FarReuseEmptied,
    /// *tier*: values of a batch that a device refused, because it is full or fails, count as
    /// written there.
    FarRefusedBatch,
    /// A value that has changed since it was copied to a device is replaced by the old one there.
    FarIgnoreChange,
    /// Bytes that a killed process was overwriting are not put back.
    LeaveOverwritten,
    /// An undo slot is in use though the old bytes were not copied to it.
    UndoWithoutBytes,
    /// Bytes are changed before their bits are set.
    BytesBeforeBits,
    /// A sweep releases the lane before it copies the lane's bytes.
    ReleaseBeforeCopy,
    /// A sweep takes pages off the dirty ones a second time, after it released them to stores.
    ClearAfterRelease,
}

impl Planted {
    /// All bugs that one thread shows, for tests that must catch each of them.
    pub const ALL: [Self; 25] = [
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
        Self::KeepSavedCount,
        Self::FillFreedRoom,
        Self::UnloggedDeletion,
        Self::KeepFieldCount,
        Self::KeepFieldExpiry,
        Self::ReplyBeforeGroup,
        Self::CountLateGroups,
        Self::ReplyThoughFailed,
        Self::SkipSmallGroups,
        Self::ReadOthersWrites,
        Self::LeaveOverwritten,
        Self::UndoWithoutBytes,
    ];

    /// Bugs that show only where threads interleave, for the test that draws schedules.
    pub const SCHEDULED: [Self; 2] = [Self::BytesBeforeBits, Self::ReleaseBeforeCopy];

    /// Bugs of values that lie on devices.
    pub const FAR: [Self; 4] =
        [Self::FarBeforeFlush, Self::FarReuseEmptied, Self::FarIgnoreChange, Self::FarRefusedBatch];

    /// Bugs of the server that show where clients of several loops meet.
    pub const MEETING: [Self; 3] = [Self::ServeTwice, Self::ServeOne, Self::IgnoreWatch];

    /// The same as [`Planted::SCHEDULED`], where stores trap.
    pub const SCHEDULED_TRAPPED: [Self; 1] = [Self::ClearAfterRelease];

    /// Whether this program was built so that bugs can be planted.
    pub const CAN_PLANT: bool = cfg!(feature = "planted");

    /// Whether this bug is planted. Without the feature `planted` it never is.
    #[inline]
    pub fn is(self, bug: Self) -> bool {
        Self::CAN_PLANT && self == bug
    }

    /// The bug's name on the command line.
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
            Self::KeepSavedCount => "keep-saved-count",
            Self::FillFreedRoom => "fill-freed-room",
            Self::UnloggedDeletion => "unlogged-deletion",
            Self::KeepFieldCount => "keep-field-count",
            Self::KeepFieldExpiry => "keep-field-expiry",
            Self::LinkUnseen => "link-unseen",
            Self::FreeMoved => "free-moved",
            Self::ReplyBeforeGroup => "reply-before-group",
            Self::CountLateGroups => "count-late-groups",
            Self::ReplyThoughFailed => "reply-though-failed",
            Self::SkipSmallGroups => "skip-small-groups",
            Self::ReadOthersWrites => "read-others-writes",
            Self::LookOnce => "look-once",
            Self::ServeTwice => "serve-twice",
            Self::ServeOne => "serve-one",
            Self::IgnoreWatch => "ignore-watch",
            Self::FarBeforeFlush => "far-before-flush",
            Self::FarRefusedBatch => "far-refused-batch",
            Self::FarReuseEmptied => "far-reuse-emptied",
            Self::FarIgnoreChange => "far-ignore-change",
            Self::LeaveOverwritten => "leave-overwritten",
            Self::UndoWithoutBytes => "undo-without-bytes",
            Self::BytesBeforeBits => "bytes-before-bits",
            Self::ReleaseBeforeCopy => "release-before-copy",
            Self::ClearAfterRelease => "clear-after-release",
        }
    }
}
