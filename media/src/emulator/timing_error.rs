//! How far the measured time of a run is from its modelled time.

/// Modelled and measured time of a run's accesses. Each thread has its own; [`TimingError::add`]
/// joins them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimingError {
    /// Number of accesses.
    pub requests: u64,
    /// Modelled time of all accesses, picoseconds.
    pub modelled_ps: u64,
    /// Sum of how late accesses were, picoseconds.
    pub late_ps: u64,
    /// The largest lateness of an access, picoseconds.
    pub late_max_ps: u64,
}

impl TimingError {
    /// Counts one access.
    #[inline]
    pub fn count(&mut self, modelled_ps: u64, late_ps: u64) {
        self.requests += 1;
        self.modelled_ps = self.modelled_ps.saturating_add(modelled_ps);
        self.late_ps = self.late_ps.saturating_add(late_ps);
        self.late_max_ps = self.late_max_ps.max(late_ps);
    }

    /// Adds another thread's counts.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.modelled_ps = self.modelled_ps.saturating_add(other.modelled_ps);
        self.late_ps = self.late_ps.saturating_add(other.late_ps);
        self.late_max_ps = self.late_max_ps.max(other.late_max_ps);
    }

    /// Measured over modelled time, less one: 0.02 is 2 % longer than modelled. `None` before the
    /// first access.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        (self.modelled_ps > 0).then(|| self.late_ps as f64 / self.modelled_ps as f64)
    }
}
