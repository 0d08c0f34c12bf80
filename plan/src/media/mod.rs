//! Which memory to buy for a workload, and where the answer flips (HASTE slides, "Power and Cost
//! Analysis").
//!
//! A workload is requests a second over so many bytes with so much locality. Each medium is tried
//! in three configurations: *primary* storage, a *cache* for a disk array, and *hybrid* storage,
//! where a fixed part of the data lies on it and the rest on disks. How fast one device is comes
//! from its model in a closed loop; the rest is arithmetic over devices, so that a sweep over
//! capacities and rates costs nothing. Prices and watts are the profiles'.

mod advice;
mod candidate;
mod device;
mod locality;
mod recorded;
#[cfg(test)]
mod tests;
mod workload;

use perdura_media::System;
use serde::Serialize;

pub use advice::{Conclusion, Flip, Map};
pub use candidate::{Candidate, Role};
pub use locality::Locality;
pub use workload::{Workload, WorkloadError};

use device::{Device, Kind};

/// What is to be compared.
#[derive(Clone, Debug)]
pub struct Question {
    /// The load.
    pub workload: Workload,
    /// Media to choose among; the first one in the disks' role is [`Question::disks`].
    pub media: Vec<System>,
    /// The array behind caches and hybrids, against which speed-ups are.
    pub disks: System,
    /// Of which prices are taken.
    pub year: u16,
}

/// The answer. All of it modelled.
#[derive(Clone, Debug, Serialize)]
pub struct MediaPlan {
    /// Always `modelled`.
    pub label: &'static str,
    /// The load, as asked.
    pub workload: Workload,
    /// Of which prices are taken, where a medium has one of that year or before.
    pub price_year: u16,
    /// The array behind caches and hybrids.
    pub disks: String,
    /// Each medium in each role, the cheapest that meets the load first, then those that cannot.
    pub candidates: Vec<Candidate>,
    /// Where another candidate becomes the cheapest as the capacity changes.
    pub flips_by_capacity: Vec<Flip>,
    /// Where another candidate becomes the cheapest as the rate changes.
    pub flips_by_rate: Vec<Flip>,
    /// The cheapest over both.
    pub map: Map,
    /// The slides' three, held against the numbers.
    pub conclusions: Vec<Conclusion>,
}

impl Question {
    /// Works it out.
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

/// One device of each medium, run once under the workload's kind of requests.
struct Fleet {
    devices: Vec<Device>,
    disks: Device,
}

impl Fleet {
    fn of(question: &Question) -> Self {
        let device = |system: &System| Device::run(system, &question.workload, question.year);
        Self {
            devices: question
                .media
                .iter()
                .filter(|system| system.name != question.disks.name)
                .map(device)
                .collect(),
            disks: device(&question.disks),
        }
    }

    /// Every medium in every role; disks as primary storage among them.
    fn candidates(&self, workload: &Workload) -> Vec<Candidate> {
        let alone = self.devices.iter().chain([&self.disks]);
        let primary = alone.map(|device| candidate::primary(device, &self.disks, workload));
        let beside = self.devices.iter().flat_map(|device| {
            let cache = candidate::cache(device, &self.disks, workload);
            cache.into_iter().chain([candidate::hybrid(device, &self.disks, workload)])
        });
        primary.chain(beside).collect()
    }

    /// What kind of memory a medium is; its name does not say.
    fn kind(&self, medium: &str) -> Option<Kind> {
        let mut all = self.devices.iter().chain([&self.disks]);
        all.find(|device| device.name == medium).map(|device| device.kind)
    }

    /// The cheapest that meets the load.
    fn best(&self, workload: &Workload) -> Option<Candidate> {
        let all = self.candidates(workload).into_iter().filter(|candidate| candidate.eur.is_some());
        all.min_by(Candidate::order)
    }
}
