//! Adding a member to a set that has a table, and taking one out.

use crate::api::Key;
use crate::fields::{self, FIELD_DB, find_or_room};
use crate::record::{Header, RecordKind};
use crate::set::name_of;
use crate::store::{Place, Store};
use crate::table::{self, pick::pick};

impl Store {
    /// Adds a member to a large set, if that is all there is to do: see [`Store::replace_at`].
    /// Returns whether the member is new.
    pub fn set_add_at(&self, key: Key<'_>, place: Place, member: &[u8]) -> Option<bool> {
        let held = self.hold(key, &place)?;
        let root = held.table_root(key, RecordKind::TableSet)?;
        let Err(room) = find_or_room(&held.lane, root, member) else {
            self.note_use(&place);
            return Some(false);
        };
        let (mut op, id) = (held.lane.begin(), place.lane);
        let header = Header::of(member, FIELD_DB, RecordKind::Field, 0, 0);
        let record = self.write_part(&mut op, id, &header, member, b"")?;
        fields::enter(&mut op, id, root, Some(room), member, (record, &header)).ok()?;
        self.finish(&mut op, &place).map(|()| true)
    }

    /// Takes a member that is drawn at random out of a large set and calls `f` with it, if the set
    /// keeps others and that is all there is to do: see [`Store::replace_at`]. `draw(n)` draws a
    /// number below `n`.
    pub fn set_pop_at<R>(
        &self,
        key: Key<'_>,
        place: Place,
        draw: &mut dyn FnMut(u64) -> u64,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        let held = self.hold(key, &place)?;
        let root = held.table_root(key, RecordKind::TableSet)?;
        if table::stored_len(&held.lane, root) < 2 {
            return None;
        }
        let found = pick(&held.lane, root, draw)?;
        held.lane.prefetch_changed(found.record(), 1);
        let (mut op, id) = (held.lane.begin(), place.lane);
        fields::leave(&mut op, id, root, &found, self.region().planted()).ok()?;
        self.finish(&mut op, &place)?;
        // The bytes stay as they are while the shard is held.
        Some(f(name_of(op.lane(id), found.record(), found.head_bytes())))
    }
}
