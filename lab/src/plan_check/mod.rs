//! `perdura-lab plan`: the prediction of a plan beside a region that is fed the same trace.
//!
//! There are two pairs. A real region on a virtual clock and a device of modelled time stands
//! beside the replay of the same: nothing is left to differ. The same region in real time on a real
//! device stands beside the replay as a plan uses it: that judges the model of the device, which no
//! device follows exactly, so the distributions of stalls of both are reported.

mod probe;
mod traces;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hdrhistogram::Histogram;
use perdura_media::{Device, DeviceError, Direct, Engine, FileDevice, OpenMode};
use perdura_plan::sizing::{
    Measured, Numbering, Outcome, PageWrite, Replay, ReplayConfig, SizingError, measure,
    measure_virtual,
};
use perdura_plan::trace::Record;
use perdura_region::PolicyKind;
use serde::Serialize;

pub use probe::probe;
pub use traces::{Kind, generated};

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct PlanCheckSettings {
    /// Folder on the device to measure; its files are removed again. `None`: nothing runs in real
    /// time.
    pub folder: Option<PathBuf>,
    /// Dirty budgets; each one is a run for each policy.
    pub budgets_bytes: Vec<u64>,
    /// Victim policies; each one is a run for each budget.
    pub policies: Vec<PolicyKind>,
    /// All other settings; the device is replaced by what is measured of the device of `folder`.
    pub config: ReplayConfig,
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum PlanCheckError {
    /// The trace or a setting is refused.
    #[error(transparent)]
    Sizing(#[from] SizingError),
    /// The device failed.
    #[error("{path}: {source}")]
    Device {
        /// Path of the file on the device.
        path: PathBuf,
        /// The device's error.
        source: DeviceError,
    },
}

/// Predicted and measured figures.
#[derive(Debug, Clone, Serialize)]
pub struct PlanCheck {
    /// Rate of the device in bytes a second, measured or configured.
    pub bytes_per_s: u64,
    /// Time of a write beyond that of its bytes, nanoseconds.
    pub write_latency_ns: u64,
    /// Time of a flush beyond that of the writes before it, nanoseconds.
    pub flush_latency_ns: u64,
    /// Whether the device's three figures were measured.
    pub is_measured: bool,
    /// Page writes of the trace.
    pub page_writes: u64,
    /// Distinct pages among the page writes.
    pub written_pages: u64,
    /// A run for each policy and budget.
    pub runs: Vec<Run>,
}

/// A run with one policy and budget.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// Victim policy.
    pub policy: &'static str,
    /// Dirty budget, bytes.
    pub budget_bytes: u64,
    /// Modelled: a replay in which processors take no time.
    pub predicted_on_model: Side,
    /// A real region on a virtual clock and a device of modelled time.
    pub on_model: Side,
    /// Modelled: a replay as a plan does it.
    pub predicted: Side,
    /// A real region in real time on the device.
    pub on_device: Option<Side>,
}

/// Figures of one run or replay.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    /// Bytes written to the device.
    pub device_bytes: u64,
    /// Page writes that had to wait for budget.
    pub stalls: u64,
    /// Time of all waits together, nanoseconds.
    pub stalled_ns: u64,
    /// Wait of a stalled write, nanoseconds: median, 90th and 99th percentile, longest.
    pub stall_ns_at: [u64; 4],
    /// Time until the last write was through, nanoseconds.
    pub run_ns: u64,
}

impl Side {
    fn of(device_bytes: u64, stalls: (u64, u64, &Histogram<u64>), run_ns: u64) -> Self {
        let (stalls, stalled_ns, waits) = stalls;
        let at = [0.5, 0.9, 0.99, 1.0].map(|share| waits.value_at_quantile(share));
        Self { device_bytes, stalls, stalled_ns, stall_ns_at: at, run_ns }
    }
}

impl From<&Outcome> for Side {
    fn from(outcome: &Outcome) -> Self {
        let stalls = (outcome.stalls, outcome.stalled_ns, &outcome.stall_ns);
        Self::of(outcome.device.total(), stalls, outcome.run_ns)
    }
}

impl From<&Measured> for Side {
    fn from(measured: &Measured) -> Self {
        let stalls = (measured.stalls, measured.stalled_ns, &measured.stall_ns);
        Self::of(measured.device_bytes, stalls, measured.run_ns)
    }
}

