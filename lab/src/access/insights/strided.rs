//! Reads with gaps between them, which workload files cannot express: once a round, after the cells
//! of workload files, on memory of the same size and by a thread on the same processors.

use std::cell::RefCell;
use std::io;

use perdura_heap::Memory;

use super::super::place::{Place, PlaceError, Ready};
use super::super::workload::Config;
use super::figures::{Order, ReadIn};
use super::sys;

/// Memory to stride over, and the results so far.
pub(super) struct Strides {
    ready: Ready,
    range_bytes: u64,
    found: RefCell<Vec<ReadIn>>,
    failed: RefCell<Option<io::Error>>,
}

/// Distance from one read to the next, in reads.
const EVERY: u64 = 4;

impl Strides {
    /// Strided reads of these sizes.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub fn new(place: &Place, range_bytes: u64, sizes: Vec<u64>) -> Result<Self, PlaceError> {
        let config = Config { memory_range: range_bytes, ..Config::default() };
        let ready = Ready::of(place, &config, 0)?;
        let none = |read_bytes| ReadIn { order: Order::EveryFourth, read_bytes, per_s: Vec::new() };
        let found = RefCell::new(sizes.into_iter().map(none).collect());
        Ok(Self { ready, range_bytes, found, failed: RefCell::default() })
    }

    /// Measures each size once; every round begins with another size.
    pub fn round(&self, round: usize) {
        let Some(memory) = &self.ready.memory else { return };
        let mut found = self.found.borrow_mut();
        let count = found.len();
        for turn in 0..count {
            let reads = &mut found[(round + turn) % count];
            match self.pass(memory, reads.read_bytes) {
                Ok(per_s) => reads.per_s.push(per_s),
                Err(error) => *self.failed.borrow_mut() = Some(error),
            }
        }
    }

    fn pass(&self, memory: &Memory, read_bytes: u64) -> io::Result<f64> {
        let (processors, range_bytes) = (&self.ready.processors, self.range_bytes);
        let body = || {
            if let Some(processors) = processors {
                let mut set = rustix::thread::CpuSet::new();
                processors.iter().for_each(|processor| set.set(*processor));
                rustix::thread::sched_setaffinity(None, &set)?;
            }
            Ok(sys::strided(memory, range_bytes, read_bytes, EVERY * read_bytes))
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, body)?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// The results of all rounds.
    ///
    /// # Errors
    /// A thread could not be started, or not on its processors.
    pub fn into_figures(self) -> io::Result<Vec<ReadIn>> {
        match self.failed.into_inner() {
            Some(error) => Err(error),
            // A place that is not memory has no strided reads.
            None => {
                let found = self.found.into_inner().into_iter();
                Ok(found.filter(|one| !one.per_s.is_empty()).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_is_read_once_a_round() {
        let strides = Strides::new(&Place::Dram, 1 << 20, vec![64, 4096]).unwrap();
        (0..3).for_each(|round| strides.round(round));
        let found = strides.into_figures().unwrap();
        assert_eq!(found.iter().map(|one| one.read_bytes).collect::<Vec<_>>(), [64, 4096]);
        for one in found {
            assert_eq!(one.order, Order::EveryFourth);
            assert!(one.per_s.len() == 3 && one.per_s.iter().all(|per_s| *per_s > 0.0), "{one:?}");
        }
    }

    #[test]
    fn a_thread_that_may_not_run_is_told_of() {
        let mut strides = Strides::new(&Place::Dram, 1 << 20, vec![64]).unwrap();
        strides.ready.processors = Some(Vec::new());
        strides.round(0);
        assert!(strides.into_figures().is_err());
    }
}
