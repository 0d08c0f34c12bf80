//! The state that changes of kind share.

use perdura_dirty::{Rank, Ranked, RegionError};

/// The lock of changes of kind: one block's kind changes at a time.
pub(crate) struct KindChange {
    /// Held while a block's kind is stored or its memory bound to a node, because the kinds of its
    /// neighbours are read. No lock is taken while this one is held.
    pub one: Ranked<()>,
    #[cfg(test)]
    pub fuse: crate::testing::Fuse,
}

impl Default for KindChange {
    fn default() -> Self {
        Self {
            one: Ranked::new(Rank::KindChange, ()),
            #[cfg(test)]
            fuse: Default::default(),
        }
    }
}

impl KindChange {
    /// A point at which other processes can see how far the change is. A test ends the change here,
    /// as if the process had been killed.
    pub(crate) fn step(&self) -> Result<(), RegionError> {
        #[cfg(test)]
        if !self.fuse.step() {
            return Err(RegionError::Closed);
        }
        Ok(())
    }
}
