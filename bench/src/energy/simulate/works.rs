//! Syncs and prefetches: values that threads copy from one device to another.

use std::cmp::Reverse;
use std::collections::VecDeque;

use perdura_media::model::Access;
use perdura_tier::{DeviceId, Fetched, Key, Synced};

use super::chains::{At, Place, Step, Then};
use super::requests::writes;
use super::{Actor, World};

/// Threads of a sync of one device, and of a prefetch, where they are parallel.
const THREADS: usize = 4;

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
}

/// From where to where.
#[derive(Debug, Clone, Copy)]
struct Path {
    from: DeviceId,
    to: DeviceId,
}

/// A value to copy: its key and length.
type Copied = (Path, Key, u32);

impl Work {
    pub(super) fn fetch(from: DeviceId, to: DeviceId, entries: Vec<Fetched>) -> Self {
        let path = Path { from, to };
        let left: VecDeque<_> =
            entries.iter().map(|entry| (path, entry.key, entry.len_bytes)).collect();
        Self { what: What::Fetch(path, entries), left, began_ps: 0, active: 0 }
    }

    fn sync(synced: Synced) -> Self {
        let path = Path { from: synced.primary, to: synced.device };
        let left = synced.entries().map(|(key, len_bytes)| (path, key, len_bytes));
        Self { left: left.collect(), what: What::Sync(synced), began_ps: 0, active: 0 }
    }
}

impl World<'_> {
    /// Begins the syncs that are due on a primary.
    pub(super) fn sync(&mut self, primary: DeviceId, now_ps: u64) {
        for synced in self.tier.due_syncs(primary) {
            self.begin(Work::sync(synced), now_ps);
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
        let (Path { from, to }, key, len_bytes) = next;
        let (at, access, place) = (At::Copy(from), Access::Read, Place::Key(key));
        let read = Step { at, access, place, len_bytes: u64::from(len_bytes) };
        let [leaf, value, metadata] = writes(At::Copy(to), key, Place::Append, len_bytes);
        self.chain(now_ps, &[read, leaf, value, metadata], [Then::Copied(number)]);
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
                now.into_iter().for_each(|(_, client)| self.serve(client, now_ps));
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
