//! From replays to a budget and its battery.

use std::time::Duration;

use perdura_dirty::geometry::BLOCK_BYTES;
use perdura_dirty::geometry::{BUDGET_MIN_BYTES, REGION_MIN_BYTES};
use perdura_dirty::policy::PolicyKind;
use perdura_media::{Bytes, BytesPerSecond, Percent};

use super::budget::{BudgetRow, ReplacedBudget, SizingReport};
use super::error::ReportError;
use super::passes::Passes;
use crate::power::{Layout, Machine};
use crate::sizing::{Outcome, Replay, ReplayConfig, Target, smallest_budget};
use crate::trace::PAGE_BYTES;

/// Replayed unless budgets are given, in percent of the memory: 11, 23 and 46 are the paper's
/// (section 6.4).
const BUDGETS_PERCENT: [f64; 8] = [1.0, 2.0, 5.0, 11.0, 23.0, 46.0, 75.0, 100.0];

/// The largest memory replayed: its pages are numbered in 32 bits, and each takes some bytes of
/// this machine's.
const MEMORY_MAX_BYTES: u64 = 16 << 40;

/// A budget that is to be replayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BudgetWish {
    /// A budget in bytes.
    Bytes(u64),
    /// A budget in percent of the memory.
    Percent(f64),
}

/// The question about budgets.
#[derive(Debug, Clone)]
pub struct SizingQuestion {
    /// The budgets to replay; if empty, the usual ones.
    pub budgets: Vec<BudgetWish>,
    /// The most page writes that may have to wait, as a share of all, 0 to 1.
    pub stalls_max: f64,
    /// The most of the time that writers may wait, as a share of it, 0 to 1.
    pub stalled_max: f64,
    /// The cleaning policy.
    pub policy: PolicyKind,
    /// The time between checkpoints; `None` makes none.
    pub checkpoint_every: Option<Duration>,
    /// The bytes that the SSD is rated to take.
    pub rated_bytes: Option<u64>,
    /// The machine that flushes.
    pub machine: Machine,
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
    ) -> Result<SizingReport, ReportError> {
        let region_bytes = memory_bytes
            .max(REGION_MIN_BYTES)
            .checked_next_multiple_of(BLOCK_BYTES)
            .unwrap_or(u64::MAX);
        if region_bytes > MEMORY_MAX_BYTES {
            let (memory_bytes, limit_bytes) = (region_bytes, MEMORY_MAX_BYTES);
            return Err(ReportError::Memory { memory_bytes, limit_bytes });
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
            return Err(ReportError::Changed { first: page_writes, then: other.page_writes });
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
        let chosen = chosen.ok_or(ReportError::NoBudget { budget_max_bytes })?;
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
    ) -> Result<Option<BudgetRow>, ReportError> {
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
