//! A value on its own cache lines, for words that one thread changes often.

use std::ops::Deref;

/// A value that shares no cache line with another: where one thread writes it often, threads that
/// read a neighbour would wait. 128 B, because processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T>(pub T);

impl<T> Deref for CachePadded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
