//! The script of faults to come. It may be changed while the device is in use.

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::device::DeviceError;
use crate::units::{Bytes, BytesPerSecond};

/// How much slower writes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slowdown {
    /// Writes have their own speed.
    #[default]
    None,
    /// All writes together get this bandwidth. Zero stalls writes for good.
    AtMost(BytesPerSecond),
    /// Each write takes this many times as long.
    Times(u32),
}

/// The faults to come. `nth` counts from now: 1 is the next operation of that kind.
#[derive(Debug, Default)]
pub struct FaultPlan {
    script: Mutex<Script>,
}

#[derive(Debug, Default)]
struct Script {
    failing_read: Countdown,
    failing_write: Countdown,
    failing_flush: Countdown,
    full_from_write: Countdown,
    full_from_grow: Countdown,
    slowdown: Slowdown,
    /// Instant at which the last write booked under [`Slowdown::AtMost`] ends.
    busy_until_ns: u64,
}

impl FaultPlan {
    /// A plan without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the `nth` read from now fail with EIO, once.
    ///
    /// # Panics
    /// When `nth` is 0.
    pub fn fail_read(&self, nth: u64) {
        self.script.lock().failing_read.set(nth);
    }

    /// Makes the `nth` write from now fail with EIO, once. Panics when `nth` is 0.
    pub fn fail_write(&self, nth: u64) {
        self.script.lock().failing_write.set(nth);
    }

    /// Makes the `nth` flush from now fail with EIO, which latches the device. Panics when `nth` is
    /// 0.
    pub fn fail_flush(&self, nth: u64) {
        self.script.lock().failing_flush.set(nth);
    }

    /// Lets writes find no space from the `nth` on, until [`FaultPlan::heal`]. Panics when `nth` is
    /// 0.
    pub fn no_space_from_write(&self, nth: u64) {
        self.script.lock().full_from_write.set(nth);
    }

    /// Lets growths find no space from the `nth` on, until [`FaultPlan::heal`]. Panics when `nth`
    /// is 0.
    pub fn no_space_from_grow(&self, nth: u64) {
        self.script.lock().full_from_grow.set(nth);
    }

    /// Slows writes that start from now on.
    pub fn slow_writes(&self, slowdown: Slowdown) {
        self.script.lock().slowdown = slowdown;
    }

    /// Forgets all faults to come, and the slowness.
    pub fn heal(&self) {
        *self.script.lock() = Script::default();
    }

    pub(super) fn read(&self) -> Verdict {
        self.script.lock().failing_read.once()
    }

    pub(super) fn write(&self) -> Verdict {
        let mut script = self.script.lock();
        // Both count every write, whichever of them fails it.
        let full = script.full_from_write.ever_after();
        let failing = script.failing_write.once();
        if full == Verdict::Pass { failing } else { full }
    }

    pub(super) fn flush(&self) -> Verdict {
        self.script.lock().failing_flush.once()
    }

    pub(super) fn grow(&self) -> Verdict {
        self.script.lock().full_from_grow.ever_after()
    }

    /// Books bandwidth for a write that starts at `now_ns`; returns its earliest end.
    pub(super) fn book(&self, now_ns: u64, len_bytes: u64) -> u64 {
        let mut script = self.script.lock();
        let Slowdown::AtMost(limit) = script.slowdown else { return now_ns };
        let time = limit.time_for(Bytes(len_bytes)).as_nanos();
        let start_ns = now_ns.max(script.busy_until_ns);
        let end_ns = start_ns.saturating_add(u64::try_from(time).unwrap_or(u64::MAX));
        script.busy_until_ns = end_ns;
        end_ns
    }

    /// Instant at which a write that ran from `started_ns` to `now_ns` may be reported.
    pub(super) fn due(&self, started_ns: u64, now_ns: u64, booked_ns: u64) -> u64 {
        let Slowdown::Times(factor) = self.script.lock().slowdown else { return booked_ns };
        let took_ns = now_ns.saturating_sub(started_ns);
        booked_ns.max(started_ns.saturating_add(took_ns.saturating_mul(u64::from(factor))))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Fail,
    NoSpace,
}

impl Verdict {
    /// The planned fault as the device's error.
    pub(super) fn apply(
        self,
        op: &'static str,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> Result<(), DeviceError> {
        match self {
            Verdict::Pass => Ok(()),
            Verdict::Fail => {
                let source = Errno::IO.into();
                Err(DeviceError::Io { op, offset_bytes, len_bytes, source })
            }
            Verdict::NoSpace => Err(DeviceError::NoSpace { op, offset_bytes, len_bytes }),
        }
    }
}

/// Operations until a fault; 0 if none is planned.
#[derive(Debug, Default)]
struct Countdown {
    left: u64,
}

impl Countdown {
    fn set(&mut self, nth: u64) {
        assert!(nth > 0, "faults are counted from 1, the next operation");
        self.left = nth;
    }

    /// Returns a fault at the end of the count, then never again.
    fn once(&mut self) -> Verdict {
        let strikes = self.left == 1;
        self.left = self.left.saturating_sub(1);
        if strikes { Verdict::Fail } else { Verdict::Pass }
    }

    /// Returns a fault at the end of the count and for ever after.
    fn ever_after(&mut self) -> Verdict {
        if self.left == 1 {
            return Verdict::NoSpace;
        }
        self.left = self.left.saturating_sub(1);
        Verdict::Pass
    }
}
