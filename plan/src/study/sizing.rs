//! From replays to a budget and its battery.

use std::fmt::{Display, Formatter};
use std::time::Duration;

use perdura_media::{Bytes, BytesPerSecond, Percent};
use perdura_region::region::{BUDGET_MIN_BYTES, REGION_MIN_BYTES};
use perdura_region::{BLOCK_BYTES, PolicyKind};
use serde::Serialize;

use super::passes::Passes;
use super::{SizingReport, StudyError};
use crate::power::{Layout, Machine, Server};
use crate::sizing::{Outcome, Replay, ReplayConfig, Target, smallest_budget};
use crate::trace::PAGE_BYTES;

/// Replayed unless budgets are given, in percent of the memory: 11, 23 and 46 are the paper's
/// (section 6.4).
const BUDGETS_PERCENT: [f64; 8] = [1.0, 2.0, 5.0, 11.0, 23.0, 46.0, 75.0, 100.0];

/// The largest memory replayed: its pages are numbered in 32 bits, and each takes some bytes of
/// this machine's.
const MEMORY_MAX_BYTES: u64 = 16 << 40;

/// A budget to replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BudgetWish {
    /// Bytes.
    Bytes(u64),
    /// Percent of the memory.
    Percent(f64),
}

/// What is asked of budgets.
#[derive(Debug, Clone)]
pub struct SizingQuestion {
    /// Those to replay; none: a usual choice.
    pub budgets: Vec<BudgetWish>,
    /// Most page writes that may have to wait, as a share of all, 0 to 1.
    pub stalls_max: f64,
    /// Most of the time that writers may wait, 0 to 1.
    pub stalled_max: f64,
    /// Victim policy.
    pub policy: PolicyKind,
    /// Time between checkpoints.
    pub checkpoint_every: Option<Duration>,
    /// What the SSD is rated to take, bytes.
    pub rated_bytes: Option<u64>,
    /// The machine.
    pub machine: Machine,
}

/// A budget that was asked for and that no region of the memory can have, and the nearest, which
/// was replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ReplacedBudget {
    /// Asked for.
    pub asked_bytes: u64,
    /// The least or the most there can be.
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

/// One budget on the trace, modelled.
#[derive(Debug, Clone, Serialize)]
pub struct BudgetRow {
    /// Dirty bytes allowed.
    pub budget_bytes: u64,
    /// Asked for; otherwise replayed on the way to the smallest.
    pub is_asked: bool,
    /// Of the memory, 0 to 1.
    pub share_of_memory: f64,
    /// Writes that had to wait.
    pub stalls: u64,
    /// The same as a share of all page writes, 0 to 1.
    pub stalls_per_write: f64,
    /// Share of the time that writers waited, 0 to 1.
    pub stalled_share: f64,
    /// Within which 99.9 % of the page writes were through, nanoseconds.
    pub write_p999_ns: u64,
    /// The longest wait, nanoseconds.
    pub stall_max_ns: u64,
    /// Bytes written to the SSD.
    pub device_bytes: u64,
    /// Of them for each byte of the trace's page writes: of a request for a part of a page the
    /// whole page counts.
    pub device_bytes_per_user_byte: f64,
    /// Mean rate of writes to the SSD, bytes a second.
    pub device_bytes_per_s: f64,
    /// The worst second's.
    pub device_bytes_worst_second: u64,
    /// Until the SSD has taken what it is rated for; none if no rating was given.
    pub endurance_years: Option<f64>,
    /// Time to flush all of the budget, reserve included, seconds.
    pub flush_s: f64,
}

impl SizingQuestion {
    /// Replays and sizes. `memory_bytes` hold all that the trace touches; `written_bytes` of it are
    /// written, by `page_writes`.
    pub(super) fn answer(
        &self,
        passes: &Passes<'_>,
        memory_bytes: u64,
        written_bytes: u64,
        page_writes: u64,
    ) -> Result<SizingReport, StudyError> {
        let region_bytes = memory_bytes
            .max(REGION_MIN_BYTES)
            .checked_next_multiple_of(BLOCK_BYTES)
            .unwrap_or(u64::MAX);
        if region_bytes > MEMORY_MAX_BYTES {
            let (memory_bytes, limit_bytes) = (region_bytes, MEMORY_MAX_BYTES);
            return Err(StudyError::Memory { memory_bytes, limit_bytes });
        }
        let server = self.machine.server(region_bytes, Layout::of_server(region_bytes)?);
        let budget_max_bytes = self.machine.budget_max(&server)?;
        let (asked, replaced) = self.asked(region_bytes, budget_max_bytes);
        let configs: Vec<_> = asked.iter().map(|bytes| self.config(region_bytes, *bytes)).collect();
        let mut replay = Replay::of(&configs)?.with_threads(passes.threads);
        passes.read("replaying", &mut |records| Ok(replay.add(records)?))?;
        let row = |outcome: &Outcome| BudgetRow::of(outcome, region_bytes, &server);
        let outcomes = replay.finish_all();
        if let Some(other) = outcomes.iter().find(|outcome| outcome.page_writes != page_writes) {
            return Err(StudyError::Changed { first: page_writes, then: other.page_writes });
        }
        let mut rows: Vec<BudgetRow> = outcomes.iter().map(row).collect();
        rows.iter_mut().for_each(|row| row.is_asked = true);
        let smallest = self.smallest(passes, &configs[0], written_bytes, &mut rows, row)?;
        let wanted = smallest.clone().or_else(|| rows.last().cloned());
        let chosen = match (wanted, budget_max_bytes) {
            (Some(wanted), Some(most)) if wanted.budget_bytes > most => {
                rows.iter().rev().find(|row| row.budget_bytes <= most).cloned()
            }
            (wanted, _) => wanted,
        };
        let chosen = chosen.ok_or(StudyError::NoBudget { budget_max_bytes })?;
        Ok(SizingReport {
            label: "modelled",
            memory_bytes: region_bytes,
            policy: self.policy.name(),
            checkpoint_ns: self.checkpoint_every.map(|every| every.as_nanos() as u64),
            stalls_max: self.stalls_max,
            stalled_max: self.stalled_max,
            power: server.compare(chosen.budget_bytes, &self.machine.cells)?,
            budgets: rows,
            replaced,
            smallest,
            budget_max_bytes,
            chosen,
            server,
            cells: self.machine.cells,
        })
    }

