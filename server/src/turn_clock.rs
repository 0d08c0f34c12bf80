//! The time of each command. The clock is read once a turn; within the turn the machine's counter
//! of ticks says how much has passed, which costs a quarter of reading the clock.

use perdura_media::Clock;

/// Shortest time, nanoseconds, from which the length of a tick is taken.
const WINDOW_NS: u64 = 20_000_000;
/// Two windows in turn have to agree on the length of a tick as well as that. They do not where the
/// machine has slept, or has moved to another one.
const DIFFERENCE_MAX: f64 = 0.001;

/// The time and the ticks at one moment.
#[derive(Debug, Clone, Copy)]
struct Moment {
    ns: u64,
    ticks: u64,
}

/// A clock that is set at the beginning of each turn.
#[derive(Debug, Default)]
pub(crate) struct TurnClock {
    /// The beginning of the turn, if the machine has ticks.
    turn: Option<Moment>,
    /// The beginning of the window.
    window: Option<Moment>,
    /// Nanoseconds of a tick in the window before.
    before: Option<f64>,
    /// Nanoseconds of a tick, if two windows agree.
    tick_ns: Option<f64>,
}

impl TurnClock {
    /// Begins a turn, at the time `ns` of the clock.
    pub fn begin_turn(&mut self, ns: u64, ticks: Option<u64>) {
        self.turn = ticks.map(|ticks| Moment { ns, ticks });
        let (Some(now), Some(window)) = (self.turn, self.window) else {
            return self.window = self.turn;
        };
        let passed_ns = ns.saturating_sub(window.ns);
        if passed_ns < WINDOW_NS {
            return;
        }
        let tick_ns = passed_ns as f64 / now.ticks.wrapping_sub(window.ticks).max(1) as f64;
        let agrees = |before: f64| (tick_ns / before - 1.0).abs() < DIFFERENCE_MAX;
        self.tick_ns = self.before.is_some_and(agrees).then_some(tick_ns);
        (self.before, self.window) = (Some(tick_ns), self.turn);
    }

    /// The time now, nanoseconds.
    #[inline]
    pub fn now_ns(&self, clock: &dyn Clock) -> u64 {
        if let (Some(turn), Some(tick_ns)) = (self.turn, self.tick_ns)
            && let Some(ticks) = clock.ticks()
        {
            return turn.ns + (ticks.saturating_sub(turn.ticks) as f64 * tick_ns) as u64;
        }
        clock.now_ns()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    /// A clock whose time and ticks the test sets.
    #[derive(Default)]
    struct Set {
        ns: AtomicU64,
        ticks: AtomicU64,
    }

    impl Clock for Set {
        fn now_ns(&self) -> u64 {
            self.ns.load(Relaxed)
        }
        fn ticks(&self) -> Option<u64> {
            Some(self.ticks.load(Relaxed))
        }
        fn unix_ms(&self) -> u64 {
            0
        }
        fn thread_cpu_ns(&self) -> u64 {
            0
        }
        fn sleep_ns(&self, _: u64) {}
    }

    impl Set {
        fn pass(&self, ns: u64, ticks: u64) {
            self.ns.fetch_add(ns, Relaxed);
            self.ticks.fetch_add(ticks, Relaxed);
        }

        fn begin(&self, turn: &mut TurnClock) {
            turn.begin_turn(self.now_ns(), self.ticks());
        }
    }

    #[test]
    fn ticks_tell_the_time_of_a_turn_once_two_windows_agree_on_them() {
        let (clock, mut turn) = (Set::default(), TurnClock::default());
        clock.pass(5_000_000_000, 77);
        // What a clock says that has no ticks yet, or none any more.
        let reads_the_clock = |turn: &TurnClock| {
            clock.ticks.fetch_add(1_000_000, Relaxed);
            let is_read = turn.now_ns(&clock) == clock.now_ns();
            clock.ticks.fetch_sub(1_000_000, Relaxed);
            is_read
        };
        for window in 0..4 {
            clock.begin(&mut turn);
            assert_eq!(reads_the_clock(&turn), window < 2, "window {window}");
            clock.pass(WINDOW_NS, WINDOW_NS * 3);
        }
        // Three ticks a nanosecond; the clock itself is not asked.
        clock.begin(&mut turn);
        clock.pass(0, 3_000);
        assert_eq!(turn.now_ns(&clock), clock.now_ns() + 1_000);
        // Ticks that go back are no time.
        clock.ticks.fetch_sub(6_000, Relaxed);
        assert_eq!(turn.now_ns(&clock), clock.now_ns());
        // A machine that has slept, with ticks that went on, or that has other ticks now.
        clock.pass(WINDOW_NS, WINDOW_NS * 5);
        clock.begin(&mut turn);
        assert!(reads_the_clock(&turn));
        for _ in 0..2 {
            clock.pass(WINDOW_NS, WINDOW_NS * 2);
            clock.begin(&mut turn);
        }
        assert!(!reads_the_clock(&turn));
        // A clock without ticks.
        turn.begin_turn(clock.now_ns(), None);
        assert!(reads_the_clock(&turn));
    }
}
