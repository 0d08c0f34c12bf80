//! The records of keys: writing one, over the old one if they are alike, and removing one.

use perdura_slots::{Heat, LaneId};

use crate::api::{Expiry, Key};
use crate::entry::Entry;
use crate::error::TxError;
use crate::record::{self, Header, RecordKind, fill};
use crate::shard::Detached;
use crate::staging::{Halt, Staged, Stash};
use crate::store::Place;
use crate::table::{self, Found};
use crate::tx::{Tx, check_key, check_value};

impl Tx<'_> {
    /// Writes a record with `slack_bytes` of room behind the value, and makes the key's entry lead
    /// to the record.
    pub(super) fn put_record(
        &mut self,
        place: &Place,
        key: Key<'_>,
        kind: RecordKind,
        value: &[&[u8]],
        expiry: Expiry,
        slack_bytes: u64,
    ) -> Result<(), TxError> {
        self.touch(key);
        self.tell_if_new(place, key);
        self.write_record(place, key, kind, value, expiry, slack_bytes)?;
        // Last, because the count was asked for when the operation began, and is there by now.
        self.store.note_use(place);
        Ok(())
    }

    /// Writes a record as [`Tx::put_record`] does, for a value that nobody has changed.
    pub(crate) fn write_record(
        &mut self,
        place: &Place,
        key: Key<'_>,
        kind: RecordKind,
        value: &[&[u8]],
        expiry: Expiry,
        slack_bytes: u64,
    ) -> Result<(), TxError> {
        // Bucket, old record, new record and the ledger's entries of both lie in five places, and
        // likely none of them is in a cache.
        let value_len = value.iter().map(|part| part.len() as u64).sum::<u64>();
        // An expiry that is kept is not known yet; most keys have none.
        let likely_expiry = if let Expiry::AtMs(at_ms) = expiry { at_ms } else { 0 };
        let likely = Header::of(key.bytes, key.db, kind, value_len, likely_expiry);
        self.op.lane(place.lane).prefetch_alloc(likely.len_bytes() + slack_bytes);
        let found = self.find_to_replace(place, key, likely.len_bytes());
        let expire_at_ms = match (expiry, &found) {
            (Expiry::None, _) | (Expiry::Keep, None) => 0,
            (Expiry::AtMs(at_ms), _) => at_ms.max(1),
            (Expiry::Keep, Some(found)) if !found.expires() => 0,
            (Expiry::Keep, Some(found)) if !self.is_live(place, found) => 0,
            (Expiry::Keep, Some(found)) => self.raw(place, found).header.expire_at_ms,
        };
        check_key(key.bytes)?;
        check_value(value_len)?;
        let header = match expire_at_ms == likely_expiry {
            true => likely,
            false => Header::of(key.bytes, key.db, kind, value_len, expire_at_ms),
        };
        if let Some(found) = &found
            && slack_bytes == 0
        {
            if let ([packed], true) = (value, kind.is_packed())
                && self.reshape(place, found, &header, packed)?
            {
                return Ok(());
            }
            if self.rewrite(place, found, &header, key, value)?
                || self.overwrite(place, found, &header, key, value)?
            {
                return Ok(());
            }
        }
        let heat = found
            .map_or(Heat::COLD, |found| self.op.lane(place.lane).heat_of_successor(found.record()));
        let record = self.write(place.lane, header, key.bytes, value, slack_bytes, heat)?;
        let expires = header.expires();
        match found {
            Some(found) => {
                self.link(place.lane, key, found.at, found.replaced(record, &header))?;
                self.free_record(place.lane, found.record());
                if kind == RecordKind::Far {
                    // A new record may have the old one's address, with another expiry.
                    self.freed_far.retain(|(_, at)| value != [&at.encode()[..]]);
                }
                let change = i8::from(expires) - i8::from(found.expires());
                if change != 0 {
                    self.count(place, 0, change, None)?;
                }
            }
            None => {
                let entry = table::entry(place.hash, record, &header);
                let inserted =
                    table::insert(&mut self.op, place.lane, place.root, None, place.hash, entry);
                inserted.map_err(|stop| self.stop(stop))?;
                self.count(place, 1, i8::from(expires), Some(key.bytes))?;
            }
        }
        Ok(())
    }

    /// Writes a record that this operation has written once more where it lies, if the slot is the
    /// right one and the key's entry stays as it is: no committed reference leads there, so nothing
    /// is logged, however often the operation does it. Returns whether the record was written.
    fn rewrite(
        &mut self,
        place: &Place,
        found: &Found,
        header: &Header,
        key: Key<'_>,
        value: &[&[u8]],
    ) -> Result<bool, TxError> {
        let record = found.record();
        if !self.op.is_fresh(record) || self.session.is_movers {
            return Ok(false);
        }
        let lane = self.op.lane(place.lane);
        let before = Header::load(lane, record);
        let leads = |header: &Header| header.leads_on() || header.kind == RecordKind::Far;
        let is_alike = before.is_short == header.is_short
            && found.expires() == header.expires()
            && !leads(&before)
            && !leads(header)
            && lane.is_slot_for(record, header.len_bytes());
        if !is_alike {
            return Ok(false);
        }
        match self.op.fill(place.lane, record, header.len_bytes() as usize, None) {
            Ok(bytes) => fill(bytes, header, key.bytes, value),
            Err(stop) => return Err(self.stop(stop)),
        }
        Ok(true)
    }

    /// Writes the value over the old one if both are equally long and nothing but the value and the
    /// expiry differs: neither the index nor the allocator changes then, and only one record's
    /// memory is used. Returns whether the value was written.
    fn overwrite(
        &mut self,
        place: &Place,
        found: &Found,
        header: &Header,
        key: Key<'_>,
        value: &[&[u8]],
    ) -> Result<bool, TxError> {
        let (lane, record) = (self.op.lane(place.lane), found.record());
        let is_alike = lane.load(record) == header.first_word()
            && found.expires() == header.expires()
            && !header.leads_on()
            // Who moves values wants another record.
            && !self.session.is_movers;
        if !is_alike || !self.session.staged.is_empty() {
            return Ok(false);
        }
        let at_expiry = record + Header::AT_EXPIRY;
        let values = value.iter().copied();
        let done = if header.is_short || lane.load(at_expiry) == header.expire_at_ms {
            self.op.try_overwrite(place.lane, record + header.value_at(), values)
        } else {
            let expiry = header.expire_at_ms.to_le_bytes();
            let parts = [&expiry[..], key.bytes].into_iter().chain(values);
            self.op.try_overwrite(place.lane, at_expiry, parts)
        };
        done.map_err(|stop| self.stop(stop))
    }

    /// Makes a record hold another packed value by writing only what differs, if nothing else of
    /// the record differs, and the slot is the right one for the new length. Returns whether it was
    /// done. Where a committed reference leads to the record, only a part of the value may differ,
    /// because the old bytes are logged, and the value may not become shorter: what is written
    /// behind a value's end is not logged, so it must not have been the value before.
    fn reshape(
        &mut self,
        place: &Place,
        found: &Found,
        header: &Header,
        new: &[u8],
    ) -> Result<bool, TxError> {
        let (lane, record) = (self.op.lane(place.lane), found.record());
        let before = Header::load(lane, record);
        let after = Header { value_len: header.value_len, ..before };
        let is_alike = before.kind == header.kind
            && before.expire_at_ms == header.expire_at_ms
            && lane.is_slot_for(record, after.len_bytes())
            && !self.session.is_movers;
        if !is_alike {
            return Ok(false);
        }
        let old = lane.bytes(record + before.value_at(), before.value_len as usize);
        let from = common_prefix(old, new);
        let is_as_long = old.len() == new.len();
        let behind = if is_as_long { common_suffix(&old[from..], &new[from..]) } else { 0 };
        let (old_end, changed) = (old.len() - behind, &new[from..new.len() - behind]);
        let at = record + before.value_at() + from as u64;
        if changed.len() as u64 > self.store.piece_bytes_max() {
            return Ok(false);
        }
        if self.op.is_fresh(record) {
            self.refill(place.lane, record, &after.first_word().to_le_bytes())?;
            return self.refill(place.lane, at, changed).map(|()| true);
        }
        if new.len() < old_end || changed.len() * 2 > new.len() {
            return Ok(false);
        }
        if from < old_end {
            let stored = self.op.overwrite(place.lane, at, &new[from..old_end]);
            stored.map_err(|stop| self.stop(stop))?;
        }
        if is_as_long {
            return Ok(true);
        }
        self.extend(place, found, before, &new[old_end..])
    }

    /// Fills a part of a record that this operation wrote.
    fn refill(&mut self, lane: LaneId, at: u64, bytes: &[u8]) -> Result<(), TxError> {
        match self.op.fill(lane, at, bytes.len(), None) {
            Ok(place) => place.copy_from_slice(bytes),
            Err(stop) => return Err(self.stop(stop)),
        }
        Ok(())
    }

    /// Writes bytes behind a value in memory, if its slot has room for them. Returns whether they
    /// were written.
    pub(super) fn extend(
        &mut self,
        place: &Place,
        found: &Found,
        header: Header,
        tail: &[u8],
    ) -> Result<bool, TxError> {
        let (record, tail_bytes) = (found.record(), tail.len() as u64);
        let slot_bytes = self.op.lane(place.lane).usable_bytes(record);
        let fits = header.len_bytes() + tail_bytes <= slot_bytes;
        if !fits || tail_bytes > self.store.piece_bytes_max() {
            return Ok(false);
        }
        // First the bytes, which nobody can see; then the length, in one store.
        let filled = self.op.fill(place.lane, record + header.len_bytes(), tail.len(), None);
        match filled {
            Ok(bytes) => bytes.copy_from_slice(tail),
            Err(stop) => return Err(self.stop(stop)),
        }
        let value_len = header.value_len + tail.len() as u32;
        self.store_word(place.lane, record, Header { value_len, ..header }.first_word())?;
        Ok(true)
    }

    /// Writes a record to which no reference leads yet, or finds the record staged.
    pub(super) fn write(
        &mut self,
        lane: LaneId,
        header: Header,
        key: &[u8],
        value: &[&[u8]],
        slack_bytes: u64,
        heat: Heat,
    ) -> Result<u64, TxError> {
        let capacity = header.len_bytes() + slack_bytes;
        if !self.session.staged.is_empty()
            && let Some(staged) = self.take_staged(lane, capacity, &header, key, value)?
        {
            return Ok(staged);
        }
        // One that is larger than the memory is refused below, before it is gathered.
        let may_fit = capacity <= self.store.region().len_bytes();
        if may_fit && header.len_bytes() > self.store.stage_above_bytes(self.session) {
            let mut bytes = Vec::with_capacity(header.len_bytes() as usize);
            bytes.extend_from_slice(&header.encode()[..header.head_bytes() as usize]);
            bytes.extend_from_slice(key);
            value.iter().for_each(|part| bytes.extend_from_slice(part));
            self.halt.get_or_insert(Halt::Stage(Stash { lane, capacity, bytes }));
            return Err(TxError::Again);
        }
        let record = record::write(&mut self.op, lane, capacity, (&header, key, value), heat)
            .map_err(|stop| self.stop(stop))?;
        let written = Staged { lane, offset: record, capacity, used: false };
        match self.first_written {
            None => self.first_written = Some(written),
            Some(_) => self.written.push(written),
        }
        Ok(record)
    }

    /// Finds a staged record with this header, key and value.
    fn take_staged(
        &mut self,
        lane: LaneId,
        capacity: u64,
        header: &Header,
        key: &[u8],
        value: &[&[u8]],
    ) -> Result<Option<u64>, TxError> {
        let mut parts = Vec::with_capacity(1 + value.len());
        parts.push(key);
        parts.extend_from_slice(value);
        let found = self.session.take(self.op.lane(lane), capacity, header, &parts);
        let Some(record) = found else { return Ok(None) };
        let at = record + Header::AT_EXPIRY;
        if !header.is_short && self.op.lane(lane).load(at) != header.expire_at_ms {
            match self.op.fill(lane, at, 8, None) {
                Ok(word) => word.copy_from_slice(&header.expire_at_ms.to_le_bytes()),
                Err(stop) => return Err(self.stop(stop)),
            }
        }
        Ok(Some(record))
    }

    /// Removes an entry and everything that its record leads to.
    pub(crate) fn remove(
        &mut self,
        place: &Place,
        key: Key<'_>,
        found: Found,
    ) -> Result<(), TxError> {
        self.unlink(place, key, &found)?;
        self.free_record(place.lane, found.record());
        Ok(())
    }

    /// Removes an entry, and leaves its record and what that leads to.
    pub(super) fn unlink(
        &mut self,
        place: &Place,
        key: Key<'_>,
        found: &Found,
    ) -> Result<(), TxError> {
        self.settle(key);
        self.note_change(key, true);
        self.tell_if_over(place, key, found);
        self.link(place.lane, key, found.at, 0)?;
        self.count(place, -1, -i8::from(found.expires()), Some(key.bytes))
    }

    /// Frees a record on commit. What it leads to is detached, and freed piece by piece.
    pub(super) fn free_record(&mut self, lane: LaneId, record: u64) {
        let header = Header::load(self.op.lane(lane), record);
        if header.leads_on() || header.kind == RecordKind::Far {
            let entry = Entry::of(self.op.lane(lane), record, header);
            let (table, far) = (Detached::of(&entry), entry.far());
            self.detached.extend(table.map(|table| (lane, table)));
            self.freed_far.extend(far.map(|at| (lane, at)));
        }
        self.op.free(record);
    }
}

