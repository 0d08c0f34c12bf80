//! Memory of which at most a cap is in DRAM, and the rest on a medium (*paged* memory).
//!
//! A touch of a page that is not in DRAM traps (userfaultfd: missing and minor faults, SIGBUS in
//! the faulting thread) and is served as a read of the medium. A dirty page that must leave for it
//! is written to the medium first. The medium is modelled ([`perdura_media::emulator`]): it tells
//! the time of an access, and the thread waits that long. The bytes stay in a memory file and are
//! never copied, so a miss takes the medium's time plus about 4 us.
//!
//! The files: `residents` decides which pages are in DRAM (pure code), `pager` has the state that
//! faults share, `fault` serves a touch, `recording` keeps accesses of the medium, and `memory` is
//! what users see.
//!
//! Invariants:
//!
//! - every page in the page table counts as resident in `residents`, and these are at most the cap;
//! - the page table changes only under the lock;
//! - one thread pages a unit in, and others wait for it;
//! - serving a fault never allocates.
//!
//! Limits: a system call fails with `EFAULT` if it touches a page that is not in DRAM. Touching the
//! page first helps, but the page may leave again. A forked child does not have the memory. A
//! thread that touches the memory must not block SIGBUS.

mod config;
mod error;
mod fault;
mod memory;
mod pager;
mod planted;
mod recording;
mod residents;

pub use config::{PAGE_BYTES, PagedConfig};
pub use error::PagedError;
pub use memory::{PagedMemory, PagedStats};
pub use planted::PlantedPaging;
pub use recording::Recorded;
