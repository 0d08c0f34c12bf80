//! The time during which a device had something to do.

use parking_lot::Mutex;

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
}

impl Busy {
    pub fn begin(&self, now_ns: u64) {
        let mut state = self.state.lock();
        if state.under_way == 0 {
            state.since_ns = now_ns;
        }
        state.under_way += 1;
    }

    pub fn end(&self, now_ns: u64) {
        let mut state = self.state.lock();
        state.under_way -= 1;
        if state.under_way == 0 {
            state.total_ns += now_ns.saturating_sub(state.since_ns);
        }
    }

    /// The time until now, nanoseconds.
    pub fn total_ns(&self, now_ns: u64) -> u64 {
        let state = self.state.lock();
        let open_ns = if state.under_way > 0 { now_ns.saturating_sub(state.since_ns) } else { 0 };
        state.total_ns + open_ns
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
}
