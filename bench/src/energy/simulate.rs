//! A tier of modelled modules under YCSB's clients, on a virtual clock, or at the real clock's
//! pace.
//!
//! Clients, and the threads that sync and prefetch, are actors: the one that is ready first acts
//! next, and what it asks of a module is booked on that module's model when it is asked, not
//! earlier: a module that was booked in advance would stand still until then. So waits for a busy
//! module, reads that overlap and writes that do not follow from the model. The result depends on
//! the settings alone.
//!
//! Assumed, because the paper's text does not say: a request finds its metadata with one read of
//! 256 B (a leaf of the tree; inner nodes are in the processor's caches), and a write changes 64 B
//! there; a client's software takes [`SOFTWARE_PS`] for a request.
//!
//! `requests` says what a request asks of which module, `chains` are accesses one after the other,
//! `works` are the syncs, prefetches and bursts, `dram` is the front of DRAM, where there is one,
//! and `pace` is the clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use perdura_media::model::Model;
use perdura_media::profile::System;
use perdura_tier::{DeviceId, DramCapacity, Request, Settings as Shape, Tier};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::meter::Meters;
use crate::dist::{Chooser, Distribution};
use chains::Chains;
use works::{Stalled, Work};

mod chains;
mod dram;
mod pace;
mod requests;
mod works;

pub use pace::Pace;

/// Clients (Sprint-AEP, section IV-A).
pub const CLIENTS: usize = 20;
/// Time of a client's software for a request: YCSB in C++ and the walk down a tree.
pub const SOFTWARE_PS: u64 = 10_000_000;
/// A read of metadata, and a change of it, bytes.
const LEAF_BYTES: u64 = 256;
const METADATA_BYTES: u64 = 64;

/// The modules that a run is modelled on.
#[derive(Debug, Clone)]
pub struct Systems {
    /// Each of the memory modules of which some sleep.
    pub modules: System,
    /// The one module of DRAM before them, where there is one.
    pub dram: System,
}

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Share of the requests that update a record; the others read one.
    pub update_share: f64,
    /// Time between two requests, picoseconds.
    pub pause_ps: u64,
    /// Whether all clients together keep that time, and not each of them.
    pub is_global: bool,
    /// Which records the requests are for.
    pub distribution: Distribution,
    /// Requests before those that count, which fill caches and buffers.
    pub warm_requests: u64,
    /// Requests that count.
    pub requests: u64,
}

/// A run.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// Devices, primaries, cache, buffer, prefetching.
    pub shape: Shape,
    /// Whether several threads sync and prefetch.
    pub is_parallel: bool,
    /// Number of records.
    pub records: u64,
    /// Bytes of a record.
    pub record_bytes: u32,
    /// What the clients do.
    pub load: Load,
    /// The DRAM before all devices, if there is one.
    pub dram: Option<DramCapacity>,
    /// Seed of the requests.
    pub seed: u64,
}

/// What happened.
#[derive(Debug, Clone, Default)]
pub struct Happened {
    /// Number of reads.
    pub reads: u64,
    /// Number of updates.
    pub updates: u64,
    /// Sum of the times of all reads, picoseconds, without the client's software.
    pub read_ps: u64,
    /// Sum of the times of all updates, picoseconds, without the client's software.
    pub update_ps: u64,
    /// Time from the first request that counts to the end of the last, picoseconds.
    pub elapsed_ps: u64,
    /// Reads of clients that each device served.
    pub reads_of: Vec<u64>,
    /// What each device was busy with.
    pub meters: Meters,
    /// Joules of all devices until the end, by their models.
    pub model_joules: f64,
    /// Reads that the DRAM before all devices served.
    pub dram_reads: u64,
    /// Updates that were written from there to devices.
    pub destaged: u64,
    /// Joules of one module of DRAM until the end, by its model.
    pub dram_joules: f64,
    /// Mean time by which an actor was late, picoseconds: 0 on the virtual clock.
    pub late_ps: u64,
}

/// One who acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Actor {
    /// A client begins a request.
    Client(usize),
    /// A client's request reaches the store.
    Request(usize),
    /// A thread of the work of this number takes a value.
    Worker(usize),
    /// An access of the chain of this number is done.
    Chain(usize),
}

/// What has no room for a write.
#[derive(Debug, Clone, Copy)]
enum Full {
    /// The buffer of this primary.
    Buffer(DeviceId),
    /// The DRAM.
    Dram,
}

struct World<'r> {
    run: &'r Run,
    tier: Tier,
    models: Vec<Model>,
    /// Where the next entry goes, of each device.
    appends: Vec<u64>,
    capacity_bytes: u64,
    ready: BinaryHeap<Reverse<(u64, Actor)>>,
    chains: Chains,
    /// The last request of each client, and when it began it.
    clients: Vec<(u64, Request)>,
    works: BTreeMap<usize, Work>,
    works_begun: usize,
    /// Works that wait for the only thread, where nothing is parallel.
    waiting: VecDeque<usize>,
    /// Who waits for a sync of a primary.
    stalled: Vec<(DeviceId, Stalled)>,
    front: Option<dram::Front>,
    chooser: Chooser,
    random: Xoshiro256PlusPlus,
    /// When the next request of anybody may begin, where that is global.
    next_ps: u64,
    begun: u64,
    /// Start of the first request that counts, and what the modules, and the DRAM, had drawn until
    /// then.
    start: Option<(u64, f64, f64)>,
    happened: Happened,
}

