//! Clocks as parameters. Code below the command line asks a clock for the time and never the
//! system.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::thread::futex;
use rustix::time::{ClockId, clock_gettime};

use crate::sys::ticks;

/// A source of time, and a way to wait for time to pass.
pub trait Clock: Send + Sync {
    /// Monotonic nanoseconds since an arbitrary start.
    fn now_ns(&self) -> u64;
    /// A counter that costs less to read than the time, and that goes on at a constant rate; `None`
    /// if there is no such counter. What a tick is has to be found out by reading both.
    fn ticks(&self) -> Option<u64> {
        None
    }
    /// Milliseconds since the Unix epoch; may jump when the machine's time is set.
    fn unix_ms(&self) -> u64;
    /// Processor time of the calling thread, nanoseconds since an arbitrary start.
    fn thread_cpu_ns(&self) -> u64;
    /// Returns when at least `duration_ns` nanoseconds of this clock have passed.
    fn sleep_ns(&self, duration_ns: u64);
    /// Waits until `word` is no longer `seen` and its futex was woken, or until `longest` has
    /// passed. It may return earlier, so the caller looks again. The clock does this wait, so that
    /// a virtual clock knows of all waits. A fault handler may call it: the machine's clock makes
    /// one system call.
    fn wait_change(&self, word: &AtomicU32, seen: u32, longest: Duration) {
        let timeout = futex::Timespec {
            tv_sec: longest.as_secs() as i64,
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        // After every outcome (woken, timed out, interrupted, word already changed) the caller
        // looks again.
        let _ = futex::wait(word, futex::Flags::PRIVATE, seen, Some(&timeout));
    }
}

/// The machine's clocks. `now_ns` is `CLOCK_MONOTONIC`, so two processes of one boot agree on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealClock;

impl Clock for RealClock {
    fn now_ns(&self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * NS_PER_S + now.tv_nsec as u64
    }

    fn ticks(&self) -> Option<u64> {
        // Asking the processor costs a thousand times what reading the counter does.
        static ARE_STEADY: LazyLock<bool> = LazyLock::new(ticks::are_steady);
        ARE_STEADY.then(ticks::now)
    }

    fn unix_ms(&self) -> u64 {
        let now = clock_gettime(ClockId::Realtime);
        // A machine set to a time before 1970 reads as 1970.
        u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + now.tv_nsec as u64 / NS_PER_MS
    }

    fn thread_cpu_ns(&self) -> u64 {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as u64 * NS_PER_S + now.tv_nsec as u64
    }

    fn sleep_ns(&self, duration_ns: u64) {
        std::thread::sleep(Duration::from_nanos(duration_ns));
    }
}

/// A clock that moves only when told to; sleeping advances it at once. Starts at 0 ns. Time
/// saturates at `u64::MAX` ns.
#[derive(Debug, Default)]
pub struct SimClock {
    now_ns: AtomicU64,
    /// Unix milliseconds at `now_ns == 0`, modulo 2^64.
    unix_base_ms: AtomicU64,
}

impl SimClock {
    /// A clock at 0 ns and `unix_ms`.
    #[must_use]
    pub fn new(unix_ms: u64) -> Self {
        Self { now_ns: AtomicU64::new(0), unix_base_ms: AtomicU64::new(unix_ms) }
    }

    /// Lets `duration_ns` pass, in both notions of time.
    pub fn advance_ns(&self, duration_ns: u64) {
        let _before = self.now_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now_ns| {
            Some(now_ns.saturating_add(duration_ns))
        });
    }

    /// Lets time pass until `now_ns`; does nothing if that has passed.
    pub fn advance_to_ns(&self, now_ns: u64) {
        self.now_ns.fetch_max(now_ns, Ordering::AcqRel);
    }

    /// Sets the wall clock, leaving the monotonic one alone.
    pub fn set_unix_ms(&self, unix_ms: u64) {
        let passed_ms = self.now_ns() / NS_PER_MS;
        self.unix_base_ms.store(unix_ms.wrapping_sub(passed_ms), Ordering::Release);
    }
}

