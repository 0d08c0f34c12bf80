//! What a guard holds, as an operator asks for it.

use std::path::Path;
use std::time::Duration;

use perdura_region::holder::wire::Message;
use perdura_region::holder::{self, LinkError};
use perdura_warning::Reading;

use crate::readings;

/// What a guard says of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Looked {
    /// What its worst source of warnings says; `None`: nothing that this version knows.
    pub power: Option<Reading>,
    /// The battery that the servers share, if they share one.
    pub battery: Option<LookedBattery>,
    /// The regions that the asking user may see: their own, or all.
    pub regions: Vec<GuardedRegion>,
}

/// One region that a guard holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardedRegion {
    /// Path of the image.
    pub image: String,
    /// User id of the owner.
    pub owner: u32,
    /// Process id of the server; `None`: it is gone.
    pub pid: Option<i32>,
    /// Whether the memory is being flushed without a server.
    pub is_flushing: bool,
    /// Bytes that are not on the SSD yet.
    pub dirty_bytes: u64,
    /// Bytes that may be dirty.
    pub budget_bytes: u64,
    /// Time from a warning to the loss, as the server counts on it.
    pub grace: Duration,
    /// Proven flush rate, bytes per second.
    pub rate_bytes_per_s: u64,
    /// Flush time that may be dirty; `None`: no battery is shared.
    pub share: Option<Duration>,
}

/// The battery that a guard divides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookedBattery {
    /// Flush time of the battery, reserve taken off.
    pub total: Duration,
    /// By how much the shares in force are longer than that.
    pub debt: Duration,
    /// Flush time of everything that is dirty.
    pub dirty: Duration,
    /// The longest that was since the guard began.
    pub worst: Duration,
}

/// Asks the guard that listens at `socket` what it holds.
///
/// # Errors
/// No guard listens there, or it gives no usable answer.
pub fn look(socket: &Path) -> Result<Looked, LinkError> {
    let mut looked = Looked { power: None, battery: None, regions: Vec::new() };
    for message in holder::look(socket)? {
        match message {
            Message::Warning { reading } => looked.power = readings::decode(&reading),
            Message::Battery { total_us, debt_us, dirty_us, worst_us } => {
                let [total, debt, dirty, worst] =
                    [total_us, debt_us, dirty_us, worst_us].map(Duration::from_micros);
                looked.battery = Some(LookedBattery { total, debt, dirty, worst });
            }
            Message::Region {
                owner,
                pid,
                is_flushing,
                used_bytes,
                budget_bytes,
                times,
                rate_bytes_per_s,
                share_us,
                image,
            } => looked.regions.push(GuardedRegion {
                image,
                owner,
                pid: (pid != 0).then_some(pid),
                is_flushing,
                dirty_bytes: used_bytes,
                budget_bytes,
                grace: times.grace,
                rate_bytes_per_s,
                share: (share_us != u64::MAX).then(|| Duration::from_micros(share_us)),
            }),
            other => return Err(LinkError::Answer(format!("{other:?}"))),
        }
    }
    Ok(looked)
}
