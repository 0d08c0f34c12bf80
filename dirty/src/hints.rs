//! What policies remember of writes: heat, and a mark for each unit. Private to a process, and only
//! hints: a lost change does no harm.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::cache_padded::CachePadded;
use crate::error::SetupError;
use crate::geometry::Geometry;
use crate::heat::HeatTable;
use crate::policy::{Mark, PolicyKind};
use crate::sys::Mapping;

/// Bytes of a policy unit as a power of two, barrier mode: 1 KiB.
const UNIT_SHIFT_BARRIER: u32 = 10;

/// What a region's cleaning policy remembers of the writes to each piece of memory.
pub struct Hints {
    /// How often grains were written again while dirty.
    pub heat: HeatTable,
    /// The policy that asks for it.
    pub policy: PolicyKind,
    /// Whether writes to dirty data are noted, too.
    pub recency: bool,
    /// As many words for each unit as the policy needs.
    marks: Option<Mapping>,
    /// Number of the policy's epoch (1 ms by default).
    epoch: CachePadded<AtomicU32>,
}

/// Log2 of a policy unit's bytes.
pub fn unit_shift(grain_shift: u32) -> u32 {
    UNIT_SHIFT_BARRIER.max(grain_shift)
}

impl Hints {
    /// Empty tables for a region of this geometry.
    ///
    /// # Errors
    /// The memory for them is refused.
    pub fn new(geometry: &Geometry, policy: PolicyKind, recency: bool) -> Result<Self, SetupError> {
        let failed = |what, len_bytes| move |source| SetupError::Memory { what, len_bytes, source };
        let heat = HeatTable::new(geometry.words());
        let heat = heat.map_err(failed("heat table", geometry.words() as u64 * 16))?;
        let units = geometry.reserved_bytes >> unit_shift(geometry.grain_shift);
        let marks_bytes = units * policy.mark_words() as u64 * 8;
        let marks = (marks_bytes > 0).then(|| Mapping::anonymous(marks_bytes)).transpose();
        let marks = marks.map_err(failed("policy table", marks_bytes))?;
        Ok(Self { heat, policy, recency, marks, epoch: CachePadded(AtomicU32::new(1)) })
    }

    /// Number of the policy's epoch.
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Relaxed)
    }

    /// The policy's epoch is over.
    pub fn advance(&self) {
        self.epoch.fetch_add(1, Relaxed);
    }

    /// Whether writers leave marks.
    #[inline]
    pub fn has_marks(&self) -> bool {
        self.marks.is_some()
    }

    /// The mark that writers left for a unit. At worst it is torn.
    pub fn mark_of(&self, unit: u64) -> Mark {
        let mut words = [0; 2];
        for (word, place) in words.iter_mut().zip(self.mark_words(unit)) {
            *word = place.load(Relaxed);
        }
        Mark::unpack(words)
    }

    /// Notes that a unit is written; the caller excludes other writers of it.
    pub fn mark_written(&self, unit: u64, was_dirty: bool) {
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