impl Run {
    /// Runs on idle modules of these kinds.
    ///
    /// # Panics
    /// When there is a DRAM but only one thread, which could wait for itself.
    pub fn run(&self, systems: &Systems, pace: &Pace<'_>) -> Happened {
        assert!(self.is_parallel || self.dram.is_none(), "bursts need threads beside syncs");
        let system = &systems.modules;
        let devices = usize::from(self.shape.devices);
        let bytes = self.records * u64::from(self.record_bytes) * 4;
        let capacity_bytes = system.capacity().0.max(bytes);
        let mut tier = Tier::new(self.shape);
        (0..self.records).for_each(|key| tier.load(key, self.record_bytes));
        let mut world = World {
            run: self,
            tier,
            models: (0..devices).map(|_| Model::new(system, capacity_bytes)).collect(),
            appends: vec![0; devices],
            capacity_bytes,
            ready: (0..CLIENTS).map(|it| Reverse((0, Actor::Client(it)))).collect(),
            chains: Chains::default(),
            clients: vec![(0, Request { key: 0, write_bytes: None }); CLIENTS],
            works: BTreeMap::new(),
            works_begun: 0,
            waiting: VecDeque::new(),
            stalled: Vec::new(),
            front: self.dram.map(|capacity| dram::Front::new(capacity, &systems.dram)),
            chooser: Chooser::new(self.load.distribution, self.records, 0),
            random: Xoshiro256PlusPlus::seed_from_u64(self.seed),
            next_ps: 0,
            begun: 0,
            start: None,
            happened: Happened::new(devices),
        };
        let mut paced = pace.begin();
        while let Some(Reverse((due_ps, actor))) = world.ready.pop() {
            let now_ps = paced.wait(due_ps);
            match actor {
                Actor::Client(client) => world.act(client, now_ps),
                Actor::Request(client) => world.serve(client, now_ps),
                Actor::Worker(work) => world.work(work, now_ps),
                Actor::Chain(chain) => world.step(chain, now_ps),
            }
        }
        let (start_ps, before_joules, before_dram_joules) = world.start.unwrap_or_default();
        let end_ps = world.happened.elapsed_ps;
        let (drawn_joules, dram_joules) = (world.drawn_joules(end_ps), world.dram_joules(end_ps));
        let mut happened = world.happened;
        happened.model_joules = drawn_joules - before_joules;
        happened.dram_joules = dram_joules - before_dram_joules;
        happened.late_ps = paced.late_ps();
        happened.elapsed_ps = happened.elapsed_ps.saturating_sub(start_ps);
        happened
    }
}

impl Happened {
    fn new(devices: usize) -> Self {
        let (reads_of, meters) = (vec![0; devices], Meters::new(devices));
        Self { reads_of, meters, ..Self::default() }
    }
}

impl World<'_> {
    /// A client begins its next request.
    fn act(&mut self, client: usize, now_ps: u64) {
        let load = self.run.load;
        if self.begun == load.warm_requests + load.requests {
            return;
        }
        if self.begun == load.warm_requests && self.start.is_none() {
            self.start = Some((now_ps, self.drawn_joules(now_ps), self.dram_joules(now_ps)));
            self.happened = Happened::new(self.models.len());
        }
        if load.is_global && now_ps < self.next_ps {
            let at_ps = self.next_ps;
            self.ready.push(Reverse((at_ps, Actor::Client(client))));
            return;
        }
        self.next_ps = now_ps + load.pause_ps;
        self.begun += 1;
        let key = self.chooser.draw(self.run.records, &mut self.random);
        let updates = self.random.random::<f64>() < load.update_share;
        let request = Request { key, write_bytes: updates.then_some(self.run.record_bytes) };
        self.clients[client] = (now_ps, request);
        self.ready.push(Reverse((now_ps + SOFTWARE_PS, Actor::Request(client))));
    }

    /// What all modules have drawn until an instant, by their models, joules.
    fn drawn_joules(&self, until_ps: u64) -> f64 {
        self.models.iter().map(|model| model.energy(until_ps).equal_time.0).sum()
    }

    /// Notes that a client's request is done, and when it begins the next.
    fn served(&mut self, client: usize, now_ps: u64) {
        let (began_ps, request) = self.clients[client];
        let took_ps = now_ps - began_ps - SOFTWARE_PS;
        let (count, total_ps) = match request.write_bytes {
            Some(_) => (&mut self.happened.updates, &mut self.happened.update_ps),
            None => (&mut self.happened.reads, &mut self.happened.read_ps),
        };
        *count += 1;
        *total_ps += took_ps;
        self.happened.elapsed_ps = self.happened.elapsed_ps.max(now_ps);
        let pause_ps = if self.run.load.is_global { 0 } else { self.run.load.pause_ps };
        self.ready.push(Reverse((now_ps + pause_ps, Actor::Client(client))));
    }
}

#[cfg(test)]
mod tests;
