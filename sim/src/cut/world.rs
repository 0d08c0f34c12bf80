//! One machine with a store on it, and beside it the oracle and the states that a power cut may
//! lead back to.
//!
//! - `oracle` has the contents of memory: a warned loss and a crash must give exactly these.
//! - `allowed` are the states that may be found after an unwarned loss: the last one committed, and
//!   those whose commit was begun since and not reported.
//! - A step that commits for want of space may do so before or after its own change takes effect.

use std::mem::take;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use perdura_media::{Clock, Device, FaultPlan, FaultyDevice, LoneClock, SimDevice};
use perdura_region::{
    BUDGET_MIN_BYTES, Config, FlushReport, OpenError, Origin, Planted, Region, RegionError,
};
use perdura_store::{DATABASES, Heap, Store, StoreOptions};

use super::battery::{Battery, final_commit_bytes};
use super::broken::Broken;
use super::kills::Kills;
use super::oracle::Oracle;
use super::proof;
use super::scenario::{Durability, Scenario};
use super::step::Step;

/// After so many steps one more shard is rebuilt.
const STEPS_PER_SHARD: usize = 3;

/// How a step ended, when no promise was broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Went {
    /// The process goes on.
    On,
    /// The power is off.
    PowerLost,
    /// The device has failed and the region says so.
    Failed,
    /// The process died inside the step.
    Killed,
}

/// A machine at a moment of a run.
pub(crate) struct Kept {
    device: SimDevice,
    /// The memory and the ledger of the process, if it is killed then; otherwise power is lost.
    pub held: Option<(OwnedFd, OwnedFd)>,
    /// The states that a loss of power may lead to.
    pub allowed: Vec<Oracle>,
    /// The states in which memory may be.
    pub in_memory: Vec<Oracle>,
    battery: Battery,
    region_bytes: u64,
    /// Dirty bytes that were freed by the process, or the processes before it.
    freed_bytes: u64,
    steps_done: usize,
    now_ms: u64,
}

#[derive(Default)]
struct Copies {
    made: Vec<Kept>,
    /// The states allowed at the last call of [`World::assign_copies`].
    allowed: Vec<Oracle>,
    /// The contents of memory then.
    oracle: Oracle,
    /// The battery then, which stays until a step that exchanges it is done.
    battery: Option<Battery>,
    /// Whether the step that runs flushes everything.
    is_flushing: bool,
    killed: Arc<Kills>,
}

pub(crate) struct World<'s> {
    pub scenario: &'s Scenario,
    pub planted: Planted,
    pub device: SimDevice,
    /// Faults of the device that this process meets.
    pub faults: Arc<FaultPlan>,
    pub clock: Arc<LoneClock>,
    pub oracle: Oracle,
    pub allowed: Vec<Oracle>,
    /// The oracle's contents after the step in which the process was killed, had it been done.
    pub in_doubt: Option<Oracle>,
    /// Operations that were refused for want of memory or budget, which the oracle cannot judge.
    pub refused: u64,
    pub battery: Battery,
    /// Bytes of memory that the next process wants.
    region_bytes: u64,
    /// Dirty bytes that were freed by the processes before, whose memory this process has.
    freed_before_bytes: u64,
    ops_before: u64,
    /// Checkpoints of this process that the allowed states account for.
    pub commits: u64,
    steps_done: usize,
    store: Option<Store>,
    /// Copies of the device that are not assigned to the contents they may lead back to.
    copies: Copies,
}

impl<'s> World<'s> {
    /// A machine without a store: [`World::boot`] is next.
    pub fn new(scenario: &'s Scenario, planted: Planted, device: SimDevice) -> Self {
        Self {
            scenario,
            planted,
            device,
            faults: Arc::new(FaultPlan::new()),
            clock: Arc::new(LoneClock::new(1_700_000_000_000)),
            oracle: Oracle::default(),
            allowed: vec![Oracle::default()],
            in_doubt: None,
            refused: 0,
            battery: Battery::for_dirty(scenario.dirty_bytes, scenario.segment_bytes),
            region_bytes: scenario.region_bytes,
            freed_before_bytes: 0,
            ops_before: 0,
            commits: 0,
            steps_done: 0,
            store: None,
            copies: Copies::default(),
        }
    }

    /// A machine that lost its power when the copy was made: [`World::power_cycle`] is next.
    pub fn of_copy(scenario: &'s Scenario, planted: Planted, copy: &Kept) -> Self {
        Self {
            clock: Arc::new(LoneClock::new(copy.now_ms)),
            allowed: copy.allowed.clone(),
            battery: copy.battery,
            region_bytes: copy.region_bytes,
            freed_before_bytes: copy.freed_bytes,
            steps_done: copy.steps_done,
            ..Self::new(scenario, planted, copy.device.clone())
        }
    }

