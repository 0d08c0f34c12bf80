//! A tier of modelled modules under YCSB's clients, on a virtual clock.
//!
//! Clients, and the threads that sync and prefetch, are actors: the one that is ready first acts
//! next, and what it asks of a module is booked on that module's model. So waits for a busy module,
//! reads that overlap and writes that do not follow from the model. The result depends on the
//! settings alone.
//!
//! Assumed, because the paper's text does not say: a request finds its metadata with one read of
//! 256 B (a leaf of the tree; inner nodes are in the processor's caches), and a write changes 64 B
//! there; a client's software takes [`SOFTWARE_PS`] for a request.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use perdura_media::model::{Access, Model};
use perdura_media::profile::System;
use perdura_tier::{DeviceId, Fetched, Request, Served, Settings as Shape, Synced, Tier};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::meter::Meters;
use crate::dist::{Chooser, Distribution};

/// Clients (Sprint-AEP, section IV-A).
pub const CLIENTS: usize = 20;
/// Time of a client's software for a request: YCSB in C++ and the walk down a tree.
pub const SOFTWARE_PS: u64 = 10_000_000;
/// Threads of a sync of one device, and of a prefetch, where they are parallel.
const THREADS: usize = 4;
/// A read of metadata, and a change of it, bytes.
const LEAF_BYTES: u64 = 256;
const METADATA_BYTES: u64 = 64;

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Share of the requests that update a record; the others read one.
    pub update_share: f64,
    /// Time between two requests, picoseconds.
    pub pause_ps: u64,
    /// Whether all clients together keep that time, and not each of them.
    pub is_global: bool,
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
}

/// One who acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Actor {
    Client(usize),
    /// A thread of the work of this number, and whether it has copied an entry just now.
    Worker(usize, bool),
}

/// Entries to copy from one device to another.
#[derive(Debug)]
struct Work {
    from: DeviceId,
    to: DeviceId,
    lens_bytes: VecDeque<u32>,
    began_ps: u64,
    /// Threads that have an entry under way.
    active: usize,
    what: What,
}

#[derive(Debug)]
enum What {
    Sync(Synced),
    Fetch(Vec<Fetched>),
}

struct World<'r> {
    run: &'r Run,
    tier: Tier,
    models: Vec<Model>,
    /// Where the next entry goes, of each device.
    appends: Vec<u64>,
    capacity_bytes: u64,
    ready: BinaryHeap<Reverse<(u64, Actor)>>,
    works: BTreeMap<usize, Work>,
    works_begun: usize,
    /// Works that wait for the only thread, where nothing is parallel.
    waiting: VecDeque<usize>,
    /// Updates that wait for a sync of a primary.
    stalled: Vec<(DeviceId, usize, u64, Request)>,
    chooser: Chooser,
    random: Xoshiro256PlusPlus,
    /// When the next request of anybody may begin, where that is global.
    next_ps: u64,
    begun: u64,
    /// Start of the first request that counts, and what the modules had drawn until then.
    start: Option<(u64, f64)>,
    happened: Happened,
}

