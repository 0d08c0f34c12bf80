//! What the thread that watches remembers, and what it answers.

use std::sync::Arc;

use perdura_server::{Look, Looker, Spread};
use rustix::time::{ClockId, clock_gettime};

use crate::fields::Fields;
use crate::history::{History, Sample};
use crate::http::{Answer, Question};
use crate::metrics::{self, Seen};
use crate::now;
use crate::status::Status;
use crate::tenants::Told;

/// Ticks after which the commands of late are counted anew.
const LATELY_TICKS: u64 = 10;

/// Counters whose rates are shown.
const RATED: [&str; 12] = [
    "total_commands_processed",
    "dirtied_bytes",
    "device_bytes",
    "cleaned_bytes",
    "drained_bytes",
    "compacted_bytes",
    "stalls",
    "stall_ns",
    "total_net_input_bytes",
    "total_net_output_bytes",
    "evicted_keys",
    "expired_keys",
];

/// One look, and its time.
#[derive(Debug)]
pub struct Moment {
    pub look: Look,
    pub now_ns: u64,
    pub unix_s: u64,
    /// The counters of [`RATED`].
    counts: [Option<f64>; RATED.len()],
}

/// What is remembered.
#[derive(Debug)]
pub struct Station {
    pub history: History,
    /// The look at the last tick.
    pub last: Option<Moment>,
    /// The look at the tick before.
    pub previous: Option<Moment>,
    /// A look some seconds ago, and a later one that takes its place.
    pub lately: [Option<Moment>; 2],
    tenants: Option<Arc<Told>>,
    ticks: u64,
    requests: u64,
}

impl Station {
    pub fn new(tenants: Option<Arc<Told>>) -> Self {
        Self {
            history: History::default(),
            last: None,
            previous: None,
            lately: [None, None],
            tenants,
            ticks: 0,
            requests: 0,
        }
    }

    /// Takes a sample.
    pub fn tick(&mut self, looker: &mut Looker<'_, '_>) {
        let moment = Moment::of(looker);
        self.history.add(moment.unix_s, sample(&moment, self.last.as_ref()));
        if self.ticks.is_multiple_of(LATELY_TICKS) {
            self.lately.rotate_left(1);
            self.lately[1] = self.previous.take();
        }
        self.previous = self.last.replace(moment);
        self.ticks += 1;
    }

    /// Answers a question.
    pub fn answer(&mut self, question: &Question, looker: &mut Looker<'_, '_>) -> Answer {
        self.requests += 1;
        match question {
            Question::Metrics(format) => {
                let tenants = self.tenants.as_ref().map(|told| told.get());
                let seen = Seen {
                    look: &looker.look(),
                    tenants: tenants.as_ref(),
                    watch_cpu_s: thread_cpu_s(),
                    watch_requests: self.requests,
                };
                (true, metrics::text(&seen, *format))
            }
            Question::Now => {
                let heat = looker.heat(now::HEAT_CELLS);
                let tenants = self.tenants.as_ref().map(|told| told.get());
                (true, now::json(&Moment::of(looker), self, heat, tenants))
            }
            Question::History(after_s) => {
                let points = self.history.points(*after_s);
                // Points have only values that JSON can express.
                (true, serde_json::to_string(&points).unwrap_or_default())
            }
            Question::Ready => ready(&looker.look()),
        }
    }
}

/// Whether clients should come here: the SSD is sound, and writes are accepted.
fn ready(look: &Look) -> Answer {
    let fields = Fields::of(&look.info);
    if fields.get("latched") == Some("1") {
        let why = fields.get("failure").unwrap_or_default();
        return (false, format!("the SSD has failed: {why}\n"));
    }
    if fields.get("backup_refuses_writes") == Some("1") {
        return (false, "the backup is late: writes are refused\n".to_owned());
    }
    match fields.get("power_demand") {
        Some("clean" | "end") => (false, "the power is low: writes are refused\n".to_owned()),
        _ => (true, "ready\n".to_owned()),
    }
}

impl Moment {
    fn of(looker: &mut Looker<'_, '_>) -> Self {
        let look = looker.look();
        let (clock, fields) = (looker.clock(), Fields::of(&look.info));
        let counts = RATED.map(|field| fields.number(field));
        Self { now_ns: clock.now_ns(), unix_s: clock.unix_ms() / 1000, counts, look }
    }

    /// How fast a counter of [`RATED`] grew since `before`, a second; nothing after CONFIG
    /// RESETSTAT.
    pub fn rate(&self, field: &str, before: &Self) -> Option<f64> {
        let at = RATED.iter().position(|name| *name == field)?;
        let grown = self.counts[at]? - before.counts[at]?;
        let time_s = self.now_ns.saturating_sub(before.now_ns) as f64 / 1e9;
        (grown >= 0.0 && time_s > 0.0).then(|| grown / time_s)
    }

    /// All commands' times together, since `before`.
    pub fn spread_since(&self, before: Option<&Self>) -> Spread {
        let of = |moment: &Self| {
            let mut all = Spread::default();
            moment.look.commands.iter().for_each(|command| all.add(&command.spread));
            all
        };
        before.map_or_else(|| of(self), |before| of(self).since(&of(before)))
    }
}

fn sample(now: &Moment, before: Option<&Moment>) -> Sample {
    let fields = Fields::of(&now.look.info);
    let is = |number: Option<f64>| number.map_or(f32::NAN, |number| number as f32);
    let rate = |field| is(before.and_then(|before| now.rate(field, before)));
    let status = Status::of_fields(&fields).ok();
    let of = |f: fn(&Status) -> f64| is(status.as_ref().map(f));
    let spread = before.map(|before| now.spread_since(Some(before)));
    let time_us = |percent| {
        is(spread.as_ref().and_then(|spread| Some(spread.percentile(percent)? as f64 / 1e3)))
    };
    [
        of(|status| status.time_to_safe_s),
        of(|status| status.warning_s),
        of(|status| status.dirty_bytes as f64),
        of(|status| status.budget_bytes as f64),
        is(fields.number("budget_now_bytes")),
        rate("dirtied_bytes"),
        rate("device_bytes"),
        rate("stalls"),
        rate("stall_ns") / 1e9,
        rate("total_commands_processed"),
        time_us(50.0),
        time_us(99.0),
        is(fields.number("used_memory")),
        is(status.as_ref().and_then(|status| status.last_checkpoint_s)),
    ]
}

/// Processor time of this thread, seconds.
fn thread_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_accepts_no_writes_is_not_ready() {
        let found = |info: &str| {
            ready(&Look { info: info.to_owned(), commands: Vec::new(), errors: Vec::new() })
        };
        assert_eq!(found("latched:0\r\nbackup_refuses_writes:0\r\n"), (true, "ready\n".into()));
        for (info, why) in [
            ("latched:1\r\nfailure:EIO\r\n", "the SSD has failed: EIO"),
            ("latched:0\r\nbackup_refuses_writes:1\r\n", "the backup is late"),
            ("latched:0\r\npower_demand:clean\r\n", "the power is low"),
        ] {
            let (is_ready, said) = found(info);
            assert!(!is_ready && said.contains(why), "{info}: {said}");
        }
    }
}
