//! `libperdura_preload.so`: the heap of an unmodified program lies in capacity memory.
//!
//! The library is loaded with `LD_PRELOAD` (`perdura run` does that) and replaces `malloc` and the
//! related functions of the C library; C++ `new` and the allocators of most languages call those.
//! Memory comes from one [`perdura_heap::Heap`] of which only capacity memory is used. A
//! constructor opens the heap before `main`.
//!
//! Invariants: memory goes back to the allocator that it came from. The heap knows its own memory
//! by the address. All other memory, from before the heap was open and beyond the heap's room,
//! comes from the C library's allocator and is on a list ([`elsewhere`]). A pointer that is neither
//! ends the process, and is named. Nothing here calls the functions that it replaces: this
//! library's own memory is the C library's ([`next::CLibrary`]).
//!
//! The settings come from the environment: see [`settings`].

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod calls;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod elsewhere;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod fork;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod heap;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod next;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod open;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod say;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod settings;
