//! A sleep that a timer's interrupt ends.

use std::cell::Cell;
use std::num::NonZeroU64;

use rustix::io::Errno;
use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Sleeps for `ns` nanoseconds. A signal does not shorten the sleep.
pub(crate) fn sleep_ns(ns: u64) {
    thread_local!(static IS_EXACT: Cell<bool> = const { Cell::new(false) });
    if !IS_EXACT.get() {
        // By default the kernel may end a sleep 50 us late, to save interrupts. Where it refuses
        // another value, sleeps are longer and still correct.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        IS_EXACT.set(true);
    }
    let now = clock_gettime(ClockId::Monotonic);
    let at_ns = now.tv_nsec as u64 + ns;
    let until = Timespec {
        tv_sec: now.tv_sec + (at_ns / NS_PER_S) as i64,
        tv_nsec: (at_ns % NS_PER_S) as i64,
    };
    // The instant is absolute, so an interrupted sleep continues to the same instant. No other
    // error is possible.
    while clock_nanosleep_absolute(ClockId::Monotonic, &until) == Err(Errno::INTR) {}
}

const NS_PER_S: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_not_too_short() {
        for ns in [0, 1, 200_000, 1_500_000] {
            let began = std::time::Instant::now();
            sleep_ns(ns);
            assert!(began.elapsed().as_nanos() >= u128::from(ns), "{ns}");
        }
    }
}
