//! How writes are noticed: announced by the writer, or trapped page by page (Viyojit, section 5.1).
//!
//! In trap mode every page is write-protected until a store to it has been entered in the ledger.
//! `pages` owns the state of pages and closes and opens them. `fault` is the path of a store that
//! met a closed page, and `serve` brings faults to it, by signal or by message; `awake` keeps
//! processors from sleeping between two messages. `guests` are other processes that map the memory.
//! `sample` protects dirty pages again to see which are written again, and `recency` has its state.

mod awake;
mod fault;
mod guests;
mod kind;
mod pages;
mod recency;
mod sample;
mod serve;
mod urgent;

pub use fault::Blocked;
pub use guests::Guest;
pub use kind::{TrackingKind, TrapKind};
pub use pages::PageTracker;
pub use serve::Service;
