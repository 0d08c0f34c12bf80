//! A region in use: its memory with the image behind it, its cleaner, and the locks of operations
//! that change the region as a whole.

use std::sync::OnceLock;

use perdura_dirty::{CachePadded, LaneGuard, LaneId, Rank, Ranked, RankedGuard, RegionError, Tell};
use perdura_image::{Backed, Compression, Prezeroing};
use rustix::io::Errno;

use crate::clean::Cleaner;
use crate::kind_change::KindChange;
use crate::panics::PanicWatch;

/// The state that a region and its cleaner's thread share.
pub(crate) struct Running {
    /// Locked before lanes and before the appender. Fields are dropped in order, so this one, whose
    /// queue writes from the memory, stands before the memory.
    cleaner: CachePadded<Ranked<Cleaner>>,
    pub backed: Backed,
    /// Free segments that are being prezeroed. Locked after the cleaner and before the appender.
    pub prezeroing: Ranked<Prezeroing>,
    /// Held during a change of the budget and during a drill.
    pub budget_change: Ranked<()>,
    pub kind_change: KindChange,
    /// Whether the memory is locked in DRAM, or why not.
    pub locked: Result<(), Errno>,
    /// Whether the frame buffers lie in huge pages, and whether the ledger is locked, or why not.
    pub buffers: OnceLock<(Result<(), Errno>, Result<(), Errno>)>,
}

/// The locked cleaner. Threads that wait for budget are notified when it is released.
pub(crate) struct CleanerGuard<'r> {
    /// Dropped first: what a panic left half done must be known before the cleaner is free.
    _watch: PanicWatch<'r>,
    held: RankedGuard<'r, Cleaner>,
    /// Dropped after `held`, so that a woken waiter finds the cleaner free.
    tell: Tell<'r>,
}

impl CleanerGuard<'_> {
    /// Releases the cleaner and notifies nobody, because nothing was done that could help a waiter.
    pub(crate) fn release_in_vain(mut self) {
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
    /// A region whose cleaner has done nothing yet.
    pub(crate) fn new(backed: Backed, cleaner: Cleaner) -> Self {
        Self {
            locked: backed.memory.map.lock_in_memory(),
            backed,
            cleaner: CachePadded(Ranked::new(Rank::Cleaner, cleaner)),
            prezeroing: Ranked::new(Rank::Prezeroing, Prezeroing::default()),
            budget_change: Ranked::new(Rank::BudgetChange, ()),
            kind_change: KindChange::default(),
            buffers: OnceLock::new(),
        }
    }

    /// Locks the cleaner, even after the final flush has begun.
    pub(crate) fn any_cleaner(&self) -> CleanerGuard<'_> {
        let held = self.cleaner.lock();
        CleanerGuard { _watch: PanicWatch::new(&self.backed), held, tell: self.tell() }
    }

    /// Locks the cleaner if it is free.
    pub(crate) fn try_cleaner(&self) -> Option<CleanerGuard<'_>> {
        let held = self.cleaner.try_lock()?;
        Some(CleanerGuard { _watch: PanicWatch::new(&self.backed), held, tell: self.tell() })
    }

    /// The notification that the release of the cleaner sends: none in trap mode. A fault that
    /// finds no room would only ask the cleaner again, for a round that nothing has called for.
    fn tell(&self) -> Tell<'_> {
        match self.backed.tracked.is_trapped() {
            true => Tell::default(),
            false => Tell::all(&self.backed.memory.budget),
        }
    }

    /// Locks the cleaner unless the final flush has begun, because nothing may be cut or written
    /// after that.
    pub(crate) fn open_cleaner(&self) -> Result<CleanerGuard<'_>, RegionError> {
        let cleaner = self.any_cleaner();
        self.backed.memory.check_open()?;
        Ok(cleaner)
    }

    /// Locks a lane and gives it `credit_bytes`, which [`Running::satisfy`] has taken.
    #[inline]
    pub(crate) fn lock_with(&self, lane: LaneId, credit_bytes: u64) -> LaneGuard<'_> {
        let mut guard = LaneGuard::new(&self.backed.tracked, &self.backed, lane);
        guard.deposit(credit_bytes);
        guard
    }

    /// Chooses the next segment to be prezeroed. The cleaner can be released then.
    pub(crate) fn choose_prezeroing(&self, cleaner: &mut Cleaner) -> RankedGuard<'_, Prezeroing> {
        let mut prezeroing = self.prezeroing.lock();
        prezeroing.choose(&self.backed, &mut cleaner.outlet.single_bytes);
        prezeroing
    }

    /// Gathers the frame buffers in huge pages and locks the ledger in DRAM, once. This takes
    /// longer than recovery with deferred loading, so the cleaner's thread does it in that case.
    pub(crate) fn prepare_buffers(&self) {
        // Gathered before they are locked: the system gathers locked pages less readily.
        let is_packing = self.backed.log.compression != Compression::Off
            || self.backed.memory.ledger.key_words().is_some();
        let ledger = &self.backed.memory.ledger;
        self.buffers.get_or_init(|| (ledger.gather_buffers(is_packing), ledger.lock_in_memory()));
    }
}
