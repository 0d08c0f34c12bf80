//! Walks over keys that no argument names, alone and inside EXEC.
//!
//! Outside EXEC they walk the store. Inside EXEC the transaction holds the lock of every shard: the
//! names are collected when it begins, so that no other loop's key is missed, the transaction's own
//! keys are added, and each name is looked up in the transaction, which sees what EXEC did so far.

use perdura_store::{Access, DATABASES, Entry, Key, Store, Tx, TxError};

use super::call::Random;
use super::error::CommandError;

/// The names of keys in each database, sorted and unique.
pub(crate) type Names = Vec<Vec<Vec<u8>>>;

/// The keys of the store as a command sees them.
pub(crate) enum Keyspace<'s, 't> {
    Store(&'s Store),
    Tx { tx: &'s mut Tx<'t>, names: &'s Names },
}

impl Keyspace<'_, '_> {
    /// Counts the keys in a database.
    pub fn len(&self, db: u8) -> u64 {
        match self {
            Self::Store(store) => store.len(db),
            Self::Tx { tx, names } => {
                let present = |bytes: &&Vec<u8>| tx.has(Key { db, bytes });
                names[usize::from(db)].iter().filter(present).count() as u64
            }
        }
    }

    /// Makes one step of SCAN. Inside EXEC a cursor is a position among the names.
    pub fn scan(
        &self,
        db: u8,
        cursor: u64,
        count: usize,
        f: &mut dyn FnMut(&[u8], &Entry<'_>),
    ) -> u64 {
        match self {
            Self::Store(store) => store.scan(db, cursor, count, f),
            Self::Tx { tx, names } => {
                let names = &names[usize::from(db)];
                let from = usize::try_from(cursor).unwrap_or(usize::MAX).min(names.len());
                let end = from.saturating_add(count).min(names.len());
                for bytes in &names[from..end] {
                    if let Some(entry) = tx.look(Key { db, bytes }) {
                        f(bytes, &entry);
                    }
                }
                if end == names.len() { 0 } else { end as u64 }
            }
        }
    }

    /// Picks any key of a database.
    pub fn random(&self, db: u8, random: &Random) -> Option<Vec<u8>> {
        match self {
            Self::Store(store) => store.random_key(db),
            Self::Tx { tx, names } => {
                let names = &names[usize::from(db)];
                let start = random.below(names.len().max(1) as u64) as usize;
                let (before, after) = names.split_at(start.min(names.len()));
                let mut turned = after.iter().chain(before);
                turned.find(|bytes| tx.has(Key { db, bytes })).cloned()
            }
        }
    }

    /// Exchanges two databases.
    pub fn swap(&mut self, a: u8, b: u8) -> Result<(), CommandError> {
        match self {
            Self::Store(store) => {
                // The names are those of the moment: a key that came before the shards were held
                // would stay in its database.
                let swap = |tx: &mut Tx<'_>| {
                    let names = names(tx, &[]);
                    swap_names(tx, &names, a, b)
                };
                Ok(store.run(Access::Everything, swap)?)
            }
            Self::Tx { tx, names } => Ok(swap_names(tx, names, a, b)?),
        }
    }

    /// Empties one database, or all.
    pub fn flush(&mut self, db: Option<u8>) -> Result<(), CommandError> {
        match self {
            Self::Store(store) => match db {
                Some(db) => Ok(store.flush_db(db)?),
                None => Ok(store.flush_all()?),
            },
            Self::Tx { tx, .. } => match db {
                Some(db) => Ok(tx.clear(db)?),
                None => Ok((0..DATABASES).try_for_each(|db| tx.clear(db))?),
            },
        }
    }
}

/// Adds every name to every database, because SWAPDB is among the commands to be run.
pub(super) fn anywhere(names: &mut Names) {
    let mut all = names.concat();
    all.sort_unstable();
    all.dedup();
    names.fill(all);
}

/// Exchanges the keys of two databases. Every record names its database, so each record is written
/// anew, and the old one stays until all are written.
fn swap_names(tx: &mut Tx<'_>, names: &Names, a: u8, b: u8) -> Result<(), TxError> {
    let unused = unused_name(tx, names, a);
    let aside = Key { db: a, bytes: &unused };
    let mut all: Vec<&Vec<u8>> = [a, b].iter().flat_map(|db| &names[usize::from(*db)]).collect();
    all.sort_unstable();
    all.dedup();
    tx.untold(|tx| all.into_iter().try_for_each(|bytes| swap_name(tx, bytes, (a, b), aside)))
}

/// Exchanges the keys of this name in two databases.
fn swap_name(
    tx: &mut Tx<'_>,
    bytes: &[u8],
    (a, b): (u8, u8),
    aside: Key<'_>,
) -> Result<(), TxError> {
    let (in_a, in_b) = (Key { db: a, bytes }, Key { db: b, bytes });
    match (tx.has(in_a), tx.has(in_b)) {
        (true, true) => {
            tx.rename(in_a, aside)?;
            tx.rename(in_b, in_a)?;
            tx.rename(aside, in_b)?;
        }
        (true, false) => {
            tx.rename(in_a, in_b)?;
        }
        (false, true) => {
            tx.rename(in_b, in_a)?;
        }
        (false, false) => {}
    }
    Ok(())
}

/// Finds a name that no key of the database has.
fn unused_name(tx: &Tx<'_>, names: &Names, db: u8) -> Vec<u8> {
    let taken = |name: &Vec<u8>| {
        names[usize::from(db)].binary_search(name).is_ok() || tx.has(Key { db, bytes: name })
    };
    let mut name = b"swapdb".to_vec();
    while taken(&name) {
        name.push(b'-');
    }
    name
}

/// The names of every key that there is now, and those of `keys`. The transaction holds all shards.
pub(super) fn names(tx: &Tx<'_>, keys: &[Key<'_>]) -> Names {
    let mut all: Names = vec![Vec::new(); usize::from(DATABASES)];
    for (db, names) in (0..DATABASES).zip(&mut all) {
        tx.each_name(db, &mut |name| names.push(name.to_vec()));
        names.extend(keys.iter().filter(|k| k.db == db).map(|k| k.bytes.to_vec()));
        names.sort_unstable();
        names.dedup();
    }
    all
}
