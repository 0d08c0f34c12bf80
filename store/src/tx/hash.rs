//! Operations on hashes, which are packed in one record while small, and have a table of their own
//! above.

use crate::api::{Expiry, Key, Kind};
use crate::building::{IN_TABLE_BYTES, Whole, weight};
use crate::entry::Entry;
use crate::error::{TxError, WrongType};
use crate::expiring;
use crate::fields::field_of;
use crate::packed;
use crate::record::RecordKind;
use crate::store::Place;
use crate::table;
use crate::tx::{Tx, check_key, check_value};

impl Tx<'_> {
    /// The value of a field; `None` if there is no such field or key.
    ///
    /// # Errors
    /// The key holds another kind of value.
    pub fn hash_get(&self, key: Key<'_>, field: &[u8]) -> Result<Option<&[u8]>, TxError> {
        Ok(self.hash(key)?.and_then(|entry| field_of(&entry, field)))
    }

    /// The number of fields; 0 if there is no such key.
    ///
    /// # Errors
    /// The key holds another kind of value.
    #[inline]
    pub fn hash_len(&self, key: Key<'_>) -> Result<u64, TxError> {
        Ok(self.hash(key)?.and_then(|entry| entry.hash_len()).unwrap_or(0))
    }

    /// Calls `f` with every field and its value.
    ///
    /// # Errors
    /// The key holds another kind of value.
    pub fn hash_for_each(
        &self,
        key: Key<'_>,
        f: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), TxError> {
        let mut cursor = 0;
        loop {
            cursor = self.hash_scan(key, cursor, usize::MAX, f)?;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// Calls `f` with about `count` fields, or with all of a small hash. Cursors are as in
    /// [`crate::Store::scan`].
    ///
    /// # Errors
    /// The key holds another kind of value.
    pub fn hash_scan(
        &self,
        key: Key<'_>,
        cursor: u64,
        count: usize,
        f: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, TxError> {
        let Some(entry) = self.hash(key)? else { return Ok(0) };
        if entry.header.kind == RecordKind::PackedHash {
            packed::iter(entry.value()).for_each(|(field, value)| f(field, value));
            return Ok(0);
        }
        let root = entry.table_root();
        let (mut bucket, mut met) = (cursor, 0);
        while bucket < table::buckets(entry.lane, root) {
            if met >= count.max(1) {
                return Ok(bucket);
            }
            expiring::for_each_live(entry.lane, root, bucket, entry.now_ms(), |record| {
                f(record.key(), record.value());
                met += 1;
            });
            bucket += 1;
        }
        Ok(0)
    }

    /// Sets a field, which then has no expiry. Returns whether the field is new.
    ///
    /// # Errors
    /// The key holds another kind of value; field or value are too long; the attempt is over.
    pub fn hash_set(&mut self, key: Key<'_>, field: &[u8], value: &[u8]) -> Result<bool, TxError> {
        self.hash_set_all(key, std::iter::once((field, value))).map(|new| new > 0)
    }

    /// Sets fields in this order, so that the later of two with the same name counts; they have no
    /// expiry then. Returns how many fields are new. A packed hash is written once, however many
    /// fields are set.
    ///
    /// # Errors
    /// The key holds another kind of value; field or value are too long; the attempt is over.
    pub fn hash_set_all<'f>(
        &mut self,
        key: Key<'_>,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    ) -> Result<u64, TxError> {
        check_key(key.bytes)?;
        for (field, value) in fields.clone() {
            check_key(field)?;
            check_value(value.len() as u64)?;
        }
        if fields.clone().next().is_none() {
            return Ok(0);
        }
        let place = self.place(key);
        let (mut packed, mut root) = match self.hash(key)? {
            None => (Vec::new(), None),
            Some(entry) if entry.has_table() => (Vec::new(), Some(entry.table_root())),
            Some(entry) => (entry.value().to_vec(), None),
        };
        let was_table = root.is_some();
        if was_table {
            self.touch(key);
        }
        let mut new_fields = 0;
        for (field, value) in fields {
            if root.is_none() {
                if let Some(is_new) = packed::set(&mut packed, field, value) {
                    new_fields += u64::from(is_new);
                    continue;
                }
                // The hash has outgrown its record: the fields it has so far go to a new table, to
                // which no reference leads yet.
                let table = self.new_table(&place)?;
                for (name, old) in packed::iter(&packed) {
                    self.set_in_table(&place, table, name, old)?;
                }
                root = Some(table);
            }
            if let Some(root) = root {
                new_fields += u64::from(self.set_in_table(&place, root, field, value)?);
            }
        }
        match root {
            None => {
                self.put_record(&place, key, RecordKind::PackedHash, &[&packed], Expiry::Keep, 0)?;
            }
            Some(root) if !was_table => {
                self.put_table(&place, key, RecordKind::TableHash, root, Expiry::Keep)?;
            }
            Some(_) => {}
        }
        Ok(new_fields)
    }

    /// Makes the key a hash of these fields, whatever the key held. No two fields may have the same
    /// name. Without fields the key is removed.
    ///
    /// # Errors
    /// Field or value are too long; the attempt is over.
    pub fn hash_put<'f>(
        &mut self,
        key: Key<'_>,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
        expiry: Expiry,
    ) -> Result<(), TxError> {
        check_key(key.bytes)?;
        for (field, value) in fields.clone() {
            check_key(field)?;
            check_value(value.len() as u64)?;
        }
        if fields.clone().next().is_none() {
            return self.delete(key).map(drop);
        }
        let place = self.place(key);
        if let Some(packed) = packed::pack(fields.clone()) {
            return self.put_record(&place, key, RecordKind::PackedHash, &[&packed], expiry, 0);
        }
        let weight =
            weight(fields.clone().map(|(field, value)| field.len() + value.len()), IN_TABLE_BYTES);
        let copied = |(field, value): (&[u8], &[u8])| (field.to_vec(), value.to_vec(), None);
        let whole = |_: &Self| Ok(Whole::Hash(fields.clone().map(copied).collect()));
        if self.put_built(&place, key, weight, whole, expiry)? {
            return Ok(());
        }
        let root = self.new_table(&place)?;
        for (field, value) in fields {
            self.add_to_table(&place, root, field, value)?;
        }
        self.put_table(&place, key, RecordKind::TableHash, root, expiry)
    }

    /// Removes a field, and with the last field the key. Returns whether the field was there.
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn hash_delete(&mut self, key: Key<'_>, field: &[u8]) -> Result<bool, TxError> {
        let place = self.place(key);
        let Some(entry) = self.hash(key)? else { return Ok(false) };
        if entry.has_table() {
            let root = entry.table_root();
            return self.delete_from_table(&place, key, root, field);
        }
        if packed::get(entry.value(), field).is_none() {
            return Ok(false);
        }
        let mut packed = entry.value().to_vec();
        packed::remove(&mut packed, field);
        if packed.is_empty() {
            return self.delete(key);
        }
        self.put_record(&place, key, RecordKind::PackedHash, &[&packed], Expiry::Keep, 0)?;
        Ok(true)
    }

    /// Copies a large hash, field by field, with the expiries that fields have.
    pub(crate) fn copy_table(
        &mut self,
        from: Key<'_>,
        target: &Place,
        to: Key<'_>,
        expiry: Expiry,
    ) -> Result<bool, TxError> {
        let mut fields = Vec::new();
        if let Some(entry) = self.hash(from)? {
            entry.for_each_expiring_field(&mut |field| {
                fields.push((field.name.to_vec(), field.value.to_vec(), field.expire_at_ms));
            });
        }
        self.put_expiring(target, to, &fields, expiry)?;
        Ok(true)
    }

    /// The key's hash; `None` if there is no such key.
    #[inline]
    pub(super) fn hash(&self, key: Key<'_>) -> Result<Option<Entry<'_>>, TxError> {
        match self.get(key) {
            Some(entry) if entry.kind != Kind::Hash => Err(WrongType.into()),
            other => Ok(other),
        }
    }
}
