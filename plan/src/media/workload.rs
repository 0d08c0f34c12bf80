//! The load that a medium must carry.

use serde::Serialize;

use super::Locality;

/// A load of requests, as measured or as wished for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Workload {
    /// The bytes of the data.
    pub capacity_bytes: u64,
    /// The requests a second that have to be met.
    pub rate_per_s: f64,
    /// The bytes of a request.
    pub request_bytes: u64,
    /// The share of requests that read, 0 to 1.
    pub read_share: f64,
    /// How many requests are waited for at the same time, on each device.
    pub outstanding: u32,
    /// Software a request, nanoseconds, on one core; the medium waits meanwhile if one request is
    /// outstanding.
    pub software_ns: f64,
    /// The cores that this software runs on.
    pub cores: u32,
    /// How much of the data takes how many of the requests.
    pub locality: Locality,
    /// The share of the data that a hybrid places on the fast medium for good: a log, swap, hot
    /// tables.
    pub fixed_data_share: f64,
    /// The share of the requests that go to the fixed part, 0 to 1.
    pub fixed_request_share: f64,
}

/// A load that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{what} of {value}: expected {expected}")]
pub struct WorkloadError {
    /// The name of the number.
    pub what: &'static str,
    /// The number that was given.
    pub value: f64,
    /// The numbers that can be.
    pub expected: &'static str,
}

impl Default for Workload {
    /// Requests of 4 KiB all over 500 GB, two of three reading, through the slides' optimized
    /// driver (5 us of software), on eight cores; a log of 1 % of the data takes two of five
    /// requests.
    fn default() -> Self {
        Self {
            capacity_bytes: 500_000_000_000,
            rate_per_s: 20_000.0,
            request_bytes: 4096,
            read_share: 2.0 / 3.0,
            outstanding: 16,
            software_ns: 5_000.0,
            cores: 8,
            locality: Locality::of_shares(0.1, 0.9),
            fixed_data_share: 0.01,
            fixed_request_share: 0.4,
        }
    }
}

impl Workload {
    /// Whether it can be.
    ///
    /// # Errors
    /// The first number that cannot, with what was expected.
    pub fn validate(&self) -> Result<(), WorkloadError> {
        let share = "a share from 0 to 1";
        let above = "a number above zero";
        let in_unit = |value: f64| (0.0..=1.0).contains(&value);
        let is_above = |value: f64| value.is_finite() && value > 0.0;
        let rules = [
            ("capacity (B)", self.capacity_bytes as f64, self.capacity_bytes > 0, above),
            ("rate (1/s)", self.rate_per_s, is_above(self.rate_per_s), above),
            (
                "request (B)",
                self.request_bytes as f64,
                (1..=1 << 30).contains(&self.request_bytes),
                "1 B to 1 GiB",
            ),
            ("read share", self.read_share, in_unit(self.read_share), share),
            (
                "outstanding requests",
                f64::from(self.outstanding),
                (1..=4096).contains(&self.outstanding),
                "1 to 4096",
            ),
            (
                "software (ns)",
                self.software_ns,
                self.software_ns.is_finite() && self.software_ns >= 0.0,
                "0 or more",
            ),
            ("cores", f64::from(self.cores), self.cores > 0, above),
            (
                "fixed share of the data",
                self.fixed_data_share,
                in_unit(self.fixed_data_share),
                share,
            ),
            (
                "fixed share of the requests",
                self.fixed_request_share,
                in_unit(self.fixed_request_share),
                share,
            ),
        ];
        match rules.into_iter().find(|(.., holds, _)| !holds) {
            None => Ok(()),
            Some((what, value, _, expected)) => Err(WorkloadError { what, value, expected }),
        }
    }
}
