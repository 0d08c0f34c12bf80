//! The server's words to its guard, from threads other than the one that watches the link.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use super::link::Link;
use super::wire::{Message, send};
use crate::{DrillReport, RegionError};

/// A way to answer the guard on the link that is in use at the moment, if there is one.
#[derive(Debug, Clone, Default)]
pub struct Voice {
    socket: Arc<Mutex<Option<OwnedFd>>>,
}

impl Voice {
    /// Uses `link` from now on; `None`: there is none.
    pub(super) fn follow(&self, link: Option<&Link>) {
        let copied = link.and_then(|link| link.fd().try_clone_to_owned().ok());
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = copied;
    }

    /// Tells the guard how a drill went.
    pub fn drilled(&self, outcome: Result<DrillReport, RegionError>) {
        let said = match outcome {
            Ok(report) => Message::Drilled {
                used_bytes: report.used_bytes,
                budget_bytes: report.budget_bytes,
                device_bytes: report.flush.device_bytes,
                elapsed_ns: report.elapsed_ns,
                image: String::new(),
            },
            Err(error) => Message::Failed { why: error.to_string() },
        };
        self.say(&said, "how a drill went");
    }

    /// Tells the guard that what is dirty fits the share of order `serial`. A guard that does not
    /// hear it goes on reckoning with the former share.
    pub fn kept(&self, serial: u64) {
        self.say(&Message::Kept { serial }, "that a share is kept");
    }

    fn say(&self, message: &Message, what: &str) {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let said = socket.as_ref().map(|socket| send(socket, message, &[]));
        if let Some(Err(error)) = said {
            tracing::warn!(%error, "the guard did not hear {what}");
        }
    }
}
