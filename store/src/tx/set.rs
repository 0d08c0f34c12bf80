//! Operations on sets, which are packed in one record while small, and have a table of their own
//! above.

use crate::api::{Expiry, Key, Kind};
use crate::building::{IN_TABLE_BYTES, Whole, weight};
use crate::entry::Entry;
use crate::error::{TxError, WrongType};
use crate::fields::find_field;
use crate::packed::small::{Added, Small};
use crate::record::RecordKind;
use crate::set::Set;
use crate::store::Place;
use crate::table;
use crate::tx::{Tx, check_key};

/// A set that is being changed.
enum Form {
    Small(Small),
    /// The root of the table of members.
    Table(u64),
}

impl Tx<'_> {
    /// The key's set; `None` if there is no such key.
    ///
    /// # Errors
    /// The key holds another kind of value.
    pub fn set(&self, key: Key<'_>) -> Result<Option<Set<'_>>, TxError> {
        match self.get(key) {
            Some(entry) if entry.kind != Kind::Set => Err(WrongType.into()),
            other => Ok(other.and_then(|entry| entry.set())),
        }
    }

    /// Adds members, and returns how many of them are new. The record of a small set is written
    /// once, however many members are added; members behind all others are written behind them,
    /// where there is room.
    ///
    /// # Errors
    /// The key holds another kind of value; a name is too long; the attempt is over.
    pub fn set_add_all<'m>(
        &mut self,
        key: Key<'_>,
        members: impl Iterator<Item = &'m [u8]> + Clone,
    ) -> Result<u64, TxError> {
        check_key(key.bytes)?;
        members.clone().try_for_each(check_key)?;
        let place = self.place(key);
        let entry = self.get(key);
        let small_set = entry.filter(|entry| !entry.has_table()).and_then(|entry| entry.set());
        if small_set.is_some_and(|set| members.clone().all(|member| set.has(member))) {
            // Nothing is copied to find out that nothing is new.
            return Ok(0);
        }
        let small = match form_of(entry)? {
            Some(Form::Table(root)) => {
                self.settle(key);
                let mut added = 0;
                for member in members {
                    added += u64::from(self.add_new_to_table(&place, root, member)?);
                }
                if added > 0 {
                    self.touch(key);
                }
                return Ok(added);
            }
            Some(Form::Small(small)) => small,
            None => Small::empty(),
        };
        let (form, added) = self.grown(&place, small, members)?;
        match form {
            _ if added == 0 => {}
            Form::Table(root) => {
                self.put_table(&place, key, RecordKind::TableSet, root, Expiry::Keep)?;
            }
            Form::Small(small) => {
                self.put_record(&place, key, small.kind, &[&small.packed], Expiry::Keep, 0)?;
            }
        }
        Ok(added)
    }

    /// Removes members, and with the last member the key. Returns how many were there.
    ///
    /// # Errors
    /// The key holds another kind of value; the attempt is over.
    pub fn set_remove_all<'m>(
        &mut self,
        key: Key<'_>,
        members: impl Iterator<Item = &'m [u8]>,
    ) -> Result<u64, TxError> {
        let place = self.place(key);
        let mut removed = 0;
        let mut small = match form_of(self.get(key))? {
            None => return Ok(0),
            Some(Form::Small(small)) => small,
            Some(Form::Table(root)) => {
                let len = table::stored_len(self.op.lane(place.lane), root);
                for member in members {
                    removed += u64::from(self.delete_from_table(&place, key, root, member)?);
                    if removed == len {
                        // The key is gone, and the table with it.
                        break;
                    }
                }
                return Ok(removed);
            }
        };
        for member in members {
            removed += u64::from(small.remove(member));
        }
        if removed == 0 {
            return Ok(0);
        }
        if small.is_empty() {
            self.delete(key)?;
        } else {
            self.put_record(&place, key, small.kind, &[&small.packed], Expiry::Keep, 0)?;
        }
        Ok(removed)
    }

    /// Makes the key a set of these members, whatever the key held. Without members the key is
    /// removed.
    ///
    /// # Errors
    /// A name is too long; the attempt is over.
    pub fn set_put<'m>(
        &mut self,
        key: Key<'_>,
        members: impl Iterator<Item = &'m [u8]> + Clone,
        expiry: Expiry,
    ) -> Result<(), TxError> {
        check_key(key.bytes)?;
        if members.clone().next().is_none() {
            return self.delete(key).map(drop);
        }
        members.clone().try_for_each(check_key)?;
        let place = self.place(key);
        let weight = weight(members.clone().map(<[u8]>::len), IN_TABLE_BYTES);
        let whole = |_: &Self| Ok(Whole::Set(members.clone().map(<[u8]>::to_vec).collect()));
        if self.put_built(&place, key, weight, whole, expiry)? {
            return Ok(());
        }
        match self.grown(&place, Small::empty(), members)?.0 {
            Form::Small(small) => {
                self.put_record(&place, key, small.kind, &[&small.packed], expiry, 0)
            }
            Form::Table(root) => self.put_table(&place, key, RecordKind::TableSet, root, expiry),
        }
    }

    /// Copies a large set, member by member.
    pub(crate) fn copy_set(
        &mut self,
        from: Key<'_>,
        target: &Place,
        to: Key<'_>,
        expiry: Expiry,
    ) -> Result<bool, TxError> {
        let mut members = Vec::new();
        if let Some(set) = self.set(from)? {
            set.for_each(&mut |name| members.push(name.to_vec()));
        }
        let weight = weight(members.iter().map(Vec::len), IN_TABLE_BYTES);
        let whole = |_: &Self| Ok(Whole::Set(members.clone()));
        if self.put_built(target, to, weight, whole, expiry)? {
            return Ok(true);
        }
        let root = self.new_table(target)?;
        for member in members {
            self.add_to_table(target, root, &member, b"")?;
        }
        self.put_table(target, to, RecordKind::TableSet, root, expiry)?;
        Ok(true)
    }

    /// A small set with more members, and how many of these are new. A set that outgrows its record
    /// goes to a new table, to which no reference leads yet.
    fn grown<'m>(
        &mut self,
        place: &Place,
        mut small: Small,
        members: impl Iterator<Item = &'m [u8]>,
    ) -> Result<(Form, u64), TxError> {
        let (mut table, mut added) = (None, 0);
        let limits = self.store.small_sets();
        for member in members {
            let is_new = match table {
                Some(root) => self.add_new_to_table(place, root, member)?,
                None => match small.add(member, limits) {
                    Added::New => true,
                    Added::Known => false,
                    Added::TooLarge => {
                        let root = self.new_table(place)?;
                        let mut names = Vec::new();
                        small.for_each(&mut |name| names.push(name.to_vec()));
                        for name in names {
                            self.add_to_table(place, root, &name, b"")?;
                        }
                        table = Some(root);
                        self.add_new_to_table(place, root, member)?
                    }
                },
            };
            added += u64::from(is_new);
        }
        Ok((table.map_or(Form::Small(small), Form::Table), added))
    }

    /// Adds a member to a table, unless the table has it. Returns whether it is new.
    fn add_new_to_table(
        &mut self,
        place: &Place,
        root: u64,
        member: &[u8],
    ) -> Result<bool, TxError> {
        let is_new = find_field(self.op.lane(place.lane), root, member).is_none();
        if is_new {
            self.add_to_table(place, root, member, b"")?;
        }
        Ok(is_new)
    }
}

/// The set that an operation has found; `None` if there is no such key.
fn form_of(entry: Option<Entry<'_>>) -> Result<Option<Form>, TxError> {
    let Some(entry) = entry else { return Ok(None) };
    if entry.header.kind == RecordKind::TableSet {
        return Ok(Some(Form::Table(entry.table_root())));
    }
    match entry.kind {
        Kind::Set => Ok(Small::of(entry.header.kind, entry.value()).map(Form::Small)),
        _ => Err(WrongType.into()),
    }
}
