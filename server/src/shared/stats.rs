//! Counters of a loop: the loop's thread alone adds to them, and any thread reads them.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::times::Times;

/// A count that one thread adds to. An addition is a load and a store: no other processor takes
/// part in it.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to the count. Only the thread that owns the counter does.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn set(&self, count: u64) {
        self.0.store(count, Relaxed);
    }
}

/// The counters that CONFIG RESETSTAT sets back.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub connections: Counter,
    pub rejected_connections: Counter,
    pub commands: Counter,
    pub errors: Counter,
    pub expired_keys: Counter,
    pub keyspace_hits: Counter,
    pub keyspace_misses: Counter,
    pub net_input_bytes: Counter,
    pub net_output_bytes: Counter,
    /// Times that a socket was read with bytes to show for it, and written.
    pub reads: Counter,
    pub writes: Counter,
    pub output_limit_disconnections: Counter,
    /// Copies of everything that clients have asked for, and requests for later changes alone.
    pub sync_full: Counter,
    pub sync_partial_err: Counter,
    pub group_writes: Counter,
    /// Turns of the loop, the time from each one's begin to its end, and that of looking for
    /// expired keys.
    pub turns: Counter,
    pub busy_ns: Counter,
    pub expiry_ns: Counter,
    /// Wrong passwords, and commands, keys and channels that users tried and may not use.
    pub denied: [Counter; 4],
    /// The counters of each command, by its row in the table.
    pub by_command: Vec<CommandStats>,
}

/// The counters of one command.
#[derive(Debug, Default)]
pub(crate) struct CommandStats {
    pub calls: Counter,
    pub time_ns: Counter,
    pub rejected: Counter,
    pub failed: Counter,
    /// How long it took; none before the first call.
    pub times: OnceLock<Times>,
}

impl Stats {
    /// Counters at zero, for so many commands.
    pub fn new(commands: usize) -> Self {
        let by_command = (0..commands).map(|_| CommandStats::default()).collect();
        Self { by_command, ..Self::default() }
    }

    /// The sums of several loops' counters.
    pub fn sum<'s>(commands: usize, all: impl Iterator<Item = &'s Self>) -> Self {
        let total = Self::new(commands);
        for one in all {
            total.counters().zip(one.counters()).for_each(|(sum, count)| sum.add(count.get()));
            for (sum, one) in total.by_command.iter().zip(&one.by_command) {
                if let Some(times) = one.times.get() {
                    sum.times.get_or_init(Times::default).add_all(times);
                }
            }
        }
        total
    }

    /// Takes away what was counted before.
    pub fn since(self, before: &Self) -> Self {
        let pairs = self.counters().zip(before.counters());
        pairs.for_each(|(now, then)| now.set(now.get().saturating_sub(then.get())));
        for (now, then) in self.by_command.iter().zip(&before.by_command) {
            if let (Some(now), Some(then)) = (now.times.get(), then.times.get()) {
                now.subtract(then);
            }
        }
        self
    }

    fn counters(&self) -> impl Iterator<Item = &Counter> {
        let Self {
            connections,
            rejected_connections,
            commands,
            errors,
            expired_keys,
            keyspace_hits,
            keyspace_misses,
            net_input_bytes,
            net_output_bytes,
            reads,
            writes,
            output_limit_disconnections,
            sync_full,
            sync_partial_err,
            group_writes,
            turns,
            busy_ns,
            expiry_ns,
            denied,
            by_command,
        } = self;
        [
            connections,
            rejected_connections,
            commands,
            errors,
            expired_keys,
            keyspace_hits,
            keyspace_misses,
            net_input_bytes,
            net_output_bytes,
            reads,
            writes,
            output_limit_disconnections,
            sync_full,
            sync_partial_err,
            group_writes,
            turns,
            busy_ns,
            expiry_ns,
        ]
        .into_iter()
        .chain(denied)
        .chain(by_command.iter().flat_map(|one| {
            let CommandStats { calls, time_ns, rejected, failed, times: _ } = one;
            [calls, time_ns, rejected, failed]
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_of_all_loops_and_of_what_was_counted_since() {
        let (one, other) = (Stats::new(2), Stats::new(2));
        one.commands.add(3);
        other.commands.add(4);
        other.by_command[1].failed.add(5);
        one.group_writes.add(6);
        let before = Stats::sum(2, [&one, &other].into_iter());
        assert_eq!((before.commands.get(), before.group_writes.get()), (7, 6));
        one.commands.add(1);
        other.by_command[1].failed.add(1);
        let since = Stats::sum(2, [&one, &other].into_iter()).since(&before);
        assert_eq!((since.commands.get(), since.by_command[1].failed.get()), (1, 1));
        assert_eq!((since.group_writes.get(), since.by_command[0].calls.get()), (0, 0));
    }
}
