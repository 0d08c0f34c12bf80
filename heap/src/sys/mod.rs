//! The unsafe seam of the heap: mappings, instructions that write cache lines back, tables without malloc.

mod flush;
mod mapping;
<<<<<<< HEAD
mod owned;
=======
mod numa;
mod parting;
>>>>>>> 366ee1d (Move an unmodified program's heap into capacity memory: preload library, bound to a node if asked)
mod table;
pub mod threads;

pub use flush::LINE_BYTES;
pub use flush::{FlushKind, fence, flush_line, prefetch_for_write, stream};
pub use mapping::HUGE_PAGE_BYTES;
pub use mapping::{Advice, Backed, Mapping};
<<<<<<< HEAD
pub use owned::{Own, Owned, Visit};
=======
pub use numa::check_node;
pub use parting::rebind;
>>>>>>> 366ee1d (Move an unmodified program's heap into capacity memory: preload library, bound to a node if asked)
pub use table::Table;
