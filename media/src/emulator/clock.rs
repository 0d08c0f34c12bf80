//! An emulator's time: the processor's ticks, calibrated once, or a number that waiting moves.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::{Clock, RealClock};
use crate::sys::ticks;

/// Whether modelled waits take real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A wait takes real time.
    Real,
    /// A wait moves a virtual clock, which all users of the emulator share.
    Virtual,
}

/// The processor's clock in picoseconds. On processors without a steady one, the system's monotonic
/// clock.
#[derive(Clone, Copy, Debug)]
pub struct Tsc {
    /// Picoseconds in 2^32 ticks; 0 if the system's clock is used.
    ps_per_tick_q32: u64,
}

impl Tsc {
    /// The clock, calibrated at the process's first call, which takes some milliseconds.
    #[must_use]
    pub fn calibrated() -> Self {
        static CALIBRATED: OnceLock<Tsc> = OnceLock::new();
        *CALIBRATED.get_or_init(|| {
            if !ticks::are_steady() {
                return Tsc { ps_per_tick_q32: 0 };
            }
            // The best of several tries: an interruption makes a try longer by both clocks, so its
            // rate is hardly wrong.
            let mut rates: Vec<u64> = (0..CALIBRATIONS).map(|_| calibrate()).collect();
            rates.sort_unstable();
            Tsc { ps_per_tick_q32: rates[CALIBRATIONS / 2] }
        })
    }

    /// The present instant in ticks; see [`Tsc::ps`].
    #[inline]
    #[must_use]
    pub fn ticks(self) -> u64 {
        if self.ps_per_tick_q32 == 0 { RealClock.now_ns() } else { ticks::now() }
    }

    /// As [`Tsc::ticks`], read after all earlier loads are done. A processor may read its clock
    /// before: a copy timed without this seems to take half of its time.
    #[inline]
    #[must_use]
    pub fn ticks_behind(self) -> u64 {
        if self.ps_per_tick_q32 == 0 { RealClock.now_ns() } else { ticks::now_behind() }
    }

    /// Converts ticks to picoseconds.
    #[inline]
    #[must_use]
    pub fn ps(self, ticks: u64) -> u64 {
        if self.ps_per_tick_q32 == 0 {
            return ticks.saturating_mul(1_000);
        }
        let ps = (u128::from(ticks) * u128::from(self.ps_per_tick_q32)) >> 32;
        u64::try_from(ps).unwrap_or(u64::MAX)
    }

    /// A text for reports: which clock it is.
    #[must_use]
    pub fn describe(self) -> String {
        match self.ps_per_tick_q32 {
            0 => "the system's monotonic clock (no steady processor clock)".to_owned(),
            rate => {
                format!("processor clock of {:.1} MHz", (1u64 << 32) as f64 / rate as f64 * 1e6)
            }
        }
    }
}

fn calibrate() -> u64 {
    let (from_ns, from) = both();
    let mut to = both();
    while to.0 - from_ns < CALIBRATION_NS {
        std::hint::spin_loop();
        to = both();
    }
    let (span_ps, span) = (u128::from(to.0 - from_ns) * 1_000, u128::from((to.1 - from).max(1)));
    u64::try_from((span_ps << 32) / span).unwrap_or(u64::MAX)
}

/// Both clocks at nearly the same instant: the fastest of a few tries.
fn both() -> (u64, u64) {
    let tries = (0..4).map(|_| {
        let before = ticks::now();
        let now_ns = RealClock.now_ns();
        let after = ticks::now();
        (after.wrapping_sub(before), now_ns, before + (after.wrapping_sub(before)) / 2)
    });
    let best = tries.min_by_key(|(width, ..)| *width);
    best.map_or((0, 0), |(_, now_ns, at)| (now_ns, at))
}

pub(super) enum EmulatorClock {
    Real { tsc: Tsc, start: u64 },
    Virtual { now_ps: AtomicU64 },
}

impl EmulatorClock {
    pub(super) fn start(pace: Pace) -> Self {
        match pace {
            Pace::Real => {
                let tsc = Tsc::calibrated();
                Self::Real { tsc, start: tsc.ticks() }
            }
            Pace::Virtual => Self::Virtual { now_ps: AtomicU64::new(0) },
        }
    }

    #[inline]
    pub(super) fn now_ps(&self) -> u64 {
        match self {
            Self::Real { tsc, start } => tsc.ps(tsc.ticks().saturating_sub(*start)),
            Self::Virtual { now_ps } => now_ps.load(Ordering::Relaxed),
        }
    }

    #[inline]
    pub(super) fn wait(&self, due_ps: u64) -> u64 {
        match self {
            Self::Real { .. } => self.wait_real(due_ps),
            Self::Virtual { now_ps } => {
                now_ps.fetch_max(due_ps, Ordering::Relaxed);
                0
            }
        }
    }

    #[inline]
    fn wait_real(&self, due_ps: u64) -> u64 {
        loop {
            let now_ps = self.now_ps();
            if now_ps >= due_ps {
                return now_ps - due_ps;
            }
            let left_ps = due_ps - now_ps;
            if left_ps > SLEEP_ABOVE_PS {
                RealClock.sleep_ns((left_ps - SPUN_PS) / 1_000);
            }
        }
    }

    pub(super) fn pass(&self, span_ps: u64) {
        if let Self::Virtual { now_ps } = self {
            now_ps.fetch_add(span_ps, Ordering::Relaxed);
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Real { tsc, .. } => format!("waited for by the {}", tsc.describe()),
            Self::Virtual { .. } => "on a virtual clock".to_owned(),
        }
    }
}

const CALIBRATIONS: usize = 5;
const CALIBRATION_NS: u64 = 2_000_000;
/// Longer waits begin with a sleep. A sleep may end late, so the last part of a wait is polled.
const SLEEP_ABOVE_PS: u64 = 250_000_000;
const SPUN_PS: u64 = 150_000_000;
