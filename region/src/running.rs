//! A region in use: its memory with the image behind it, its cleaner, and the locks of those who
//! change something about the whole.

use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};
use perdura_dirty::{CachePadded, LaneGuard, LaneId, RegionError, Tell};
use perdura_image::{Backed, Compression, Prezeroing};
use rustix::io::Errno;

use crate::clean::Cleaner;
use crate::kind_change::KindChange;

/// What a region and its cleaner's thread share.
pub(crate) struct Running {
    /// Locked before lanes and before the appender. Before the memory, which its queue writes from:
    /// fields are dropped in this order.
    cleaner: CachePadded<Mutex<Cleaner>>,
    pub backed: Backed,
    /// What is being prezeroed; locked after the cleaner and before the appender.
    pub prezeroing: Mutex<Prezeroing>,
    /// Held while the budget is changed or drilled.
    pub budget_change: Mutex<()>,
    pub kind_change: KindChange,
    /// Whether the memory is locked in DRAM, or why not.
    pub locked: Result<(), Errno>,
    /// Whether the frame buffers lie in huge pages and the ledger is locked, or why not.
    pub buffers: OnceLock<(Result<(), Errno>, Result<(), Errno>)>,
}

/// The cleaner, held. Who waits for budget is told when it is free again.
pub(crate) struct CleanerGuard<'r> {
    held: MutexGuard<'r, Cleaner>,
    /// Dropped after `held`: a waiter that is woken finds the cleaner free.
    tell: Tell<'r>,
}

impl CleanerGuard<'_> {
    /// Lets go without a word: nothing was done that could help who waits.
    pub fn release_in_vain(mut self) {
        self.tell.nobody();
    }
}

impl std::ops::Deref for CleanerGuard<'_> {
    type Target = Cleaner;
    fn deref(&self) -> &Cleaner {
        &self.held
    }
}

impl std::ops::DerefMut for CleanerGuard<'_> {
    fn deref_mut(&mut self) -> &mut Cleaner {
        &mut self.held
    }
}

impl Running {
    /// A region whose cleaner has not begun.
    pub fn new(backed: Backed, cleaner: Cleaner) -> Self {
        Self {
            locked: backed.memory.map.lock_in_memory(),
            backed,
            cleaner: CachePadded(Mutex::new(cleaner)),
            prezeroing: Mutex::default(),
            budget_change: Mutex::default(),
            kind_change: KindChange::default(),
            buffers: OnceLock::new(),
        }
    }

    /// The cleaner, also after the final flush has begun.
    pub fn any_cleaner(&self) -> CleanerGuard<'_> {
        CleanerGuard { held: self.cleaner.lock(), tell: self.tell() }
    }

    /// The cleaner, if nobody holds it.
    pub fn try_cleaner(&self) -> Option<CleanerGuard<'_>> {
        let held = self.cleaner.try_lock()?;
        Some(CleanerGuard { held, tell: self.tell() })
    }

    /// Whom the release of the cleaner wakes. Nobody in trap mode: a fault that finds no room would
    /// only ask the cleaner again, for a round that nothing has called for.
    fn tell(&self) -> Tell<'_> {
        match self.backed.tracked.is_trapped() {
            true => Tell::default(),
            false => Tell::all(&self.backed.memory.budget),
        }
    }

    /// The cleaner, unless the final flush has begun: nothing may be cut or written after it.
    pub fn open_cleaner(&self) -> Result<CleanerGuard<'_>, RegionError> {
        let cleaner = self.any_cleaner();
        self.backed.memory.check_open()?;
        Ok(cleaner)
    }

    /// Locks a lane with `credit_bytes` that [`Running::satisfy`] obtained.
    pub fn lock_with(&self, lane: LaneId, credit_bytes: u64) -> LaneGuard<'_> {
        let mut guard = LaneGuard::new(&self.backed.tracked, &self.backed, lane);
        guard.deposit(credit_bytes);
        guard
    }

    /// Chooses what is to be prezeroed next; then the cleaner may go.
    pub fn choose_prezeroing(&self, cleaner: &mut Cleaner) -> MutexGuard<'_, Prezeroing> {
        let mut prezeroing = self.prezeroing.lock();
        prezeroing.choose(&self.backed, &mut cleaner.outlet.single_bytes);
        prezeroing
    }

    /// Gathers the frame buffers and locks the ledger, unless that was done. It takes longer than
    /// to recover an image without loading it, and so is left to the cleaner's thread then.
    pub fn prepare_buffers(&self) {
        // Before they are locked: locked pages are gathered less readily.
        let is_compressing = self.backed.log.compression != Compression::Off;
        let ledger = &self.backed.memory.ledger;
        self.buffers
            .get_or_init(|| (ledger.gather_buffers(is_compressing), ledger.lock_in_memory()));
    }
}
