//! The media that are compared, each modelled once as one device.

use perdura_media::System;

use super::candidate::{self, Candidate};
use super::device::{Device, Kind};
use super::workload::Workload;

/// The load and the media that are to be compared.
#[derive(Clone, Debug)]
pub struct Question {
    /// The load.
    pub workload: Workload,
    /// Media to choose among; the first one in the disks' role is [`Question::disks`].
    pub media: Vec<System>,
    /// The array behind caches and hybrids, which speed-ups are relative to.
    pub disks: System,
    /// The year whose prices are taken.
    pub year: u16,
}

/// One device of each medium, modelled once under the workload's requests.
pub(super) struct Fleet {
    devices: Vec<Device>,
    pub(super) disks: Device,
}

impl Fleet {
    pub(super) fn of(question: &Question) -> Self {
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

    /// Every medium in every role; disks as primary storage are among them.
    pub(super) fn candidates(&self, workload: &Workload) -> Vec<Candidate> {
        let alone = self.devices.iter().chain([&self.disks]);
        let primary = alone.map(|device| candidate::primary(device, &self.disks, workload));
        let beside = self.devices.iter().flat_map(|device| {
            let cache = candidate::cache(device, &self.disks, workload);
            cache.into_iter().chain([candidate::hybrid(device, &self.disks, workload)])
        });
        primary.chain(beside).collect()
    }

    /// The kind of memory that a medium is, which its name does not say.
    pub(super) fn kind(&self, medium: &str) -> Option<Kind> {
        let mut all = self.devices.iter().chain([&self.disks]);
        all.find(|device| device.name == medium).map(|device| device.kind)
    }

    /// The cheapest candidate that meets the load.
    pub(super) fn best(&self, workload: &Workload) -> Option<Candidate> {
        let all = self.candidates(workload).into_iter().filter(|candidate| candidate.eur.is_some());
        all.min_by(Candidate::order)
    }
}
