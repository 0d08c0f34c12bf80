//! Steps that operations on objects and transactions share.

use super::super::broken::Broken;
use super::super::script::Script;

/// Bytes that differ from place to place and from one seed to another, and are never zero.
pub(crate) fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed) | 1).collect()
}

/// Folds the logs into a new snapshot.
pub(crate) fn compact(script: &mut Script) -> Result<(), Broken> {
    script.step("fold", |heap, next| {
        heap.compact()?;
        next.settle();
        Ok(())
    })
}
