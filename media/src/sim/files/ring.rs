//! A submission ring over simulated files, whose writes complete in an order drawn from the seed.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use rand::Rng;
use rustix::io::Errno;

use super::SimFile;
use super::disk::Disk;
use crate::sys::{Source, WriteRing};

/// A simulated submission ring.
pub struct SimRing {
    entries: usize,
    unsubmitted: VecDeque<Pushed>,
    in_flight: Vec<InFlight>,
    completed: VecDeque<(u64, Result<usize, Errno>)>,
}

struct Pushed {
    disk: Arc<Mutex<Disk>>,
    file: usize,
    offset_bytes: u64,
    source: Source<'static>,
    user_data: u64,
}

struct InFlight {
    of: Pushed,
    number: u64,
    taken: usize,
}

impl SimRing {
    fn submit(&mut self) {
        for of in self.unsubmitted.drain(..) {
            let submitted = of.disk.lock().submit(of.file, of.offset_bytes, of.source);
            match submitted {
                Ok((number, taken)) => self.in_flight.push(InFlight { of, number, taken }),
                Err(errno) => self.completed.push_back((of.user_data, Err(errno))),
            }
        }
    }

    fn complete_one(&mut self) {
        let disk = Arc::clone(&self.in_flight[0].of.disk);
        let mut disk = disk.lock();
        let index = disk.random.random_range(0..self.in_flight.len());
        let InFlight { of, number, taken } = self.in_flight.remove(index);
        let as_submitted = disk.submitted_bytes(of.file, number);
        assert!(
            of.source.first(taken).still_equals(as_submitted),
            "the bytes of a write at {} were changed while it was in flight",
            of.offset_bytes
        );
        let outcome = disk.complete(of.file, number).map(|()| taken);
        self.completed.push_back((of.user_data, outcome));
    }
}

impl WriteRing<SimFile> for SimRing {
    fn new(entries: u32) -> Result<Self, Errno> {
        Ok(Self {
            entries: entries as usize,
            unsubmitted: VecDeque::new(),
            in_flight: Vec::new(),
            completed: VecDeque::new(),
        })
    }

    fn push_write(
        &mut self,
        file: &SimFile,
        offset_bytes: u64,
        source: Source<'static>,
        user_data: u64,
    ) {
        let held = self.unsubmitted.len() + self.in_flight.len() + self.completed.len();
        assert!(held < self.entries, "more writes in flight than the ring has entries");
        let Ok(number) = file.number() else { unreachable!("a folder is no device") };
        let disk = Arc::clone(&file.disk);
        self.unsubmitted.push_back(Pushed { disk, file: number, offset_bytes, source, user_data });
    }

    fn unsubmitted(&mut self) -> bool {
        !self.unsubmitted.is_empty()
    }

    fn enter(&mut self, at_least: usize) -> Result<(), Errno> {
        self.submit();
        let wanted = at_least.saturating_sub(self.completed.len()).min(self.in_flight.len());
        let Some(first) = self.in_flight.first() else { return Ok(()) };
        let count = {
            let random = &mut first.of.disk.lock().random;
            // An interrupted wait returns early.
            let least = if random.random_ratio(1, 16) { 0 } else { wanted };
            random.random_range(least..=self.in_flight.len())
        };
        (0..count).for_each(|_| self.complete_one());
        Ok(())
    }

    fn reap(&mut self) -> Option<(u64, Result<usize, Errno>)> {
        self.completed.pop_front()
    }
}
