//! How many requests are worth waiting for together.
//!
//! A loaded loop that sleeps for each request spends a quarter of its time on falling asleep and being woken, and
//! keeps its clients doing the same. Where so many requests came lately that a moment brings several, the loop
//! sleeps until they are there, or the moment is over. It never waits for more than half of those who asked lately:
//! they might all wait for their replies first. A few clients, or slow ones, are answered without delay.

use super::conn::Conn;
use crate::sys::Several;

/// What came lately: counted over one period, used in the next.
#[derive(Debug)]
pub(super) struct Load {
    /// Its number.
    period: u32,
    requests: usize,
    clients: usize,
    several: Several,
}

impl Load {
    pub fn new() -> Self {
        Self { period: 1, requests: 0, clients: 0, several: ONE }
    }

    /// Something was received.
    pub fn note(&mut self, conn: &mut Conn) {
        self.requests += 1;
        if std::mem::replace(&mut conn.asked, self.period) != self.period {
            self.clients += 1;
        }
    }

    /// What to wait for now.
    pub fn several(&mut self, now_ns: u64) -> Several {
        let period = (now_ns / PERIOD_NS) as u32;
        let passed = period.wrapping_sub(self.period);
        if passed > 0 {
            let of_a_moment = self.requests * MOMENT_US as usize / PERIOD_US;
            let count = of_a_moment.min(self.clients / 2);
            let is_worth_it = passed == 1 && count >= COUNT_MIN;
            self.several.count = if is_worth_it { count } else { 1 };
            (self.period, self.requests, self.clients) = (period, 0, 0);
        }
        self.several
    }
}

/// The next, whoever it is from.
pub(super) const ONE: Several = Several { count: 1, moment_us: MOMENT_US };
const PERIOD_US: usize = 1000;
const PERIOD_NS: u64 = PERIOD_US as u64 * 1000;
/// What a request may be delayed at most.
const MOMENT_US: u32 = 50;
const COUNT_MIN: usize = 4;
