//! The unsafe seam of the heap: mappings, instructions that write cache lines back, tables without
//! malloc.

mod boot;
mod copy;
mod flush;
pub mod forks;
mod mapping;
mod membarrier;
mod numa;
mod owned;
mod parting;
mod room;
mod sync;
mod table;
pub mod threads;

pub use boot::boot_id;
pub use copy::{copy_in, copy_out};
pub use flush::LINE_BYTES;
pub use flush::{FlushKind, fence, flush_line, prefetch_for_write, stream};
pub use mapping::{Advice, Backed, Mapping};
pub use mapping::{HUGE_PAGE_BYTES, MAPPING_ALIGN_MAX};
pub use numa::check_node;
pub use owned::{Own, Owned, Visit};
pub use room::Room;
pub use table::Table;
