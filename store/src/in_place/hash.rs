//! Replacing the value of a field by another of its length.

use crate::api::Key;
use crate::fields::find_field;
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
}

impl Held<'_> {
    /// Where the value of a field lies, and its bytes, if the hash has no fields that expire.
    fn place_of_field(&self, key: Key<'_>, field: &[u8]) -> Option<(u64, usize)> {
        if let Some((at, len)) = self.value(key, RecordKind::PackedHash) {
            let place = packed::place_of(self.lane.bytes(at, len), field)?;
            return Some((at + place.start as u64, place.len()));
        }
        let (at, _) = self.value(key, RecordKind::TableHash)?;
        let root = self.lane.load(at.next_multiple_of(8));
        let found = find_field(&self.lane, root, field)?;
        let header = Header::load(&self.lane, found.record());
        let at = found.record() + header.value_at();
        (header.kind == RecordKind::Field).then_some((at, header.value_len as usize))
    }
}
