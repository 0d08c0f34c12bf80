//! What the appender's words are made of. The room *model* checks the appender with a model
//! checker's types under the same names.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
