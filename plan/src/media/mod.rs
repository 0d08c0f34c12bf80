//! Which memory to buy for a workload, and at which load the answer changes (HASTE slides, "Power
//! and Cost Analysis").
//!
//! A workload is a rate of requests to so many bytes with so much locality. Each medium is tried in
//! three configurations: as *primary* storage, as a *cache* for a disk array, and as *hybrid*
//! storage, where a fixed part of the data lies on it and the rest on disks. The speed of one
//! device comes from its model in a closed loop. The rest is arithmetic over numbers of devices, so
//! a sweep over capacities and rates is quick. Prices and watts come from the profiles.

mod advice;
mod candidate;
mod device;
mod fleet;
mod locality;
mod recorded;
#[cfg(test)]
mod tests;
mod workload;

use serde::Serialize;

pub use advice::{Conclusion, Flip, Map};
pub use candidate::{Candidate, Role};
pub use fleet::Question;
pub use locality::Locality;
pub use workload::{Workload, WorkloadError};

use fleet::Fleet;

/// The answer to a question. Every figure is modelled.
#[derive(Clone, Debug, Serialize)]
pub struct MediaPlan {
    /// Always `modelled`.
    pub label: &'static str,
    /// The load that was asked about.
    pub workload: Workload,
    /// The year whose prices are taken; a medium without one of that year has its newest before it.
    pub price_year: u16,
    /// The name of the array behind caches and hybrids.
    pub disks: String,
    /// Each medium in each role, the cheapest that meets the load first, then those that cannot.
    pub candidates: Vec<Candidate>,
    /// Where another candidate becomes the cheapest as the capacity changes.
    pub flips_by_capacity: Vec<Flip>,
    /// Where another candidate becomes the cheapest as the rate changes.
    pub flips_by_rate: Vec<Flip>,
    /// The cheapest candidates over capacity and rate.
    pub map: Map,
    /// The three conclusions of the slides, held against the numbers.
    pub conclusions: Vec<Conclusion>,
}

impl Question {
    /// Compares the media.
    #[must_use]
    pub fn answer(&self) -> MediaPlan {
        let fleet = Fleet::of(self);
        let mut candidates = fleet.candidates(&self.workload);
        candidates.sort_by(Candidate::order);
        MediaPlan {
            label: "modelled",
            workload: self.workload.clone(),
            price_year: self.year,
            disks: self.disks.name.clone(),
            candidates,
            flips_by_capacity: advice::flips_by_capacity(&fleet, &self.workload),
            flips_by_rate: advice::flips_by_rate(&fleet, &self.workload),
            map: advice::map(&fleet, &self.workload),
            conclusions: advice::conclusions(self),
        }
    }
}
