//! Giving a member of a sorted set that has a table and a tree a score, and taking the first or the
//! last member out.

use crate::api::Key;
use crate::fields::{FIELD_DB, find_or_room};
use crate::list::End;
use crate::members;
use crate::record::{Header, RecordKind};
use crate::store::{Place, Store};
use crate::table;
use crate::tree::name_of;

impl Store {
    /// Gives a member of a large sorted set the score that `f` makes of the one it has, or of none,
    /// if that is all there is to do: see [`Store::replace_at`]. `f` returns `None` where the
    /// change is left to a transaction; the score is no NaN. Returns both scores.
    pub fn sorted_change_at(
        &self,
        key: Key<'_>,
        place: Place,
        member: &[u8],
        f: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Option<(Option<f64>, f64)> {
        let held = self.hold(key, &place)?;
        let root = held.table_root(key, RecordKind::TreeSorted)?;
        let found = find_or_room(&held.lane, root, member);
        let score_of = |record| f64::from_bits(held.lane.load(record + Header::AT_SCORE));
        let old = found.map(|found| (score_of(found.record()), found.record()));
        let old_score = old.as_ref().ok().map(|(score, _)| *score);
        let score = members::plain(f(old_score)?);
        if old_score == Some(score) {
            self.note_use(&place);
            return Some((old_score, score));
        }
        let (mut op, id) = (held.lane.begin(), place.lane);
        match old {
            Ok(old) => members::move_member(&mut op, id, root, old, score).ok()?,
            Err(room) => {
                let header = Header::of(member, FIELD_DB, RecordKind::Member, 0, score.to_bits());
                let record = self.write_part(&mut op, id, &header, member, b"")?;
                members::enter(&mut op, id, root, room, member, (record, &header)).ok()?;
            }
        }
        self.finish(&mut op, &place).map(|()| (old_score, score))
    }

    /// Takes the member of the lowest or the highest score out of a large sorted set and calls `f`
    /// with it, if the set keeps others and that is all there is to do: see [`Store::replace_at`].
    pub fn sorted_pop_at<R>(
        &self,
        key: Key<'_>,
        place: Place,
        end: End,
        f: impl FnOnce(&[u8], f64) -> R,
    ) -> Option<R> {
        let held = self.hold(key, &place)?;
        let root = held.table_root(key, RecordKind::TreeSorted)?;
        let last = table::stored_len(&held.lane, root).checked_sub(1).filter(|last| *last > 0)?;
        let rank = if end.is_front() { 0 } else { last };
        let (mut op, id, mut record) = (held.lane.begin(), place.lane, 0);
        members::leave_run(&mut op, id, root, rank, 1, &mut |gone| record = gone).ok()?;
        self.finish(&mut op, &place)?;
        // The bytes stay as they are while the shard is held.
        let lane = op.lane(id);
        let score = f64::from_bits(lane.load(record + Header::AT_SCORE));
        Some(f(name_of(lane, record), score))
    }
}
