//! What a program asked of the medium, to be replayed on others: kept in memory that was taken
//! before.

use perdura_media::model::Access;
use perdura_media::recording::Step;

/// Steps in the order in which they were done, as far as there was room.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    /// The first of them.
    pub steps: Vec<Step>,
    /// How many more there were.
    pub left_out: u64,
    /// Time computed after the last step that is kept.
    pub last_think_ns: u64,
}

/// See the module. One thread's time: with several, the time in which none is known to have waited.
pub(super) struct Recording {
    steps: Vec<Step>,
    steps_max: usize,
    left_out: u64,
    /// Computed since the last step.
    thought_ns: u64,
    /// When the last fault was over.
    ended_ns: u64,
}

impl Recording {
    pub fn new(steps_max: usize, now_ns: u64) -> Self {
        let steps = Vec::with_capacity(steps_max);
        Self { steps, steps_max, left_out: 0, thought_ns: 0, ended_ns: now_ns }
    }

    pub fn steps_max(&self) -> usize {
        self.steps_max
    }

    /// A fault begins: up to now the program has computed.
    pub fn began(&mut self, now_ns: u64) {
        self.thought_ns += now_ns.saturating_sub(self.ended_ns);
        self.ended_ns = self.ended_ns.max(now_ns);
    }

    /// It asks the medium. Never allocates.
    pub fn push(&mut self, access: Access, offset_bytes: u64, len_bytes: u64) {
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

    /// A fault is over.
    pub fn ended(&mut self, now_ns: u64) {
        self.ended_ns = self.ended_ns.max(now_ns);
    }

    pub fn into_recorded(mut self, now_ns: u64) -> Recorded {
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
        // One that asks the medium nothing.
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
