//! Operations on sorted sets, which are packed in one record while small, and have a table by name
//! and a tree by score above.

use std::ops::Range;

use perdura_slots::{Heat, LaneId};

use crate::api::{Expiry, Key, Kind};
use crate::building::{IN_TABLE_BYTES, Whole, weight};
use crate::error::{TxError, WrongType};
use crate::fields::{FIELD_DB, find_field, find_or_room};
use crate::members;
use crate::packed::members as packed;
use crate::record::{Header, RecordKind};
use crate::sorted::Sorted;
use crate::store::Place;
use crate::table;
use crate::tree::{Item, order_of};
use crate::tx::{Tx, check_key};

/// A sorted set as it is stored: its packed members, or its root.
enum Form {
    Packed(Vec<u8>),
    Tree(u64),
}

impl Tx<'_> {
    /// Sets a member's score, and returns the score that the member had. A score of -0 becomes 0.
    ///
    /// # Errors
    /// The key holds another kind of value; the name is too long; the attempt is over.
    ///
    /// # Panics
    /// If the score is NaN.
    pub fn sorted_add(
        &mut self,
        key: Key<'_>,
        member: &[u8],
        score: f64,
    ) -> Result<Option<f64>, TxError> {
        assert!(!score.is_nan(), "a score that is no number");
        let score = members::plain(score);
        check_key(key.bytes)?;
        check_key(member)?;
        let place = self.place(key);
        let old = match self.sorted_form(key)? {
            Some(Form::Tree(root)) => return self.add_to_tree(&place, key, root, member, score),
            Some(Form::Packed(packed)) => packed,
            None => Vec::new(),
        };
        let old_score = packed::score(&old, member);
        if old_score == Some(score) {
            return Ok(old_score);
        }
        if let Some(new) = packed::with(&old, member, Some(score)) {
            self.put_record(&place, key, RecordKind::PackedSorted, &[&new], Expiry::Keep, 0)?;
            return Ok(old_score);
        }
        let mut members: Vec<_> = packed::iter(&old).filter(|(_, name)| *name != member).collect();
        members.push((score, member));
        let root = self.make_tree(place.lane, &mut members)?;
        self.put_table(&place, key, RecordKind::TreeSorted, root, Expiry::Keep)?;
        Ok(old_score)
    }

    /// Removes a member, and returns the score that the member had. With its last member the key
    /// goes, too.
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn sorted_remove(&mut self, key: Key<'_>, member: &[u8]) -> Result<Option<f64>, TxError> {
        let place = self.place(key);
        let old = match self.sorted_form(key)? {
            Some(Form::Tree(root)) => return self.remove_from_tree(&place, key, root, member),
            Some(Form::Packed(packed)) => packed,
            None => return Ok(None),
        };
        let old_score = packed::score(&old, member);
        if old_score.is_none() {
            return Ok(None);
        }
        match packed::with(&old, member, None) {
            Some(new) if !new.is_empty() => {
                let kind = RecordKind::PackedSorted;
                self.put_record(&place, key, kind, &[&new], Expiry::Keep, 0)?;
            }
            _ => {
                self.delete(key)?;
            }
        }
        Ok(old_score)
    }

    /// Removes the members of these ranks, as far as the set has as many, and returns how many were
    /// removed.
    ///
    /// # Errors
    /// The errors of [`Tx::sorted_remove`].
    pub fn sorted_remove_ranks(&mut self, key: Key<'_>, ranks: Range<u64>) -> Result<u64, TxError> {
        let Some(form) = self.sorted_form(key)? else { return Ok(0) };
        let place = self.place(key);
        let len = match &form {
            Form::Tree(root) => table::stored_len(self.op.lane(place.lane), *root),
            Form::Packed(packed) => packed::iter(packed).count() as u64,
        };
        let end = ranks.end.min(len);
        if ranks.start >= end {
            return Ok(0);
        }
        let count = end - ranks.start;
        if count == len {
            self.delete(key)?;
            return Ok(count);
        }
        match form {
            Form::Tree(root) => {
                self.touch(key);
                let done = members::leave_run(
                    &mut self.op,
                    place.lane,
                    root,
                    ranks.start,
                    count,
                    &mut |_| {},
                );
                done.map_err(|stop| self.stop(stop))?;
            }
            Form::Packed(old) => {
                let members = (0u64..).zip(packed::iter(&old));
                let rest = members.filter(|(rank, _)| !ranks.contains(rank)).map(|(_, rest)| rest);
                let rest = packed::pack(&rest.collect::<Vec<_>>());
                let Some(rest) = rest else { unreachable!("a part of what was packed is smaller") };
                let kind = RecordKind::PackedSorted;
                self.put_record(&place, key, kind, &[&rest], Expiry::Keep, 0)?;
            }
        }
        Ok(count)
    }

    /// Makes the key a sorted set of these members, whatever the key held. No two members may have
    /// the same name. Without members the key is removed.
    ///
    /// # Errors
    /// A name is too long; the attempt is over.
    pub fn sorted_put(
        &mut self,
        key: Key<'_>,
        members: &[(Vec<u8>, f64)],
        expiry: Expiry,
    ) -> Result<(), TxError> {
        let members = members.iter().map(|(name, score)| (name.as_slice(), *score));
        self.sorted_put_all(key, members, expiry)
    }

    /// Makes the key a sorted set of these members as [`Tx::sorted_put`] does.
    ///
    /// # Errors
    /// A name is too long; the attempt is over.
    pub fn sorted_put_all<'m>(
        &mut self,
        key: Key<'_>,
        members: impl Iterator<Item = (&'m [u8], f64)>,
        expiry: Expiry,
    ) -> Result<(), TxError> {
        check_key(key.bytes)?;
        let mut ordered: Vec<(f64, &[u8])> =
            members.map(|(name, score)| (members::plain(score), name)).collect();
        if ordered.is_empty() {
            return self.delete(key).map(drop);
        }
        ordered.iter().try_for_each(|(_, name)| check_key(name))?;
        let place = self.place(key);
        ordered.sort_unstable_by(|a, b| order_of(a.0, b.0).then_with(|| a.1.cmp(b.1)));
        if let Some(packed) = packed::pack(&ordered) {
            let kind = RecordKind::PackedSorted;
            return self.put_record(&place, key, kind, &[&packed], expiry, 0);
        }
        let weight = weight(ordered.iter().map(|(_, name)| name.len()), IN_TABLE_BYTES);
        let copied = |(score, name): &(f64, &[u8])| (*score, name.to_vec());
        let whole = |_: &Self| Ok(Whole::Sorted(ordered.iter().map(copied).collect()));
        if self.put_built(&place, key, weight, whole, expiry)? {
            return Ok(());
        }
        let root = self.make_tree(place.lane, &mut ordered)?;
        self.put_table(&place, key, RecordKind::TreeSorted, root, expiry)
    }

    /// The key's sorted set; `None` if there is no such key.
    ///
    /// # Errors
    /// The key holds another kind of value.
    pub fn sorted(&self, key: Key<'_>) -> Result<Option<Sorted<'_>>, TxError> {
        match self.get(key) {
            Some(entry) if entry.kind != Kind::Sorted => Err(WrongType.into()),
            other => Ok(other.and_then(|entry| entry.sorted())),
        }
    }

    /// Copies a large sorted set, member by member.
    pub(crate) fn copy_sorted(
        &mut self,
        from: Key<'_>,
        to: Key<'_>,
        expiry: Expiry,
    ) -> Result<bool, TxError> {
        let mut members = Vec::new();
        if let Some(sorted) = self.sorted(from)? {
            sorted.for_each(0..u64::MAX, false, &mut |name, score| {
                members.push((name.to_vec(), score));
            });
        }
        self.sorted_put(to, &members, expiry)?;
        Ok(true)
    }

    fn sorted_form(&self, key: Key<'_>) -> Result<Option<Form>, TxError> {
        match self.get(key) {
            None => Ok(None),
            Some(entry) => match entry.header.kind {
                RecordKind::PackedSorted => Ok(Some(Form::Packed(entry.value().to_vec()))),
                RecordKind::TreeSorted => Ok(Some(Form::Tree(entry.table_root()))),
                _ => Err(WrongType.into()),
            },
        }
    }

    /// Makes a root for these members, to which no reference leads yet.
    fn make_tree(&mut self, lane: LaneId, members: &mut [(f64, &[u8])]) -> Result<u64, TxError> {
        members.sort_unstable_by(|a, b| order_of(a.0, b.0).then_with(|| a.1.cmp(b.1)));
        let root = members::new_root(&mut self.op, lane).map_err(|stop| self.stop(stop))?;
        let mut items = Vec::with_capacity(members.len());
        for (score, name) in members.iter() {
            let (record, header) = self.write_member(lane, name, *score)?;
            let entered =
                members::enter_in_table(&mut self.op, lane, root, None, name, (record, &header));
            entered.map_err(|stop| self.stop(stop))?;
            items.push(Item::of_member(*score, record));
        }
        let made = members::build(&mut self.op, lane, root, items);
        made.map_err(|stop| self.stop(stop)).map(|()| root)
    }

    /// Writes a member's record, to which no reference leads yet.
    fn write_member(
        &mut self,
        lane: LaneId,
        member: &[u8],
        score: f64,
    ) -> Result<(u64, Header), TxError> {
        let header = Header::of(member, FIELD_DB, RecordKind::Member, 0, score.to_bits());
        let record = self.write(lane, header, member, &[], 0, Heat::COLD)?;
        Ok((record, header))
    }

    fn add_to_tree(
        &mut self,
        place: &Place,
        key: Key<'_>,
        root: u64,
        member: &[u8],
        score: f64,
    ) -> Result<Option<f64>, TxError> {
        let id = place.lane;
        let record = match find_or_room(self.op.lane(id), root, member) {
            Ok(found) => found.record(),
            Err(room) => {
                self.touch(key);
                let (record, header) = self.write_member(id, member, score)?;
                let done = members::enter(&mut self.op, id, root, room, member, (record, &header));
                return done.map_err(|stop| self.stop(stop)).map(|()| None);
            }
        };
        let old = f64::from_bits(self.op.lane(id).load(record + Header::AT_SCORE));
        if old == score {
            return Ok(Some(old));
        }
        self.touch(key);
        let done = members::move_member(&mut self.op, id, root, (old, record), score);
        done.map_err(|stop| self.stop(stop)).map(|()| Some(old))
    }

    fn remove_from_tree(
        &mut self,
        place: &Place,
        key: Key<'_>,
        root: u64,
        member: &[u8],
    ) -> Result<Option<f64>, TxError> {
        let lane = self.op.lane(place.lane);
        let Some(found) = find_field(lane, root, member) else { return Ok(None) };
        let record = found.record();
        let score = f64::from_bits(lane.load(record + Header::AT_SCORE));
        if table::stored_len(lane, root) == 1 {
            return self.delete(key).map(|_| Some(score));
        }
        self.touch(key);
        let done = members::leave(&mut self.op, place.lane, root, score, &found);
        done.map_err(|stop| self.stop(stop)).map(|()| Some(score))
    }
}
