//! Bugs that can be planted, so that the tests prove they would be caught.

/// One planted bug; none unless [`super::PathSettings`] names one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PlantedPath {
    /// The correct program.
    #[default]
    None,
    /// Adjacent requests are merged though one reads and the other writes.
    MergeDirections,
    /// Requests are merged over a gap between them.
    MergeOverGap,
    /// A tag is free again as soon as its command is issued.
    FreeTagAtIssue,
    /// A request that has expired waits like any other.
    ForgetExpiry,
    /// A request returns as soon as its bytes are copied, due or not.
    ReturnWhenCopied,
}

impl PlantedPath {
    /// All bugs. The tests must catch each of them.
    pub const ALL: [Self; 5] = [
        Self::MergeDirections,
        Self::MergeOverGap,
        Self::FreeTagAtIssue,
        Self::ForgetExpiry,
        Self::ReturnWhenCopied,
    ];
}