    /// Keeps a copy of the device before each of the operations `lost`, and a copy of the whole
    /// machine before each of the operations `killed`.
    pub fn copy_before(&mut self, lost: &[u64], killed: &[u64]) {
        self.device.copy_before(lost.iter().copied());
        *self.copies.killed.at.lock() = killed.iter().copied().collect();
        let kills = Arc::clone(&self.copies.killed);
        self.device.watch(Arc::new(move |device| kills.see(device)));
    }

    /// Makes the copies of kills that found no process when they were due.
    pub fn see_kills(&mut self) {
        self.copies.killed.see(&self.device);
        self.assign_copies();
    }

    /// The copies kept: those of a loss, and those of a kill.
    pub fn take_copies(&mut self) -> (Vec<Kept>, Vec<Kept>) {
        take(&mut self.copies.made).into_iter().partition(|kept| kept.held.is_none())
    }

    /// Assigns the copies made since the last call to the states that were allowed then, and to
    /// what memory had then and has now: a commit may have made either durable since.
    pub fn assign_copies(&mut self) {
        let before = self.copies.battery.unwrap_or(self.battery);
        let is_shrinking = before.flush_bytes > self.battery.flush_bytes;
        let mut battery = if is_shrinking { before } else { self.battery };
        if self.copies.is_flushing {
            battery.redo_bytes += Battery::killed_flush_bytes(self.scenario.segment_bytes);
        }
        let in_memory = [self.copies.oracle.clone(), self.oracle.clone()];
        let lost = self.device.take_copies().into_iter().map(|(_, device)| (device, None));
        let killed = take(&mut *self.copies.killed.made.lock());
        let killed = killed.into_iter().map(|(device, held)| (device, Some(held)));
        for (device, held) in lost.chain(killed) {
            self.copies.made.push(Kept {
                device,
                held,
                allowed: [&self.copies.allowed[..], &in_memory].concat(),
                in_memory: in_memory.to_vec(),
                battery,
                region_bytes: self.region_bytes,
                freed_bytes: self.freed_bytes(),
                steps_done: self.steps_done,
                now_ms: self.now_ms(),
            });
        }
        self.copies.allowed = self.allowed.clone();
        self.copies.oracle = self.oracle.clone();
        self.copies.battery = Some(self.battery);
    }

    pub fn store(&self) -> &Store {
        match &self.store {
            Some(store) => store,
            None => unreachable!("a step between two lives"),
        }
    }

    /// Whether a process has the store open.
    pub fn is_alive(&self) -> bool {
        self.store.is_some()
    }

    /// Number of durable operations since the beginning.
    pub fn durable_ops(&self) -> u64 {
        self.ops_before + self.device.ops()
    }

    pub fn region(&self) -> &Region {
        self.store().region()
    }

    pub fn now_ms(&self) -> u64 {
        self.clock.unix_ms()
    }

    /// Ends the process. Its writes under way reach the device's cache.
    pub fn die(&mut self) {
        *self.copies.killed.memory.lock() = None;
        if let Some(store) = self.store.take() {
            self.freed_before_bytes += store.region().stats().dropped_bytes;
        }
    }

    /// Restarts the machine. `seed` decides which unflushed writes the device has.
    pub fn power_cycle(&mut self, seed: u64) {
        self.die();
        self.ops_before += self.device.ops();
        self.device = self.device.power_cycle(seed);
        self.clock.time.advance_ns(1_000_000_000);
    }

    /// Descriptors of memory and ledger, as a holder has them.
    pub fn held(&self) -> Result<(OwnedFd, OwnedFd), Broken> {
        let (memory, ledger) = self.region().fds();
        Ok((memory.try_clone_to_owned()?, ledger.try_clone_to_owned()?))
    }

    /// Opens the image in a new process.
    pub fn boot(&mut self, when: &'static str) -> Result<Went, Broken> {
        self.die();
        self.freed_before_bytes = 0;
        let (device, config) = (self.fresh_device(), self.config()?);
        self.adopt(Region::open(device, self.clock.clone(), config), when)
    }

    /// Goes on in a new process with memory that a dead one left.
    pub fn attach(&mut self, held: (OwnedFd, OwnedFd), when: &'static str) -> Result<Went, Broken> {
        self.die();
        let (device, config) = (self.fresh_device(), self.config()?);
        let region = Region::attach(held.0, held.1, device, self.clock.clone(), config);
        self.adopt(region, when)
    }

