//! A server in the simulation: a reply is an acknowledgement.
//!
//! The server's own loops, one to three, serve clients over sockets and make or order group
//! commits; the commits of its committing thread are interleaved with the loops' turns, operation
//! by operation. Before each durable operation it is noted what clients have been told. A machine
//! that loses power at that operation must have all of it, and of no command a part.

mod baton;
mod clients;
mod reply;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_media::{Clock, Device, FaultPlan, FaultyDevice, LoneClock, SimDevice};
use perdura_region::{Attachment, BUDGET_MIN_BYTES, FlushOptions, Planted, Region};
use perdura_server::{Beside, Driven, Durability, EventQueue, ServerConfig};
use perdura_store::{Heap, Store, StoreOptions};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::battery::{Battery, final_commit_bytes};
use super::broken::Broken;
use super::oracle::Oracle;
use super::scenario::Scenario;
use baton::{Baton, TurnsClock};
use clients::{Clients, Known};

/// A server to be cut.
pub(crate) struct Served {
    scenario: Scenario,
    planted: Planted,
    config: ServerConfig,
    clients: usize,
    steps: usize,
    seed: u64,
}

/// The end of a server's run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// The power goes without a warning.
    Lost,
    /// The device fails at the write, or the flush, with this number, and some turns later the
    /// power goes.
    Failed { write: bool, nth: u64 },
    /// The server dies, and a holder flushes its memory on battery.
    Held,
    /// The server dies, and another takes its memory over.
    Attached,
    /// The server is warned and flushes on battery.
    Warned,
}

/// A device as a loss of power leaves it, and what was known to clients then.
pub(crate) struct Kept {
    device: SimDevice,
    known: Known,
}

/// What a run leaves.
struct Left {
    seen: Arc<Seen>,
    held: (OwnedFd, OwnedFd),
    stopped: Option<Result<(), Broken>>,
}

/// What is seen from outside of the server.
struct Seen {
    clock: TurnsClock,
    clients: Mutex<Clients>,
    /// Durable operations done, and what was known before the next one.
    notes: Mutex<Vec<(u64, Known)>>,
}

impl Seen {
    fn note(&self, device: &SimDevice) {
        let mut clients = self.clients.lock();
        clients.hear();
        self.notes.lock().push((device.ops(), clients.known()));
    }

    fn known_at(&self, ops: u64) -> Known {
        let notes = self.notes.lock();
        let before = notes.partition_point(|(done, _)| *done <= ops);
        before.checked_sub(1).map(|at| notes[at].1.clone()).unwrap_or_default()
    }
}

impl Served {
    /// The server of a seed.
    pub fn draw(seed: u64, planted: Planted) -> Self {
        let scenario = Scenario::draw_for_server(seed);
        let mut random = Random::seed_from_u64(!seed);
        let durability = match random.random_range(0..4) {
            0 => Durability::Warned,
            _ => Durability::Fsync,
        };
        let config = ServerConfig {
            durability,
            events: EventQueue::Epoll,
            group_writes_inline: [0, 2, 6, 64][random.random_range(0..4)],
            group_writes_max: [4, 16, 4096][random.random_range(0..3)],
            turn_bytes_max: [2 << 10, 64 << 10][random.random_range(0..2)],
            threads: [1, 1, 2, 3][random.random_range(0..4)],
            seed,
            ..ServerConfig::default()
        };
        let (clients, steps) = (random.random_range(1..=5), random.random_range(60..160));
        Self { scenario, planted, config, clients, steps, seed }
    }

    /// Number of durable operations of an undisturbed run.
    pub fn count_ops(&self, device: &SimDevice) -> Result<u64, Broken> {
        self.run(device, None, false)?;
        Ok(device.ops())
    }

    /// Runs undisturbed, and keeps a copy of the device before each of these operations.
    pub fn copies(&self, device: &SimDevice, ops: &[u64]) -> Result<(Vec<Kept>, Checker), Broken> {
        device.copy_before(ops.iter().copied());
        let seen = self.run(device, None, false)?.seen;
        let kept = |(ops, device)| Kept { known: seen.known_at(ops), device };
        let kept = device.take_copies().into_iter().map(kept).collect();
        Ok((kept, Checker { seen }))
    }

    /// Checks a copy that is powered on again.
    pub fn check_copy(&self, kept: &Kept, checker: &Checker, seed: u64) -> Result<(), Broken> {
        let when = "after a power cut of a server";
        self.check(kept.device.power_cycle(seed), &checker.seen, &self.promised(&kept.known), when)
    }

