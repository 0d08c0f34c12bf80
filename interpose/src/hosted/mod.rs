//! Files that an unmodified program maps shared lie in a host's memory (`perdura run --dir`).
//!
//! A file below the directory that is mapped shared is *served* from then on, in every process that
//! has the library. Its mappings are of the host's memory, and so are its reads and writes. Its
//! length stays that of the file itself, so that everybody sees it.
//!
//! A served file is known by its inode, which the host's *board* lists. Whether a descriptor may be
//! of such a file is remembered by number; whether it still is the same file is asked of the kernel
//! each time.

pub mod descriptors;
mod fork;
pub mod link;
mod ranges;
pub mod served;
pub mod start;
mod state;
pub mod streams;
#[path = "../../../mapped/src/wire.rs"]
mod wire;
