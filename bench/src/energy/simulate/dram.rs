//! The battery-backed DRAM before all devices: serves what it has, fills the devices in bursts.
//!
//! Its time is that of one module of a profile. A value there is found and read as on a device: a
//! leaf of the tree, then the value.

use std::collections::VecDeque;

use perdura_media::model::{Access, Model};
use perdura_media::profile::System;
use perdura_tier::{Destage, Dram, DramCapacity, Missed, Request};

use super::chains::{At, Place, Step, Then, spread};
use super::requests::{Asked, leaf, reads, writes};
use super::works::{Stalled, Work};
use super::{Full, World};

/// The DRAM, and who waits for it.
pub(super) struct Front {
    dram: Dram,
    model: Model,
    bytes: u64,
    stalled: VecDeque<Stalled>,
}

impl Front {
    /// An empty DRAM on one module of this system.
    pub(super) fn new(capacity: DramCapacity, system: &System) -> Self {
        let bytes = capacity.bytes.max(1 << 20);
        let (dram, model) = (Dram::new(capacity), Model::new(system, bytes));
        Self { dram, model, bytes, stalled: VecDeque::new() }
    }
}

impl World<'_> {
    /// What the DRAM has drawn until an instant, joules.
    pub(super) fn dram_joules(&self, until_ps: u64) -> f64 {
        let drawn = |front: &Front| front.model.energy(until_ps).equal_time.0;
        self.front.as_ref().map_or(0.0, drawn)
    }

    /// Books an access to the DRAM. Returns when it is done.
    pub(super) fn book_dram(&self, now_ps: u64, step: Step) -> u64 {
        let Some(front) = &self.front else { return now_ps };
        let key = match step.place {
            Place::Key(key) => key,
            Place::Append => 0,
        };
        let offset_bytes = spread(key) % (front.bytes / 1024) * 1024;
        front.model.book(now_ps, step.access, offset_bytes, step.len_bytes)
    }

    /// Asks the DRAM, and then perhaps the tier, where a request is served.
    pub(super) fn ask_dram(&mut self, request: Request) -> Result<Asked, Full> {
        let Some(front) = &mut self.front else { return self.ask(request) };
        let key = request.key;
        if let Some(len_bytes) = request.write_bytes {
            if !front.dram.write(key, len_bytes) {
                return Err(Full::Dram);
            }
            let steps = writes(At::Dram, key, Place::Key(key), len_bytes).to_vec();
            return Ok(Asked { steps, then: vec![Then::Burst] });
        }
        match front.dram.read(key) {
            Ok(len_bytes) => {
                self.happened.dram_reads += 1;
                Ok(Asked { steps: reads(At::Dram, key, len_bytes).to_vec(), then: Vec::new() })
            }
            Err(missed) => {
                let mut asked = self.ask(request)?;
                // The DRAM is asked first, in vain.
                asked.steps.insert(0, leaf(At::Dram, key));
                asked.then.push(Then::Arrived(missed));
                Ok(asked)
            }
        }
    }

    /// A value that was read from a device is there.
    pub(super) fn arrived(&mut self, missed: Missed, now_ps: u64) {
        let len_bytes = self.run.record_bytes;
        let Some(front) = &mut self.front else { return };
        if front.dram.arrived(missed, Some(len_bytes)) {
            let steps = writes(At::Dram, missed.key, Place::Key(missed.key), len_bytes);
            self.chain(now_ps, &steps, []);
        }
    }

    /// Writes a value of a burst to its place in the tier, by a thread of a work.
    pub(super) fn destage(&mut self, one: Destage, work: usize, now_ps: u64) -> Result<(), Full> {
        let (key, len_bytes) = (one.key, one.len_bytes);
        let Asked { mut steps, then } = self.ask(Request { key, write_bytes: Some(len_bytes) })?;
        let read = Step {
            at: At::Dram,
            access: Access::Read,
            place: Place::Key(key),
            len_bytes: u64::from(len_bytes),
        };
        steps.insert(0, read);
        let then = [Then::Destaged(one), Then::Copied(work)].into_iter().chain(then);
        self.chain(now_ps, &steps, then);
        Ok(())
    }

    /// A value of a burst is on its device.
    pub(super) fn destaged(&mut self, one: Destage, now_ps: u64) {
        self.happened.destaged += 1;
        let Some(front) = &mut self.front else { return };
        front.dram.destaged(one);
        // There may be room for one who waits.
        if let Some(who) = front.stalled.pop_front() {
            self.go_on(who, now_ps);
        }
    }

    /// Begins the burst that is due, if one is.
    pub(super) fn begin_burst(&mut self, now_ps: u64) {
        if let Some(front) = &mut self.front {
            let burst = front.dram.burst();
            self.begin(Work::burst(burst), now_ps);
        }
    }

    pub(super) fn stall_for_burst(&mut self, who: Stalled, now_ps: u64) {
        if let Some(front) = &mut self.front {
            front.stalled.push_back(who);
        }
        self.begin_burst(now_ps);
    }

    /// All values of a burst are on their devices.
    pub(super) fn end_burst(&mut self, now_ps: u64) {
        self.begin_burst(now_ps);
        let Some(front) = &mut self.front else { return };
        for who in std::mem::take(&mut front.stalled) {
            self.go_on(who, now_ps);
        }
    }
}