    /// Runs to an end of its own, and checks what is found then.
    pub fn check_end(&self, end: End, device: &SimDevice, seed: u64) -> Result<(), Broken> {
        let left = match end {
            End::Failed { write, nth } => self.run(device, Some((write, nth)), false)?,
            End::Warned => self.run(device, None, true)?,
            _ => self.run(device, None, false)?,
        };
        let known = left.seen.clients.lock().known();
        let seen = &left.seen;
        let cycled = |device: &SimDevice| device.power_cycle(seed);
        match end {
            End::Lost | End::Failed { .. } => {
                let when = "after a server lost power";
                self.check(cycled(device), seen, &self.promised(&known), when)
            }
            End::Warned => {
                left.stopped.unwrap_or(Ok(()))?;
                self.check(cycled(device), seen, &known, "after a server was warned")
            }
            End::Held => {
                let when = "after a holder flushed a dead server's memory";
                let opened = |error| Broken::Open { when, error };
                let (memory, ledger) = left.held;
                let holder = Attachment::new(memory, ledger).map_err(opened)?;
                let options = FlushOptions { threads: 1, unix_ms: seen.clock.unix_ms() };
                let flushed = holder.flush(device, options);
                flushed.map_err(|error| Broken::WarnedFlush { error })?;
                self.check(cycled(device), seen, &known, when)
            }
            End::Attached => {
                let when = "attached after a server died";
                let clock = Arc::new(LoneClock::new(seen.clock.unix_ms() + 1_000));
                let opened = |error| Broken::Open { when, error };
                let (memory, ledger) = left.held;
                let config = self.region_config()?;
                let device = Arc::new(device.clone());
                let region = Region::attach(memory, ledger, device, clock.clone(), config);
                let store = self.open(region.map_err(opened)?, clock, when)?;
                self.compare(&store, seen, &known, when)
            }
        }
    }

    /// What must be found without a warning.
    fn promised(&self, known: &Known) -> Known {
        match self.config.durability {
            Durability::Fsync => known.clone(),
            _ => known.iter().map(|(_, sent)| (0, *sent)).collect(),
        }
    }

    fn check(
        &self,
        device: SimDevice,
        seen: &Seen,
        known: &Known,
        when: &'static str,
    ) -> Result<(), Broken> {
        let clock = Arc::new(LoneClock::new(seen.clock.unix_ms() + 1_000));
        let region = Region::open(Arc::new(device), clock.clone(), self.region_config()?);
        let region = region.map_err(|error| Broken::Open { when, error })?;
        self.compare(&self.open(region, clock, when)?, seen, known, when)
    }

    fn compare(
        &self,
        store: &Store,
        seen: &Seen,
        known: &Known,
        when: &'static str,
    ) -> Result<(), Broken> {
        let refused = |error| Broken::Refused { step: when.into(), error };
        let found = Oracle::of(store).map_err(refused)?;
        let told = seen.clients.lock().check(&found, known);
        told.map_err(|why| Broken::Told { when, why })
    }

    fn open(
        &self,
        region: Region,
        clock: Arc<dyn Clock>,
        when: &'static str,
    ) -> Result<Store, Broken> {
        let open = || {
            let options = StoreOptions { seed: self.seed, defer_rebuild: true };
            Store::open(Heap::open(region)?, clock, options)
        };
        open().map_err(|error| Broken::OpenStore { when, error })
    }

    fn battery(&self) -> Battery {
        Battery::for_dirty(self.scenario.dirty_bytes, self.scenario.segment_bytes)
    }

    fn region_config(&self) -> Result<perdura_region::Config, Broken> {
        let bytes = self.scenario.region_bytes;
        let config = |budget_bytes| self.scenario.config(bytes, budget_bytes, self.planted);
        let opened = |error| Broken::Open { when: "the sizes of a region", error };
        let geometry = config(BUDGET_MIN_BYTES).geometry().map_err(opened)?;
        Ok(config(self.battery().budget_bytes(&geometry, bytes)))
    }

    /// Serves clients for a number of steps.
    fn run(
        &self,
        device: &SimDevice,
        fault: Option<(bool, u64)>,
        is_warned: bool,
    ) -> Result<Left, Broken> {
        let inner = LoneClock::new(1_700_000_000_000);
        let clock = TurnsClock { inner, baton: Baton::default() };
        let clients = Mutex::new(Clients::default());
        let seen = Arc::new(Seen { clock, clients, notes: Mutex::default() });
        let watcher = Arc::clone(&seen);
        device.watch(Arc::new(move |device| {
            watcher.clock.baton.pause();
            watcher.note(device);
        }));
        let faults = Arc::new(FaultPlan::new());
        let lone: Arc<dyn Clock> = Arc::new(LoneClock::new(0));
        let faulty = FaultyDevice::new(device.clone(), Arc::clone(&faults), lone);
        let faulty: Arc<dyn Device> = Arc::new(faulty);
        let when = "creating";
        let shared: Arc<dyn Clock> = Arc::new(Shared(Arc::clone(&seen)));
        let region = Region::open(faulty, Arc::clone(&shared), self.region_config()?);
        let region = region.map_err(|error| Broken::Open { when, error })?;
        let store = self.open(region, Arc::clone(&shared), when)?;
        self.serve(&store, &seen, &faults, fault)?;
        let stopped = is_warned.then(|| {
            let geometry = store.region().geometry();
            let energy_bytes = self.battery().flush_bytes + final_commit_bytes(geometry);
            device.set_energy_bytes(Some(energy_bytes));
            store.save_counts();
            let flushed = store.region().close(1);
            flushed.map(drop).map_err(|error| Broken::WarnedFlush { error })
        });
        let (memory, ledger) = store.region().fds();
        let held = (memory.try_clone_to_owned()?, ledger.try_clone_to_owned()?);
        drop(store);
        match seen.clients.lock().wrong.take() {
            None => Ok(Left { seen: Arc::clone(&seen), held, stopped }),
            Some(why) => Err(Broken::Told { when: "while serving", why }),
        }
    }

