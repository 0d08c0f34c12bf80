//! Observers of a kernel's accesses: one that ignores them, and a MODELLED last-level cache in
//! front of a DDR-attached medium.
//!
//! Software cannot delay each load. So lines are looked up in the modelled cache, and the time by
//! which its misses would take longer than DRAM is added: computed from the counts
//! ([`Lines::counts`]), or injected by spinning when enough has come together
//! ([`Injection::epoch_ns`]). Misses are taken one after the other, the slides' "memory latency on
//! each line": a processor would overlap some.

use std::cell::RefCell;

use perdura_media::emulator::Tsc;
use serde::{Deserialize, Serialize};

use super::KernelError;
use crate::caches::model::{Cache, CacheShape, Counts, FlushKind, Owner};

/// An observer of accesses.
pub trait Probe {
    /// Called when `len` bytes at the address `at` are loaded or stored.
    fn touch(&self, at: usize, len: usize, is_store: bool);
}

/// Ignores all accesses and costs nothing.
pub struct Unwatched;

impl Probe for Unwatched {
    #[inline(always)]
    fn touch(&self, _at: usize, _len: usize, _is_store: bool) {}
}

/// Delays to inject.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Injection {
    /// Delay for each line read from memory, picoseconds.
    pub read_ps: u64,
    /// Delay for each line written back, picoseconds.
    pub write_ps: u64,
    /// Delay is spun when at least this much has come together, nanoseconds.
    pub epoch_ns: u64,
}

/// The modelled cache as an observer.
pub struct Lines {
    line_shift: u32,
    sampled_one_in: u64,
    injection: Option<Injection>,
    tsc: Tsc,
    state: RefCell<State>,
}

struct State {
    cache: Cache,
    owed_ps: u64,
    injected_ps: u64,
}

impl Lines {
    /// An empty cache. Only one in `sampled_one_in` of its sets is modelled, with the lines that
    /// belong there; it stands for all sets.
    ///
    /// # Errors
    /// The shape is impossible, or sampling leaves no set.
    pub fn new(
        shape: CacheShape,
        sampled_one_in: u64,
        injection: Option<Injection>,
    ) -> Result<Self, KernelError> {
        let sampled_one_in = sampled_one_in.max(1);
        let sampled = CacheShape { size_bytes: shape.size_bytes / sampled_one_in, ..shape };
        let cache = Cache::new(sampled, FlushKind::Drops)?;
        Ok(Self {
            line_shift: shape.line_bytes.trailing_zeros(),
            sampled_one_in,
            injection,
            tsc: Tsc::calibrated(),
            state: RefCell::new(State { cache, owed_ps: 0, injected_ps: 0 }),
        })
    }

    /// Counts so far, scaled up from the sampled sets.
    pub fn counts(&self) -> Counts {
        let counts = self.state.borrow().cache.counts().total();
        let all = |sampled: u64| sampled * self.sampled_one_in;
        Counts {
            accesses: all(counts.accesses),
            misses: all(counts.misses),
            flushes: all(counts.flushes),
            writebacks: all(counts.writebacks),
        }
    }

    /// Sets the counts to zero; the cache keeps its lines, and outstanding delay is spun now.
    pub fn forget_counts(&self) {
        let mut state = self.state.borrow_mut();
        self.spin(&mut state);
        state.cache.forget_counts();
        state.injected_ps = 0;
    }

    /// Delay injected so far, picoseconds; outstanding delay is spun now.
    pub fn injected_ps(&self) -> u64 {
        let mut state = self.state.borrow_mut();
        self.spin(&mut state);
        state.injected_ps
    }

    fn spin(&self, state: &mut State) {
        let began = self.tsc.ticks();
        let owed_ps = std::mem::take(&mut state.owed_ps);
        state.injected_ps += owed_ps;
        while self.tsc.ps(self.tsc.ticks().saturating_sub(began)) < owed_ps {
            std::hint::spin_loop();
        }
    }
}

impl Probe for Lines {
    fn touch(&self, at: usize, len: usize, is_store: bool) {
        if len == 0 {
            return;
        }
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let lines = at as u64 >> self.line_shift..=(at + len - 1) as u64 >> self.line_shift;
        for line in lines {
            if !line.is_multiple_of(self.sampled_one_in) {
                continue;
            }
            let before = state.cache.counts().capacity_data.writebacks;
            let was_there =
                state.cache.access(line / self.sampled_one_in, Owner::CapacityData, is_store);
            let (false, Some(injection)) = (was_there, self.injection) else { continue };
            let written_back = state.cache.counts().capacity_data.writebacks - before;
            let line_ps = injection.read_ps + written_back * injection.write_ps;
            state.owed_ps += line_ps * self.sampled_one_in;
            if state.owed_ps >= injection.epoch_ns * 1000 {
                self.spin(state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: CacheShape = CacheShape { size_bytes: 64 << 10, ways: 8, line_bytes: 64 };

    #[test]
    fn each_line_of_a_touch_is_looked_up_once() {
        let lines = Lines::new(SHAPE, 1, None).unwrap();
        lines.touch(4090, 10, false);
        lines.touch(4096, 64, true);
        lines.touch(8192, 0, true);
        let counts = lines.counts();
        assert_eq!((counts.accesses, counts.misses), (3, 2));
    }

    #[test]
    fn a_sample_of_the_sets_stands_for_all_of_them() {
        let all = Lines::new(SHAPE, 1, None).unwrap();
        let some = Lines::new(SHAPE, 8, None).unwrap();
        // Two passes over twice the cache's size, and three over half of it.
        for (bytes, passes) in [(128 << 10, 2), (32 << 10, 3)] {
            for at in (0..passes * bytes).step_by(8) {
                all.touch(at % bytes, 8, true);
                some.touch(at % bytes, 8, true);
            }
        }
        assert_eq!(all.counts(), some.counts());
        assert!(all.counts().misses > 0 && all.counts().writebacks > 0);
    }

    #[test]
    fn injected_delay_is_what_the_misses_cost() {
        let injection = Injection { read_ps: 50_000, write_ps: 200_000, epoch_ns: 10_000 };
        let lines = Lines::new(SHAPE, 1, Some(injection)).unwrap();
        let began = lines.tsc.ticks();
        for at in (0..512 << 10).step_by(64) {
            lines.touch(at, 64, true);
        }
        let injected_ps = lines.injected_ps();
        let counts = lines.counts();
        assert_eq!(injected_ps, counts.misses * 50_000 + counts.writebacks * 200_000);
        assert!(lines.tsc.ps(lines.tsc.ticks() - began) >= injected_ps);
    }
}
