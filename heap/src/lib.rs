//! Memory to build structures in: one heap with two uses (pMem, Georgia Tech: "dual-use NVM").
//!
//! [`Heap`] gives *persistent* memory, whose allocations, contents and named roots survive, and
//! *capacity* memory, a plain heap on the same medium that is gone after a restart and costs no
//! persistence.
//! What is allocated is known from a log of allocations and frees ([`Heap`], module `log`); every
//! other structure of the allocator lies in DRAM and is rebuilt (the paper's write-aware allocator,
//! NVMA).
//!
//! The key-value store has a heap of its own, the crate `perdura-slots`, which logs no allocation:
//! following the store's index shows which objects are allocated.

#[cfg(target_endian = "big")]
compile_error!("heaps hold little-endian words; a big-endian machine would misread them");

mod capacity;
pub mod check;
pub mod checkpoint;
mod claims;
pub mod collections;
mod compartment;
mod compartments;
mod config;
mod conventional;
mod core;
mod damage;
mod engine;
mod error;
mod heap;
mod layout;
mod leaks;
mod linked;
mod log;
mod memory;
mod object;
mod ptr;
mod roots;
mod still;
mod sys;
mod tx;

pub use compartments::Compartment;
pub use config::{Bookkeeping, Config, Logging, Planted, Records};
pub use damage::{Damage, FINDINGS_MAX, Remark};
pub use engine::Kind;
pub use error::HeapError;
pub use heap::{Heap, HeapStats, Opened};
pub use layout::{HEAP_BYTES_MAX, HEAP_BYTES_MIN, ROOT_NAME_MAX};
pub use leaks::{LEAKS_LISTED_MAX, Leak, Leaks, Reached, Reclaimed, Visitor};
pub use log::logged::Recovered;
pub use memory::{Durability, Memory, MemoryError, Tap};
pub use object::ALIGN_MAX;
pub use ptr::{Offset, Persist, Ptr};
pub use roots::Root;
pub use still::{PrivateCopy, Still};
pub use sys::FlushKind;
pub use tx::{LogAs, Tx};
