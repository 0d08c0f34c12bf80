//! A program's accesses of its medium, to be replayed on other media. They are kept in memory that
//! was allocated before, because fault handlers record them.

use perdura_media::model::Access;
use perdura_media::recording::Step;

/// Recorded accesses, in the order in which they were made.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    /// The first accesses, as many as there was room for.
    pub steps: Vec<Step>,
    /// The number of accesses after those that are kept.
    pub left_out: u64,
    /// Time that the program computed after the last kept access, nanoseconds.
    pub last_think_ns: u64,
}

/// A recording in progress. The computing time between faults is that of one thread; with several
/// threads it is the time in which none was known to wait.
pub(super) struct Recording {
    steps: Vec<Step>,
    steps_max: usize,
    left_out: u64,
    /// Computing time since the last access, nanoseconds.
    thought_ns: u64,
    /// When the last fault ended, nanoseconds.
    ended_ns: u64,
}

impl Recording {
    pub(super) fn new(steps_max: usize, now_ns: u64) -> Self {
        let steps = Vec::with_capacity(steps_max);
        Self { steps, steps_max, left_out: 0, thought_ns: 0, ended_ns: now_ns }
    }

    pub(super) fn steps_max(&self) -> usize {
        self.steps_max
    }

    /// Notes that a fault begins. The program has computed until now.
    pub(super) fn began(&mut self, now_ns: u64) {
        self.thought_ns += now_ns.saturating_sub(self.ended_ns);
        self.ended_ns = self.ended_ns.max(now_ns);
    }

    /// Records an access of the medium. Never allocates.
    pub(super) fn push(&mut self, access: Access, offset_bytes: u64, len_bytes: u64) {
        if self.steps.len() == self.steps_max {
            self.left_out += 1;
            return;
        }
        let think_ps = std::mem::take(&mut self.thought_ns).saturating_mul(1000);
        self.steps.push(Step {
            think_ps,
            kind: access.into(),
            offset_bytes,
            len_bytes: len_bytes as u32,
        });
    }

    /// Notes that a fault has ended.
    pub(super) fn ended(&mut self, now_ns: u64) {
        self.ended_ns = self.ended_ns.max(now_ns);
    }

    pub(super) fn into_recorded(mut self, now_ns: u64) -> Recorded {
        self.began(now_ns);
        let Self { steps, left_out, thought_ns, .. } = self;
        Recorded { steps, left_out, last_think_ns: thought_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinking_is_what_lies_between_faults() {
        let mut recording = Recording::new(2, 100);
        recording.began(150);
        recording.push(Access::Write, 0, 4096);
        recording.push(Access::Read, 4096, 4096);
        recording.ended(400);
        // This fault makes no access of the medium.
        recording.began(420);
        recording.ended(430);
        recording.began(433);
        recording.push(Access::Read, 0, 4096);
        recording.ended(500);
        let recorded = recording.into_recorded(507);
        let thought: Vec<u64> = recorded.steps.iter().map(|step| step.think_ps).collect();
        assert_eq!(thought, [50_000, 0]);
        assert_eq!(recorded.left_out, 1);
        assert_eq!(recorded.last_think_ns, 20 + 3 + 7);
    }
}
