//! The settings of opening a directory: its region, and the promise about it.

use std::path::PathBuf;
use std::time::Duration;

use perdura_dirty::promise::BudgetWish;
use perdura_media::file::{Direct, Engine};

use crate::config::Config;
use crate::holder::{HeldBy, Times};

/// Default time that a holder without a server waits for one. Restarts, upgrades and reboots of a
/// container take less; nobody should have to search longer for a machine's memory. Nothing is lost
/// at the end of the wait: the holder flushes, and the next start reads the image.
pub const HOLDER_WAIT: Duration = Duration::from_secs(10 * 60);

/// The settings of opening a directory: its region, and the promise about it.
#[derive(Debug)]
pub struct Settings {
    /// The directory, which is made if it is missing.
    pub dir: PathBuf,
    /// Settings of the region. Opening replaces the budget by one that the promise allows.
    pub config: Config,
    /// How the budget is chosen: from the warning, or by the user.
    pub wish: BudgetWish,
    /// Time between a warning and the loss of power or process.
    pub warning: Duration,
    /// Part of the warning that the flush does not get. `None` takes
    /// [`perdura_dirty::promise::default_reserve`].
    pub reserve: Option<Duration>,
    /// The system interface through which the image is written.
    pub engine: Engine,
    /// Whether writes to the image bypass the page cache.
    pub direct: Direct,
    /// Threads that copy and write during a flush.
    pub threads: usize,
    /// Directory of a file system for the memory of a region that is read from its image: memory
    /// and ledger are files there, and outlive every process. `None`: they are gone with the last
    /// process that has them.
    pub memory_dir: Option<PathBuf>,
    /// Who holds the memory besides this process. With `None` it is lost with this process.
    pub holder: Option<HeldBy>,
    /// Time that a holder or guard waits for another server before it flushes and frees the memory.
    /// `None` waits without end.
    pub holder_wait: Option<Duration>,
    /// Whether to measure the flush rate even if one is on record.
    pub prove_again: bool,
}

impl Settings {
    /// The times that a holder of this directory keeps to.
    pub(super) fn times(&self) -> Times {
        Times { grace: self.warning, wait: self.holder_wait }
    }
}
