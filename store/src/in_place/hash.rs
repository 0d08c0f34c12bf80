//! Replacing the value of a field by another of its length, and adding a field to a hash that has a
//! table.

use crate::api::Key;
use crate::fields::{self, FIELD_DB, find_field, find_or_room};
use crate::in_place::Held;
use crate::packed;
use crate::record::{Header, RecordKind};
use crate::store::{Place, Store};

impl Store {
    /// Replaces the value that a field of a hash has by the one of the same length that `f` makes of
    /// it, if that is all there is to do: see [`Store::replace_at`].
    pub fn hash_replace_at<'v, R>(
        &self,
        key: Key<'_>,
        place: Place,
        field: &[u8],
        f: impl FnOnce(&[u8]) -> Option<(&'v [u8], R)>,
    ) -> Option<R> {
        let held = self.hold(key, &place)?;
        let bytes = held.place_of_field(key, field)?;
        self.replace_held(held, &place, bytes, f)
    }

    /// Sets a field of a hash, if the value that the field has is as long, or the field is a new
    /// one of a large hash, and that is all there is to do: see [`Store::replace_at`]. Returns
    /// whether the field is new.
    pub fn hash_set_at(
        &self,
        key: Key<'_>,
        place: Place,
        field: &[u8],
        value: &[u8],
    ) -> Option<bool> {
        let held = self.hold(key, &place)?;
        if let Some(bytes) = held.place_of_field(key, field) {
            return self.replace_held(held, &place, bytes, |_| Some((value, false)));
        }
        let root = held.table_root(key, RecordKind::TableHash)?;
        let room = find_or_room(&held.lane, root, field).err()?;
        let (mut op, id) = (held.lane.begin(), place.lane);
        let header = Header::of(field, FIELD_DB, RecordKind::Field, value.len() as u64, 0);
        let record = self.write_part(&mut op, id, &header, field, value)?;
        fields::enter(&mut op, id, root, Some(room), field, (record, &header)).ok()?;
        self.finish(&mut op, &place).map(|()| true)
    }
}

impl Held<'_> {
    /// Where the value of a field lies, and its bytes, if the hash has no fields that expire.
    fn place_of_field(&self, key: Key<'_>, field: &[u8]) -> Option<(u64, usize)> {
        if let Some((at, len)) = self.value(key, RecordKind::PackedHash) {
            let place = packed::place_of(self.lane.bytes(at, len), field)?;
            return Some((at + place.start as u64, place.len()));
        }
        let root = self.table_root(key, RecordKind::TableHash)?;
        let found = find_field(&self.lane, root, field)?;
        let header = Header::load(&self.lane, found.record());
        let at = found.record() + header.value_at();
        (header.kind == RecordKind::Field).then_some((at, header.value_len as usize))
    }
}
