//! The export, the settings and the limits that all connections of a server share.

use std::sync::Arc;

use perdura_media::Clock;

use super::spin::Spinners;
use super::stop::Stop;
use crate::disk::Disk;

/// A disk and the name under which it is served.
#[derive(Clone)]
pub struct Export {
    /// The name that clients ask for; an empty name is taken for it, too.
    pub name: String,
    /// The bytes that are served.
    pub disk: Arc<dyn Disk>,
}

/// Limits of a server and of its connections.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most connections at the same time.
    pub connections_max: usize,
    /// Longest time for which a connection polls for the next request before it sleeps; 0 lets it
    /// sleep at once.
    pub spin_ns: u64,
    /// Time within which a client must have chosen its export.
    pub handshake_ns: u64,
    /// Time that a client has to read its last replies when the connection ends.
    pub goodbye_ns: u64,
    /// Processors of the machine. One of them is never used for polling.
    pub processors: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            spin_ns: 100_000,
            handshake_ns: 30_000_000_000,
            goodbye_ns: 5_000_000_000,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// State that each connection's thread uses.
pub(super) struct Shared {
    pub export: Export,
    pub settings: Settings,
    pub clock: Arc<dyn Clock>,
    pub stop: Arc<Stop>,
    pub spinners: Spinners,
}
