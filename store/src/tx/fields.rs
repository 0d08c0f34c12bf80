//! The table of fields that a large hash has, and a large set, whose members are fields without a
//! value.

use perdura_slots::{Heat, LaneId};

use crate::api::{Expiry, Key};
use crate::error::TxError;
use crate::fields::{self, FIELD_DB, find_field};
use crate::record::{Header, RecordKind};
use crate::store::Place;
use crate::table;
use crate::tx::Tx;
use crate::tx::records::padding;

impl Tx<'_> {
    /// A new table without fields, to which no reference leads yet.
    pub(super) fn new_table(&mut self, place: &Place) -> Result<u64, TxError> {
        table::new_root(&mut self.op, place.lane).map_err(|stop| self.stop(stop))
    }

    /// Makes the key a value of this kind, whose fields are the table at `root`.
    pub(super) fn put_table(
        &mut self,
        place: &Place,
        key: Key<'_>,
        kind: RecordKind,
        root: u64,
        expiry: Expiry,
    ) -> Result<(), TxError> {
        let value = [padding(key), &root.to_le_bytes()];
        self.put_record(place, key, kind, &value, expiry, 0)
    }

    /// Sets a field. Returns whether the field is new.
    pub(super) fn set_in_table(
        &mut self,
        place: &Place,
        root: u64,
        field: &[u8],
        value: &[u8],
    ) -> Result<bool, TxError> {
        let lane = self.op.lane(place.lane);
        let Some(found) = find_field(lane, root, field) else {
            return self.add_to_table(place, root, field, value).map(|()| true);
        };
        if found.expires() {
            return self.replace_expiring(place, root, &found, field, value, false);
        }
        let header = Header::of(field, FIELD_DB, RecordKind::Field, value.len() as u64, 0);
        if self.overwrite_value(place.lane, found.record(), &header, value)? {
            return Ok(false);
        }
        let heat = self.op.lane(place.lane).heat_of_successor(found.record());
        let record = self.write(place.lane, header, field, &[value], 0, heat)?;
        self.store_word(place.lane, found.at, found.replaced(record, &header))?;
        self.op.free(found.record());
        Ok(false)
    }

    /// Writes the value of a field without an expiry over the old one, if both are equally long.
    /// Returns whether it was written.
    fn overwrite_value(
        &mut self,
        lane: LaneId,
        record: u64,
        header: &Header,
        value: &[u8],
    ) -> Result<bool, TxError> {
        let is_alike = self.op.lane(lane).load(record) == header.first_word();
        if !is_alike || value.is_empty() {
            return Ok(value.is_empty() && is_alike);
        }
        let at = record + header.value_at();
        let done = self.op.try_overwrite(lane, at, std::iter::once(value));
        done.map_err(|stop| self.stop(stop))
    }

    /// Adds a field that the table does not have.
    pub(super) fn add_to_table(
        &mut self,
        place: &Place,
        root: u64,
        field: &[u8],
        value: &[u8],
    ) -> Result<(), TxError> {
        self.add_field(place, root, field, value, 0).map(drop)
    }

    /// Adds a field that the table does not have, with an expiry unless that is 0, and returns its
    /// record. A field with an expiry belongs in the tree, too.
    pub(super) fn add_field(
        &mut self,
        place: &Place,
        root: u64,
        field: &[u8],
        value: &[u8],
        at_ms: u64,
    ) -> Result<u64, TxError> {
        let header = Header::of(field, FIELD_DB, RecordKind::Field, value.len() as u64, at_ms);
        let record = self.write(place.lane, header, field, &[value], 0, Heat::COLD)?;
        fields::enter(&mut self.op, place.lane, root, None, field, (record, &header))
            .map_err(|stop| self.stop(stop))?;
        Ok(record)
    }

    /// Removes a field, and with the last field the key. Returns whether the field was there.
    pub(super) fn delete_from_table(
        &mut self,
        place: &Place,
        key: Key<'_>,
        root: u64,
        field: &[u8],
    ) -> Result<bool, TxError> {
        let lane = self.op.lane(place.lane);
        let Some(found) = find_field(lane, root, field) else { return Ok(false) };
        if found.expires() && self.is_field_over(place, &found) {
            return Ok(false);
        }
        if table::stored_len(lane, root) == 1 {
            return self.delete(key);
        }
        self.touch(key);
        if found.expires() {
            self.leave_tree(place, root, &found)?;
        }
        let planted = self.store.region().planted();
        fields::leave(&mut self.op, place.lane, root, &found, planted)
            .map_err(|stop| self.stop(stop))?;
        Ok(true)
    }
}
