//! When the log makes space, and which segments it empties. Pure code, which is given counts of
//! segments and their live bytes.
//!
//! Space is made ahead of need in the last quarter of the log's slack. A commit writes all dirty
//! data, so it comes late.

use crate::geometry::Geometry;

/// Most segments that are emptied at once ahead of need.
pub const VICTIMS_AHEAD: usize = 4;
/// Space is made ahead of need in the last of this many parts of the slack.
const ZONE: u32 = 4;
/// Commits in a row that may free nothing before making space is given up.
pub const FRUITLESS_MAX: u32 = 4;

/// The sizes of the log that decide when space is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Segments of the log.
    pub segments: u32,
    /// Segments that are kept for the emergency flush.
    pub reserve_segments: u32,
    /// Budget in force, bytes.
    pub budget_bytes: u64,
}

impl Space {
    /// Spare segments below which cleaning makes space first: enough for a full drain, and some to
    /// compact into.
    pub fn spare_wanted(&self) -> u32 {
        let drain = self.budget_bytes.div_ceil(self.segment_bytes / 16 * 11) as u32 + 3;
        drain + 2 * self.compaction_segments()
    }

    /// Spare segments that are left to compaction, which could not gain space without them.
    pub(crate) fn compaction_segments(&self) -> u32 {
        (self.segments / 32).max(4)
    }

    /// Dirty bytes that fit `segments` in the worst case: all grains are isolated, and segments end
    /// with rests too short for a frame.
    pub(crate) fn drainable_bytes(&self, segments: u32) -> u64 {
        u64::from(segments.saturating_sub(2)) * (self.segment_bytes / 16 * 11)
    }

    /// Bytes that may be dirty while `spare` segments are spare: as many as a drain into them could
    /// take.
    pub fn limit_bytes(&self, spare: u32) -> u64 {
        self.drainable_bytes(spare.saturating_sub(self.compaction_segments()))
    }

    /// Segments beyond those for live data, the reserve, and the spare ones that are wanted.
    fn slack(&self, live_bytes: u64) -> u32 {
        let data = live_bytes.div_ceil(self.segment_bytes) as u32;
        self.segments.saturating_sub(data + self.reserve_segments + self.spare_wanted())
    }

    /// The need for space as far as the number of spare segments tells, without a survey of the
    /// log.
    pub fn first_look(&self, spare: u32) -> FirstLook {
        let left = spare.saturating_sub(self.spare_wanted());
        if left > self.slack(0) / ZONE {
            FirstLook::Ample
        } else if left == 0 {
            FirstLook::Needed
        } else {
            FirstLook::Survey
        }
    }

    /// The work to do ahead of need. `may_move`: memory is loaded, so that live data can be moved.
    pub fn ahead(&self, spare: u32, survey: &Survey, may_move: bool) -> Ahead {
        let left = spare.saturating_sub(self.spare_wanted());
        let slack = self.slack(survey.live_bytes);
        if left > slack / ZONE || !may_move {
            return Ahead::Nothing;
        }
        // A commit writes all dirty data, hot or not, so it should free much. It comes late, when
        // many dead segments should have gathered.
        if left <= slack / 32 && survey.dead > slack / 8 {
            return Ahead::Commit;
        }
        let wanted = (slack / ZONE - left) * 2;
        let mut victims = [None; VICTIMS_AHEAD];
        let sparse = survey.sparsest.into_iter().flatten();
        let count = wanted.saturating_sub(survey.dead) as usize;
        let half = self.segment_bytes / 2;
        for (place, victim) in victims.iter_mut().zip(sparse.take(count)) {
            *place = (victim.live_bytes <= half).then_some(victim.segment);
        }
        Ahead::Empty(victims)
    }

    /// Whether more segments must still be gained.
    pub fn is_short(&self, spare: u32) -> bool {
        spare <= self.spare_wanted()
    }

    /// Free segments with which a log can go on as after any other commit: the emergency reserve,
    /// and more spare ones than are wanted.
    pub fn free_wanted(&self) -> u32 {
        self.reserve_segments + self.spare_wanted() + 1
    }

    /// The segment to empty so that `free_wanted` segments become free, for a larger budget that is
    /// not in force yet. `None` asks for a commit instead, which frees what was emptied. The more
    /// is emptied between two commits the better, because a commit writes all dirty data.
    pub fn to_gain(&self, spare: u32, free_wanted: u32, survey: &Survey) -> Option<u32> {
        let free = self.reserve_segments + spare;
        // The last spare segments are for that commit.
        (survey.dead + free < free_wanted && !self.is_short(spare))
            .then(|| survey.sparsest[0].map(|sparse| sparse.segment))
            .flatten()
    }

    /// The segment to empty where space is needed now; `None` asks for a commit instead. Writers
    /// may be waiting, so no more is moved than necessary.
    pub fn needed(&self, spare: u32, survey: &Survey, used_bytes: u64) -> Option<u32> {
        let clean = self.spare_wanted();
        // A victim's live data need a place even where no budget is in use.
        let has_place = self.drainable_bytes(spare.saturating_sub(1)) >= used_bytes.max(1);
        (survey.dead + spare <= clean + clean / 4 && has_place)
            .then(|| survey.sparsest[0].map(|sparse| sparse.segment))
            .flatten()
    }
}

/// The need for space as far as it is known without a survey of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstLook {
    /// There is enough space.
    Ample,
    /// A survey of live data must say whether space should be made.
    Survey,
    /// There is no spare space: it must be made before anything is cleaned.
    Needed,
}

