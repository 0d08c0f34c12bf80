//! The memory of cleaning policies about past writes: heat for each grain, and a mark for each
//! unit. These are hints that are private to a process, so a lost change does no harm.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::cache_padded::CachePadded;
use crate::error::SetupError;
use crate::geometry::Geometry;
use crate::heat::HeatTable;
use crate::policy::{Mark, PolicyKind};
use crate::sys::Mapping;

/// Log2 of a policy unit's bytes in barrier mode: 1 KiB.
const UNIT_SHIFT_BARRIER: u32 = 10;

/// The hints of a region's cleaning policy about past writes to each piece of memory.
pub struct Hints {
    /// How often grains were written again while dirty.
    pub heat: HeatTable,
    /// The cleaning policy.
    pub policy: PolicyKind,
    /// Whether writes to data that are dirty already are noted, too.
    pub recency: bool,
    /// The marks of all units, with as many words for each as the policy needs; `None` if it needs
    /// none.
    marks: Option<Mapping>,
    /// Number of the policy's epoch, which lasts 1 ms by default.
    epoch: CachePadded<AtomicU32>,
}

/// Log2 of a policy unit's bytes.
pub(crate) fn unit_shift(grain_shift: u32) -> u32 {
    UNIT_SHIFT_BARRIER.max(grain_shift)
}

impl Hints {
    /// Empty tables for a region of this geometry.
    ///
    /// # Errors
    /// The system refuses the memory for the tables.
    pub(crate) fn new(
        geometry: &Geometry,
        policy: PolicyKind,
        recency: bool,
    ) -> Result<Self, SetupError> {
        let failed = |what, len_bytes| move |source| SetupError::Memory { what, len_bytes, source };
        let heat = HeatTable::new(geometry.words());
        let heat = heat.map_err(failed("heat table", geometry.words() as u64 * 16))?;
        let units = geometry.reserved_bytes >> unit_shift(geometry.grain_shift);
        let marks_bytes = units * policy.mark_words() as u64 * 8;
        let marks = (marks_bytes > 0).then(|| Mapping::anonymous(marks_bytes)).transpose();
        let marks = marks.map_err(failed("policy table", marks_bytes))?;
        Ok(Self { heat, policy, recency, marks, epoch: CachePadded(AtomicU32::new(1)) })
    }

    /// The number of the policy's epoch.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Relaxed)
    }

    /// Ends the policy's epoch.
    pub fn advance(&self) {
        self.epoch.fetch_add(1, Relaxed);
    }

    /// Whether the policy needs marks of writers.
    #[inline]
    pub(crate) fn has_marks(&self) -> bool {
        self.marks.is_some()
    }

    /// The mark that writers left for a unit. A write at the same moment may tear it.
    pub(crate) fn mark_of(&self, unit: u64) -> Mark {
        let mut words = [0; 2];
        for (word, place) in words.iter_mut().zip(self.mark_words(unit)) {
            *word = place.load(Relaxed);
        }
        Mark::unpack(words)
    }

    /// Notes that a unit is written. The caller keeps other writers of the unit out.
    pub(crate) fn mark_written(&self, unit: u64, was_dirty: bool) {
        let places = self.mark_words(unit);
        if !places.is_empty() {
            let mark = self.policy.mark(self.mark_of(unit), was_dirty, self.epoch());
            for (word, place) in mark.pack().into_iter().zip(places) {
                place.store(word, Relaxed);
            }
        }
    }

    fn mark_words(&self, unit: u64) -> &[AtomicU64] {
        let count = self.policy.mark_words();
        self.marks.as_ref().map_or(&[], |marks| marks.words(unit * count as u64 * 8, count))
    }
}
