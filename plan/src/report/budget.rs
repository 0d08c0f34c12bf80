//! The effect of budgets on a trace: the result of each budget's replay, and the budget that was
//! chosen.

use std::fmt::{Display, Formatter};

use perdura_media::Bytes;
use serde::Serialize;

use crate::power::{Cells, Comparison, Server};
use crate::sizing::Outcome;

/// The effect of budgets on this trace. Every figure is modelled.
#[derive(Debug, Clone, Serialize)]
pub struct SizingReport {
    /// Always `modelled`.
    pub label: &'static str,
    /// The memory that holds all that the trace touches, bytes.
    pub memory_bytes: u64,
    /// The cleaning policy, by its name.
    pub policy: &'static str,
    /// The time between checkpoints, nanoseconds.
    pub checkpoint_ns: Option<u64>,
    /// The most page writes that may have to wait, as a share of all, 0 to 1.
    pub stalls_max: f64,
    /// The most of the time that writers may wait, as a share of it, 0 to 1.
    pub stalled_max: f64,
    /// Every budget that was replayed, the smallest first.
    pub budgets: Vec<BudgetRow>,
    /// Budgets asked for that the memory cannot have, and what was replayed for them.
    pub replaced: Vec<ReplacedBudget>,
    /// The smallest of those replayed in which, as in all larger ones up to what the trace writes,
    /// no more writes wait, and no longer, than may; none if no budget does.
    pub smallest: Option<BudgetRow>,
    /// The largest budget that the warning or battery given allows, bytes.
    pub budget_max_bytes: Option<u64>,
    /// The budget that was chosen: the smallest, unless the warning or battery allows less.
    pub chosen: BudgetRow,
    /// The machine that flushes.
    pub server: Server,
    /// The cells of the machine's battery.
    pub cells: Cells,
    /// The power and time for a flush of all memory, and of the chosen budget.
    pub power: Comparison,
}

impl SizingReport {
    /// The targets for the waits of writers, in words.
    pub fn target(&self) -> String {
        // Back from a share: without the digits that the way there has left.
        let percent = |share: f64| (share * 1e8).round() / 1e6;
        let (writes, time) = (percent(self.stalls_max), percent(self.stalled_max));
        format!(
            "at most {writes} % of the page writes wait, and writers at most {time} % of the time"
        )
    }

    /// The smallest budget that keeps to the target is more than the warning or battery allows.
    pub fn is_limited(&self) -> bool {
        let wanted_bytes = self.smallest.as_ref().map(|smallest| smallest.budget_bytes);
        wanted_bytes.zip(self.budget_max_bytes).is_some_and(|(wanted, most)| wanted > most)
    }

    /// How the budget was chosen, in words.
    pub fn choice(&self) -> String {
        let target = self.target();
        match &self.smallest {
            Some(smallest) if self.is_limited() => format!(
                "what the warning or battery allows; it takes {} until {target}",
                Bytes(smallest.budget_bytes)
            ),
            Some(_) => {
                format!("the smallest from which on, in it and in all larger ones tried, {target}")
            }
            None => format!("the SSD is too slow: there is no budget with which {target}"),
        }
    }
}

/// A budget that was asked for and that no region of the memory can have, and the nearest, which
/// was replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ReplacedBudget {
    /// The budget that was asked for, bytes.
    pub asked_bytes: u64,
    /// The smallest or the largest budget that the memory can have, bytes.
    pub replayed_bytes: u64,
}

impl Display for ReplacedBudget {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let (asked, replayed) = (Bytes(self.asked_bytes), Bytes(self.replayed_bytes));
        let (than, with) = match self.asked_bytes > self.replayed_bytes {
            true => ("more than the memory", "all of it"),
            false => ("less than the smallest budget there can be", "that"),
        };
        write!(f, "{asked} was asked for, {than}: replayed with {with}, {replayed}")
    }
}

/// The effect of one budget on the trace. Every figure is modelled.
#[derive(Debug, Clone, Serialize)]
pub struct BudgetRow {
    /// The most bytes that may be dirty.
    pub budget_bytes: u64,
    /// Whether it was asked for; other budgets were replayed in search of the smallest.
    pub is_asked: bool,
    /// The budget as a share of the memory, 0 to 1.
    pub share_of_memory: f64,
    /// How many page writes had to wait.
    pub stalls: u64,
    /// The page writes that had to wait as a share of all, 0 to 1.
    pub stalls_per_write: f64,
    /// The share of the time that writers waited, 0 to 1.
    pub stalled_share: f64,
    /// The time within which 99.9 % of the page writes were through, nanoseconds.
    pub write_p999_ns: u64,
    /// The longest time that a page write waited, nanoseconds.
    pub stall_max_ns: u64,
    /// The bytes written to the SSD.
    pub device_bytes: u64,
    /// The bytes written to the SSD for each byte of the trace's page writes, to which a request
    /// for a part of a page counts as the whole page.
    pub device_bytes_per_user_byte: f64,
    /// The mean rate of writes to the SSD, bytes a second.
    pub device_bytes_per_s: f64,
    /// The bytes written to the SSD in the worst second.
    pub device_bytes_worst_second: u64,
    /// The years until the SSD has taken what it is rated for; `None` where no rating was given.
    pub endurance_years: Option<f64>,
    /// The time that a flush of the whole budget takes, reserve included, seconds.
    pub flush_s: f64,
}

impl BudgetRow {
    pub(super) fn of(outcome: &Outcome, memory_bytes: u64, server: &Server) -> Self {
        Self {
            budget_bytes: outcome.budget_bytes,
            is_asked: false,
            share_of_memory: outcome.budget_bytes as f64 / memory_bytes as f64,
            stalls: outcome.stalls,
            stalls_per_write: outcome.stalls_per_write(),
            stalled_share: outcome.stalled_share(),
            write_p999_ns: outcome.write_ns_at(0.999),
            stall_max_ns: outcome.stall_max_ns,
            device_bytes: outcome.device.total(),
            device_bytes_per_user_byte: outcome.device_bytes_per_user_byte(),
            device_bytes_per_s: outcome.mean_bytes_per_s(),
            device_bytes_worst_second: outcome.worst_second_bytes,
            endurance_years: outcome.endurance_years,
            flush_s: server.flush_s(outcome.budget_bytes),
        }
    }
}
