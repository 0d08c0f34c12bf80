//! MODELLED run time on non-volatile memory, by the paper's three assumptions about the share of
//! writes among the misses.
//!
//! The base takes `accesses x hit + misses x read + lines written x write`; each miss that a step
//! saves is worth `share x write + (1 - share) x read`. A read of non-volatile memory takes as long
//! as a read of DRAM, a write several times as long (the paper: 4 to 10 times). Saved hits are left
//! out.

use serde::{Deserialize, Serialize};

use super::model::Counts;

/// Assumed times of the memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryTimes {
    /// Time of an access that hits, nanoseconds.
    pub hit_ns: f64,
    /// Time of a miss that reads, nanoseconds.
    pub read_ns: f64,
    /// Factors by which a miss that writes takes longer.
    pub write_factors: Vec<f64>,
}

impl Default for MemoryTimes {
    fn default() -> Self {
        Self { hit_ns: 5.0, read_ns: 80.0, write_factors: vec![4.0, 10.0] }
    }
}

/// The share of a step's saved misses that would have written to non-volatile memory: the paper's
/// three assumptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteShare {
    /// Half of the saved misses would have written.
    HalfHalf,
    /// All saved misses would have written.
    FullWrites,
    /// A third of the saved misses would have written.
    OneThird,
}

impl WriteShare {
    /// All three assumptions.
    pub const ALL: [Self; 3] = [Self::HalfHalf, Self::FullWrites, Self::OneThird];

    /// The paper's name of the assumption.
    pub fn name(self) -> &'static str {
        match self {
            Self::HalfHalf => "half-half",
            Self::FullWrites => "full writes",
            Self::OneThird => "one-third",
        }
    }

    fn share(self) -> f64 {
        match self {
            Self::HalfHalf => 0.5,
            Self::FullWrites => 1.0,
            Self::OneThird => 1.0 / 3.0,
        }
    }
}

/// A run time under one assumption.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Share of the saved misses that would have written.
    pub writes: WriteShare,
    /// Factor by which a write takes longer than a read.
    pub write_factor: f64,
    /// MODELLED run time, nanoseconds.
    pub modelled_ns: f64,
    /// MODELLED saving of run time against the base, percent.
    pub shorter_percent: f64,
}

/// Estimates for all assumptions and all factors.
pub fn estimates(times: &MemoryTimes, base: Counts, now: Counts) -> Vec<Estimate> {
    let mut all = Vec::new();
    for writes in WriteShare::ALL {
        for write_factor in &times.write_factors {
            let write_ns = times.read_ns * write_factor;
            let base_ns = base.accesses as f64 * times.hit_ns
                + base.misses as f64 * times.read_ns
                + base.writebacks as f64 * write_ns;
            let miss_ns = writes.share() * write_ns + (1.0 - writes.share()) * times.read_ns;
            let saved_ns = (base.misses as f64 - now.misses as f64) * miss_ns;
            all.push(Estimate {
                writes,
                write_factor: *write_factor,
                modelled_ns: base_ns - saved_ns,
                shorter_percent: 100.0 * saved_ns / base_ns.max(1.0),
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_misses_write_the_more_their_reduction_gains() {
        let times = MemoryTimes { hit_ns: 1.0, read_ns: 100.0, write_factors: vec![4.0] };
        let counts =
            |misses| Counts { accesses: 1000, misses, writebacks: 50, ..Counts::default() };
        let all = estimates(&times, counts(100), counts(80));
        // Base: 1,000 ns of hits, 100 misses of 100 ns, 50 lines of 400 ns. Saved: 20 of 250, 400
        // and 200 ns.
        let ns: Vec<f64> = all.iter().map(|estimate| estimate.modelled_ns).collect();
        assert!((ns[0] - 26_000.0).abs() < 1e-6 && (ns[1] - 23_000.0).abs() < 1e-6, "{ns:?}");
        assert!((ns[2] - 27_000.0).abs() < 1e-6, "{ns:?}");
        let shorter = |writes| {
            let found = all.iter().find(|estimate| estimate.writes == writes);
            found.map(|estimate| estimate.shorter_percent).unwrap()
        };
        assert!(shorter(WriteShare::FullWrites) > shorter(WriteShare::HalfHalf));
        assert!(shorter(WriteShare::HalfHalf) > shorter(WriteShare::OneThird));
        assert!((shorter(WriteShare::HalfHalf) - 100.0 * 5.0 / 31.0).abs() < 1e-6);
    }
}
