//! A drill of all servers of a guard, as an operator asks for it.

use std::path::Path;
use std::time::Duration;

use perdura_region::holder::wire::Message;
use perdura_region::holder::{self, LinkError};

/// How a drill went in one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drilled {
    /// Path of the image.
    pub image: String,
    /// Bytes that were dirty.
    pub used_bytes: u64,
    /// Bytes that may be dirty.
    pub budget_bytes: u64,
    /// Bytes written to the device.
    pub device_bytes: u64,
    /// Time of the flush.
    pub elapsed: Duration,
}

/// How a drill went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrillOutcome {
    /// Each server that has drilled.
    pub drilled: Vec<Drilled>,
    /// Why others have not, for people.
    pub failed: Vec<String>,
}

/// Lets all servers of the guard that listens at `socket` flush at the same time, for real, and go
/// on; `fills`: each with a full budget.
///
/// # Errors
/// No guard listens there, or it refuses.
pub fn drill(socket: &Path, fills: bool) -> Result<DrillOutcome, LinkError> {
    let mut outcome = DrillOutcome::default();
    for message in holder::drill(socket, fills)? {
        match message {
            Message::Drilled { used_bytes, budget_bytes, device_bytes, elapsed_ns, image } => {
                let elapsed = Duration::from_nanos(elapsed_ns);
                let drilled = Drilled { image, used_bytes, budget_bytes, device_bytes, elapsed };
                outcome.drilled.push(drilled);
            }
            Message::NotDrilled { why } => outcome.failed.push(why),
            other => return Err(LinkError::Answer(format!("{other:?}"))),
        }
    }
    Ok(outcome)
}
