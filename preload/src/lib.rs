//! `libperdura_preload.so`: a program that knows nothing of Perdura has its heap in capacity
//! memory.
//!
//! Loaded with `LD_PRELOAD` (`perdura run` does that), it takes the place of the C library's
//! `malloc` and its kin; C++ `new` and the allocators of most languages stand on those. Memory
//! comes from one [`perdura_heap::Heap`] of which only capacity memory is used, opened by a
//! constructor, before `main`.
//!
//! Invariants: a pointer goes back to where it came from. The heap knows its own by their address;
//! all others, those from before it was open and those it had no room for, come from the C
//! library's allocator and are on a list ([`elsewhere`]). What is neither ends the process, with
//! the pointer named. Nothing here calls the functions it replaces: this library's own memory is
//! the C library's ([`next::CLibrary`]).
//!
//! Settings, by environment: see [`settings`].

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod calls;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod elsewhere;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod fork;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod next;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod open;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod say;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod settings;
