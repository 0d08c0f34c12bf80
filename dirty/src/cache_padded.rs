//! Values that threads change often, each on cache lines of its own.

use std::ops::Deref;

/// Shares no cache line with anything: what one thread writes often, others would wait for where
/// they read its neighbour.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T>(pub T);

impl<T> Deref for CachePadded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
