//! Memory of which at most so much is in DRAM: the rest lies on a medium (DESIGN.md, decision 3: *paged*).
//!
//! A touch of a page that is not in DRAM traps (userfaultfd: missing and minor faults, SIGBUS in
//! the faulting thread) and is served as a read of the medium; who must go for it is written to the
//! medium first, if it is dirty. The medium is modelled ([`perdura_media::emulator`]): it says how
//! long, and the thread waits that long; the bytes stay where they are, in a memory file. So no
//! byte is ever copied, and a miss costs what the medium costs plus about 4 us.
//!
//! The rooms: `residents` decides (pure), `pager` is what faults share, `fault` is the path of a
//! touch, `recording` keeps what the medium was asked, `memory` is the public face.
//!
//! Invariants: pages in the page table are in DRAM by `residents`' account, at most the cap; the
//! page table changes only under the lock; a unit is paged in by one thread, others wait; nothing
//! on the path of a fault allocates.
//!
//! Limits: a system call that touches a page that is not in DRAM fails with `EFAULT` (touch it
//! first; it may go again). A forked child does not have the memory. A thread that touches it must
//! not block SIGBUS.

mod config;
mod error;
mod fault;
mod memory;
mod pager;
pub mod planted;
mod recording;
pub mod residents;

pub use config::{PAGE_BYTES, PagedConfig};
pub use error::PagedError;
pub use memory::{PagedMemory, PagedStats};
pub use recording::Recorded;
