//! Accesses one after the other: each is booked when the one before is done, and what follows the
//! last is done then.

use std::cmp::Reverse;

use perdura_media::model::Access;
use perdura_tier::{Destage, DeviceId, Missed};

use super::works::Work;
use super::{Actor, World};

/// An access.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) at: At,
    pub(super) access: Access,
    pub(super) place: Place,
    pub(super) len_bytes: u64,
}

/// What is accessed.
#[derive(Debug, Clone, Copy)]
pub(super) enum At {
    /// A device, for a client or a burst.
    Device(DeviceId),
    /// A device, for a sync or a fetch.
    Copy(DeviceId),
    /// The DRAM.
    Dram,
}

/// Where there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// Where this key has its place.
    Key(u64),
    /// Behind what was appended last.
    Append,
}

/// What follows the last access.
#[derive(Debug)]
pub(super) enum Then {
    /// The request of a client is done.
    Served(usize),
    /// A thread of a work takes the next value.
    Copied(usize),
    /// A work begins.
    Begin(Work),
    /// The syncs of a primary begin that are due.
    Sync(DeviceId),
    /// The burst begins that is due.
    Burst,
    /// A value of a burst is on its device.
    Destaged(Destage),
    /// A value that was missed comes to the DRAM.
    Arrived(Missed),
}

/// Accesses, and what follows.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// The first is the last of the list.
    steps: Vec<Step>,
    then: Vec<Then>,
}

/// The chains under way, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Chains {
    all: Vec<Chain>,
    unused: Vec<usize>,
}

impl Chains {
    /// Begins a chain.
    fn add(&mut self, steps: &[Step], then: impl IntoIterator<Item = Then>) -> usize {
        let number = self.unused.pop().unwrap_or_else(|| {
            self.all.push(Chain::default());
            self.all.len() - 1
        });
        let chain = &mut self.all[number];
        chain.steps.extend(steps.iter().rev());
        chain.then.extend(then);
        number
    }
}

impl World<'_> {
    /// Begins accesses one after the other.
    pub(super) fn chain(
        &mut self,
        now_ps: u64,
        steps: &[Step],
        then: impl IntoIterator<Item = Then>,
    ) {
        let number = self.chains.add(steps, then);
        self.step(number, now_ps);
    }

    /// Books the next access of a chain, or does what follows.
    pub(super) fn step(&mut self, number: usize, now_ps: u64) {
        if let Some(step) = self.chains.all[number].steps.pop() {
            let done_ps = self.book(now_ps, step);
            self.ready.push(Reverse((done_ps, Actor::Chain(number))));
            return;
        }
        let mut then = std::mem::take(&mut self.chains.all[number].then);
        for next in then.drain(..) {
            self.follow(next, now_ps);
        }
        // Its memory serves the next chain.
        self.chains.all[number].then = then;
        self.chains.unused.push(number);
    }

    fn follow(&mut self, next: Then, now_ps: u64) {
        match next {
            Then::Served(client) => self.served(client, now_ps),
            Then::Copied(work) => self.copied(work, now_ps),
            Then::Begin(work) => self.begin(work, now_ps),
            Then::Sync(primary) => self.sync(primary, now_ps),
            Then::Burst => self.begin_burst(now_ps),
            Then::Destaged(one) => self.destaged(one, now_ps),
            Then::Arrived(missed) => self.arrived(missed, now_ps),
        }
    }

    /// Books an access. Returns when it is done.
    fn book(&mut self, now_ps: u64, step: Step) -> u64 {
        let Step { at, access, place, len_bytes } = step;
        let (device, is_copy) = match at {
            At::Dram => return self.book_dram(now_ps, step),
            At::Device(device) => (usize::from(device.0), false),
            At::Copy(device) => (usize::from(device.0), true),
        };
        let pages = self.capacity_bytes / 4096;
        let offset_bytes = match place {
            Place::Key(key) => spread(key) % pages * 4096,
            Place::Append => {
                let at = &mut self.appends[device];
                let place = if *at + len_bytes > self.capacity_bytes { 0 } else { *at };
                *at = place + len_bytes;
                place
            }
        };
        let done_ps = self.models[device].book(now_ps, access, offset_bytes, len_bytes);
        match is_copy {
            true => self.happened.meters.copies(device, now_ps, done_ps),
            false => self.happened.meters.served(device, now_ps, done_ps),
        }
        done_ps
    }
}

/// A number far from those of the neighbours of a key.
pub(super) fn spread(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
