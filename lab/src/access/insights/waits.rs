//! The processor's own counts of cycles and of cycles in which it waited, where the machine shows
//! them.

use std::fs::File;
use std::io::{self, Read};

use crate::caches::open_event;

/// Counters of this process: all cycles, and those in which the back end waited, mostly for memory.
pub(super) struct Waits {
    cycles: File,
    waited: File,
    before: [u64; 2],
}

/// `PERF_TYPE_HARDWARE`, and two of its events.
const HARDWARE: u32 = 0;
const CYCLES: u64 = 0;
const STALLED_BACKEND: u64 = 8;

impl Waits {
    /// Opens both counters.
    ///
    /// # Errors
    /// The kernel or the processor lacks them, or does not show them.
    pub fn open() -> io::Result<Self> {
        let (cycles, waited) =
            (open_event(HARDWARE, CYCLES)?, open_event(HARDWARE, STALLED_BACKEND)?);
        Ok(Self { cycles, waited, before: [0; 2] })
    }

    /// Share of the cycles since the last call in which the processor did not wait.
    pub fn share_since(&mut self) -> Option<f64> {
        let now = [count(&mut self.cycles)?, count(&mut self.waited)?];
        let before = std::mem::replace(&mut self.before, now);
        share(before, now)
    }
}

fn count(file: &mut File) -> Option<u64> {
    let mut count = [0; 8];
    file.read_exact(&mut count).ok()?;
    Some(u64::from_ne_bytes(count))
}

fn share(before: [u64; 2], now: [u64; 2]) -> Option<f64> {
    let cycles = now[0].checked_sub(before[0]).filter(|cycles| *cycles > 0)?;
    let waited = now[1].checked_sub(before[1])?;
    Some(1.0 - (waited as f64 / cycles as f64).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_waited_is_the_rest() {
        assert_eq!(share([100, 10], [200, 85]), Some(0.25));
        assert_eq!(share([100, 10], [100, 10]), None, "nothing has run");
        assert_eq!(share([0, 0], [10, 12]), Some(0.0), "counts are not taken at one instant");
    }

    #[test]
    fn counters_count_or_say_why_not() {
        match Waits::open() {
            Ok(mut waits) => {
                std::hint::black_box((0..1_000_000u64).fold(0, |sum, n| sum ^ n.wrapping_mul(n)));
                assert!(waits.share_since().is_some_and(|share| (0.0..=1.0).contains(&share)));
            }
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
    }
}
