//! The unsafe seam: shared memory files, write-protection, fault signals and raw copies. Code
//! outside this folder reaches raw memory only through the types here.

mod aligned;
mod fault_lock;
mod guarded;
mod mapping;
mod numa;
mod pagemap;
mod paging;
mod prefetch;
pub mod signals;
mod uffd;

pub use aligned::AlignedBytes;
pub use fault_lock::{FaultGuard, FaultLock};
pub use guarded::Access;
pub use mapping::{HUGE_PAGE_BYTES, Mapping, SharedMemory};
pub use numa::NODES_MAX;
pub use pagemap::{Kept, PageMap, Run};
pub use prefetch::{prefetch, prefetch_to_store};
pub use uffd::{Delivery, Uffd};
