//! `libperdura_maps.so`: files that an unmodified program maps shared lie in a host's memory.
//!
//! `perdura run --dir` loads the library with `LD_PRELOAD`. It replaces the C library's functions
//! that map, read and write files: a file below the directory that is mapped shared is *served*
//! from then on, in every process that has the library. Its mappings are of the host's memory, and
//! so are its reads and writes. Its length stays that of the file itself, so that everybody sees
//! it.
//!
//! A served file is known by its inode, which the host's *board* lists. Whether a descriptor may be
//! of such a file is remembered by number; whether it still is the same file is asked of the kernel
//! each time.
//!
//! Nothing here calls the functions that it replaces, but for [`next`].

#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod calls;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod descriptors;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod kernel;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod link;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod next;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod served;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod start;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
#[path = "../../src/wire.rs"]
mod wire;
