//! The time during which a device had something to do.

use parking_lot::Mutex;

/// Time without a request after which a device counts as quiet: a shorter pause is not worth a
/// drive's sleep.
const QUIET_AFTER_NS: u64 = 1_000_000_000;

/// A device's busy timeline: the time in which at least one request was under way, however many
/// there were.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    under_way: u32,
    since_ns: u64,
    total_ns: u64,
    /// When the last request ended.
    ended_ns: u64,
    /// Pauses that were long, and requests that ended one.
    quiet_ns: u64,
    wakeups: u64,
}

impl Busy {
    /// A timeline that begins now, without a request.
    pub fn since(now_ns: u64) -> Self {
        Self { state: Mutex::new(State { ended_ns: now_ns, ..State::default() }) }
    }

    pub fn begin(&self, now_ns: u64) {
        let mut state = self.state.lock();
        if state.under_way == 0 {
            state.since_ns = now_ns;
            let pause_ns = state.pause_ns(now_ns);
            state.quiet_ns += pause_ns;
            state.wakeups += u64::from(pause_ns > 0);
        }
        state.under_way += 1;
    }

    pub fn end(&self, now_ns: u64) {
        let mut state = self.state.lock();
        state.under_way -= 1;
        if state.under_way == 0 {
            state.total_ns += now_ns.saturating_sub(state.since_ns);
            state.ended_ns = now_ns;
        }
    }

    /// The time until now, nanoseconds.
    pub fn total_ns(&self, now_ns: u64) -> u64 {
        let state = self.state.lock();
        let open_ns = if state.under_way > 0 { now_ns.saturating_sub(state.since_ns) } else { 0 };
        state.total_ns + open_ns
    }

    /// The time until now in pauses of at least a second, nanoseconds, and how many requests ended
    /// one.
    pub fn quiet(&self, now_ns: u64) -> (u64, u64) {
        let state = self.state.lock();
        let open_ns = if state.under_way == 0 { state.pause_ns(now_ns) } else { 0 };
        (state.quiet_ns + open_ns, state.wakeups)
    }
}

impl State {
    /// The pause since the last request, if it is long.
    fn pause_ns(&self, now_ns: u64) -> u64 {
        Some(now_ns.saturating_sub(self.ended_ns)).filter(|ns| *ns >= QUIET_AFTER_NS).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_overlap_are_counted_once() {
        let busy = Busy::default();
        busy.begin(100);
        busy.begin(150);
        assert_eq!(busy.total_ns(170), 70);
        busy.end(200);
        busy.end(300);
        assert_eq!(busy.total_ns(1_000), 200);
        busy.begin(1_000);
        busy.end(1_050);
        assert_eq!(busy.total_ns(9_000), 250);
    }

    #[test]
    fn pauses_of_a_second_and_more_are_quiet_and_end_with_a_wakeup() {
        const S: u64 = QUIET_AFTER_NS;
        let busy = Busy::since(S);
        assert_eq!(busy.quiet(2 * S - 1), (0, 0));
        assert_eq!(busy.quiet(3 * S), (2 * S, 0));
        busy.begin(3 * S);
        assert_eq!(busy.quiet(9 * S), (2 * S, 1));
        busy.end(10 * S);
        busy.begin(11 * S - 1);
        busy.end(12 * S);
        busy.begin(13 * S);
        assert_eq!(busy.quiet(20 * S), (3 * S, 2));
    }
}
