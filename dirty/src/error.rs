//! What can go wrong with memory whose writes are tracked: when it is set up, and while it is used.

use rustix::io::Errno;

use crate::kind::Kind;

/// Why memory, or what is kept about it, could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A setting cannot work.
    #[error("{name} = {value}: expected {expected}")]
    Setting {
        /// Which setting.
        name: &'static str,
        /// Its value, with unit.
        value: String,
        /// What would work.
        expected: &'static str,
    },
    /// Memory could not be had.
    #[error("{len_bytes} bytes of memory for the {what} refused: {source}")]
    Memory {
        /// `region`, `ledger`, …
        what: &'static str,
        /// How much.
        len_bytes: u64,
        /// The system's error.
        source: Errno,
    },
    /// Live memory of another layout version: another build left it.
    #[error("memory held by another version: live layout {found}, this program uses {supported}")]
    LiveLayout {
        /// Version found.
        found: u64,
        /// Version understood.
        supported: u64,
    },
    /// Live memory holds a state that no program of this version writes.
    #[error("memory held by a faulty program: {what} of number {index} is {value}, which is none")]
    UnknownState {
        /// `segment state`, `buffer state`, …
        what: &'static str,
        /// Number of the segment, buffer or block.
        index: u64,
        /// The value found.
        value: u64,
    },
    /// The system refuses a way to trap stores.
    #[error("tracking by {mode} refused: {source}")]
    Tracking {
        /// Which way.
        mode: &'static str,
        /// The system's error.
        source: Errno,
    },
}

/// Why a running region refuses.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The device failed; what is dirty stays in memory, and nothing beyond the budget is accepted.
    #[error(
        "the device failed ({cause}); dirty data stay in memory and writes beyond the budget are refused"
    )]
    Latched {
        /// First failure, as text.
        cause: String,
    },
    /// More room asked for at once than the budget will ever have.
    #[error("{asked_bytes} bytes asked for at once, the budget is {budget_bytes} bytes")]
    BeyondBudget {
        /// Asked for.
        asked_bytes: u64,
        /// Budget in force.
        budget_bytes: u64,
    },
    /// The log has no segment left outside the emergency reserve.
    #[error(
        "the log is full: {free_segments} segments free, {reserve_segments} kept for the emergency flush"
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
        /// What the device said.
        cause: String,
    },
    /// Not possible where stores are trapped.
    #[error("{what} is not possible in trap mode")]
    Trapped {
        /// What was asked for.
        what: &'static str,
    },
    /// A budget that cannot be set.
    #[error("budget of {asked_bytes} bytes refused: {why}")]
    Budget {
        /// Asked for.
        asked_bytes: u64,
        /// Why not.
        why: &'static str,
    },
    /// Pages could not be protected or opened (trap modes); nothing is lost, no checkpoint was
    /// made.
    #[error("changing the protection of pages failed: {source}")]
    Protection {
        /// The system's error.
        source: Errno,
    },
    /// Blocks that the region does not have.
    #[error("blocks {first}..{end} leave a region of {region_blocks} blocks")]
    Blocks {
        /// The first asked for.
        first: u64,
        /// Behind the last asked for.
        end: u64,
        /// Blocks there are.
        region_blocks: u64,
    },
    /// The kind of a block cannot be changed.
    #[error("block {block} stays {kind}: {why}")]
    KindRefused {
        /// Which block; those before it in the same call have changed.
        block: u64,
        /// What it is.
        kind: Kind,
        /// Why.
        why: &'static str,
    },
    /// The system would not take away the memory of a block: its kind has not changed.
    #[error("block {block} could not be emptied: {source}")]
    NotEmptied {
        /// Which block.
        block: u64,
        /// The system's error.
        source: Errno,
    },
    /// Only capacity memory is bound to a NUMA node.
    #[error("block {block} is persistent: only capacity blocks can be bound to a NUMA node")]
    NotCapacity {
        /// The first such block.
        block: u64,
    },
    /// A NUMA node that does not exist, or has no memory.
    #[error("there is no NUMA node {node} with memory (see /sys/devices/system/node/has_memory)")]
    NoNode {
        /// Which node.
        node: u32,
    },
    /// The system refuses to bind memory.
    #[error(
        "binding blocks {first}..{end} to NUMA node {node} refused: {source} (EPERM: not permitted here; EIO: memory in use could not be moved; ENOSYS: a kernel without NUMA)"
    )]
    Binding {
        /// The first block.
        first: u64,
        /// Behind the last.
        end: u64,
        /// Which node.
        node: u32,
        /// The system's error.
        source: Errno,
    },
    /// Intake was stopped by a flush; no more writes.
    #[error("the region is closed: its final flush has begun")]
    Closed,
}
