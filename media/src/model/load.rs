//! A closed loop on a model: each requester makes its next request as soon as its last is done and
//! its software has run.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Access, Model};
use crate::profile::System;

/// Requests of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClosedLoop {
    /// The requests are in so many bytes from the start of the medium.
    pub footprint_bytes: u64,
    /// Length of each request.
    pub len_bytes: u64,
    /// Share of the requests that read.
    pub read_share: f64,
    /// Whether all requesters take the next of one sequence; otherwise requests are anywhere.
    pub is_sequential: bool,
    /// Number of requesters.
    pub outstanding: u32,
    /// Time of software for each request, on one of the cores.
    pub software_ps: u64,
    /// Number of cores.
    pub cores: u32,
    /// Number of requests in all.
    pub requests: u32,
    /// Seed of the places and directions.
    pub seed: u64,
}

/// Modelled results of a closed loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// Requests a second.
    pub rate_per_s: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Mean time from a request's arrival at the medium to its end, nanoseconds.
    pub medium_ns: f64,
    /// Mean time of a request with its software and its wait for a core, nanoseconds.
    pub request_ns: f64,
    /// Instant at which the last request was done.
    pub elapsed_ps: u64,
}

impl ClosedLoop {
    /// Runs on an idle medium.
    ///
    /// # Panics
    /// When there are no requesters, cores, requests or bytes, or the footprint is shorter than a
    /// request: the caller's mistake.
    #[must_use]
    pub fn run(&self, system: &System) -> Reached {
        assert!(
            self.outstanding > 0 && self.cores > 0 && self.requests > 0,
            "an empty load: {self:?}"
        );
        assert!(self.len_bytes > 0 && self.footprint_bytes >= self.len_bytes, "no room: {self:?}");
        // On a large disk a small footprint means short seeks.
        let model = Model::new(system, system.capacity().0.max(self.footprint_bytes));
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let places = self.footprint_bytes / self.len_bytes;
        let mut ready_ps = vec![0u64; self.outstanding as usize];
        let mut next = 0u64;
        let mut cores_ps = vec![0u64; self.cores as usize];
        let (mut medium_ps, mut request_ps) = (0u128, 0u128);
        for _ in 0..self.requests {
            let who = earliest(&ready_ps);
            let core = earliest(&cores_ps);
            let issued_ps = ready_ps[who].max(cores_ps[core]).saturating_add(self.software_ps);
            cores_ps[core] = issued_ps;
            let place = if self.is_sequential {
                next += 1;
                (next - 1) % places
            } else {
                random.random_range(0..places)
            };
            let access =
                if random.random::<f64>() < self.read_share { Access::Read } else { Access::Write };
            let done_ps = model.book(issued_ps, access, place * self.len_bytes, self.len_bytes);
            medium_ps += u128::from(done_ps - issued_ps);
            request_ps += u128::from(done_ps - ready_ps[who]);
            ready_ps[who] = done_ps;
        }
        let elapsed_ps = ready_ps.iter().copied().max().unwrap_or(0).max(1);
        let requests = f64::from(self.requests);
        let rate_per_s = requests / (elapsed_ps as f64 / 1e12);
        Reached {
            rate_per_s,
            bytes_per_s: rate_per_s * self.len_bytes as f64,
            medium_ns: medium_ps as f64 / requests / 1e3,
            request_ns: request_ps as f64 / requests / 1e3,
            elapsed_ps,
        }
    }
}

/// Index of the earliest instant; of several the first.
fn earliest(free_ps: &[u64]) -> usize {
    free_ps.iter().enumerate().min_by_key(|(_, free_ps)| **free_ps).map_or(0, |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ClosedLoop = ClosedLoop {
        footprint_bytes: 1 << 30,
        len_bytes: 4096,
        read_share: 1.0,
        is_sequential: false,
        outstanding: 1,
        software_ps: 5_000_000,
        cores: 8,
        requests: 10_000,
        seed: 1,
    };

    #[test]
    fn one_requester_waits_for_software_and_medium_in_turn() {
        let nand = System::find("nand").unwrap();
        let reached = ONE.run(&nand);
        assert!((reached.rate_per_s - 1e9 / 30_000.0).abs() < 1.0, "{reached:?}");
        assert_eq!((reached.medium_ns, reached.request_ns), (25_000.0, 30_000.0));
    }

    #[test]
    fn cores_limit_what_many_requesters_reach() {
        let ddr = System::find("ddr-sttm").unwrap();
        let reached = ClosedLoop { outstanding: 64, len_bytes: 512, cores: 4, ..ONE }.run(&ddr);
        assert!((reached.rate_per_s / (4.0 / 5e-6) - 1.0).abs() < 0.02, "{reached:?}");
    }

    #[test]
    fn the_medium_limits_what_fast_software_reaches() {
        let nand = System::find("nand").unwrap();
        let reached = ClosedLoop { outstanding: 16, software_ps: 0, ..ONE }.run(&nand);
        assert!((reached.rate_per_s * 25e-6 - 1.0).abs() < 0.01, "{reached:?}");
    }

    #[test]
    fn disks_are_for_sequences() {
        let disks = System::find("disk-raid0").unwrap();
        let load = ClosedLoop { footprint_bytes: 1 << 40, outstanding: 4, requests: 2_000, ..ONE };
        let sequential = ClosedLoop { is_sequential: true, ..load }.run(&disks);
        assert!(sequential.rate_per_s > 20.0 * load.run(&disks).rate_per_s, "{sequential:?}");
    }
}