    fn serve(
        &self,
        store: &Store,
        seen: &Arc<Seen>,
        faults: &FaultPlan,
        fault: Option<(bool, u64)>,
    ) -> Result<(), Broken> {
        let baton = &seen.clock.baton;
        let beside = Beside::new(store, &seen.clock, &self.config);
        let beside = beside.map_err(|error| Broken::Serve { error })?;
        let helper = || baton.go_on();
        let refused = |error| Broken::Serve { error };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while baton.await_turn() {
                    beside.commit(store.region());
                }
            });
            let _ending = baton.end_when_dropped();
            baton.await_committer();
            let mut loops: Vec<_> = (0..beside.loops())
                .map(|number| Driven::new(&beside, number, &helper))
                .collect::<Result<_, _>>()
                .map_err(refused)?;
            for _ in 0..self.clients {
                let stream = loops[0].connect()?;
                seen.clients.lock().connect(stream)?;
            }
            let mut random = Random::seed_from_u64(self.seed);
            for step in 0..self.steps {
                if fault.is_some() && step == self.steps / 2 {
                    seen.clients.lock().may_fail = true;
                    match fault {
                        Some((true, nth)) => faults.fail_write(nth),
                        Some((false, nth)) => faults.fail_flush(nth),
                        None => {}
                    }
                }
                let number = random.random_range(0..loops.len());
                self.step(&mut loops[number], store, seen, &mut random)?;
            }
            if random.random() {
                // Otherwise the server ends with whatever is on its way.
                baton.go_on();
                loops.iter_mut().try_for_each(Driven::turn).map_err(refused)?;
            }
            seen.clients.lock().end();
            Ok(())
        })
    }

    fn step(
        &self,
        server: &mut Driven<'_>,
        store: &Store,
        seen: &Seen,
        random: &mut Random,
    ) -> Result<(), Broken> {
        let baton = &seen.clock.baton;
        let ms = if random.random_ratio(1, 20) { 150 } else { random.random_range(0..3) };
        seen.clock.inner.time.advance_ns(ms * 1_000_000);
        if random.random_bool(0.6) {
            seen.clients.lock().send(random)?;
        }
        let is_between = baton.is_between();
        match random.random_range(0..100) {
            0..3 if !is_between => {
                // A failed device has told the clients itself.
                let _ = store.region().checkpoint();
            }
            0..45 => baton.go_on(),
            _ => server.turn().map_err(|error| Broken::Serve { error })?,
        }
        Ok(())
    }
}

/// A copy is checked against what the clients of its run have sent.
pub(crate) struct Checker {
    seen: Arc<Seen>,
}

/// The clock of a run, for region and store.
struct Shared(Arc<Seen>);

impl Clock for Shared {
    fn now_ns(&self) -> u64 {
        self.0.clock.now_ns()
    }

    fn unix_ms(&self) -> u64 {
        self.0.clock.unix_ms()
    }

    fn thread_cpu_ns(&self) -> u64 {
        self.0.clock.thread_cpu_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.0.clock.sleep_ns(duration_ns);
    }

    fn wait_change(
        &self,
        word: &std::sync::atomic::AtomicU32,
        seen: u32,
        longest: std::time::Duration,
    ) {
        self.0.clock.wait_change(word, seen, longest);
    }
}

impl End {
    /// Draws the end of cut `place` of the `of` cuts of a server that have runs of their own.
    pub fn draw(place: u64, random: &mut Random) -> Self {
        match place % 5 {
            0 => Self::Lost,
            1 | 2 => Self::Failed { write: random.random(), nth: random.random_range(1..6) },
            3 => [Self::Held, Self::Attached][random.random_range(0..2)],
            _ => Self::Warned,
        }
    }
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerConfig { durability, group_writes_inline, group_writes_max, .. } = &self.config;
        write!(
            f,
            "server, {} clients, {} steps, {}, groups of {group_writes_max}, up to \
             {group_writes_inline} inline, {}",
            self.clients,
            self.steps,
            durability.name(),
            self.scenario
        )
    }
}
