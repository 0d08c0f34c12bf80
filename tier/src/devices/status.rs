//! What people are told of the devices.

use std::sync::atomic::Ordering::Relaxed;

use super::device::DeviceState;
use super::members::Devices;
use super::roles::RolesStatus;

/// A reading of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceStatus {
    /// Number of the device in the set.
    pub number: u16,
    /// The device's directory.
    pub place: String,
    /// What it does.
    pub state: DeviceState,
    /// Whether the last batch found no room.
    pub is_full: bool,
    /// Whether it takes no values while a primary has room.
    pub is_idle: bool,
    /// Bytes of values that keys lead to, with their keys and headers.
    pub live_bytes: u64,
    /// Bytes of segments that are in use, garbage included.
    pub used_bytes: u64,
    /// Segments whose records and count disagreed; they are not written again.
    pub suspect_segments: u64,
    /// Values read since the opening, and of these those that could not be read.
    pub reads: u64,
    /// Values that could not be read.
    pub failed_reads: u64,
    /// Bytes read since the opening.
    pub read_bytes: u64,
    /// Batches written since the opening.
    pub writes: u64,
    /// Bytes written since the opening.
    pub written_bytes: u64,
    /// Time in which a request was under way since the opening, nanoseconds.
    pub busy_ns: u64,
    /// Time in pauses of at least a second since the opening, nanoseconds: a drive can sleep in
    /// them.
    pub quiet_ns: u64,
    /// Requests that ended such a pause.
    pub wakeups: u64,
    /// Time since the opening, nanoseconds.
    pub open_ns: u64,
}

/// A reading of all devices.
#[derive(Debug, Clone, PartialEq)]
pub struct DevicesStatus {
    /// The devices, in no order.
    pub devices: Vec<DeviceStatus>,
    /// Values moved out of memory since the opening.
    pub moved_values: u64,
    /// Bytes of memory that this freed.
    pub moved_bytes: u64,
    /// Segments emptied since the opening.
    pub emptied_segments: u64,
    /// Values moved from one place of a device to another since the opening.
    pub moved_on_values: u64,
    /// Fewest uses of a value that comes back to memory when it is read.
    pub uses_to_return: u8,
    /// Which devices are primaries.
    pub roles: RolesStatus,
    /// Why the mover's last step ended early, if it did.
    pub last_error: Option<String>,
}

impl Devices {
    /// Number and directory of each device.
    pub fn places(&self) -> Vec<(u16, String)> {
        self.members().iter().map(|member| (member.number(), member.place.clone())).collect()
    }

    /// What the devices hold and have done.
    pub fn status(&self) -> DevicesStatus {
        let now_ns = self.clock.now_ns();
        let of = |member: &std::sync::Arc<super::device::FarDevice>| {
            let (sums, counts) = (member.sums(), &member.counts);
            let (quiet_ns, wakeups) = member.busy.quiet(now_ns);
            DeviceStatus {
                number: member.number(),
                place: member.place.clone(),
                state: member.state(),
                is_full: member.is_full.load(Relaxed),
                is_idle: member.is_idle.load(Relaxed),
                live_bytes: sums.live_bytes,
                used_bytes: sums.used_bytes,
                suspect_segments: sums.suspect,
                reads: counts.reads.load(Relaxed),
                failed_reads: counts.failed_reads.load(Relaxed),
                read_bytes: counts.read_bytes.load(Relaxed),
                writes: counts.writes.load(Relaxed),
                written_bytes: counts.written_bytes.load(Relaxed),
                busy_ns: member.busy.total_ns(now_ns),
                quiet_ns,
                wakeups,
                open_ns: now_ns.saturating_sub(member.opened_ns),
            }
        };
        let devices = self.members().iter().map(of).collect();
        let roles = self.roles();
        let progress = self.progress.lock();
        DevicesStatus {
            devices,
            moved_values: progress.values,
            moved_bytes: progress.bytes,
            emptied_segments: progress.segments,
            moved_on_values: progress.moved_on,
            uses_to_return: self.uses_to_return.load(Relaxed),
            roles,
            last_error: progress.last_error.clone(),
        }
    }
}