/// The work to do ahead of need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// Do nothing.
    Nothing,
    /// Commit, which frees dead segments.
    Commit,
    /// Empty these segments.
    Empty([Option<u32>; VICTIMS_AHEAD]),
}

/// A segment that may be compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sparse {
    live_bytes: u64,
    segment: u32,
}

/// A survey of the log's segments, without the one that is being filled.
#[derive(Debug, Default)]
pub struct Survey {
    /// Number of segments without live bytes, which the next commit frees.
    dead: u32,
    live_bytes: u64,
    /// The segments with the fewest live bytes, the sparsest first, if moving them gains at least
    /// an eighth of each.
    sparsest: [Option<Sparse>; VICTIMS_AHEAD],
}

impl Survey {
    /// Surveys segments, given by number and live bytes.
    pub fn of(segment_bytes: u64, segments: impl Iterator<Item = (u32, u64)>) -> Self {
        let most = segment_bytes / 8 * 7;
        let mut survey = Self::default();
        for (segment, live_bytes) in segments {
            if live_bytes == 0 {
                survey.dead += 1;
                continue;
            }
            survey.live_bytes += live_bytes;
            if live_bytes <= most {
                survey.consider(Sparse { live_bytes, segment });
            }
        }
        survey
    }

    fn consider(&mut self, mut found: Sparse) {
        for place in &mut self.sparsest {
            match place {
                None => {
                    *place = Some(found);
                    return;
                }
                Some(before) if found < *before => std::mem::swap(before, &mut found),
                Some(_) => {}
            }
        }
    }
}

impl Geometry {
    /// Segments of a log for this region and budget, but no more than the image can have: data, a
    /// whole drain, and the emergency reserve.
    pub fn segments_wanted(&self, log_percent: u64, region_bytes: u64, budget_bytes: u64) -> u32 {
        let data = region_bytes / 100 * log_percent / self.segment_bytes + 1;
        let reserve = u64::from(self.reserve_segments(budget_bytes));
        // The emergency reserve, a whole drain, segments for compaction, and frames on their way.
        let wanted = (data + 2 * reserve + u64::from(self.buffers)) * 36 / 32;
        wanted.min(u64::from(self.segments_max)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: Space = Space {
        segment_bytes: 1 << 20,
        segments: 320,
        reserve_segments: 10,
        budget_bytes: 4 << 20,
    };

    #[test]
    fn the_sparsest_segments_are_found_and_full_ones_left() {
        let live = [900_000u64, 5, 0, 300_000, 7, 1 << 20, 0, 7, 90];
        let segments = (0..).zip(live);
        let survey = Survey::of(1 << 20, segments);
        assert_eq!((survey.dead, survey.live_bytes), (2, live.iter().sum()));
        let found = survey.sparsest.map(|sparse| sparse.map(|sparse| sparse.segment));
        assert_eq!(found, [Some(1), Some(4), Some(7), Some(8)]);
    }

    #[test]
    fn space_is_made_in_the_last_quarter_of_the_slack_and_a_commit_comes_late() {
        let wanted = SPACE.spare_wanted();
        let slack = SPACE.slack(0);
        assert_eq!(SPACE.first_look(wanted), FirstLook::Needed);
        assert_eq!(SPACE.first_look(wanted + slack / 4), FirstLook::Survey);
        assert_eq!(SPACE.first_look(wanted + slack / 4 + 1), FirstLook::Ample);
        let mut survey = Survey::of(1 << 20, [(3, 500u64), (5, 900_000)].into_iter());
        assert_eq!(SPACE.ahead(wanted + slack, &survey, true), Ahead::Nothing);
        assert_eq!(SPACE.ahead(wanted + 9, &survey, false), Ahead::Nothing);
        // A segment more than half alive is not moved ahead of need.
        assert_eq!(
            SPACE.ahead(wanted + 9, &survey, true),
            Ahead::Empty([Some(3), None, None, None])
        );
        survey.dead = slack;
        assert_eq!(SPACE.ahead(wanted + 1, &survey, true), Ahead::Commit);
        assert_eq!(SPACE.ahead(wanted + slack / 8, &survey, true), Ahead::Empty([None; 4]));
        assert_eq!(SPACE.needed(wanted, &survey, 0), None);
        survey.dead = 0;
        assert_eq!(SPACE.needed(wanted, &survey, 0), Some(3));
        assert_eq!(SPACE.needed(3, &survey, 64 << 20), None);
    }

    #[test]
    fn segments_are_emptied_for_a_larger_budget_while_a_commit_still_has_its_place() {
        let wanted = SPACE.free_wanted();
        assert!(!SPACE.is_short(wanted - SPACE.reserve_segments));
        assert!(SPACE.is_short(wanted - SPACE.reserve_segments - 1));
        let mut survey = Survey::of(1 << 20, [(3, 500u64), (5, 900_000)].into_iter());
        let spare = SPACE.spare_wanted() + 1;
        assert_eq!(SPACE.to_gain(spare, wanted + 8, &survey), Some(3));
        assert_eq!(SPACE.to_gain(spare - 1, wanted + 8, &survey), None);
        survey.dead = 8;
        assert_eq!(SPACE.to_gain(spare, wanted + 8, &survey), None);
        assert_eq!(SPACE.to_gain(spare, wanted + 9, &survey), Some(3));
    }
}
