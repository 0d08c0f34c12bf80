//! A thread's share of the live objects, and the loops that are timed over the share.
//!
//! A share draws objects and sizes from its own seeded stream, which is the same for every
//! contestant. In a loop only the contestant allocates or waits; the clock is read once in `BATCH`
//! operations.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use serde::{Deserialize, Serialize};

use super::contestant::{Contestant, ContestantError, Counters, Measure, WRITE_BYTES, Way};
use perdura_bench::machine::thread_cpu_ns;

/// Operations between two readings of the clock.
const BATCH: u64 = 128;
/// Draws after which an error says that no object is large enough for a transaction.
const DRAWS_MAX: usize = 100_000;
/// Bytes that `Touch::First` writes.
const WORD_BYTES: usize = 8;

/// Sizes of objects, all equally likely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Smallest size, bytes.
    pub min_bytes: u16,
    /// Largest size, bytes.
    pub max_bytes: u16,
}

impl Sizes {
    /// The size for a number below 2^32.
    #[inline]
    fn draw(self, number: u64) -> usize {
        let span = u64::from(self.max_bytes - self.min_bytes) + 1;
        usize::from(self.min_bytes) + ((number * span) >> 32) as usize
    }

    /// Mean size of an object, bytes.
    pub fn mean_bytes(self) -> u64 {
        u64::from(self.min_bytes).midpoint(u64::from(self.max_bytes))
    }
}

/// Bytes that are written into a new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Touch {
    /// The object's first eight bytes.
    First,
    /// The whole object.
    All,
}

/// A live object: its place in 48 bits, its size in 16.
#[derive(Debug, Clone, Copy)]
struct Slot(u64);

impl Slot {
    /// All ones, not zero: writing it puts the table's pages in memory before anything is measured.
    const EMPTY: Self = Self(u64::MAX);

    #[inline]
    fn new(place: u64, bytes: usize) -> Self {
        debug_assert!(place >> 48 == 0 && bytes >> 16 == 0);
        Self(place | (bytes as u64) << 48)
    }

    #[inline]
    fn place(self) -> u64 {
        self.0 << 16 >> 16
    }

    #[inline]
    fn bytes(self) -> usize {
        (self.0 >> 48) as usize
    }
}

/// When a loop ends.
#[derive(Debug, Clone, Copy)]
pub enum Limit {
    /// After this time.
    Time(Duration),
    /// After this number of operations.
    Operations(u64),
}

/// Time of the operations of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// Number of operations.
    pub operations: u64,
    /// Time of all operations, nanoseconds.
    pub ns: u64,
    /// Processor time of the thread, nanoseconds: less than `ns` where it waited for a lock or a
    /// processor.
    pub cpu_ns: u64,
}

/// A clock and the thread's processor time, read together.
struct Began(Instant, u64);

impl Began {
    fn now() -> Self {
        Self(Instant::now(), thread_cpu_ns())
    }

    fn timed(&self, operations: u64) -> Timed {
        let ns = self.0.elapsed().as_nanos() as u64;
        Timed { operations, ns, cpu_ns: thread_cpu_ns() - self.1 }
    }
}

/// Lines and fences of counted operations.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Counted {
    /// Number of operations.
    pub operations: u64,
    /// Counts within allocations alone.
    pub allocating: Counters,
    /// Counts within all calls.
    pub calls: Counters,
    /// Lines that the operations deferred, counted when they were made durable after the last
    /// operation.
    pub deferred_lines: u64,
    /// Number of operations by the lines that each flushed: work done for many operations at once
    /// shows in few of them.
    pub by_lines: BTreeMap<u64, u64>,
}

impl Counted {
    /// The sum of two threads' counts.
    pub fn plus(mut self, other: Self) -> Self {
        for (lines, operations) in other.by_lines {
            *self.by_lines.entry(lines).or_default() += operations;
        }
        Self {
            by_lines: self.by_lines,
            operations: self.operations + other.operations,
            allocating: self.allocating.plus(other.allocating),
            calls: self.calls.plus(other.calls),
            deferred_lines: self.deferred_lines + other.deferred_lines,
        }
    }

    /// Median of the lines of an operation.
    pub fn lines_median(&self) -> u64 {
        let mut below = 0;
        let mut reached = self.by_lines.iter().filter(|(_, operations)| {
            below += **operations;
            below * 2 >= self.operations
        });
        reached.next().map_or(0, |(lines, _)| *lines)
    }
}

/// The objects of one thread.
pub struct Share<'c, C> {
    contestant: &'c C,
    slots: Vec<Slot>,
    first: usize,
    live: usize,
    sizes: Sizes,
    touch: Touch,
    random: Random,
}

