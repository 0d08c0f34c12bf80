//! Durable memory for ordinary servers, inside your program: a map, bytes, a heap.
//!
//! Data live in DRAM and are used at DRAM speed. The part that is not yet on the SSD (the *dirty*
//! part) is kept so small, at every instant, that it can be flushed within the warning the machine
//! gets: a UPS or battery, a spot instance's notice, a SIGTERM with its grace period. So the time
//! to be safe does not grow with the data.
//!
//! # A durable map in ten lines
//!
//! `cargo new visits`, the dependency `perdura = { path = ".../perdura" }`, and `src/main.rs`:
//!
//! ```no_run
//! use perdura::{Holder, Options, Store};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let holder = Holder::this_program(); // first in main: a second process keeps the memory
//!     let store = Store::open_with("visits-data", &Options::new().holder(holder))?;
//!     store.update("visits", |old| Some([old.unwrap_or_default(), b"I"].concat()))?;
//!     println!("visits: {}", String::from_utf8(store.get("visits")?.unwrap_or_default())?);
//!     store.close()?;
//!     Ok(())
//! }
//! ```
//!
//! # Durable bytes in ten lines
//!
//! ```no_run
//! use perdura::{Holder, Options, Region};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let holder = Holder::this_program();
//!     let region = Region::open_with("bytes-data", &Options::new().holder(holder))?;
//!     let runs = 1 + region.update_word(0, |runs| runs + 1)?;
//!     region.write(4096, format!("written by run {runs}").as_bytes())?;
//!     println!("run {runs} of {} bytes", region.len_bytes());
//!     region.close()?;
//!     Ok(())
//! }
//! ```
//!
//! # What is protected
//!
//! A *holder* is a second process that has the memory's descriptors and writes nothing until it
//! must; a *guard* ([`Options::guard`]) is one for many programs. Without either, [`Store`] and
//! [`Region`] wait for the SSD in every change, unless [`Options::durability`] says otherwise; that
//! is [`Durability::Fsync`].
//!
//! | event | with a holder (default `Warned`) | without (default `Fsync`) | without, `Warned` chosen |
//! |---|---|---|---|
//! | this process is killed (`kill -9`, out of memory, a panic that aborts) | every change whose call returned | the same | back to the last checkpoint |
//! | warned loss: the program closes within the warning (see [`on_warning`]) | every change whose call returned | the same | the same |
//! | warned loss while the program is gone | the holder flushes at its own SIGTERM, SIGINT or SIGPWR, or a source of [`Holder::heeding`] | every change whose call returned | back to the last checkpoint |
//! | unwarned loss: kernel panic, dead battery; holder and program killed together | back to the last checkpoint (1 s apart) | every change whose call returned | back to the last checkpoint |
//! | torn page or flipped bit on the SSD | found by checksum when it is opened, named, never served | the same | the same |
//! | SSD failing or full | the data stay in memory, changes beyond the budget are refused, no false success | the same | the same |
//! | loss of the SSD itself | **not protected**: replicate or back up | **not protected** | **not protected** |
//!
//! A checkpoint is a state that the data had at one instant, never a mixture. A call that was cut
//! in the middle is whole or absent in a [`Store`]; of a [`Region`]'s bytes only words are. Plain
//! stores to a [`TrappedRegion`], or to a [`Heap`] in a directory, are as in the column `Warned`. A
//! heap in a file survives what its file survives. The repository's `docs/fault-model.md` names the
//! test of each row.
//!
//! **SIGTERM** does nothing by itself: the program decides. [`on_warning`] waits for it, or for
//! another source of [`Warnings`], in a thread of its own; call [`Store::close`] there. Threads
//! whose changes are refused meanwhile learn of it when the flush is over, so that no program ends
//! too early. Dropping closes as well, but can report to nobody: a failure is logged ([`tracing`]),
//! and the holder, if there is one, goes on keeping the memory.
//!
//! **Forks.** What is open belongs to the process that opened it. A forked child must not use it;
//! dropping it there does nothing.
//!
//! # How to size
//!
//! - [`Options::memory_bytes`]: keys and values (about 60 bytes each beside their own), or the
//!   bytes themselves; all of it is in DRAM. It can grow while it is used.
//! - The SSD holds the image: two to six times the memory (more below 64 MiB), reserved at the
//!   first opening, which also measures the flush rate by writing at most the budget twice.
//! - [`Options::warning`] and the measured rate give the budget: 1 GB/s and a warning of 30 s allow
//!   some 28 GB to be dirty, which is often all of the memory. A smaller budget is enough if writes
//!   are skewed; `perdura plan trace` says how small.
//! - [`Store::promise`] says what came of it.
//!
//! # Where to go on
//!
//! Programs of a screen each: `examples/` has `map`, `transaction`, `bytes`, `heap` and `warning`
//! (`cargo run -p perdura --example map DIR GUEST`).
//!
//! [`Store`] and [`Store::transaction`]; [`Region`]; [`TrappedRegion`] for code that just stores;
//! [`Heap`] for objects that survive; [`Options`] for everything that can be chosen; [`Holder`];
//! [`on_warning`]. The engine below a store, with hashes and sorted sets, is [`engine`].
//!
//! [`tracing`]: https://docs.rs/tracing

mod closing;
mod commits;
mod error;
mod guarded;
mod heap;
pub mod holder;
mod options;
mod region;
mod store;
mod transaction;
mod trapped;
mod warned;

pub use closing::Flushed;
pub use error::{AccessError, CloseError, OpenError};
pub use holder::Holder;
pub use options::{Durability, Options};
pub use region::Region;
pub use store::{Keys, Range, Store};
pub use transaction::Transaction;
pub use trapped::TrappedRegion;
pub use warned::on_warning;

pub use heap::{Heap, HeapOptions};
pub use perdura_heap as heap_types;

pub use perdura_region::{
    BudgetWish as Budget, Compression, Key, PolicyKind, Prepared, Promise, RegionError,
};
pub use perdura_store as engine;
pub use perdura_store::{StoreError, TxError};
pub use perdura_warning as warning;
pub use perdura_warning::Warnings;
pub use zerocopy;

/// Checks which public types threads may share and send: a change that breaks this does not
/// compile.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Store>();
    is_shared::<Region>();
    is_shared::<TrappedRegion>();
    is_shared::<Heap>();
    is_shared::<Options>();
    is_shared::<Warnings>();
    is_shared::<OpenError>();
    is_shared::<CloseError>();
    is_shared::<AccessError>();
};
