//! Steps of a scenario, which are drawn before they are run: store and oracle get the same steps.

use std::fmt;
use std::rc::Rc;

use perdura_store::{Access, Expiry, Store, StoreError, Tx, TxError};

use super::name::Name;

/// The expiry of a key, relative to the time of the step.
#[derive(Clone, Copy)]
pub(crate) enum Term {
    Never,
    Keep,
    /// So many milliseconds from now; a key with 0 is absent at once.
    In(u64),
}

impl Term {
    pub fn at(self, now_ms: u64) -> Expiry {
        match self {
            Self::Never => Expiry::None,
            Self::Keep => Expiry::Keep,
            Self::In(ms) => Expiry::AtMs(now_ms + ms),
        }
    }
}

/// A change of one key, or of two.
pub(crate) enum Change {
    Put(Name, Rc<[u8]>, Term),
    Delete(Name),
    Expire(Name, Term),
    Append(Name, Rc<[u8]>),
    Patch(Name, usize, Rc<[u8]>),
    Move { from: Name, to: Name, is_copy: bool },
    HashSet(Name, Vec<(Vec<u8>, Rc<[u8]>)>),
    HashDelete(Name, Vec<Vec<u8>>),
    SortedAdd(Name, Vec<(Vec<u8>, i32)>),
    SortedRemove(Name, Vec<Vec<u8>>),
}

/// One step.
pub(crate) enum Step {
    /// Changes in one transaction.
    Change(Vec<Change>),
    /// Changes in one transaction that is aborted at its end.
    Abort(Vec<Change>),
    /// Empties one database, or all.
    Empty(Option<u8>),
    /// Lets so many milliseconds pass, and deletes some expired keys.
    Tick(u64),
    /// Compares all contents and counts with the oracle.
    Look,
    Checkpoint,
    Group,
    /// Another battery, for about so many dirty bytes, and the budget that follows from it.
    SetBattery(u64),
    Grow(u64),
    Drill,
    /// Ends the process cleanly, and opens the image again.
    Reopen,
    /// Replaces the process by another that attaches to its memory and wants at least so many
    /// bytes of it.
    Attach(u64),
}

impl Step {
    /// Whether the step ends the process.
    pub fn ends_life(&self) -> bool {
        matches!(self, Self::Reopen | Self::Attach(_))
    }
}

impl Change {
    fn names(&self) -> (&Name, Option<&Name>) {
        match self {
            Self::Put(name, ..)
            | Self::Delete(name)
            | Self::Expire(name, _)
            | Self::Append(name, _)
            | Self::Patch(name, ..)
            | Self::HashSet(name, _)
            | Self::HashDelete(name, _)
            | Self::SortedAdd(name, _)
            | Self::SortedRemove(name, _) => (name, None),
            Self::Move { from, to, .. } => (from, Some(to)),
        }
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<(), TxError> {
        let now_ms = tx.now_ms();
        match self {
            Self::Put(name, bytes, term) => tx.put(name.key(), bytes, term.at(now_ms)),
            Self::Delete(name) => tx.delete(name.key()).map(drop),
            Self::Expire(name, term) => {
                let at_ms = match term.at(now_ms) {
                    Expiry::AtMs(at_ms) => Some(at_ms),
                    Expiry::None | Expiry::Keep => None,
                };
                tx.set_expiry(name.key(), at_ms).map(drop)
            }
            Self::Append(name, tail) => tx.append(name.key(), tail).map(drop),
            Self::Patch(name, offset, bytes) => {
                tx.patch(name.key(), *offset as u64, bytes).map(drop)
            }
            Self::Move { from, to, is_copy: true } => tx.copy(from.key(), to.key()).map(drop),
            Self::Move { from, to, is_copy: false } => tx.rename(from.key(), to.key()).map(drop),
            Self::HashSet(name, fields) => {
                let fields = fields.iter().map(|(field, value)| (&field[..], &value[..]));
                tx.hash_set_all(name.key(), fields).map(drop)
            }
            Self::HashDelete(name, fields) => {
                fields.iter().try_for_each(|field| tx.hash_delete(name.key(), field).map(drop))
            }
            Self::SortedAdd(name, members) => members.iter().try_for_each(|(member, score)| {
                tx.sorted_add(name.key(), member, f64::from(*score)).map(drop)
            }),
            Self::SortedRemove(name, members) => {
                members.iter().try_for_each(|member| tx.sorted_remove(name.key(), member).map(drop))
            }
        }
    }
}

/// Runs changes as one transaction.
pub(crate) fn run(store: &Store, changes: &[Change], aborts: bool) -> Result<(), StoreError> {
    let mut keys = Vec::new();
    for (name, other) in changes.iter().map(Change::names) {
        keys.push(name.key());
        keys.extend(other.map(Name::key));
    }
    store.run(Access::Keys(&keys), |tx| {
        changes.iter().try_for_each(|change| change.run(tx))?;
        if aborts { tx.abort("on purpose") } else { Ok(()) }
    })
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put(name, bytes, _) => write!(f, "put {name}, {} bytes", bytes.len()),
            Self::Delete(name) => write!(f, "delete {name}"),
            Self::Expire(name, _) => write!(f, "expire {name}"),
            Self::Append(name, tail) => write!(f, "append to {name}, {} bytes", tail.len()),
            Self::Patch(name, offset, bytes) => {
                write!(f, "patch {name} at {offset}, {} bytes", bytes.len())
            }
            Self::Move { from, to, is_copy: true } => write!(f, "copy {from} to {to}"),
            Self::Move { from, to, is_copy: false } => write!(f, "rename {from} to {to}"),
            Self::HashSet(name, fields) => write!(f, "hash-set {name}, {} fields", fields.len()),
            Self::HashDelete(name, fields) => {
                write!(f, "hash-delete {name}, {} fields", fields.len())
            }
            Self::SortedAdd(name, members) => {
                write!(f, "sorted-add {name}, {} members", members.len())
            }
            Self::SortedRemove(name, members) => {
                write!(f, "sorted-remove {name}, {} members", members.len())
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Change(changes) | Self::Abort(changes) => {
                f.write_str(if matches!(self, Self::Abort(_)) { "abort: " } else { "" })?;
                for (index, change) in changes.iter().enumerate() {
                    write!(f, "{}{change}", if index == 0 { "" } else { "; " })?;
                }
                Ok(())
            }
            Self::Empty(None) => f.write_str("flush-all"),
            Self::Empty(Some(db)) => write!(f, "flush-db {db}"),
            Self::Tick(ms) => write!(f, "{ms} ms pass"),
            Self::Look => f.write_str("compare"),
            Self::Checkpoint => f.write_str("checkpoint"),
            Self::Group => f.write_str("group commit"),
            Self::SetBattery(bytes) => write!(f, "a battery for {bytes} bytes"),
            Self::Grow(bytes) => write!(f, "grow to {bytes} bytes"),
            Self::Drill => f.write_str("drill"),
            Self::Reopen => f.write_str("reopen"),
            Self::Attach(bytes) => write!(f, "attach with {bytes} bytes"),
        }
    }
}