impl PlanCheck {
    /// Replays and runs `records`, which are in order of time.
    ///
    /// # Errors
    /// A record or a setting is refused; a region or a device fails.
    pub fn run(settings: &PlanCheckSettings, records: &[Record]) -> Result<Self, PlanCheckError> {
        let (mut numbering, mut writes) = (Numbering::default(), Vec::new());
        numbering
            .number(records, &mut writes)
            .map_err(|(before_ns, found_ns)| SizingError::Order { before_ns, found_ns })?;
        let device = match &settings.folder {
            Some(folder) => on_file(folder, |device| probe(device).map_err(Failure::Device))?,
            None => settings.config.device,
        };
        let mut runs = Vec::new();
        for &policy in &settings.policies {
            for &budget_bytes in &settings.budgets_bytes {
                let config =
                    ReplayConfig { policy, budget_bytes, device, ..settings.config.clone() };
                runs.push(run(&config, settings.folder.as_deref(), records, &writes)?);
            }
        }
        Ok(Self {
            bytes_per_s: device.bandwidth.0,
            write_latency_ns: device.write_latency_ns,
            flush_latency_ns: device.flush_latency_ns,
            is_measured: settings.folder.is_some(),
            page_writes: writes.len() as u64,
            written_pages: u64::from(numbering.pages()),
            runs,
        })
    }

    /// The result as text for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        use std::fmt::Write;
        let mut out = String::new();
        let measured = if self.is_measured { "measured" } else { "as configured" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{} page writes to {} pages. Device, {measured}: {:.0} MB/s, a write {} us, a flush \
             {} us.",
            self.page_writes,
            self.written_pages,
            self.bytes_per_s as f64 / 1e6,
            self.write_latency_ns / 1000,
            self.flush_latency_ns / 1000,
        );
        for run in &self.runs {
            let _ = writeln!(out, "{}, budget {} KiB", run.policy, run.budget_bytes >> 10);
            let sides = [
                ("predicted, device modelled", Some(&run.predicted_on_model)),
                ("region, device modelled", Some(&run.on_model)),
                ("predicted for this device", Some(&run.predicted)),
                ("measured on this device", run.on_device.as_ref()),
            ];
            for (name, side) in sides.into_iter().filter_map(|(name, side)| Some((name, side?))) {
                let [half, most, nearly_all, longest] = side.stall_ns_at.map(|ns| ns as f64 / 1e3);
                let _ = writeln!(
                    out,
                    "  {name:26} {:9.1} MB written, {:7} stalls, {:9.1} ms stalled; us at 50, 90, \
                     99, 100 %: {half:.0} {most:.0} {nearly_all:.0} {longest:.0}",
                    side.device_bytes as f64 / 1e6,
                    side.stalls,
                    side.stalled_ns as f64 / 1e6,
                );
            }
        }
        out
    }
}

fn run(
    config: &ReplayConfig,
    folder: Option<&Path>,
    records: &[Record],
    writes: &[PageWrite],
) -> Result<Run, PlanCheckError> {
    let predicted = |config| {
        let mut replay = Replay::new(config)?;
        replay.add(records)?;
        Ok::<_, SizingError>(Side::from(&replay.finish()))
    };
    let on_device = folder.map(|folder| {
        on_file(folder, |device| {
            measure(config, Arc::clone(device), writes).map_err(Failure::Sizing)
        })
    });
    // On a virtual clock that only the device moves, protecting a page takes no time.
    let virtual_config = ReplayConfig { protect_ns: 0, ..config.clone() };
    let on_model = measure_virtual(&virtual_config, writes)?;
    Ok(Run {
        policy: config.policy.name(),
        budget_bytes: config.budget_bytes,
        predicted_on_model: predicted(&virtual_config)?,
        on_model: Side::from(&on_model),
        predicted: predicted(config)?,
        on_device: on_device.transpose()?.as_ref().map(Side::from),
    })
}

enum Failure {
    Sizing(SizingError),
    Device(DeviceError),
}

/// Calls `with` a new file in a folder, and removes the file afterwards.
fn on_file<T>(
    folder: &Path,
    f: impl FnOnce(&Arc<dyn Device>) -> Result<T, Failure>,
) -> Result<T, PlanCheckError> {
    let path = folder.join(format!("perdura-plan-check-{}", std::process::id()));
    let mode = OpenMode::Create { capacity_bytes: 1 << 20 };
    let opened = FileDevice::open(&path, mode, Engine::Auto, Direct::Auto);
    let failed = |source| PlanCheckError::Device { path: path.clone(), source };
    let device: Arc<dyn Device> = Arc::new(opened.map_err(failed)?);
    let outcome = f(&device);
    drop(device);
    // The file belongs to this run; one that cannot be removed is recognised by its name.
    let _ = std::fs::remove_file(&path);
    outcome.map_err(|failure| match failure {
        Failure::Sizing(error) => error.into(),
        Failure::Device(source) => failed(source),
    })
}
