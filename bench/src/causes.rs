//! The causes of a smaller budget's loss, in nanoseconds an operation, as in section 6.3 of the
//! paper.
//!
//! Two causes are counted. One is waits for the SSD (in barrier mode; in trap mode the waits of
//! trapped stores are counted but not timed, and stay in the rest). The other is traps, at the
//! price of a trap measured in the same run. The rest is the cleaner's share of processors and
//! memory. The upkeep of recency is not a part of that sum: it is measured by switching it off, and
//! it may well save more than it costs.

use std::time::Instant;

use perdura_region::Config;

use crate::report::{Causes, SideResult, YcsbResult};
use crate::target::{StoreOptions, TargetError, new_region};

/// Splits the loss of a run with two sides.
pub(crate) fn causes_of(result: &YcsbResult, trap_ns: Option<f64>) -> Option<Causes> {
    let threads = result.configuration.threads as f64;
    let (side, other) = (&result.side, result.compare.as_ref()?);
    let time = |side: &SideResult| threads * 1e9 / side.throughput_ops_per_s;
    let per_operation = |side: &SideResult, count: Option<u64>| {
        count.unwrap_or(0) as f64 / side.operations.max(1) as f64
    };
    let traps = |side: &SideResult| per_operation(side, side.traps) * trap_ns.unwrap_or(0.0);
    let loss = time(side) - time(other);
    let waiting = trap_ns
        .is_none()
        .then(|| per_operation(side, side.stall_ns) - per_operation(other, other.stall_ns));
    let trapped = traps(side) - traps(other);
    let modelled = |side: &SideResult| threads * 1e9 / (time(side) - traps(side)).max(1.0);
    Some(Causes {
        loss_ns_per_operation: loss,
        waiting_ns_per_operation: waiting,
        traps_ns_per_operation: trapped,
        rest_ns_per_operation: loss - waiting.unwrap_or(0.0) - trapped,
        trap_ns,
        without_recency_ratio: None,
        without_recency_ci95: None,
        modelled_mmu_throughput_ops_per_s: trap_ns.map(|_| modelled(side)),
        modelled_mmu_compare_throughput_ops_per_s: trap_ns.map(|_| modelled(other)),
    })
}

const PAGE_BYTES: u64 = 4096;
const PAGES: u64 = 4096;

/// Extra time of the first store to a page over the next one, nanoseconds: a mean over 4,096 pages
/// that fit the budget, with memory and ledger in use already.
pub(crate) fn trap_ns(options: &StoreOptions) -> Result<Option<f64>, TargetError> {
    let bytes = PAGES * PAGE_BYTES;
    let config = Config {
        tracking: options.config.tracking,
        checkpoint_every: None,
        ..Config::new(bytes, 2 * bytes)
    };
    let (region, _dir) = new_region(&StoreOptions { config, ..options.clone() })?;
    let Some(memory) = region.trapped() else { return Ok(None) };
    let mut word = [0; 8];
    // Each page is read first, so that no figure includes the kernel's cost of fresh memory.
    (0..PAGES).for_each(|page| memory.read(page * PAGE_BYTES, &mut word));
    let pass = |value: u64| {
        let began = Instant::now();
        (0..PAGES).for_each(|page| memory.write(page * PAGE_BYTES, &value.to_le_bytes()));
        began.elapsed().as_nanos() as f64 / PAGES as f64
    };
    let (first, again) = (pass(1), pass(2));
    Ok(Some((first - again).max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::result;

    fn side(throughput: f64, stall_ns: u64, traps: u64) -> SideResult {
        SideResult {
            throughput_ops_per_s: throughput,
            operations: 1000,
            stall_ns: Some(stall_ns),
            traps: Some(traps),
            ..SideResult::default()
        }
    }

    #[test]
    fn parts_add_up_to_the_loss() {
        // 2 us an operation against 1 us, 0.3 us of them waiting.
        let run = result(side(500_000.0, 300_000, 0), Some(side(1_000_000.0, 0, 0)));
        let causes = causes_of(&run, None).unwrap();
        assert!((causes.loss_ns_per_operation - 1000.0).abs() < 1e-6);
        assert_eq!(causes.waiting_ns_per_operation, Some(300.0));
        assert!((causes.rest_ns_per_operation - 700.0).abs() < 1e-6);
        assert_eq!(causes.modelled_mmu_throughput_ops_per_s, None);
    }

    #[test]
    fn a_model_without_traps_takes_their_time_away() {
        // A tenth of the operations trap, at 5 us: half a microsecond of two.
        let run = result(side(500_000.0, 0, 100), Some(side(1_000_000.0, 0, 0)));
        let causes = causes_of(&run, Some(5000.0)).unwrap();
        assert_eq!(causes.waiting_ns_per_operation, None);
        assert!((causes.traps_ns_per_operation - 500.0).abs() < 1e-6);
        let modelled = causes.modelled_mmu_throughput_ops_per_s.unwrap();
        assert!((modelled - 1e9 / 1500.0).abs() < 1.0, "{modelled}");
    }
}
