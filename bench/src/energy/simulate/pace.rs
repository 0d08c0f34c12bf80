//! The clock of a run: virtual, or the real one.
//!
//! On the real clock each actor waits until the machine's clock has come to its time, and acts
//! later if the machine is behind. So the times of the deciding code of the tier, and of the
//! machine itself, are in the results, which are then no longer the same each time. One thread acts
//! for all clients: as many as there are would measure the machine's scheduler.

use perdura_media::clock::Clock;

/// A wait that is longer is slept, but for its end; a shorter one is spun.
const SPIN_NS: u64 = 200_000;

/// The clock of a run.
#[derive(Clone, Copy)]
pub enum Pace<'c> {
    /// Time jumps to what comes next.
    Virtual,
    /// What comes next is waited for.
    Real(&'c dyn Clock),
}

/// A run's time.
pub(super) struct Paced<'c> {
    /// The clock, and its time at the start.
    real: Option<(&'c dyn Clock, u64)>,
    late_ps: u64,
    waits: u64,
}

impl<'c> Pace<'c> {
    pub(super) fn begin(&self) -> Paced<'c> {
        let real = match *self {
            Pace::Virtual => None,
            Pace::Real(clock) => Some((clock, clock.now_ns())),
        };
        Paced { real, late_ps: 0, waits: 0 }
    }
}

impl Paced<'_> {
    /// Waits until an instant of the run. Returns which instant it is then: that, or a later one.
    pub(super) fn wait(&mut self, due_ps: u64) -> u64 {
        let Some((clock, start_ns)) = self.real else { return due_ps };
        let mut now_ps = (clock.now_ns() - start_ns) * 1_000;
        while now_ps < due_ps {
            let left_ns = (due_ps - now_ps) / 1_000;
            match left_ns > SPIN_NS {
                true => clock.sleep_ns(left_ns - SPIN_NS),
                false => std::hint::spin_loop(),
            }
            now_ps = (clock.now_ns() - start_ns) * 1_000;
        }
        self.late_ps += now_ps - due_ps;
        self.waits += 1;
        now_ps
    }

    /// Mean time by which an instant was missed, picoseconds.
    pub(super) fn late_ps(&self) -> u64 {
        self.late_ps / self.waits.max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    /// A clock that moves by 10 ns whenever it is looked at.
    #[derive(Default)]
    struct Looked {
        ns: AtomicU64,
    }

    impl Clock for Looked {
        fn now_ns(&self) -> u64 {
            self.ns.fetch_add(10, Relaxed)
        }

        fn unix_ms(&self) -> u64 {
            0
        }

        fn thread_cpu_ns(&self) -> u64 {
            0
        }

        fn sleep_ns(&self, duration_ns: u64) {
            self.ns.fetch_add(duration_ns, Relaxed);
        }
    }

    #[test]
    fn the_virtual_clock_is_never_late() {
        let mut paced = Pace::Virtual.begin();
        assert_eq!([5, 7, 1_000_000].map(|due| paced.wait(due)), [5, 7, 1_000_000]);
        assert_eq!(paced.late_ps(), 0);
    }

    #[test]
    fn the_real_clock_is_waited_for_and_may_be_late() {
        let clock = Looked::default();
        let mut paced = Pace::Real(&clock).begin();
        let last_ps = Cell::new(0);
        for due_ps in [0, 55_000, 1_000_000_000, 1_000_001_000] {
            let now_ps = paced.wait(due_ps);
            assert!(now_ps >= due_ps.max(last_ps.get()), "{now_ps} for {due_ps}");
            assert!(now_ps - due_ps <= 20_000, "{now_ps} for {due_ps}");
            last_ps.set(now_ps);
        }
        assert!(paced.late_ps() > 0 && paced.late_ps() <= 20_000, "{}", paced.late_ps());
    }
}
