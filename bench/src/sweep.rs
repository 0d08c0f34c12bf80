//! The paper's evaluation as one run: workloads over budgets, each against the full budget in turn,
//! at two sizes of data, and the causes of the loss at 11 %, with announced and with trapped
//! writes.
//!
//! Stores are loaded once for each workload and size; then their budgets change between points.

use std::time::Duration;

use perdura_region::{TrackingKind, TrapKind};

use crate::machine::{Machine, disk_available_bytes, memory_available_bytes};
use crate::report::{SweepResult, YcsbResult};
use crate::settings::{BudgetShare, Place, SideSettings, YcsbSettings};
use crate::target::{ArrayTarget, TargetError};
use crate::workload::Workload;
use crate::ycsb::{Bed, Progress, run};

/// Budgets of the paper's figures 7 to 9, percent of the data.
pub const BUDGETS: [f64; 6] = [2.0, 5.0, 11.0, 23.0, 46.0, 100.0];
/// Budgets of the paper's figure 10, percent of the data.
pub const BUDGETS_OF_SIZES: [f64; 3] = [11.0, 23.0, 46.0];
/// Workloads of the paper's figure 10; D is left out because its data grow.
const WORKLOADS_OF_SIZES: [char; 4] = ['a', 'b', 'c', 'f'];
/// The budget whose loss is split into causes, percent of the data.
const BUDGET_OF_CAUSES: f64 = 11.0;
/// Time of other work for an operation where only memory is measured.
const THINK: Duration = Duration::from_micros(8);
/// Share of the available memory that the larger stores of both sides may take together.
const MEMORY_SHARE: f64 = 0.7;
/// Share of the free disk space that the larger stores' images may take.
const DISK_SHARE: f64 = 0.9;
/// An image in multiples of its memory: the log's capacity, and the reserve for a budget of all
/// data.
const IMAGE_TIMES: f64 = 4.0;

/// The settings of a sweep.
#[derive(Debug, Clone)]
pub struct SweepSettings {
    /// All settings but workload and budgets.
    pub base: YcsbSettings,
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// The budgets, percent of the data.
    pub budgets: Vec<f64>,
    /// Records of the larger size; `None` for as many as the available memory and disk space allow,
    /// 0 for no larger size.
    pub larger_records: Option<u64>,
}

/// Runs a sweep.
///
/// # Errors
/// A run failed, as in [`run`].
pub fn sweep(settings: &SweepSettings, progress: Progress<'_>) -> Result<SweepResult, TargetError> {
    let machine = Machine::here();
    let mut points = Vec::new();
    for workload in &settings.workloads {
        points.extend(over_budgets(&settings.base, *workload, &settings.budgets, progress)?);
    }
    let mut larger = Vec::new();
    let records = settings.larger_records.unwrap_or_else(|| records_that_fit(&settings.base));
    if records > settings.base.records {
        let base = YcsbSettings { records, ..settings.base.clone() };
        let budgets: Vec<f64> =
            settings.budgets.iter().copied().filter(|b| BUDGETS_OF_SIZES.contains(b)).collect();
        for workload in settings.workloads.iter().filter(|w| WORKLOADS_OF_SIZES.contains(&w.name)) {
            larger.extend(over_budgets(&base, *workload, &budgets, progress)?);
        }
    }
    let causes = causes(&settings.base, progress)?;
    Ok(SweepResult { kind: "ycsb_sweep".into(), machine, points, larger, causes })
}

fn over_budgets(
    base: &YcsbSettings,
    workload: Workload,
    budgets: &[f64],
    progress: Progress<'_>,
) -> Result<Vec<YcsbResult>, TargetError> {
    let at = |percent: f64| YcsbSettings {
        workload,
        side: side(base, percent),
        compare: Some(side(base, 100.0)),
        ablate_recency: false,
        runs: budgets.len() as u64,
        ..base.clone()
    };
    let Some(first) = budgets.first() else { return Ok(Vec::new()) };
    let mut bed = Bed::prepare(&at(*first), progress)?;
    let points = budgets.iter().enumerate().map(|(index, percent)| {
        let told = |what: &str, done, of| {
            progress(&format!("{} at {percent} %: {what}", workload.name), done, of);
        };
        bed.measure(&at(*percent), index + 1 == budgets.len(), &told)
    });
    points.collect()
}

fn side(base: &YcsbSettings, percent: f64) -> SideSettings {
    SideSettings { budget: BudgetShare::Percent(percent), ..base.side }
}

fn causes(base: &YcsbSettings, progress: Progress<'_>) -> Result<Vec<YcsbResult>, TargetError> {
    let (Place::Embedded(setup), Some(a)) = (&base.place, Workload::parse("a")) else {
        return Ok(Vec::new());
    };
    let as_set_up = YcsbSettings {
        workload: a,
        side: side(base, BUDGET_OF_CAUSES),
        compare: Some(side(base, 100.0)),
        ablate_recency: true,
        ..base.clone()
    };
    let mut setup = setup.clone();
    setup.tracking = TrackingKind::Trap(TrapKind::Auto);
    let trapped = YcsbSettings { place: Place::Array(setup), think: THINK, ..as_set_up.clone() };
    let told = |what: &str, done, of| progress(&format!("causes: {what}"), done, of);
    [as_set_up, trapped].iter().map(|settings| run(settings, &told)).collect()
}

/// Number of records for which two stores fit the available memory, without the log's own buffers,
/// and their images fit the disk.
fn records_that_fit(base: &YcsbSettings) -> u64 {
    let memory = memory_available_bytes().unwrap_or(0) as f64 * MEMORY_SHARE;
    let disk = base.place.setup().and_then(|setup| disk_available_bytes(&setup.dir));
    let on_disk = disk.map_or(f64::INFINITY, |bytes| bytes as f64 * DISK_SHARE / IMAGE_TIMES);
    let available = memory.min(on_disk) / 2.0;
    let per_record = match base.place {
        Place::Array(_) => ArrayTarget::memory_bytes(&base.layout, 1 << 20) as f64 / 1048576.0,
        // The memory that a store gets for a record.
        _ => base.layout.record_bytes() as f64 * 1.5,
    };
    (available / per_record) as u64
}
