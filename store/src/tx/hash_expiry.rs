//! Operations on when fields of a hash expire.

use perdura_region::Planted;

use crate::api::{Expiry, Key};
use crate::building::{IN_TABLE_BYTES, Whole, weight};
use crate::error::TxError;
use crate::events::EventClass;
use crate::expiring::{self, FIELD_EXPIRY_MAX_MS};
use crate::fields::{FIELD_DB, find_field};
use crate::members;
use crate::packed;
use crate::record::{Header, RecordKind};
use crate::store::Place;
use crate::table::{self, Found};
use crate::tree::{self, Item};
use crate::tx::records::padding;
use crate::tx::{Tx, check_key, check_value};

/// A field, its value, and when it expires, in milliseconds since 1970.
pub(crate) type FieldWithExpiry = (Vec<u8>, Vec<u8>, Option<u64>);

impl Tx<'_> {
    /// When a field expires, in milliseconds since 1970: `Some(None)` for never, `None` if there is
    /// no such field or key.
    ///
    /// # Errors
    /// The key holds another kind of value.
    pub fn hash_expiry(&self, key: Key<'_>, field: &[u8]) -> Result<Option<Option<u64>>, TxError> {
        let Some(entry) = self.hash(key)? else { return Ok(None) };
        if !entry.has_table() {
            return Ok(packed::get(entry.value(), field).map(|_| None));
        }
        let found = find_field(entry.lane, entry.table_root(), field);
        Ok(found.and_then(|found| {
            if !found.expires() {
                return Some(None);
            }
            let at_ms = entry.lane.load(found.record() + Header::AT_EXPIRY);
            (at_ms > entry.now_ms()).then_some(Some(at_ms))
        }))
    }

    /// Sets or removes the time at which a field goes away. Returns whether there is such a field.
    /// The time must be in the future and not behind [`FIELD_EXPIRY_MAX_MS`].
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn hash_set_expiry(
        &mut self,
        key: Key<'_>,
        field: &[u8],
        at_ms: Option<u64>,
    ) -> Result<bool, TxError> {
        let Some(old_ms) = self.hash_expiry(key, field)? else { return Ok(false) };
        if old_ms == at_ms {
            return Ok(true);
        }
        if let Some(at_ms) = at_ms {
            assert!(at_ms > 0 && at_ms <= FIELD_EXPIRY_MAX_MS, "a field that expires at {at_ms}");
        }
        let place = self.place(key);
        self.touch(key);
        let root = self.expiring_root(&place, key)?;
        let lane = self.op.lane(place.lane);
        let Some(found) = find_field(lane, root, field) else { return Ok(false) };
        match (old_ms, at_ms) {
            (Some(old_ms), Some(new_ms)) => {
                let field = (old_ms, found.record());
                expiring::move_field(&mut self.op, place.lane, root, field, new_ms)
                    .map_err(|stop| self.stop(stop))?;
            }
            (Some(_), None) => {
                self.leave_tree(&place, root, &found)?;
                self.store_word(place.lane, found.record() + Header::AT_EXPIRY, 0)?;
                self.store_word(place.lane, found.at, found.expiring(false))?;
            }
            (None, Some(at_ms)) => self.begin_expiry(&place, root, &found, field, at_ms)?,
            (None, None) => {}
        }
        Ok(true)
    }

    /// Sets a field as [`Tx::hash_set`] does, but a field that is there keeps its expiry. Returns
    /// whether the field is new.
    ///
    /// # Errors
    /// The errors of [`Tx::hash_set`].
    pub fn hash_change(
        &mut self,
        key: Key<'_>,
        field: &[u8],
        value: &[u8],
    ) -> Result<bool, TxError> {
        let Some(Some(_)) = self.hash_expiry(key, field)? else {
            return self.hash_set(key, field, value);
        };
        check_value(value.len() as u64)?;
        let place = self.place(key);
        self.touch(key);
        let root = self.expiring_root(&place, key)?;
        let found = find_field(self.op.lane(place.lane), root, field);
        let Some(found) = found else { return Err(TxError::Again) };
        self.replace_expiring(&place, root, &found, field, value, true)
    }

    /// Makes the key a hash of these fields as [`Tx::hash_put`] does, of which some may expire.
    /// Fields that have expired already are left out.
    ///
    /// # Errors
    /// The errors of [`Tx::hash_put`].
    pub fn hash_put_expiring(
        &mut self,
        key: Key<'_>,
        fields: &[(Vec<u8>, Vec<u8>, Option<u64>)],
        expiry: Expiry,
    ) -> Result<(), TxError> {
        check_key(key.bytes)?;
        for (field, value, _) in fields {
            check_key(field)?;
            check_value(value.len() as u64)?;
        }
        let now_ms = self.now_ms();
        let live = fields.iter().filter(|(_, _, at_ms)| at_ms.is_none_or(|at_ms| at_ms > now_ms));
        let live: Vec<FieldWithExpiry> = live.cloned().collect();
        if live.iter().all(|(_, _, at_ms)| at_ms.is_none()) {
            let fields = live.iter().map(|(field, value, _)| (&field[..], &value[..]));
            return self.hash_put(key, fields, expiry);
        }
        let place = self.place(key);
        self.put_expiring(&place, key, &live, expiry)
    }

    /// Makes the key a hash with a table of these fields, whatever the key held.
    pub(super) fn put_expiring(
        &mut self,
        place: &Place,
        key: Key<'_>,
        fields: &[FieldWithExpiry],
        expiry: Expiry,
    ) -> Result<(), TxError> {
        let weight = weight(
            fields.iter().map(|(field, value, _)| field.len() + value.len()),
            IN_TABLE_BYTES,
        );
        let whole = |_: &Self| Ok(Whole::Hash(fields.to_vec()));
        if self.put_built(place, key, weight, whole, expiry)? {
            return Ok(());
        }
        if fields.iter().all(|(_, _, at_ms)| at_ms.is_none()) {
            let root = self.new_table(place)?;
            for (field, value, _) in fields {
                self.add_to_table(place, root, field, value)?;
            }
            return self.put_table(place, key, RecordKind::TableHash, root, expiry);
        }
        let root = members::new_root(&mut self.op, place.lane).map_err(|stop| self.stop(stop))?;
        let mut order = Vec::new();
        for (field, value, at_ms) in fields {
            let record = self.add_field(place, root, field, value, at_ms.unwrap_or(0))?;
            order.extend(at_ms.map(|at_ms| (at_ms, field, record)));
        }
        order.sort_unstable();
        let items =
            order.iter().map(|(at, _, record)| Item::of_member(expiring::score(*at), *record));
        let top = tree::build(&mut self.op, place.lane, items.collect());
        top.and_then(|top| members::store_top(&mut self.op, place.lane, root, top))
            .map_err(|stop| self.stop(stop))?;
        self.put_table(place, key, RecordKind::ExpiringHash, root, expiry)
    }

    /// Takes up to `most` expired fields out of a hash that has others left. Returns how many have
    /// gone.
    pub(crate) fn hash_purge(&mut self, key: Key<'_>, most: u64) -> Result<u64, TxError> {
        let place = self.place(key);
        let Some(entry) = self.look(key).filter(|entry| entry.has_expiring_fields()) else {
            return Ok(0);
        };
        let (root, now_ms) = (entry.table_root(), self.now_ms());
        // Nobody sees a difference: neither those who watch the key nor a snapshot need hear of it.
        let purged = expiring::purge(&mut self.op, place.lane, root, now_ms, most);
        let purged = purged.map_err(|stop| self.stop(stop))?;
        if purged > 0 {
            self.tell(EventClass::HASH, "hexpired", key);
        }
        Ok(purged)
    }

    /// Whether a field with a mark of expiry has expired.
    pub(super) fn is_field_over(&self, place: &Place, found: &Found) -> bool {
        expiring::is_over(self.op.lane(place.lane), found, self.now_ms())
    }

    /// Takes a field with an expiry out of the tree.
    pub(super) fn leave_tree(
        &mut self,
        place: &Place,
        root: u64,
        found: &Found,
    ) -> Result<(), TxError> {
        if self.store.region().planted().is(Planted::KeepFieldExpiry) {
            return Ok(());
        }
        let record = found.record();
        let at_ms = self.op.lane(place.lane).load(record + Header::AT_EXPIRY);
        expiring::leave(&mut self.op, place.lane, root, at_ms, record)
            .map_err(|stop| self.stop(stop))
    }

    /// Gives a field that has an expiry another value, and leaves the expiry if `keep`. Returns
    /// whether the field is new, because the old one had expired.
    pub(super) fn replace_expiring(
        &mut self,
        place: &Place,
        root: u64,
        found: &Found,
        field: &[u8],
        value: &[u8],
        keep: bool,
    ) -> Result<bool, TxError> {
        let was_over = self.is_field_over(place, found);
        let lane = self.op.lane(place.lane);
        let at_ms = if keep { lane.load(found.record() + Header::AT_EXPIRY) } else { 0 };
        let heat = lane.heat_of_successor(found.record());
        let header = Header::of(field, FIELD_DB, RecordKind::Field, value.len() as u64, at_ms);
        self.leave_tree(place, root, found)?;
        let record = self.write(place.lane, header, field, &[value], 0, heat)?;
        self.store_word(place.lane, found.at, found.replaced(record, &header))?;
        self.op.free(found.record());
        if keep {
            expiring::enter(&mut self.op, place.lane, root, at_ms, record)
                .map_err(|stop| self.stop(stop))?;
        }
        Ok(was_over)
    }

    /// Gives an expiry to a field that has none.
    fn begin_expiry(
        &mut self,
        place: &Place,
        root: u64,
        found: &Found,
        field: &[u8],
        at_ms: u64,
    ) -> Result<(), TxError> {
        let old = self.raw(place, found);
        let record = if old.header.is_short {
            // A short header has no room for an expiry, so the record is written anew.
            let (value, heat) = (old.value().to_vec(), old.lane.heat_of_successor(old.at));
            let header = Header::of(field, FIELD_DB, RecordKind::Field, value.len() as u64, at_ms);
            let record = self.write(place.lane, header, field, &[&value], 0, heat)?;
            self.store_word(place.lane, found.at, found.replaced(record, &header))?;
            self.op.free(found.record());
            record
        } else {
            self.store_word(place.lane, found.record() + Header::AT_EXPIRY, at_ms)?;
            self.store_word(place.lane, found.at, found.expiring(true))?;
            found.record()
        };
        expiring::enter(&mut self.op, place.lane, root, at_ms, record)
            .map_err(|stop| self.stop(stop))
    }

    /// The root of a hash that is there, which becomes one whose fields can expire if it is none.
    fn expiring_root(&mut self, place: &Place, key: Key<'_>) -> Result<u64, TxError> {
        let Some(entry) = self.hash(key)? else { return Err(TxError::Again) };
        match entry.header.kind {
            RecordKind::ExpiringHash => Ok(entry.table_root()),
            RecordKind::TableHash => self.move_root(place, key),
            _ => {
                let packed = entry.value().to_vec();
                let root = members::new_root(&mut self.op, place.lane);
                let root = root.map_err(|stop| self.stop(stop))?;
                for (field, value) in packed::iter(&packed) {
                    self.add_to_table(place, root, field, value)?;
                }
                self.put_table(place, key, RecordKind::ExpiringHash, root, Expiry::Keep)?;
                Ok(root)
            }
        }
    }

    /// Moves the root of a hash's table to where there is a word for a tree behind it. Buckets and
    /// fields stay where they are.
    fn move_root(&mut self, place: &Place, key: Key<'_>) -> Result<u64, TxError> {
        let Some(found) = self.find(place, key) else { return Err(TxError::Again) };
        let old = self.raw(place, &found);
        let (old_root, expire_at_ms) = (old.table_root(), old.header.expire_at_ms);
        let heat = old.lane.heat_of_successor(found.record());
        let words = table::root_words(old.lane, old_root);
        let bytes = members::SORTED_ROOT_BYTES;
        let root = self.op.alloc(place.lane, bytes).map_err(|stop| self.stop(stop))?;
        match self.op.fill(place.lane, root, bytes as usize, Some(heat)) {
            Ok(bytes) => {
                bytes.fill(0);
                for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
                    to.copy_from_slice(&word.to_le_bytes());
                }
            }
            Err(stop) => return Err(self.stop(stop)),
        }
        let padding = padding(key);
        let (kind, value_len) = (RecordKind::ExpiringHash, padding.len() as u64 + 8);
        let header = Header::of(key.bytes, key.db, kind, value_len, expire_at_ms);
        let value = [padding, &root.to_le_bytes()];
        let record = self.write(place.lane, header, key.bytes, &value, 0, heat)?;
        self.link(place.lane, key, found.at, found.replaced(record, &header))?;
        // Not what the old record leads to, which the new one leads to now.
        self.op.free(found.record());
        self.op.free(old_root);
        if !found.expires() {
            self.count(place, 0, 1, None)?;
        }
        Ok(root)
    }
}
