//! The image on the SSD, a log of extents: its format, how frames are filled, sealed, compressed
//! and written, how the log's space is won back, and how memory is loaded from it again.
//!
//! Lock order: lanes in ascending order, then the appender.

#![warn(unreachable_pub)]

mod append;
mod arena;
mod backed;
mod checks;
mod cipher;
mod codec;
mod compact;
mod error;
mod frame;
mod load;
mod loads;
mod log;
mod outlet;
mod pack;
mod prezero;
mod recover;
mod room;
mod seal;
mod sync;

// The format, byte for byte, and the fixed structures at the image's head.
pub mod format;
pub mod slots;
pub mod superblock;

// Writing: frames are filled, sealed and handed to the device.
pub use append::{Appender, Refusal, Source, free_buffer, free_segment};
pub use backed::Backed;
pub use cipher::Key;
pub use codec::Compression;
pub use log::Log;
pub use outlet::{Outlet, Pump};
pub use pack::Packer;
pub use seal::{frame_bytes, kept_bytes, raw_bytes, seal, seal_for_proof};

// The log's space: compaction, prezeroing, growth.
pub use compact::{Compaction, Step, buffers_in_use, free_dead_now, is_being_written, survey};
pub use prezero::{Prezeroing, forget_prezeroing};
pub use room::grow_durably;

// Reading: recovery and loading, and copying the image while it is in use.
pub mod copying;
pub mod inspect;
pub use error::{ImageError, OpenError, Unreadable};
pub use load::{Loading, Target};
pub use loads::{LoadProgress, Loads};
pub use recover::{TableSpace, Tail, recover};

#[doc(hidden)]
pub mod fuzzing;
