//! Bugs of paging that can be planted, so that tests prove they would be caught.

/// One wrong turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PlantedPaging {
    /// The right program.
    #[default]
    None,
    /// Of some units it is forgotten on their way out that they are dirty.
    ForgetDirtyVictim,
    /// A dirty unit that is touched while it is inactive comes back as if it were clean.
    ReactivateAsClean,
}
