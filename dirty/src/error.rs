//! The errors of tracked memory: when it is set up, and while it is used.

use std::sync::Arc;

use rustix::io::Errno;

use crate::kind::Kind;

/// Why memory, or the ledger beside it, could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A setting has a value that cannot work.
    #[error("{name} = {value}: expected {expected}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// The refused value, with its unit.
        value: String,
        /// The values that would work.
        expected: &'static str,
    },
    /// The system refused memory.
    #[error("{len_bytes} bytes of memory for the {what} refused: {source}")]
    Memory {
        /// The purpose of the memory: `region`, `ledger`, …
        what: &'static str,
        /// Bytes asked for.
        len_bytes: u64,
        /// The system's error.
        source: Errno,
    },
    /// The live memory has another layout version: another build of the program left it.
    #[error("memory held by another version: live layout {found}, this program uses {supported}")]
    LiveLayout {
        /// Version found.
        found: u64,
        /// Version that this program understands.
        supported: u64,
    },
    /// The live memory holds a state that no program of this version writes.
    #[error(
        "memory held by a faulty program: {what} of number {index} is {value}, which is unknown"
    )]
    UnknownState {
        /// The kind of state: `segment state`, `buffer state`, …
        what: &'static str,
        /// Number of the segment, buffer or block.
        index: u64,
        /// The value found.
        value: u64,
    },
    /// The system refuses a way to trap stores.
    #[error("tracking by {mode} refused: {source}")]
    Tracking {
        /// The way that was refused.
        mode: &'static str,
        /// The system's error.
        source: Errno,
    },
}

/// Why a running region refuses an operation.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The device failed: dirty data stay in memory, and nothing beyond the budget is accepted.
    #[error(
        "the device failed ({cause}); dirty data stay in memory and writes beyond the budget are \
         refused"
    )]
    Latched {
        /// The first failure, as text.
        cause: String,
    },
    /// More bytes were asked for at once than the budget will ever have.
    #[error("{asked_bytes} bytes asked for at once, the budget is {budget_bytes} bytes")]
    BeyondBudget {
        /// Bytes asked for.
        asked_bytes: u64,
        /// Budget in force, bytes.
        budget_bytes: u64,
    },
    /// The log has no segment left outside the emergency reserve.
    #[error(
        "the log is full: {free_segments} segments free, {reserve_segments} kept for the \
         emergency flush"
    )]
    LogFull {
        /// Free segments.
        free_segments: u32,
        /// Reserved segments.
        reserve_segments: u32,
    },
    /// The device has no room for a larger log.
    #[error("no room for a larger log: {cause}; nothing changed")]
    Space {
        /// The device's refusal, as text.
        cause: String,
    },
    /// The operation is not possible where stores are trapped.
    #[error("{what} is not possible in trap mode")]
    Trapped {
        /// The operation.
        what: &'static str,
    },
    /// The budget cannot be changed to this size.
    #[error("budget of {asked_bytes} bytes refused: {why}")]
    Budget {
        /// Budget asked for, bytes.
        asked_bytes: u64,
        /// Reason of the refusal.
        why: &'static str,
    },
    /// The live memory holds a state that no program of this version writes: a faulty program has
    /// written to it. Nothing was flushed, so the image is as it was before.
    #[error("{source}; nothing was flushed, the image has the last commit, the memory stays held")]
    DamagedLedger {
        /// The state, and where it lies.
        source: Arc<SetupError>,
    },
    /// Pages could not be protected or opened (trap modes); nothing is lost, no checkpoint was
    /// made.
    #[error("changing the protection of pages failed: {source}")]
    Protection {
        /// The system's error.
        source: Errno,
    },
    /// A range of blocks leaves the region.
    #[error("blocks {first}..{end} leave a region of {region_blocks} blocks")]
    Blocks {
        /// First block asked for.
        first: u64,
        /// The block behind the last one asked for.
        end: u64,
        /// Blocks of the region.
        region_blocks: u64,
    },
    /// The kind of a block cannot be changed.
    #[error("block {block} stays {kind}: {why}")]
    KindRefused {
        /// Number of the block; the blocks before it in the same call have changed.
        block: u64,
        /// The kind that the block keeps.
        kind: Kind,
        /// Reason of the refusal.
        why: &'static str,
    },
    /// The system would not take away the memory of a block: its kind has not changed.
    #[error("block {block} could not be emptied: {source}")]
    NotEmptied {
        /// Number of the block.
        block: u64,
        /// The system's error.
        source: Errno,
    },
    /// Only capacity memory can be bound to a NUMA node.
    #[error("block {block} is persistent: only capacity blocks can be bound to a NUMA node")]
    NotCapacity {
        /// The first block that is not capacity memory.
        block: u64,
    },
    /// The NUMA node does not exist, or has no memory.
    #[error("there is no NUMA node {node} with memory (see /sys/devices/system/node/has_memory)")]
    NoNode {
        /// Number of the node.
        node: u32,
    },
    /// The system refuses to bind memory to a NUMA node.
    #[error(
        "binding blocks {first}..{end} to NUMA node {node} refused: {source} (EPERM: not permitted \
         here; EIO: memory in use could not be moved; ENOSYS: a kernel without NUMA)"
    )]
    Binding {
        /// First block.
        first: u64,
        /// The block behind the last one.
        end: u64,
        /// Number of the node.
        node: u32,
        /// The system's error.
        source: Errno,
    },
    /// The final flush has begun: no more writes are accepted.
    #[error("the region is closed: its final flush has begun")]
    Closed,
}
