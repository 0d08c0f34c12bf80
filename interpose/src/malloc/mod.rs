//! The heap of an unmodified program lies in capacity memory.
//!
//! `malloc` and the related functions of the C library are replaced; C++ `new` and the allocators
//! of most languages call those. Memory comes from one [`perdura_heap::Heap`] of which only
//! capacity memory is used. It is opened before `main`, if the environment asks for it
//! ([`settings`]); otherwise all calls are [`passed`] on.
//!
//! Invariants: memory goes back to the allocator that it came from. The heap knows its own memory
//! by the address. Memory from before the start, and beyond the heap's room, comes from the C
//! library's allocator and is on a list ([`elsewhere`]). With a heap, a pointer that is neither
//! ends the process, and is named.

mod calls;
mod elsewhere;
mod fork;
mod heap;
mod open;
pub mod own;
mod passed;
mod settings;

pub use open::{report, start};
