//! The image on the SSD: a log of extents. Its format, how frames are filled, sealed, compressed
//! and written, how the log's space is won back, and how memory is loaded from it again.
//!
//! Lock order: lanes in ascending order, then the appender.

pub mod append;
mod arena;
pub mod backed;
pub mod codec;
pub mod compact;
pub mod error;
pub mod format;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
pub mod inspect;
pub mod load;
pub mod loads;
pub mod log;
pub mod outlet;
pub mod pack;
pub mod prezero;
pub mod recover;
pub mod room;
pub mod seal;
pub mod slots;
