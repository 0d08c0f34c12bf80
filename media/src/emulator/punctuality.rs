//! Modelled time against measured time.

/// What a run of modelled accesses was to take and what it took. One a thread; [`Punctuality::add`]
/// joins them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Punctuality {
    /// Accesses.
    pub requests: u64,
    /// What they were to take by the model, picoseconds.
    pub modelled_ps: u64,
    /// By how much they were late, in all.
    pub late_ps: u64,
    /// The latest one.
    pub late_max_ps: u64,
}

impl Punctuality {
    /// Counts one access.
    #[inline]
    pub fn count(&mut self, modelled_ps: u64, late_ps: u64) {
        self.requests += 1;
        self.modelled_ps = self.modelled_ps.saturating_add(modelled_ps);
        self.late_ps = self.late_ps.saturating_add(late_ps);
        self.late_max_ps = self.late_max_ps.max(late_ps);
    }

    /// Joins another thread's.
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