/// Bytes that two values have in common from their beginning on. A piece of 64 bytes is compared
/// without a call of a function, and a large value costs fewest calls in larger pieces.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    fn whole<const N: usize>(a: &[u8], b: &[u8], from: usize) -> usize {
        let pairs = a[from..].as_chunks::<N>().0.iter().zip(b[from..].as_chunks::<N>().0);
        from + pairs.take_while(|(a, b)| a == b).count() * N
    }
    let from = whole::<64>(a, b, whole::<256>(a, b, 0));
    whole::<1>(a, b, whole::<8>(a, b, from))
}

/// Bytes that two equally long values have in common up to their end, found as in
/// [`common_prefix`].
fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    fn whole<const N: usize>(a: &[u8], b: &[u8], behind: usize) -> usize {
        let (a, b) = (&a[..a.len() - behind], &b[..b.len() - behind]);
        let pairs = a.as_rchunks::<N>().1.iter().rev().zip(b.as_rchunks::<N>().1.iter().rev());
        behind + pairs.take_while(|(a, b)| a == b).count() * N
    }
    let behind = whole::<64>(a, b, whole::<256>(a, b, 0));
    whole::<1>(a, b, whole::<8>(a, b, behind))
}

/// The bytes between a key and the root that its record has, which begins at a multiple of 8.
pub(super) fn padding(key: Key<'_>) -> &'static [u8] {
    let value_at = Header::BYTES as usize + key.bytes.len();
    &[0; 8][..value_at.next_multiple_of(8) - value_at]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_values_have_in_common_is_found_to_the_byte() {
        let value: Vec<u8> = (0..700).map(|at| (at % 251) as u8).collect();
        for len in (0..value.len()).filter(|len| len % 64 < 10) {
            let old = &value[..len];
            assert_eq!((common_prefix(old, old), common_suffix(old, old)), (len, len));
            assert_eq!((common_prefix(old, &value), common_prefix(&value, old)), (len, len));
            for at in 0..len {
                let mut new = old.to_vec();
                new[at] = 255;
                let found = (common_prefix(old, &new), common_suffix(&new, old));
                assert_eq!(found, (at, len - 1 - at), "{len} bytes");
            }
        }
    }
}
