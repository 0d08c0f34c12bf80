//! The cost of an operation: energy, and a share of the machine's price.
//!
//! Energy is measured where the processor counts it (RAPL, through the kernel's powercap files);
//! otherwise it is computed from a given power, or missing. For a modelled medium it is the
//! model's. The machine's price is spread over its years of service.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Power and price of the machine, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Economy {
    /// Power that the machine draws, watts; for processors that cannot count energy.
    pub watts: Option<f64>,
    /// Price of the machine, euro.
    pub price_eur: Option<f64>,
    /// Years that the machine serves.
    pub years: f64,
}

impl Default for Economy {
    fn default() -> Self {
        Self { watts: None, price_eur: None, years: 4.0 }
    }
}

/// Origin of an energy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnergyFrom {
    /// Counted by the processor: packages and their memory, not the whole machine.
    Rapl,
    /// A given power times the time.
    Given,
    /// The model of a medium, and of the medium alone.
    Modelled,
}

impl EnergyFrom {
    /// The origin in words, to stand beside a figure.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rapl => "counted",
            Self::Given => "given watts",
            Self::Modelled => "modelled",
        }
    }
}

/// Cost of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Nanojoules an operation, of all parts that ran together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nj_per_operation: Option<f64>,
    /// Origin of the energy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_from: Option<EnergyFrom>,
    /// The operations' share of the machine's price, euro for 10^12 operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eur_per_trillion_operations: Option<f64>,
}

impl Economy {
    /// Cost of a number of operations in a time. `counted` is an energy that the processor or a
    /// model gives. None: nothing is known.
    pub fn costs(
        &self,
        operations: u64,
        ns: u64,
        counted: Option<(f64, EnergyFrom)>,
    ) -> Option<Costs> {
        const SECONDS_PER_YEAR: f64 = 365.25 * 86_400.0;
        let (operations, seconds) = (operations.max(1) as f64, ns as f64 / 1e9);
        let given = self.watts.map(|watts| (watts * seconds, EnergyFrom::Given));
        let energy = counted.or(given);
        let eur = self.price_eur.map(|eur| eur * seconds / (self.years * SECONDS_PER_YEAR));
        (energy.is_some() || eur.is_some()).then(|| Costs {
            nj_per_operation: energy.map(|(joules, _)| joules * 1e9 / operations),
            energy_from: energy.map(|(_, from)| from),
            eur_per_trillion_operations: eur.map(|eur| eur * 1e12 / operations),
        })
    }
}

/// The processor's energy counters.
#[derive(Debug)]
pub struct Meter {
    domains: Vec<Domain>,
    began: Instant,
}

#[derive(Debug)]
struct Domain {
    counter: PathBuf,
    /// Value after which the counter begins again at zero, microjoules.
    range_uj: u64,
    begun_uj: u64,
}

impl Meter {
    /// Begins to count; none where no counter can be read.
    pub fn begin() -> Option<Self> {
        Self::of(Path::new("/sys/class/powercap"))
    }

    fn of(folder: &Path) -> Option<Self> {
        let domains: Vec<Domain> = std::fs::read_dir(folder)
            .ok()?
            .filter_map(|entry| Domain::of(&entry.ok()?.path()))
            .collect();
        (!domains.is_empty()).then(|| Self { domains, began: Instant::now() })
    }

    /// Joules since the beginning; none if a counter can no longer be read, or may have wrapped
    /// more than once.
    pub fn joules(&self) -> Option<f64> {
        let seconds = self.began.elapsed().as_secs_f64();
        self.domains.iter().map(|domain| domain.joules(seconds)).sum()
    }
}

impl Domain {
    /// Reads counters of packages, and of memory that no package contains: a package's counter
    /// includes its parts.
    fn of(folder: &Path) -> Option<Self> {
        let name = std::fs::read_to_string(folder.join("name")).ok()?;
        // Newer processors show a package a second time, by another interface.
        let is_second = folder.file_name()?.to_string_lossy().contains("mmio");
        if is_second || !(name.starts_with("package") || name.trim() == "dram") {
            return None;
        }
        let counter = folder.join("energy_uj");
        let range_uj = number(&folder.join("max_energy_range_uj"))?;
        Some(Self { begun_uj: number(&counter)?, counter, range_uj })
    }

    fn joules(&self, seconds: f64) -> Option<f64> {
        /// More power than a package can draw, watts.
        const WATTS_MAX: f64 = 1000.0;
        if seconds * WATTS_MAX * 1e6 > self.range_uj as f64 {
            return None;
        }
        let now_uj = number(&self.counter)?;
        let used_uj = match now_uj.checked_sub(self.begun_uj) {
            Some(used_uj) => used_uj,
            None => now_uj + self.range_uj.saturating_sub(self.begun_uj),
        };
        Some(used_uj as f64 / 1e6)
    }
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_and_begin_again_at_their_end() {
        let dir = tempfile::tempdir().unwrap();
        let domain = |name: &str, kind: &str, uj: u64| {
            let folder = dir.path().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            for (file, text) in [
                ("name", kind),
                ("max_energy_range_uj", "1000000000"),
                ("energy_uj", &uj.to_string()),
            ] {
                std::fs::write(folder.join(file), format!("{text}\n")).unwrap();
            }
        };
        assert!(Meter::of(dir.path()).is_none());
        domain("intel-rapl:0", "package-0", 999_000_000);
        domain("intel-rapl:0:0", "core", 5);
        domain("intel-rapl-mmio:0", "package-0", 999_000_000);
        domain("intel-rapl:0:1", "dram", 10_000_000);
        let meter = Meter::of(dir.path()).unwrap();
        domain("intel-rapl:0", "package-0", 2_000_000);
        domain("intel-rapl:0:1", "dram", 14_500_000);
        domain("intel-rapl-mmio:0", "package-0", 2_000_000);
        assert_eq!(meter.joules(), Some(7.5));
        assert_eq!(meter.domains[0].joules(1001.0), None, "it may have begun again twice");
    }

    #[test]
    fn costs_are_told_as_far_as_they_are_known() {
        let economy =
            Economy { watts: Some(100.0), price_eur: Some(365.25 * 86_400.0), years: 1.0 };
        let costs = economy.costs(1_000_000, 1_000_000_000, None).unwrap();
        assert_eq!(
            (costs.nj_per_operation, costs.energy_from),
            (Some(100_000.0), Some(EnergyFrom::Given))
        );
        assert!((costs.eur_per_trillion_operations.unwrap() - 1e6).abs() < 1.0);
        let counted = economy.costs(1000, 1_000_000_000, Some((2.0, EnergyFrom::Rapl))).unwrap();
        assert_eq!(
            (counted.nj_per_operation, counted.energy_from),
            (Some(2e6), Some(EnergyFrom::Rapl))
        );
        assert_eq!(Economy::default().costs(1, 1, None), None);
    }
}