    /// The smallest budget in which no more writes wait than may; what was replayed to find it
    /// joins `rows`.
    fn smallest(
        &self,
        passes: &Passes<'_>,
        config: &ReplayConfig,
        written_bytes: u64,
        rows: &mut Vec<BudgetRow>,
        row: impl Fn(&Outcome) -> BudgetRow,
    ) -> Result<Option<BudgetRow>, StudyError> {
        let target = Target {
            stalled_share_max: self.stalled_max,
            stalls_per_write_max: Some(self.stalls_max),
            write_ns_max: None,
        };
        let search = smallest_budget(config, &target, written_bytes, passes.threads, |feed| {
            passes.read("replaying", &mut |records| Ok(feed(records)?)).map(|_| ())
        })?;
        rows.extend(search.tried.iter().map(&row));
        // Stable: of two that are the same budget, the one asked for stays.
        rows.sort_by_key(|row| row.budget_bytes);
        rows.dedup_by_key(|row| row.budget_bytes);
        let keeps = |row: &&BudgetRow| {
            row.stalls_per_write <= self.stalls_max && row.stalled_share <= self.stalled_max
        };
        let met_up_to = |most_bytes: u64| {
            let up_to = rows.iter().rev().skip_while(|row| row.budget_bytes > most_bytes);
            up_to.take_while(keeps).last().cloned()
        };
        // Those asked for count as well: up to what is written all of, beyond which there is next
        // to nothing to gain; and beyond it if that does not do, for what is on its way to the SSD
        // and written again counts twice.
        let written_bytes = search.tried.last().map_or(0, |outcome| outcome.budget_bytes);
        Ok(met_up_to(written_bytes).or_else(|| met_up_to(u64::MAX)))
    }

    /// Budgets to replay first, smallest first; and what was asked for that cannot be.
    fn asked(
        &self,
        region_bytes: u64,
        budget_max_bytes: Option<u64>,
    ) -> (Vec<u64>, Vec<ReplacedBudget>) {
        let bytes = |wish: &BudgetWish| match wish {
            BudgetWish::Bytes(bytes) => *bytes,
            BudgetWish::Percent(percent) => Percent(*percent).of(Bytes(region_bytes)).0,
        };
        // Of one trace a budget may be more than its memory, of another a share of it less than any
        // budget.
        let possible = |bytes: u64| bytes.clamp(BUDGET_MIN_BYTES, region_bytes);
        let wished = self.budgets.iter().map(bytes).map(|asked_bytes| ReplacedBudget {
            asked_bytes,
            replayed_bytes: possible(asked_bytes),
        });
        let replaced = wished.filter(|wish| wish.asked_bytes != wish.replayed_bytes).collect();
        let usual = BUDGETS_PERCENT.map(BudgetWish::Percent);
        let wishes = if self.budgets.is_empty() { &usual[..] } else { &self.budgets[..] };
        let all = wishes.iter().map(bytes).chain(budget_max_bytes);
        let mut asked: Vec<u64> = all.map(|bytes| possible(bytes) & !(PAGE_BYTES - 1)).collect();
        asked.sort_unstable();
        asked.dedup();
        (asked, replaced)
    }

    fn config(&self, region_bytes: u64, budget_bytes: u64) -> ReplayConfig {
        let mut config = ReplayConfig::new(region_bytes, budget_bytes);
        config.policy = self.policy;
        config.checkpoint_every = self.checkpoint_every;
        config.rated_bytes = self.rated_bytes;
        config.device.bandwidth = BytesPerSecond(self.machine.flush_bytes_per_s);
        config
    }
}

impl BudgetRow {
    fn of(outcome: &Outcome, memory_bytes: u64, server: &Server) -> Self {
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