impl Clock for SimClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Acquire)
    }

    fn unix_ms(&self) -> u64 {
        self.unix_base_ms.load(Ordering::Acquire).wrapping_add(self.now_ns() / NS_PER_MS)
    }

    /// Simulated time is charged to the caller as a whole.
    fn thread_cpu_ns(&self) -> u64 {
        self.now_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.advance_ns(duration_ns);
    }
}

/// Waits in a row that a lone thread may begin: what it waits for is looked at again some times
/// before it is given up.
const LONE_WAITS_MAX: u32 = 1_000;

/// The simulated clock of a program with one thread. A wait for another thread returns at once, and
/// panics if the same is waited for again and again, because nobody is left to end the wait: a
/// simulation that hangs ends, and says so.
#[derive(Debug, Default)]
pub struct LoneClock {
    /// The time, which moves only when told to.
    pub time: SimClock,
    waits: AtomicU32,
}

impl LoneClock {
    /// A clock at 0 ns and `unix_ms`.
    #[must_use]
    pub fn new(unix_ms: u64) -> Self {
        Self { time: SimClock::new(unix_ms), waits: AtomicU32::new(0) }
    }
}

impl Clock for LoneClock {
    fn now_ns(&self) -> u64 {
        self.time.now_ns()
    }

    fn unix_ms(&self) -> u64 {
        self.time.unix_ms()
    }

    fn thread_cpu_ns(&self) -> u64 {
        self.time.thread_cpu_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.time.sleep_ns(duration_ns);
    }

    fn wait_change(&self, word: &AtomicU32, seen: u32, _longest: Duration) {
        if word.load(Ordering::SeqCst) != seen {
            self.waits.store(0, Ordering::Relaxed);
            return;
        }
        let waits = self.waits.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(
            waits < LONE_WAITS_MAX,
            "the only thread waits for a notification that nobody is left to send ({waits} waits)"
        );
    }
}

const NS_PER_S: u64 = 1_000_000_000;
const NS_PER_MS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_clock_never_goes_back_and_knows_the_century() {
        let first_ns = RealClock.now_ns();
        RealClock.sleep_ns(0);
        assert!(RealClock.now_ns() >= first_ns);
        assert!(RealClock.unix_ms() > 1_700_000_000_000);
        let first_cpu_ns = RealClock.thread_cpu_ns();
        let spun = (0..100_000u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
        assert!(RealClock.thread_cpu_ns() > first_cpu_ns, "{spun}");
    }

    #[test]
    fn simulated_time_moves_only_when_told() {
        let clock = SimClock::new(5_000);
        assert_eq!((clock.now_ns(), clock.unix_ms()), (0, 5_000));
        clock.advance_ns(3_000_000);
        clock.sleep_ns(1_000_000);
        assert_eq!((clock.now_ns(), clock.unix_ms()), (4_000_000, 5_004));
        clock.advance_to_ns(1);
        assert_eq!(clock.now_ns(), 4_000_000);
    }

    #[test]
    fn setting_the_wall_clock_leaves_the_monotonic_one_alone() {
        let clock = SimClock::new(0);
        clock.advance_ns(7_000_000);
        clock.set_unix_ms(3);
        assert_eq!((clock.now_ns(), clock.unix_ms()), (7_000_000, 3));
        clock.advance_ns(1_000_000);
        assert_eq!(clock.unix_ms(), 4);
    }

    #[test]
    #[should_panic(expected = "nobody is left to send")]
    fn a_lone_thread_that_waits_for_ever_is_ended() {
        let (clock, word) = (LoneClock::new(0), AtomicU32::new(7));
        // What has changed already is no wait.
        (0..2 * LONE_WAITS_MAX).for_each(|_| clock.wait_change(&word, 6, Duration::MAX));
        loop {
            clock.wait_change(&word, 7, Duration::MAX);
        }
    }
}
