//! Syncs, prefetches and bursts: values that threads copy from one place to another, and who waits
//! for the room that this makes.

use std::cmp::Reverse;
use std::collections::VecDeque;

use perdura_media::model::Access;
use perdura_tier::{Destage, DeviceId, Fetched, Key, Synced};

use super::chains::{At, Place, Step, Then};
use super::requests::writes;
use super::{Actor, Full, World};

/// Threads of a sync of one device, of a prefetch, and of a burst, where they are parallel.
const THREADS: usize = 4;
/// The device that bursts go to: behind a DRAM there is one primary.
const FIRST: DeviceId = DeviceId(0);

/// Values to copy, and what is told when they are.
#[derive(Debug)]
pub(super) struct Work {
    what: What,
    left: VecDeque<Copied>,
    began_ps: u64,
    /// Threads that have a value under way.
    active: usize,
}

#[derive(Debug)]
enum What {
    Sync(Synced),
    Fetch(Path, Vec<Fetched>),
    /// From the DRAM to the tier. The DRAM is told of each value by itself.
    Burst,
}

/// From where to where.
#[derive(Debug, Clone, Copy)]
struct Path {
    from: DeviceId,
    to: DeviceId,
}

/// A value to copy.
#[derive(Debug, Clone, Copy)]
enum Copied {
    /// Between two devices: its key and length.
    Between(Path, Key, u32),
    /// From the DRAM to its place in the tier.
    Burst(Destage),
}

/// Who waits for room.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stalled {
    /// The request of a client.
    Client(usize),
    /// A thread of a work.
    Worker(usize),
}

impl Work {
    pub(super) fn fetch(from: DeviceId, to: DeviceId, entries: Vec<Fetched>) -> Self {
        let path = Path { from, to };
        let left: VecDeque<_> =
            entries.iter().map(|entry| Copied::Between(path, entry.key, entry.len_bytes)).collect();
        Self { what: What::Fetch(path, entries), left, began_ps: 0, active: 0 }
    }

    fn sync(synced: Synced) -> Self {
        let path = Path { from: synced.primary, to: synced.device };
        let left = synced.entries().map(|(key, len_bytes)| Copied::Between(path, key, len_bytes));
        Self { left: left.collect(), what: What::Sync(synced), began_ps: 0, active: 0 }
    }

    pub(super) fn burst(burst: Vec<Destage>) -> Self {
        let left = burst.into_iter().map(Copied::Burst).collect();
        Self { what: What::Burst, left, began_ps: 0, active: 0 }
    }
}

impl World<'_> {
    /// Begins the syncs that are due on a primary.
    pub(super) fn sync(&mut self, primary: DeviceId, now_ps: u64) {
        for synced in self.tier.due_syncs(primary) {
            self.begin(Work::sync(synced), now_ps);
        }
    }

    /// Lets somebody wait for room, and makes sure that room is being made.
    pub(super) fn stall(&mut self, full: Full, who: Stalled, now_ps: u64) {
        match full {
            Full::Buffer(primary) => {
                self.stalled.push((primary, who));
                self.sync(primary, now_ps);
            }
            Full::Dram => self.stall_for_burst(who, now_ps),
        }
    }

    /// Lets somebody go on who waited for room.
    pub(super) fn go_on(&mut self, who: Stalled, now_ps: u64) {
        match who {
            Stalled::Client(client) => self.serve(client, now_ps),
            Stalled::Worker(number) => self.work(number, now_ps),
        }
    }

    /// Begins a work.
    pub(super) fn begin(&mut self, work: Work, now_ps: u64) {
        if work.left.is_empty() {
            return;
        }
        let number = self.works_begun;
        let is_first = self.works.is_empty();
        self.works_begun += 1;
        self.works.insert(number, Work { began_ps: now_ps, ..work });
        let threads = match self.run.is_parallel {
            true => THREADS,
            false if is_first => 1,
            false => {
                self.waiting.push_back(number);
                0
            }
        };
        self.ready.extend((0..threads).map(|_| Reverse((now_ps, Actor::Worker(number)))));
    }

    /// A thread has copied a value, and takes the next one.
    pub(super) fn copied(&mut self, number: usize, now_ps: u64) {
        if let Some(work) = self.works.get_mut(&number) {
            work.active -= 1;
        }
        self.work(number, now_ps);
    }

    /// A thread takes the next value of its work.
    pub(super) fn work(&mut self, number: usize, now_ps: u64) {
        let Some(work) = self.works.get_mut(&number) else { return };
        let Some(next) = work.left.pop_front() else {
            if work.active == 0 {
                self.end(number, now_ps);
            }
            return;
        };
        work.active += 1;
        match next {
            Copied::Burst(one) => {
                if let Err(full) = self.destage(one, number, now_ps) {
                    if let Some(work) = self.works.get_mut(&number) {
                        work.active -= 1;
                        work.left.push_front(next);
                    }
                    self.stall(full, Stalled::Worker(number), now_ps);
                }
            }
            Copied::Between(Path { from, to }, key, len_bytes) => {
                let at = At::Copy(from);
                let (access, place) = (Access::Read, Place::Key(key));
                let read = Step { at, access, place, len_bytes: u64::from(len_bytes) };
                let [leaf, value, metadata] = writes(At::Copy(to), key, Place::Append, len_bytes);
                let steps = [read, leaf, value, metadata];
                self.chain(now_ps, &steps, [Then::Copied(number)]);
            }
        }
    }

    fn end(&mut self, number: usize, now_ps: u64) {
        let Some(Work { what, began_ps, .. }) = self.works.remove(&number) else { return };
        match what {
            What::Fetch(path, entries) => {
                self.metered(&[path.from, path.to], began_ps, now_ps);
                self.tier.fetched(path.from, path.to, &entries);
            }
            What::Sync(synced) => {
                self.metered(&[synced.primary, synced.device], began_ps, now_ps);
                self.tier.synced(&synced);
                let (now, later): (Vec<_>, _) = std::mem::take(&mut self.stalled)
                    .into_iter()
                    .partition(|it| it.0 == synced.primary);
                self.stalled = later;
                now.into_iter().for_each(|(_, who)| self.go_on(who, now_ps));
            }
            What::Burst => {
                self.metered(&[FIRST], began_ps, now_ps);
                self.end_burst(now_ps);
            }
        }
        if let Some(next) = self.waiting.pop_front() {
            if let Some(work) = self.works.get_mut(&next) {
                work.began_ps = now_ps;
            }
            self.ready.push(Reverse((now_ps, Actor::Worker(next))));
        }
    }

    /// Notes what these devices did, from the first request that counts on.
    fn metered(&mut self, devices: &[DeviceId], began_ps: u64, now_ps: u64) {
        let began_ps = began_ps.max(self.start.map_or(0, |start| start.0));
        let devices: Vec<_> = devices.iter().map(|device| usize::from(device.0)).collect();
        self.happened.meters.copied(&devices, began_ps, now_ps);
    }
}
