//! Operations that change a string in part, and that copy or rename keys.

use perdura_region::Planted;

use crate::api::{Expiry, Key, Kind, VALUE_BYTES_MAX};
use crate::entry::Entry;
use crate::error::{TxError, WrongType};
use crate::list::Root;
use crate::record::{Header, RecordKind};
use crate::store::Place;
use crate::stream;
use crate::table::Found;
use crate::tx::records::padding;
use crate::tx::{Tx, check_value};

/// Zeros between the end of a string and a place behind it.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl Tx<'_> {
    /// Appends to a string, or makes one. Returns the new length of the value in bytes.
    ///
    /// # Errors
    /// The key holds another kind of value; the value would be too long; the attempt is over.
    pub fn append(&mut self, key: Key<'_>, tail: &[u8]) -> Result<u64, TxError> {
        let place = self.place(key);
        let Some((found, entry)) = self.string_at(&place, key)? else {
            self.put_record(&place, key, RecordKind::String, &[tail], Expiry::None, 0)?;
            return Ok(tail.len() as u64);
        };
        let (header, was_far) = (entry.header, entry.was_far());
        let new_len = u64::from(header.value_len) + tail.len() as u64;
        check_value(new_len)?;
        self.touch(key);
        if tail.is_empty() {
            return Ok(new_len);
        }
        let header = Header { kind: RecordKind::PatchedString, ..header };
        if !was_far && self.extend(&place, &found, header, tail)? {
            return Ok(new_len);
        }
        let Some(old) = self.entry(&place, &found).map(|entry| entry.value().to_vec()) else {
            return Err(TxError::Again);
        };
        // Room for as much again, so that a value is copied only when its length has doubled.
        let slack = new_len.min((VALUE_BYTES_MAX as u64).saturating_sub(new_len));
        let kind = RecordKind::PatchedString;
        self.put_record(&place, key, kind, &[&old, tail], Expiry::Keep, slack)?;
        Ok(new_len)
    }

    /// Overwrites a string from `offset` on; a gap is filled with zeros. Returns the new length of
    /// the value in bytes. Empty `bytes` change nothing.
    ///
    /// # Errors
    /// The key holds another kind of value; the value would be too long; the attempt is over.
    pub fn patch(&mut self, key: Key<'_>, offset: u64, bytes: &[u8]) -> Result<u64, TxError> {
        let place = self.place(key);
        let at = self.string_at(&place, key)?;
        let old_len = at.as_ref().map_or(0, |(_, entry)| u64::from(entry.header.value_len));
        if bytes.is_empty() {
            return Ok(old_len);
        }
        let end = offset.saturating_add(bytes.len() as u64);
        check_value(end)?;
        let in_place_max = (self.store.region().budget_bytes() / 16).min(64 << 10);
        if let Some((found, entry)) = &at
            && !entry.was_far()
            && end <= old_len
            && bytes.len() as u64 <= in_place_max
        {
            let from = found.record() + entry.header.value_at() + offset;
            let (record, header) = (found.record(), entry.header);
            self.touch(key);
            let done = self.op.overwrite(place.lane, from, bytes);
            done.map_err(|stop| self.stop(stop))?;
            if header.kind != RecordKind::PatchedString {
                let header = Header { kind: RecordKind::PatchedString, ..header };
                self.store_word(place.lane, record, header.first_word())?;
            }
            return Ok(old_len);
        }
        let old = match &at {
            Some((_, entry)) => entry.value().to_vec(),
            None => Vec::new(),
        };
        // The zeros between are never gathered, so that a value for which there is no room costs
        // nothing.
        let before = &old[..old.len().min(offset as usize)];
        let behind = old.get(end as usize..).unwrap_or_default();
        let mut value = vec![before];
        let mut zeros = offset as usize - before.len();
        while zeros > 0 {
            let piece = &ZEROS[..zeros.min(ZEROS.len())];
            value.push(piece);
            zeros -= piece.len();
        }
        value.extend([bytes, behind]);
        self.put_record(&place, key, RecordKind::PatchedString, &value, Expiry::Keep, 0)?;
        Ok(old_len.max(end))
    }

    /// Gives the key `from` the name `to`, with its value and expiry. The value that `to` had is
    /// removed. A large value stays where it is if both names belong to one shard. Returns whether
    /// there was such a key.
    ///
    /// # Errors
    /// The attempt is over; memory is used up.
    pub fn rename(&mut self, from: Key<'_>, to: Key<'_>) -> Result<bool, TxError> {
        if from == to {
            return Ok(self.has(from));
        }
        let (source, target) = (self.place(from), self.place(to));
        let Some(found) = self.find_live(&source, from) else { return Ok(false) };
        if source.lane == target.lane && self.raw(&source, &found).header.leads_on() {
            let expire_at_ms = self.raw(&source, &found).expire_at_ms;
            let expiry = expire_at_ms.map_or(Expiry::None, Expiry::AtMs);
            return self.relink(from, &target, to, expiry);
        }
        if !self.copy(from, to)? {
            return Ok(false);
        }
        self.delete(from)
    }

    /// Moves a value to another key of its shard. What its record leads to stays where it is.
    pub(crate) fn relink(
        &mut self,
        from: Key<'_>,
        target: &Place,
        to: Key<'_>,
        expiry: Expiry,
    ) -> Result<bool, TxError> {
        let source = self.place(from);
        let Some(found) = self.find(&source, from) else { return Ok(false) };
        let entry = self.raw(&source, &found);
        let (kind, value_at) = (entry.header.kind, entry.header.value_at() as usize);
        let value = if let Some(root) = entry.stream_root() {
            // The last chunk behind the root reaches beyond the value.
            let tail = root.tail(entry.lane).filter(|tail| tail.object.is_none());
            let inside = tail.map_or(&[][..], |tail| tail.bytes(entry.lane));
            [padding(to), &root.words().map(u64::to_le_bytes).concat(), inside].concat()
        } else if entry.header.leads_on() {
            let root = &entry.record_value()[value_at.next_multiple_of(8) - value_at..];
            [padding(to), root].concat()
        } else {
            entry.record_value().to_vec()
        };
        self.put_record(target, to, kind, &[&value], expiry, 0)?;
        // Its entry may have moved, for the other key may be new in the same table.
        let Some(found) = self.find(&source, from) else { return Err(TxError::Again) };
        self.unlink(&source, from, &found)?;
        match self.store.region().planted().is(Planted::FreeMoved) {
            true => self.free_record(source.lane, found.record()),
            false => self.op.free(found.record()),
        }
        Ok(true)
    }

    /// Copies value and expiry of `from` to `to`. The value that `to` had is removed. Returns
    /// whether there was such a key.
    ///
    /// # Errors
    /// The attempt is over; memory is used up.
    pub fn copy(&mut self, from: Key<'_>, to: Key<'_>) -> Result<bool, TxError> {
        let source = self.place(from);
        let Some(found) = self.find_live(&source, from) else { return Ok(false) };
        if from == to {
            return Ok(true);
        }
        let Some(entry) = self.entry(&source, &found) else { return Err(TxError::Again) };
        let expiry = entry.expire_at_ms.map_or(Expiry::None, Expiry::AtMs);
        let kind = entry.header.kind;
        let target = self.place(to);
        match kind {
            RecordKind::TableHash | RecordKind::ExpiringHash => {
                return self.copy_table(from, &target, to, expiry);
            }
            RecordKind::TableSet => return self.copy_set(from, &target, to, expiry),
            RecordKind::TreeSorted => return self.copy_sorted(from, to, expiry),
            RecordKind::LargeList => {
                let root = Root::of(&entry);
                return self.copy_list((from, &source), &root, &target, to, expiry);
            }
            RecordKind::Stream => {
                let root = stream::Root::of(&entry);
                return self.copy_stream((from, &source), &root, &target, to, expiry);
            }
            _ => {}
        }
        let value = entry.value().to_vec();
        self.put_record(&target, to, kind, &[&value], expiry, 0)?;
        Ok(true)
    }

    /// The record of a string that has not expired.
    fn string_at(
        &self,
        place: &Place,
        key: Key<'_>,
    ) -> Result<Option<(Found, Entry<'_>)>, TxError> {
        let Some(found) = self.find_live(place, key) else { return Ok(None) };
        let Some(entry) = self.entry(place, &found) else { return Err(TxError::Again) };
        if entry.kind != Kind::String {
            return Err(WrongType.into());
        }
        Ok(Some((found, entry)))
    }
}
