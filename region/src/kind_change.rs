//! What changes of kind share.

use parking_lot::Mutex;
use perdura_dirty::RegionError;

/// One change of a block's kind at a time.
#[derive(Default)]
pub(crate) struct KindChange {
    /// Held while a block's kind is entered or bound, a leaf: its neighbours are looked at.
    pub one: Mutex<()>,
    #[cfg(test)]
    pub fuse: crate::testing::Fuse,
}

impl KindChange {
    /// Where a process may be killed, as far as others can see it: a test ends what it is at here.
    pub fn step(&self) -> Result<(), RegionError> {
        #[cfg(test)]
        if !self.fuse.step() {
            return Err(RegionError::Closed);
        }
        Ok(())
    }
}