impl Run {
    /// Runs on idle modules of this kind.
    pub fn run(&self, system: &System) -> Happened {
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
            works: BTreeMap::new(),
            works_begun: 0,
            waiting: VecDeque::new(),
            stalled: Vec::new(),
            chooser: Chooser::new(Distribution::Zipfian, self.records, 0),
            random: Xoshiro256PlusPlus::seed_from_u64(self.seed),
            next_ps: 0,
            begun: 0,
            start: None,
            happened: Happened::new(devices),
        };
        while let Some(Reverse((now_ps, actor))) = world.ready.pop() {
            match actor {
                Actor::Client(client) => world.act(client, now_ps),
                Actor::Worker(work, has_copied) => world.work(work, now_ps, has_copied),
            }
        }
        let (start_ps, before_joules) = world.start.unwrap_or_default();
        let drawn_joules = world.drawn_joules(world.happened.elapsed_ps);
        let mut happened = world.happened;
        happened.model_joules = drawn_joules - before_joules;
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
            self.start = Some((now_ps, self.drawn_joules(now_ps)));
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
        self.serve(client, now_ps, now_ps + SOFTWARE_PS, request);
    }

    /// What all modules have drawn until an instant, by their models, joules.
    fn drawn_joules(&self, until_ps: u64) -> f64 {
        self.models.iter().map(|model| model.energy(until_ps).equal_time.0).sum()
    }

    /// Serves a request that reaches the tier at `now_ps`, and was begun at `began_ps`.
    fn serve(&mut self, client: usize, began_ps: u64, now_ps: u64, request: Request) {
        let is_write = request.write_bytes.is_some();
        let done_ps = match self.tier.serve(request) {
            Served::Full(primary) => {
                // It goes on when a sync has made room.
                self.stalled.push((primary, client, began_ps, request));
                return self.sync(primary, now_ps);
            }
            Served::Local { device, len_bytes } => {
                self.count_read(device, is_write);
                self.value(device, now_ps, request.key, len_bytes, is_write)
            }
            Served::Front { primary, len_bytes } => {
                let done_ps = self.value(primary, now_ps, request.key, len_bytes, is_write);
                if is_write {
                    self.sync(primary, done_ps);
                }
                done_ps
            }
            Served::Idle { device, primary, len_bytes, fetch } => {
                self.count_read(device, is_write);
                // The primary is asked first, in vain.
                let asked_ps = self.book(primary, now_ps, Access::Read, request.key, LEAF_BYTES);
                let done_ps = self.value(device, asked_ps, request.key, len_bytes, false);
                let lens_bytes = fetch.iter().map(|entry| entry.len_bytes).collect();
                let what = What::Fetch(fetch);
                self.begin(Work::new(device, primary, lens_bytes, done_ps, what));
                done_ps
            }
            Served::Nowhere(device) => {
                self.book(device, now_ps, Access::Read, request.key, LEAF_BYTES)
            }
        };
        let took_ps = done_ps - began_ps - SOFTWARE_PS;
        match is_write {
            true => {
                self.happened.updates += 1;
                self.happened.update_ps += took_ps;
            }
            false => {
                self.happened.reads += 1;
                self.happened.read_ps += took_ps;
            }
        }
        self.happened.elapsed_ps = self.happened.elapsed_ps.max(done_ps);
        let pause_ps = if self.run.load.is_global { 0 } else { self.run.load.pause_ps };
        self.ready.push(Reverse((done_ps + pause_ps, Actor::Client(client))));
    }

    fn count_read(&mut self, device: DeviceId, is_write: bool) {
        self.happened.reads_of[usize::from(device.0)] += u64::from(!is_write);
    }

    /// Reads or writes a value and its metadata. Returns when that is done.
    fn value(
        &mut self,
        device: DeviceId,
        now_ps: u64,
        key: u64,
        len_bytes: u32,
        is_write: bool,
    ) -> u64 {
        let len = u64::from(len_bytes);
        let found_ps = self.book(device, now_ps, Access::Read, key, LEAF_BYTES);
        if !is_write {
            return self.book(device, found_ps, Access::Read, key, len);
        }
        let place = self.append_place(device, len);
        let written_ps = self.book_at(device, found_ps, Access::Write, place, len);
        self.happened.meters.served(usize::from(device.0), found_ps, written_ps);
        self.book(device, written_ps, Access::Write, key, METADATA_BYTES)
    }

    /// Books an access at the place of a key.
    fn book(
        &mut self,
        device: DeviceId,
        now_ps: u64,
        access: Access,
        key: u64,
        len_bytes: u64,
    ) -> u64 {
        let place = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (self.capacity_bytes / 4096) * 4096;
        let done_ps = self.book_at(device, now_ps, access, place, len_bytes);
        self.happened.meters.served(usize::from(device.0), now_ps, done_ps);
        done_ps
    }

    /// The place behind what was appended last.
    fn append_place(&mut self, device: DeviceId, len_bytes: u64) -> u64 {
        let at = &mut self.appends[usize::from(device.0)];
        let place = if *at + len_bytes > self.capacity_bytes { 0 } else { *at };
        *at = place + len_bytes;
        place
    }

    fn book_at(
        &mut self,
        device: DeviceId,
        now_ps: u64,
        access: Access,
        place: u64,
        len_bytes: u64,
    ) -> u64 {
        self.models[usize::from(device.0)].book(now_ps, access, place, len_bytes)
    }

    /// Begins the syncs that are due on a primary.
    fn sync(&mut self, primary: DeviceId, now_ps: u64) {
        for synced in self.tier.due_syncs(primary) {
            let lens_bytes = synced.entries().map(|(_, len_bytes)| len_bytes).collect();
            let (from, to) = (synced.primary, synced.device);
            self.begin(Work::new(from, to, lens_bytes, now_ps, What::Sync(synced)));
        }
    }

    fn begin(&mut self, work: Work) {
        if work.lens_bytes.is_empty() {
            return;
        }
        let (began_ps, number) = (work.began_ps, self.works_begun);
        let is_first = self.works.is_empty();
        self.works_begun += 1;
        self.works.insert(number, work);
        match self.run.is_parallel {
            true => {
                let threads =
                    (0..THREADS).map(|_| Reverse((began_ps, Actor::Worker(number, false))));
                self.ready.extend(threads);
            }
            false if is_first => {
                self.ready.push(Reverse((began_ps, Actor::Worker(number, false))));
            }
            false => self.waiting.push_back(number),
        }
    }

    /// A thread copies the next entry of its work.
    fn work(&mut self, number: usize, now_ps: u64, has_copied: bool) {
        let Some(work) = self.works.get_mut(&number) else { return };
        work.active -= usize::from(has_copied);
        let Some(len_bytes) = work.lens_bytes.pop_front() else {
            if work.active == 0 {
                self.end(number, now_ps);
            }
            return;
        };
        work.active += 1;
        let (from, to, len) = (work.from, work.to, u64::from(len_bytes));
        let place = self.random.random_range(0..self.capacity_bytes / 4096) * 4096;
        let read_ps = self.book_at(from, now_ps, Access::Read, place, len);
        let place = self.append_place(to, len);
        let done_ps = self.book_at(to, read_ps, Access::Write, place, len);
        let meters = &mut self.happened.meters;
        meters.copies(usize::from(from.0), now_ps, read_ps);
        meters.copies(usize::from(to.0), read_ps, done_ps);
        self.ready.push(Reverse((done_ps, Actor::Worker(number, true))));
    }

    fn end(&mut self, number: usize, now_ps: u64) {
        let Some(work) = self.works.remove(&number) else { return };
        let Work { from, to, began_ps, what, .. } = work;
        self.happened.meters.copied([from, to].map(|it| usize::from(it.0)), began_ps, now_ps);
        match what {
            What::Fetch(entries) => self.tier.fetched(from, to, &entries),
            What::Sync(synced) => {
                self.tier.synced(&synced);
                let (now, later) = std::mem::take(&mut self.stalled)
                    .into_iter()
                    .partition(|(primary, ..)| *primary == from);
                self.stalled = later;
                let now: Vec<(DeviceId, usize, u64, Request)> = now;
                for (_, client, began_ps, request) in now {
                    // Its software may run still.
                    let at_ps = now_ps.max(began_ps + SOFTWARE_PS);
                    self.serve(client, began_ps, at_ps, request);
                }
            }
        }
        if let Some(next) = self.waiting.pop_front() {
            if let Some(work) = self.works.get_mut(&next) {
                work.began_ps = work.began_ps.max(now_ps);
            }
            self.ready.push(Reverse((now_ps, Actor::Worker(next, false))));
        }
    }
}

impl Work {
    fn new(
        from: DeviceId,
        to: DeviceId,
        lens_bytes: VecDeque<u32>,
        began_ps: u64,
        what: What,
    ) -> Self {
        Self { from, to, lens_bytes, began_ps, active: 0, what }
    }
}