impl<'c, C: Contestant> Share<'c, C> {
    /// A share for the objects of these indices; none is allocated yet.
    pub fn new(
        contestant: &'c C,
        objects: Range<usize>,
        sizes: Sizes,
        touch: Touch,
        seed: u64,
    ) -> Self {
        let (slots, first) = (vec![Slot::EMPTY; objects.len()], objects.start);
        let random = Random::seed_from_u64(seed);
        Self { contestant, slots, first, live: 0, sizes, touch, random }
    }

    /// Allocates all objects.
    ///
    /// # Errors
    /// The contestant failed.
    pub fn populate(&mut self) -> Result<Timed, ContestantError> {
        let began = Began::now();
        while self.live < self.slots.len() {
            let (_, bytes) = self.draw();
            let place = self.contestant.allocate(bytes)?;
            self.enter(self.live, place, bytes);
            self.live += 1;
        }
        Ok(began.timed(self.live as u64))
    }

    /// Bytes of the live objects as they were asked for.
    pub fn asked_bytes(&self) -> u64 {
        self.slots[..self.live].iter().map(|slot| slot.bytes() as u64).sum()
    }

    /// Repeats `measure` until the limit.
    ///
    /// # Errors
    /// The contestant failed.
    pub fn run(&mut self, measure: Measure, limit: Limit) -> Result<Timed, ContestantError> {
        let began = Began::now();
        let mut operations = 0;
        loop {
            let batch = match limit {
                Limit::Operations(all) => BATCH.min(all - operations),
                Limit::Time(time) if began.0.elapsed() < time => BATCH,
                Limit::Time(_) => 0,
            };
            if batch == 0 {
                return Ok(began.timed(operations));
            }
            match measure {
                Measure::Pair(way) => self.pairs(way, batch)?,
                Measure::Tx64 => self.transactions::<1>(batch)?,
                Measure::Tx4x64 => self.transactions::<4>(batch)?,
            }
            operations += batch;
        }
    }

    /// Repeats `measure` and reads the counters around each allocation; for contestants that count.
    ///
    /// # Errors
    /// The contestant failed.
    pub fn count(&mut self, measure: Measure, operations: u64) -> Result<Counted, ContestantError> {
        self.contestant.settle()?;
        let counters = |share: &Self| share.contestant.counters().unwrap_or_default();
        let before = counters(self);
        let mut counted = Counted { operations, ..Counted::default() };
        for _ in 0..operations {
            let earlier = counters(self);
            if measure == Measure::Pair(Way::Plain) {
                counted.allocating = counted.allocating.plus(self.counted_pair()?);
            } else {
                self.run(measure, Limit::Operations(1))?;
            }
            let lines = counters(self).since(earlier).lines;
            *counted.by_lines.entry(lines).or_default() += 1;
        }
        counted.calls = counters(self).since(before);
        self.contestant.settle()?;
        counted.deferred_lines = counters(self).since(before).deferred_lines;
        Ok(counted)
    }

    fn counted_pair(&mut self) -> Result<Counters, ContestantError> {
        let (index, bytes) = self.draw();
        self.contestant.free(self.slots[index].place())?;
        let before = self.contestant.counters().unwrap_or_default();
        let place = self.contestant.allocate(bytes)?;
        let after = self.contestant.counters().unwrap_or_default();
        self.enter(index, place, bytes);
        Ok(after.since(before))
    }

    #[inline]
    fn pairs(&mut self, way: Way, operations: u64) -> Result<(), ContestantError> {
        for _ in 0..operations {
            let (index, bytes) = self.draw();
            let old = self.slots[index].place();
            let place = self.contestant.replace(way, self.first + index, old, bytes)?;
            self.enter(index, place, bytes);
        }
        Ok(())
    }

    #[inline]
    fn transactions<const N: usize>(&mut self, operations: u64) -> Result<(), ContestantError> {
        for operation in 0..operations {
            let mut places = [0; N];
            for place in &mut places {
                *place = self.target()?;
            }
            let mut value = [operation as u8; WRITE_BYTES];
            value[..WORD_BYTES].copy_from_slice(&places[0].to_le_bytes());
            self.contestant.transact(&places, &value)?;
        }
        Ok(())
    }

    /// A random live object that is large enough for a transaction's write.
    #[inline]
    fn target(&mut self) -> Result<u64, ContestantError> {
        for _ in 0..DRAWS_MAX {
            let (index, _) = self.draw();
            let slot = self.slots[index];
            if slot.bytes() >= WRITE_BYTES {
                return Ok(slot.place());
            }
        }
        Err(ContestantError::NoTarget)
    }

