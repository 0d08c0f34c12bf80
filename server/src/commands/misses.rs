//! Events of reads that find nothing (`keymiss`).

use perdura_store::{Access, EventClass, Key, StoreError, Tx};

use super::context::Server;
use super::facts::access::{ACCESS, RO, RW};
use super::facts::{KeyAt, keys_of};
use crate::resp::Args;

/// Commands that read a key before they write it, so that its absence is told of.
const READ_FIRST: [&str; 5] = ["getdel", "getex", "getset", "pfmerge", "set"];

/// Commands that look at their keys without reading them.
const SILENT: [&str; 6] = [
    "memory|usage",
    "object|encoding",
    "object|freq",
    "object|idletime",
    "object|refcount",
    "pfdebug",
];

/// Tells of each key that the command is about to read and that is not there, if somebody wants to
/// know. Redis stops at the first key that it cannot use; here all are told of.
#[inline]
pub(super) fn tell(server: &Server<'_>, args: Args<'_>, db: u8, tx: &mut Tx<'_>) {
    if server.store.is_wanted(EventClass::MISS) {
        tell_each(&read_keys(server, args), args, db, tx);
    }
}

/// Tells the same of a command that runs without a transaction.
///
/// # Errors
/// The store's: the transaction has failed.
#[inline]
pub(super) fn tell_alone(server: &Server<'_>, args: Args<'_>, db: u8) -> Result<(), StoreError> {
    if !server.store.is_wanted(EventClass::MISS) {
        return Ok(());
    }
    let indices = read_keys(server, args);
    let keys: Vec<_> = indices.iter().map(|at| Key { db, bytes: args.get(*at) }).collect();
    server.store.run(Access::Keys(&keys), |tx| {
        tell_each(&indices, args, db, tx);
        Ok(())
    })
}

fn tell_each(indices: &[usize], args: Args<'_>, db: u8, tx: &mut Tx<'_>) {
    for at in indices {
        let key = Key { db, bytes: args.get(*at) };
        if !tx.has(key) {
            tx.tell(EventClass::MISS, "keymiss", key);
        }
    }
}

/// The arguments that are keys whose absence is told of.
fn read_keys(server: &Server<'_>, args: Args<'_>) -> Vec<usize> {
    let Ok((row, spec)) = server.index.resolve(args) else { return Vec::new() };
    if SILENT.contains(&spec.name) {
        return Vec::new();
    }
    let is_read = |key: &KeyAt| {
        let reads_first = key.access & RW != 0 && READ_FIRST.contains(&spec.name);
        key.access & RO != 0 || (reads_first && key.access & ACCESS != 0)
    };
    let keys = keys_of(server.index.facts(row), args).unwrap_or_default();
    keys.iter().filter(|key| is_read(key)).map(|key| key.at).collect()
}
