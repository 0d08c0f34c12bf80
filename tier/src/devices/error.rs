//! Why a set of devices is refused, and why values could not be moved.

use perdura_media::DeviceError;
use perdura_store::{HeapError, StoreError, Unreadable};

/// Why a set of devices cannot be used as asked. Nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DevicesError {
    /// A device refused.
    #[error("device {place}: {source}")]
    Device {
        /// The device's directory.
        place: String,
        /// The device's error.
        #[source]
        source: DeviceError,
    },
    /// The file begins with something else than a device of values does.
    #[error("{place} holds something else than values of a store, or its first block is damaged")]
    Foreign {
        /// The device's directory.
        place: String,
    },
    /// The device belongs to another store.
    #[error(
        "{place} has values of another store (set {found:016x}; this store's is {expected:016x})"
    )]
    OtherSet {
        /// The device's directory.
        place: String,
        /// The set that the device names.
        found: u64,
        /// The set of the store.
        expected: u64,
    },
    /// Two directories have the same device, perhaps a copy.
    #[error("{first} and {second} are both device {number} of the store; name only one of them")]
    Twice {
        /// One directory.
        first: String,
        /// The other directory.
        second: String,
        /// Number of the device.
        number: u16,
    },
    /// A device that has values of the store is not named.
    #[error("device {number} of the store is not among those named: name its directory, too")]
    Missing {
        /// Number of the device.
        number: u16,
    },
    /// The device has values of the store, and was left out when the store was opened.
    #[error("device {number} ({place}) was missing at the start: name it, and start again")]
    NotCounted {
        /// The device's directory.
        place: String,
        /// Number of the device.
        number: u16,
    },
    /// The heap of the store refuses to note the devices.
    #[error("note the devices in the store: {0}")]
    Heap(#[from] HeapError),
    /// The region of the store refuses a checkpoint.
    #[error("checkpoint: {0}")]
    Checkpoint(#[from] perdura_region::RegionError),
    /// Another process has the device.
    #[error("another server has {place}: stop it first, or name another directory")]
    Locked {
        /// The device's directory.
        place: String,
    },
    /// There is no such device.
    #[error("there is no device {number}")]
    Unknown {
        /// The number asked for.
        number: u16,
    },
    /// The last device cannot be taken away.
    #[error("device {number} is the only one that takes values: add another one first")]
    Last {
        /// Number of the device.
        number: u16,
    },
    /// So many primaries are not possible.
    #[error(
        "{asked} primaries of {devices} devices that work: expected {least} to {devices}, because \
         a primary has at most 3 idle devices behind it"
    )]
    Primaries {
        /// The number asked for.
        asked: u16,
        /// Devices that work.
        devices: u16,
        /// Fewest primaries of so many devices.
        least: u16,
    },
    /// The device works, so its values need not be given up.
    #[error("device {number} works: take it away without FORCE, and its values move first")]
    Works {
        /// Number of the device.
        number: u16,
    },
    /// The device has failed, so its values cannot be moved.
    #[error(
        "device {number} has failed, and its values cannot be read: add its directory again \
         (PERDURA DEVICE ADD), or give the device up with its values (FORCE)"
    )]
    HasFailed {
        /// Number of the device.
        number: u16,
    },
    /// There are as many devices as there can be.
    #[error("a store has at most {max} devices over its life")]
    TooMany {
        /// Most devices.
        max: u16,
    },
}

/// Why values could not be moved. They stay where they were.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// The store refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store's region refuses a checkpoint, after which segments could be written again.
    #[error("checkpoint: {0}")]
    Checkpoint(#[from] perdura_region::RegionError),
    /// Memory of the store cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// A part of the store's memory is damaged, so that the addresses in it are not known.
    #[error(
        "a shard's memory is damaged and what lies on devices for it is not known, so no value is \
         moved: see the log of the start"
    )]
    NotSearched,
    /// A segment cannot be read.
    #[error("device {number}, segment at offset {offset}: {source}")]
    Segment {
        /// Number of the device.
        number: u16,
        /// Offset of the segment.
        offset: u64,
        /// The device's error.
        #[source]
        source: DeviceError,
    },
}
