//! Recent rates: means over the last samples, one of which is taken at each tick of the loop.

/// Number of samples in a mean: those of 1.6 s, as in Redis.
const SAMPLES: usize = 16;

/// Counts since the server started; or, as a rate, the counts of one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub commands: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
    /// Turns of the loops, and the time that they took.
    pub turns: u64,
    pub busy_ns: u64,
}

/// The counts at the last samples, a ring.
#[derive(Debug, Default)]
pub(crate) struct Lately {
    samples: [(u64, Counts); SAMPLES],
    taken: usize,
}

impl Lately {
    /// Notes the counts at a time, which is monotonic nanoseconds.
    pub fn sample(&mut self, now_ns: u64, counts: Counts) {
        self.samples[self.taken % SAMPLES] = (now_ns, counts);
        self.taken += 1;
    }

    /// The rates between the oldest sample and the newest. A count that was set back meanwhile has
    /// the rate 0.
    pub fn per_second(&self) -> Counts {
        let Some(newest) = self.taken.checked_sub(1) else { return Counts::default() };
        let (to_ns, to) = self.samples[newest % SAMPLES];
        let (from_ns, from) = self.samples[(newest + 1).saturating_sub(SAMPLES) % SAMPLES];
        let passed_ns = u128::from(to_ns.saturating_sub(from_ns).max(1));
        let rate = |to: u64, from: u64| {
            let count = u128::from(to.saturating_sub(from)) * 1_000_000_000;
            u64::try_from(count / passed_ns).unwrap_or(u64::MAX)
        };
        Counts {
            commands: rate(to.commands, from.commands),
            input_bytes: rate(to.input_bytes, from.input_bytes),
            output_bytes: rate(to.output_bytes, from.output_bytes),
            turns: rate(to.turns, from.turns),
            busy_ns: rate(to.busy_ns, from.busy_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_of_the_last_samples_only() {
        let mut lately = Lately::default();
        assert_eq!(lately.per_second(), Counts::default());
        let at = |n: u64, commands| {
            (n * 100_000_000, Counts { commands, input_bytes: 10 * commands, ..Counts::default() })
        };
        // A burst before, then ten commands each tenth of a second.
        for n in 0..40u64 {
            let (now_ns, counts) = at(n, if n < 10 { n * 1000 } else { 9000 + (n - 9) * 10 });
            lately.sample(now_ns, counts);
        }
        assert_eq!(
            lately.per_second(),
            Counts { commands: 100, input_bytes: 1000, ..Counts::default() }
        );
        // CONFIG RESETSTAT.
        let (now_ns, counts) = at(41, 0);
        lately.sample(now_ns, counts);
        assert_eq!(lately.per_second(), Counts::default());
    }
}
