//! What sees the accesses of a kernel: nothing, or a last-level cache, MODELLED, behind which lies
//! a DDR-attached medium.
//!
//! Software cannot delay each load. So lines are looked up in the modelled cache, and what its
//! misses would take longer than DRAM is added: accounted on paper ([`Lines::counts`]), or
//! injected, by spinning when enough has come together ([`Injection::epoch_ns`]). Every line missed
//! counts as one after the other: the slides' "memory latency on each line", without what a
//! processor overlaps.

use std::cell::RefCell;

use perdura_media::emulator::Tsc;
use serde::{Deserialize, Serialize};

use super::KernelError;
use crate::caches::model::{Cache, CacheShape, Counts, FlushKind, Owner};

/// Sees accesses.
pub trait Probe {
    /// These bytes are loaded, or stored.
    fn touch(&self, at: usize, len: usize, is_store: bool);
}

/// Sees nothing and costs nothing.
pub struct Unwatched;

impl Probe for Unwatched {
    #[inline(always)]
    fn touch(&self, _at: usize, _len: usize, _is_store: bool) {}
}

/// Delays to be injected.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Injection {
    /// For each line that is read from memory.
    pub read_ps: u64,
    /// For each line that is written back.
    pub write_ps: u64,
    /// Spun when at least so much has come together.
    pub epoch_ns: u64,
}

/// The modelled cache.
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
    /// An empty cache of that shape. Of its sets one in `sampled_one_in` is modelled, with the
    /// lines that go there, and stands for all.
    ///
    /// # Errors
    /// The shape is none, or is left none by sampling.
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

    /// What was counted, sampling set right.
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

    /// Counts from zero; what is in the cache stays there, and what is owed is spun now.
    pub fn forget_counts(&self) {
        let mut state = self.state.borrow_mut();
        self.spin(&mut state);
        state.cache.forget_counts();
        state.injected_ps = 0;
    }

    /// Delay injected so far; what is owed is spun now.
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
        // Two passes over twice the cache, and three over half of it.
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
