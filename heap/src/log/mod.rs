//! The durable record of which objects are allocated: a snapshot and the logs written since (pMem's
//! write-aware allocator, NVMA).
//!
//! A *record* says that an object begins or ceases to exist. Each thread appends its records, and
//! the groups of its transactions, to chunks of its own *logger*. The objects that are allocated
//! are those of the snapshot with all records applied, in any order: each record flips one bit, and
//! records that must come before it are durable before it, because an object is handed to another
//! thread only behind a fence. So threads share no log and no lock.
//!
//! A *link* is a record, or two, together with the one word that names the object.
//!
//! A *fold* puts the records into a new snapshot. At one instant, with all loggers held, the
//! loggers turn to chunks of the next *generation*. Then the old records are applied to the shadow
//! in DRAM, the shadow is written out, and one store of the superblock's generation makes the new
//! snapshot count. Until then snapshot and logs of the old generation count, together with the logs
//! of the next.
//!
//! Lock order: fold, settling, the list of loggers, loggers ascending, the engine's locks.

pub(crate) mod append;
mod claim;
pub(crate) mod fold;
pub(crate) mod group;
pub(crate) mod link;
pub(crate) mod logged;
pub(crate) mod logger;
pub(crate) mod logs;
mod parallel;
pub(crate) mod recover;
mod replay;
pub(crate) mod settle;
pub(crate) mod shadow;
mod snapshot;
pub(crate) mod spans;
