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
}

/// Asks the guard that listens at `socket` what it holds.
///
/// # Errors
/// No guard listens there, or it gives no usable answer.
pub fn look(socket: &Path) -> Result<Looked, LinkError> {
    let mut looked = Looked { power: None, regions: Vec::new() };
    for message in holder::look(socket)? {
        match message {
            Message::Warning { reading } => looked.power = readings::decode(&reading),
            Message::Region { owner, pid, is_flushing, used_bytes, budget_bytes, times, image } => {
                looked.regions.push(GuardedRegion {
                    image,
                    owner,
                    pid: (pid != 0).then_some(pid),
                    is_flushing,
                    dirty_bytes: used_bytes,
                    budget_bytes,
                    grace: times.grace,
                })
            }
            other => return Err(LinkError::Answer(format!("{other:?}"))),
        }
    }
    Ok(looked)
}
