//! The number of requests for which one wait is worth while.
//!
//! A loaded loop that sleeps before each request spends a quarter of its time on falling asleep and
//! being woken, and so do its clients. If requests came so fast lately that a moment brings
//! several, the loop sleeps until they are there, or until the moment is over. It never waits for
//! more than half of the clients that sent requests lately, because the others may be waiting for
//! replies. A few clients, or slow ones, are answered without delay.

use crate::sys::Several;

/// Recent requests and clients, counted in one period and used in the next.
#[derive(Debug)]
pub(super) struct Load {
    /// The number of the period being counted.
    period: u32,
    requests: usize,
    clients: usize,
    several: Several,
}

impl Load {
    pub fn new() -> Self {
        Self { period: 1, requests: 0, clients: 0, several: ONE }
    }

    /// Counts a request. Its connection keeps `asked`, the last period in which it sent one.
    pub fn note(&mut self, asked: &mut u32) {
        self.requests += 1;
        if std::mem::replace(asked, self.period) != self.period {
            self.clients += 1;
        }
    }

    /// The number of requests to wait for now, and the most time to wait.
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

/// A wait for the next request alone, from any client.
pub(super) const ONE: Several = Several { count: 1, moment_us: MOMENT_US };
const PERIOD_US: usize = 1000;
const PERIOD_NS: u64 = PERIOD_US as u64 * 1000;
/// Most time by which a request may be delayed, microseconds.
const MOMENT_US: u32 = 50;
const COUNT_MIN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that are waited for together in the millisecond after `requests` of these clients.
    fn after(load: &mut Load, now_ns: &mut u64, requests: usize, clients: &mut [u32]) -> usize {
        for n in 0..requests {
            let client = n % clients.len();
            load.note(&mut clients[client]);
        }
        *now_ns += PERIOD_NS;
        load.several(*now_ns).count
    }

    #[test]
    fn several_are_waited_for_where_a_moment_brings_them() {
        let (mut load, mut now_ns) = (Load::new(), 5 * PERIOD_NS);
        load.several(now_ns);
        assert_eq!(after(&mut load, &mut now_ns, 200, &mut [0; 50]), 10);
        // Half of those that ask are not waiting for one another.
        assert_eq!(after(&mut load, &mut now_ns, 200, &mut [0; 12]), 6);
        assert_eq!(after(&mut load, &mut now_ns, 200, &mut [0; 7]), 1);
        assert_eq!(after(&mut load, &mut now_ns, 79, &mut [0; 50]), 1);
        assert_eq!(after(&mut load, &mut now_ns, 80, &mut [0; 50]), 4);
        // What came before a rest says nothing.
        (0..200).for_each(|_| load.note(&mut 0));
        assert_eq!(load.several(now_ns + 2 * PERIOD_NS).count, 1);
    }
}