    /// Runs one step.
    pub fn step(&mut self, step: &Step) -> Result<Went, Broken> {
        self.copies.is_flushing = matches!(step, Step::Drill | Step::Reopen);
        let went = match step {
            Step::Change(changes) => self.change(step, changes, false)?,
            Step::Abort(changes) => self.change(step, changes, true)?,
            Step::Empty(db) => {
                let result = match db {
                    Some(db) => self.store().flush_db(*db),
                    None => self.store().flush_all(),
                };
                let after = self.oracle.without(*db);
                self.settle(step, result, Some(after))?
            }
            Step::Tick(ms) => {
                self.clock.time.advance_ns(ms * 1_000_000);
                self.store().free_some(512);
                let swept = self.store().expire_some(200);
                let result = swept.and_then(|_| self.store().save_quiet_counts());
                let after = self.oracle.clone();
                self.settle(step, result, Some(after))?
            }
            Step::Look => match self.look("while running") {
                // Readers take steps of the heap, too.
                Err(_) if self.store().heap().is_killed() => Went::Killed,
                looked => looked.map(|()| Went::On)?,
            },
            Step::Reopen => self.reopen(step)?,
            Step::Attach(bytes) => {
                let held = self.held()?;
                self.region_bytes = self.region_bytes.max(*bytes);
                self.attach(held, "attaching")?
            }
            _ => self.commit(step)?,
        };
        self.assign_copies();
        if went != Went::On {
            return Ok(went);
        }
        // The process may have died in the work behind a step that was already committed or
        // refused.
        if self.store().heap().is_killed() {
            return Ok(Went::Killed);
        }
        self.check_budget(step)?;
        self.steps_done += 1;
        if self.steps_done.is_multiple_of(STEPS_PER_SHARD) {
            let when = "while running";
            let unread =
                |error: perdura_region::Unreadable| Broken::OpenStore { when, error: error.into() };
            self.region().load_next().map_err(unread)?;
            self.store().rebuild_next().map_err(|error| Broken::OpenStore { when, error })?;
            self.assign_copies();
        }
        let went = match self.scenario.durability {
            Durability::Fsync { every } if self.steps_done.is_multiple_of(every) => {
                self.commit(&Step::Group)?
            }
            _ => went,
        };
        self.assign_copies();
        let is_due = |every| self.steps_done.is_multiple_of(every);
        if went == Went::On && self.scenario.checkpoint_steps.is_some_and(is_due) {
            let went = self.commit(&Step::Checkpoint)?;
            self.assign_copies();
            return Ok(went);
        }
        Ok(went)
    }

    /// Checks that a reader sees what the oracle has: values, fields, expiries, counts.
    pub fn look(&self, when: &'static str) -> Result<(), Broken> {
        let found = self.found(when)?;
        let same = self.oracle.compare(&found, self.now_ms());
        same.map_err(|difference| Broken::Contents { when, difference })?;
        for db in 0..DATABASES {
            // Expired keys that nobody has met yet are counted: an upper bound, exact after a
            // sweep.
            let (expected, found) = (self.oracle.counts(db, self.now_ms()).0, self.store().len(db));
            if found < expected {
                return Err(Broken::Count { db, found, expected });
            }
        }
        Ok(())
    }

    /// Checks as [`World::look`] does, with exact counts, after deleting all expired keys.
    pub fn look_closely(&self, when: &'static str) -> Result<(), Broken> {
        self.look(when)?;
        self.count(when)
    }

    /// Checks the counts of keys, after deleting all expired keys, and once more the contents if
    /// that has changed anything.
    fn count(&self, when: &'static str) -> Result<(), Broken> {
        let refused = |error| Broken::Refused { step: when.into(), error };
        let found_in = |db| (self.store().len(db), self.store().keys_with_expiry(db));
        let mut has_changed = self.store().expire_some(1 << 20).map_err(refused)? > 0;
        if (0..DATABASES).any(|db| found_in(db) != self.oracle.counts(db, self.now_ms())) {
            // The sweep leaves out shards that were not searched yet. The search compares counts.
            let damaged = |error| Broken::OpenStore { when, error };
            while self.store().rebuild_next().map_err(damaged)? {}
            self.store().expire_some(1 << 20).map_err(refused)?;
            has_changed = true;
        }
        for db in 0..DATABASES {
            let expected = self.oracle.counts(db, self.now_ms());
            let found = found_in(db);
            if found != expected {
                let (found, expected) = if found.0 == expected.0 {
                    (found.1, expected.1)
                } else {
                    (found.0, expected.0)
                };
                return Err(Broken::Count { db, found, expected });
            }
        }
        if has_changed { self.look(when) } else { Ok(()) }
    }

    /// Checks that the store has one of `states`, and goes on with that state as the oracle's.
    pub fn believe_one_of(&mut self, states: &[Oracle], when: &'static str) -> Result<(), Broken> {
        let (found, now_ms) = (self.found(when)?, self.now_ms());
        let mut newest = None;
        for state in states {
            match state.compare(&found, now_ms) {
                Ok(()) => {
                    self.oracle = state.clone();
                    return self.count(when);
                }
                Err(difference) => newest = Some(difference),
            }
        }
        match newest {
            Some(difference) => {
                Err(Broken::NoCommittedState { when, states: states.len(), difference })
            }
            None => unreachable!("no state is allowed"),
        }
    }

