//! The options of an analysis: windows, shares of writes, and the memory and exactness of the
//! answer.

use std::path::PathBuf;

use super::SkewError;

/// The most windows that an analysis may have.
pub const WINDOWS_MAX: usize = 16;

/// The nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// A share of all page writes, in millionths: integers, so that "at least 95 %" has one meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// A percentage above 0 and up to 100, to four decimals.
    pub fn percent(percent: f64) -> Result<Self, SkewError> {
        let millionths = (percent * 10_000.0).round();
        if !(1.0..=1_000_000.0).contains(&millionths) {
            return Err(SkewError::Share { percent });
        }
        Ok(Self(millionths as u32))
    }

    /// The fewest writes that are at least this share of `writes`.
    pub fn of(self, writes: u64) -> u64 {
        (u128::from(writes) * u128::from(self.0)).div_ceil(1_000_000) as u64
    }

    /// The share as a fraction of 1.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / 1e6
    }

    /// The share as a key: `90`, `99.9`.
    pub fn key(self) -> String {
        decimal(u64::from(self.0), 10_000)
    }
}

/// Approximate counting, which keeps a sample of pages in fixed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// The most pages that are kept.
    pub pages_max: u32,
    /// The seed that chooses the pages.
    pub seed: u64,
}

impl Default for Sampling {
    /// A sample that fits 64 MiB with everything else (`plan/tests/skew_memory.rs` measures this).
    fn default() -> Self {
        Self { pages_max: 1 << 19, seed: 1 }
    }
}

/// The options of an analysis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    windows_ns: Vec<u64>,
    shares_percent: Vec<Share>,
    /// Keep what parts need to be merged exactly (counts per instant, a few bytes each); otherwise
    /// maxima only.
    pub mergeable: bool,
    /// Count windows in a thread of their own: nearly twice as fast on two idle processors.
    pub apart: bool,
    /// How to count a sample of the pages in fixed memory; not with `mergeable`.
    pub sampling: Option<Sampling>,
    /// How many bytes of the longest window's queue (16 an instant) lie in memory, and how many of
    /// the ring of counts beside it (4 an instant, to the next power of two); what is more is in
    /// temporary files without names.
    pub queue_bytes: u64,
    /// The directory of that file; `None` is where the system keeps temporary files.
    pub spill_dir: Option<PathBuf>,
}

impl Options {
    /// Options with these windows (nanoseconds) and shares. The order does not matter; the answer
    /// is ordered by the windows' lengths.
    pub fn new(mut windows_ns: Vec<u64>, mut shares: Vec<Share>) -> Result<Self, SkewError> {
        let given = windows_ns.len();
        windows_ns.sort_unstable();
        windows_ns.dedup();
        let wrong = windows_ns.is_empty() || windows_ns.len() != given || windows_ns[0] == 0;
        if wrong || given > WINDOWS_MAX {
            return Err(SkewError::Windows { given, max: WINDOWS_MAX });
        }
        shares.sort_unstable();
        shares.dedup();
        Ok(Self::asking(windows_ns, shares))
    }

    fn asking(windows_ns: Vec<u64>, shares_percent: Vec<Share>) -> Self {
        Self {
            windows_ns,
            shares_percent,
            mergeable: false,
            apart: false,
            sampling: None,
            queue_bytes: 64 << 20,
            spill_dir: None,
        }
    }

    /// The lengths of the windows, ascending, nanoseconds.
    pub fn windows_ns(&self) -> &[u64] {
        &self.windows_ns
    }

    /// The shares of all page writes, ascending.
    pub fn shares_percent(&self) -> &[Share] {
        &self.shares_percent
    }
}

impl Default for Options {
    /// The paper's windows and shares: a minute, ten minutes, an hour; 90, 95 and 99 % of the
    /// writes.
    fn default() -> Self {
        let windows_ns = [60, 600, 3600].map(|s| s * SECOND_NS);
        Self::asking(windows_ns.to_vec(), [90, 95, 99].map(|p| Share(p * 10_000)).to_vec())
    }
}

/// The key of a window: its seconds, `60` or `0.5`.
pub fn window_key(window_ns: u64) -> String {
    decimal(window_ns, SECOND_NS)
}

/// `value / unit`, exactly and without needless zeros; `unit` is a power of ten.
fn decimal(value: u64, unit: u64) -> String {
    let (whole, part) = (value / unit, value % unit);
    if part == 0 {
        return whole.to_string();
    }
    let digits = unit.ilog10() as usize;
    let part = format!("{part:0digits$}");
    format!("{whole}.{}", part.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_as_people_write_them() {
        assert_eq!(window_key(60 * SECOND_NS), "60");
        assert_eq!(window_key(SECOND_NS / 2), "0.5");
        assert_eq!(window_key(1), "0.000000001");
        assert_eq!(Share::percent(99.9).unwrap().key(), "99.9");
        assert_eq!(Share::percent(90.0).unwrap().key(), "90");
    }

    #[test]
    fn a_share_of_writes_is_rounded_up_never_down() {
        let share = Share::percent(90.0).unwrap();
        assert_eq!((share.of(0), share.of(1), share.of(10), share.of(11)), (0, 1, 9, 10));
        assert_eq!(Share::percent(100.0).unwrap().of(u64::MAX), u64::MAX);
    }

    #[test]
    fn questions_without_an_answer_are_refused() {
        for percent in [0.0, -1.0, 100.1, f64::NAN] {
            assert!(Share::percent(percent).is_err(), "{percent}");
        }
        for windows in [vec![], vec![0], vec![5, 5], (1..=17).collect()] {
            assert!(Options::new(windows, vec![]).is_err());
        }
    }
}
