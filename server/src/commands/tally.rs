//! Counts each command that has been carried out, and notes those that took long.
//!
//! The time of a command is that of carrying it out, without the time that a client waits for data:
//! the first look at the keys and the attempt that has found data count.

use super::context::Server;
use super::monitor;
use super::spec::{Spec, flag};
use crate::resp::Args;
use crate::shared::{Card, SlowEntry, Times, Waiter};

/// Arguments shown of a slow command, and bytes shown of each: Redis's own bounds.
const SLOW_ARGS_MAX: usize = 32;
const SLOW_ARG_BYTES_MAX: usize = 128;

impl Server<'_> {
    /// Reads the time after something that the loop has done. Returns nanoseconds since the last
    /// such moment.
    #[inline]
    pub fn pass_time(&mut self) -> u64 {
        let before_ns = std::mem::replace(&mut self.now_ns, self.turn_clock.now_ns(self.clock));
        self.now_ns.saturating_sub(before_ns)
    }

    /// Counts a command that took so long.
    #[inline]
    pub fn count_command(
        &self,
        (row, spec): (usize, &Spec),
        args: Args<'_>,
        client: &Card,
        time_ns: u64,
        failed: bool,
    ) {
        self.stats.commands.add(1);
        let command = &self.stats.by_command[row];
        command.calls.add(1);
        command.time_ns.add(time_ns);
        if failed {
            command.failed.add(1);
        }
        if self.config.latency_tracking {
            command.times.get_or_init(Times::default).add(time_ns);
        }
        let (time_us, threshold_us) = (time_ns / 1000, self.config.slowlog_slower_than_us);
        if threshold_us >= 0 && time_us >= threshold_us as u64 && self.config.slowlog_len_max > 0 {
            self.log_slow(spec, args, client, time_us);
        }
    }

    /// Counts the command of a client that has waited, and that took so long after its first look.
    pub fn count_waiter(&self, waiter: &Waiter, time_ns: u64, failed: bool) {
        let row = waiter.command.row;
        let command = (row, self.index.specs()[row]);
        let args = waiter.command.args();
        self.count_command(command, args, &waiter.client, waiter.looked_ns + time_ns, failed);
    }

    /// Notes for LATENCY that a command has kept the loop busy.
    #[inline]
    pub fn note_busy(&self, spec: &Spec, time_ns: u64) {
        if self.config.latency_threshold_ms > 0 {
            let event = if spec.has(flag::FAST) { "fast-command" } else { "command" };
            self.note_latency(event, time_ns);
        }
    }

    fn log_slow(&self, spec: &Spec, args: Args<'_>, client: &Card, time_us: u64) {
        let mut shown: Vec<Vec<u8>> = monitor::visible(spec.name, args)
            .take(SLOW_ARGS_MAX)
            .map(|arg| match arg.get(..SLOW_ARG_BYTES_MAX) {
                Some(head) if arg.len() > SLOW_ARG_BYTES_MAX => {
                    let more = format!("... ({} more bytes)", arg.len() - SLOW_ARG_BYTES_MAX);
                    [head, more.as_bytes()].concat()
                }
                _ => arg.to_vec(),
            })
            .collect();
        if args.len() > SLOW_ARGS_MAX {
            let more = format!("... ({} more arguments)", args.len() - SLOW_ARGS_MAX + 1);
            shown[SLOW_ARGS_MAX - 1] = more.into_bytes();
        }
        let unix_s = self.unix_ms() / 1000;
        let mut slowlog = self.shared.slowlog();
        let id = slowlog.next_id;
        slowlog.entries.push_front(SlowEntry {
            id,
            unix_s,
            time_us,
            args: shown,
            client: client.peer.to_string(),
            client_name: client.name(),
        });
        slowlog.next_id += 1;
        slowlog.entries.truncate(self.config.slowlog_len_max);
    }
}