    /// Checks that memory and durable image differ by no more bytes than are accounted for or were
    /// freed.
    pub fn prove(&self) -> Result<(), Broken> {
        proof::prove(self.region(), &self.device, self.freed_bytes())
    }

    /// Dirty bytes that this process has freed, and those before it whose memory it has.
    fn freed_bytes(&self) -> u64 {
        let own = self.store.as_ref().map_or(0, |store| store.region().stats().dropped_bytes);
        self.freed_before_bytes + own
    }

    /// Whether the device has failed for this process.
    pub fn has_failed(&self) -> bool {
        self.store.is_none() || self.region().failure().is_some()
    }

    fn found(&self, when: &'static str) -> Result<Oracle, Broken> {
        Oracle::of(self.store()).map_err(|error| Broken::Refused { step: when.into(), error })
    }

    fn reopen(&mut self, step: &Step) -> Result<Went, Broken> {
        match self.stop() {
            Ok(_) => self.allowed = vec![self.oracle.clone()],
            Err(_) if !self.device.is_powered() => {
                return Ok(self.lost(self.oracle.clone(), false));
            }
            Err(error) => return Err(Broken::Region { step: step.to_string(), error }),
        }
        self.assign_copies();
        let went = self.boot("after a clean end")?;
        if went == Went::On && !self.was_final() {
            return Err(Broken::NotFinal { when: "after a clean end" });
        }
        Ok(went)
    }

    /// Ends the life as a server does that was warned.
    pub fn stop(&self) -> Result<FlushReport, RegionError> {
        self.store().save_counts();
        self.region().close(1)
    }

    /// Whether the image that was opened had been ended by a complete flush.
    pub fn was_final(&self) -> bool {
        matches!(self.region().origin(), Origin::Recovered { was_final: true, .. })
    }

    fn check_budget(&self, step: &Step) -> Result<(), Broken> {
        let (used_bytes, budget_bytes) =
            (self.region().used_bytes_max(), self.region().budget_bytes());
        if used_bytes <= budget_bytes {
            return Ok(());
        }
        Err(Broken::Budget { step: step.to_string(), used_bytes, budget_bytes })
    }

    /// Settings of the next process, with the budget that is promised for the battery.
    fn config(&self) -> Result<Config, Broken> {
        let with_budget = |bytes| self.scenario.config(self.region_bytes, bytes, self.planted);
        let opened = |error| Broken::Open { when: "the sizes of a region", error };
        let geometry = with_budget(BUDGET_MIN_BYTES).geometry().map_err(opened)?;
        Ok(with_budget(self.battery.budget_bytes(&geometry, self.region_bytes)))
    }

    /// The bytes for which the battery lasts after a kill: the flush for which the budget was
    /// promised, what the process has left half done, and the commit in both slots.
    pub fn energy_bytes(&self) -> Result<u64, Broken> {
        let opened = |error| Broken::Open { when: "the sizes of a region", error };
        let geometry = self.config()?.geometry().map_err(opened)?;
        let Battery { flush_bytes, redo_bytes } = self.battery;
        Ok(flush_bytes + redo_bytes + final_commit_bytes(&geometry))
    }

    fn fresh_device(&mut self) -> Arc<dyn Device> {
        self.faults = Arc::new(FaultPlan::new());
        let (device, faults) = (self.device.clone(), Arc::clone(&self.faults));
        Arc::new(FaultyDevice::new(device, faults, self.clock.clone()))
    }

    /// Opens the store in a region. A commit during the opening makes the contents of memory
    /// durable.
    fn adopt(
        &mut self,
        region: Result<Region, OpenError>,
        when: &'static str,
    ) -> Result<Went, Broken> {
        self.in_doubt = None;
        let opened = region.map_err(|error| Broken::Open { when, error }).and_then(|region| {
            let open = || {
                let heap = Heap::open(region)?;
                // Counting keys and finding free memory are put off, and done between the steps
                // that follow.
                let options = StoreOptions { seed: self.scenario.seed, defer_rebuild: true };
                Store::open(heap, self.clock.clone(), options)
            };
            open().map_err(|error| Broken::OpenStore { when, error })
        });
        match opened {
            Ok(store) => {
                self.commits = store.region().stats().checkpoints;
                if self.commits > 0 {
                    self.allowed = vec![self.oracle.clone()];
                }
                self.store = Some(store);
                *self.copies.killed.memory.lock() = Some(self.held()?);
                Ok(Went::On)
            }
            Err(_) if !self.device.is_powered() => {
                self.allowed.push(self.oracle.clone());
                Ok(Went::PowerLost)
            }
            Err(broken) => Err(broken),
        }
    }
}