    /// A random index and a random size.
    #[inline]
    fn draw(&mut self) -> (usize, usize) {
        let number = self.random.next_u64();
        let index = (((number >> 32) * self.slots.len() as u64) >> 32) as usize;
        (index, self.sizes.draw(number & u64::from(u32::MAX)))
    }

    #[inline]
    fn enter(&mut self, index: usize, place: u64, bytes: usize) {
        let touched = match self.touch {
            Touch::First => bytes.min(WORD_BYTES),
            Touch::All => bytes,
        };
        self.contestant.touch(place, touched, index as u64 | 1);
        self.slots[index] = Slot::new(place, bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use super::*;

    /// A contestant that checks every call against the objects that it knows.
    #[derive(Default)]
    struct Ledger(Mutex<(u64, HashMap<u64, usize>)>);

    impl Contestant for Ledger {
        fn allocate(&self, bytes: usize) -> Result<u64, ContestantError> {
            let mut ledger = self.0.lock().unwrap();
            ledger.0 += 16;
            let place = ledger.0;
            ledger.1.insert(place, bytes);
            Ok(place)
        }

        fn free(&self, place: u64) -> Result<(), ContestantError> {
            let was = self.0.lock().unwrap().1.remove(&place);
            assert!(was.is_some(), "freed twice: {place}");
            Ok(())
        }

        fn touch(&self, place: u64, bytes: usize, _: u64) {
            assert!(self.0.lock().unwrap().1[&place] >= bytes);
        }

        fn transact(&self, places: &[u64], _: &[u8; 64]) -> Result<(), ContestantError> {
            let ledger = self.0.lock().unwrap();
            assert!(places.iter().all(|place| ledger.1[place] >= WRITE_BYTES));
            Ok(())
        }
    }

    const SIZES: Sizes = Sizes { min_bytes: 16, max_bytes: 1024 };

    #[test]
    fn every_object_is_freed_once_and_as_many_live_as_were_asked_for() {
        let ledger = Ledger::default();
        let mut share = Share::new(&ledger, 0..100, SIZES, Touch::All, 1);
        share.populate().unwrap();
        for measure in [Measure::Pair(Way::Plain), Measure::Tx64, Measure::Tx4x64] {
            let timed = share.run(measure, Limit::Operations(1000)).unwrap();
            assert_eq!(timed.operations, 1000);
        }
        let objects = &ledger.0.lock().unwrap().1;
        assert_eq!(objects.len(), 100);
        assert_eq!(objects.values().map(|bytes| *bytes as u64).sum::<u64>(), share.asked_bytes());
    }

    #[test]
    fn the_median_of_counts_is_that_of_single_operations() {
        let counted = |by_lines: &[(u64, u64)]| Counted {
            operations: by_lines.iter().map(|(_, operations)| operations).sum(),
            by_lines: by_lines.iter().copied().collect(),
            ..Counted::default()
        };
        assert_eq!(counted(&[(1, 999), (1024, 1)]).lines_median(), 1);
        assert_eq!(counted(&[(1, 1), (2, 1), (9, 3)]).lines_median(), 9);
        assert_eq!(counted(&[(1, 1)]).plus(counted(&[(1, 1), (3, 3)])).lines_median(), 3);
        assert_eq!(Counted::default().lines_median(), 0);
    }

    #[test]
    fn sizes_reach_both_ends_and_are_even() {
        assert_eq!((SIZES.draw(0), SIZES.draw(u64::from(u32::MAX))), (16, 1024));
        let ledger = Ledger::default();
        let mut share = Share::new(&ledger, 0..100_000, SIZES, Touch::First, 1);
        share.populate().unwrap();
        let mean = share.asked_bytes() as f64 / 100_000.0;
        assert!((mean - 520.0).abs() < 5.0, "{mean}");
    }

    #[test]
    fn a_way_that_is_not_offered_is_said() {
        let ledger = Ledger::default();
        let mut share = Share::new(&ledger, 0..10, SIZES, Touch::First, 1);
        share.populate().unwrap();
        let refused = share.run(Measure::Pair(Way::Reserved), Limit::Operations(1)).unwrap_err();
        assert!(refused.to_string().contains("Reserved"), "{refused}");
    }

    #[test]
    fn transactions_over_objects_too_small_end_in_an_error() {
        let ledger = Ledger::default();
        let sizes = Sizes { min_bytes: 16, max_bytes: 32 };
        let mut share = Share::new(&ledger, 0..10, sizes, Touch::First, 1);
        share.populate().unwrap();
        let refused = share.run(Measure::Tx64, Limit::Operations(1)).unwrap_err();
        assert!(matches!(refused, ContestantError::NoTarget), "{refused}");
    }
}
