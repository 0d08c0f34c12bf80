//! The guard: the process that keeps the memory of many servers.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use perdura_media::Clock;
use perdura_region::directory::HOLDER_WAIT;
use perdura_region::holder::Times;
use perdura_region::holder::socket::{is_listening, listen_at};
use perdura_warning::Warnings;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};

use crate::emergency::Flushes;
use crate::error::{HoldError, failed};
use crate::foreign::Closings;
use crate::holding::{Holding, Role};
use crate::isolate;
use crate::neighbours::Neighbours;
use crate::parent::{Inherited, inherit};
use crate::tenancy::{Battery, Tenancy};
use crate::visitor::Visitors;

/// Default of [`GuardOptions::regions_max`].
pub const REGIONS_MAX: usize = 64;

/// Time that a flush of memory may take that servers have left, where no battery says more.
const GRACE_OF_LEFT: Duration = Duration::from_secs(30);

/// Settings of a guard.
#[derive(Debug, Clone)]
pub struct GuardOptions {
    /// Path of the socket, which is removed at the end.
    pub socket: PathBuf,
    /// Most regions at a time. One user may have half of them; root may have all.
    pub regions_max: usize,
    /// The battery that all servers share; `None`: each server's own promise counts.
    pub battery: Option<Battery>,
    /// Threads that copy and write during an emergency flush of one region.
    pub threads: usize,
    /// Directory below whose files memory may lie that servers have left, as after a reboot.
    pub memory_dir: Option<PathBuf>,
}

/// The socket of a guard, with the lock that keeps other guards away from it.
#[derive(Debug)]
pub struct GuardSocket {
    /// Where servers connect.
    pub listener: OwnedFd,
    /// Held as long as this value lives.
    _lock: OwnedFd,
}

impl GuardSocket {
    /// Listens at `path`, in place of a guard that is dead. `mode` are the permission bits that say
    /// who may connect.
    ///
    /// # Errors
    /// Another guard has the socket, or the path cannot be used.
    pub fn listen(path: &Path, mode: u32) -> Result<Self, HoldError> {
        let in_use = || HoldError::InUse { path: path.to_owned() };
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = open(&lock_path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(failed(format!("open {}", lock_path.display())))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::AGAIN) => return Err(in_use()),
            outcome => outcome.map_err(failed(format!("lock {}", lock_path.display())))?,
        }
        // A guard whose parent was killed goes on without the lock.
        if is_listening(path)? {
            return Err(in_use());
        }
        let listener = listen_at(path, Mode::from_raw_mode(mode))?;
        Ok(Self { listener, _lock: lock })
    }
}

/// A guard that is about to run: it has what its parent kept.
pub struct Guard {
    holding: Holding,
}

impl Guard {
    /// Takes over, through `parent`, what an earlier guard held, and the socket.
    ///
    /// # Errors
    /// The parent hands nothing over.
    pub fn inherit(
        parent: OwnedFd,
        warnings: Warnings,
        clock: Arc<dyn Clock>,
        options: GuardOptions,
    ) -> Result<Self, HoldError> {
        let closings = Closings::default();
        let Inherited { parent, listener, held } = inherit(parent, &closings, &*clock)?;
        tracing::debug!(spared = %isolate::ask_to_be_spared(), "guarding");
        let grace = options.battery.as_ref().map_or(GRACE_OF_LEFT, |battery| battery.grace);
        let tenancy = options.battery.map(|it| Box::new(Tenancy::new(it, &*clock)));
        let mut holding = Holding {
            role: Role::Guard {
                regions_max: options.regions_max,
                regions_of_one_max: options.regions_max.div_ceil(2),
                parent,
                tenancy,
            },
            listener,
            socket: Some(options.socket),
            warnings,
            told: None,
            flushes: Flushes::new(options.threads, Arc::clone(&clock))?,
            clock,
            held: Vec::new(),
            visitors: Visitors::default(),
            neighbours: Neighbours::default(),
            closings,
            drill: None,
            given_up: None,
        };
        if !held.is_empty() {
            tracing::warn!(regions = held.len(), "took over what an earlier guard held");
        }
        holding.resume(held);
        if let Some(dir) = &options.memory_dir {
            holding.take_left(dir, Times { grace, wait: Some(HOLDER_WAIT) })?;
        }
        Ok(Self { holding })
    }

    /// Holds memory until the power, or the time of this process, ends and everything is on the
    /// SSD.
    ///
    /// # Errors
    /// The system refuses to wait for events.
    pub fn run(self) -> Result<(), HoldError> {
        self.holding.run()
    }
}
