//! Named roots: where a program finds its data again.
//!
//! An entry: name (39 B and its length) | type | object | state. The state is stored last and makes the root exist: it
//! is a sum of name and type, so an entry that was cut off is none. Another object is set by one store: its word is
//! sealed by itself.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::{AT_ROOTS, ROOT_BYTES, ROOT_NAME_MAX, ROOTS_MAX, sealed, unsealed};
use crate::ptr::{Offset, Persist, Ptr};
use crate::tx::Tx;

const NAME_BYTES: usize = ROOT_NAME_MAX + 1;
const AT_TYPE: u64 = NAME_BYTES as u64;
pub(crate) const AT_OBJECT: u64 = AT_TYPE + 8;
pub(crate) const AT_STATE: u64 = AT_OBJECT + 8;
const _: () = assert!(AT_STATE + 8 == ROOT_BYTES);

/// A named root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Its name.
    pub name: String,
    /// Its type's number: [`Persist::type_id`].
    pub type_id: u64,
    /// The object.
    pub object: Option<Offset>,
}

impl Heap {
    /// The object of a named root; `None`: there is no such root, or it is null.
    ///
    /// # Errors
    /// The root is of another type.
    pub fn root<T: Persist>(&self, name: &str) -> Result<Option<Ptr<T>>, HeapError> {
        let Some((_, root)) = self.find_root(name)? else { return Ok(None) };
        check_type::<T>(&root)?;
        Ok(root.object.map(Ptr::new))
    }

    /// Names an object, in a transaction of its own: makes the root if there is none.
    ///
    /// # Errors
    /// The root is of another type, the name cannot be one, or all roots are taken.
    pub fn set_root<T: Persist>(&self, name: &str, object: Ptr<T>) -> Result<(), HeapError> {
        self.transaction(|tx| tx.set_root(name, object))
    }

    /// Takes a name away; the object stays.
    ///
    /// # Errors
    /// There is no such root.
    pub fn remove_root(&self, name: &str) -> Result<(), HeapError> {
        self.transaction(|tx| tx.remove_root(name))
    }

    /// All roots, by name.
    ///
    /// # Errors
    /// An entry that no correct program writes.
    pub fn roots(&self) -> Result<Vec<Root>, HeapError> {
        let mut roots = Vec::new();
        for index in 0..ROOTS_MAX {
            let at = AT_ROOTS + index * ROOT_BYTES;
            let read = |entry: &mut [u8]| self.core.memory.read(at, entry);
            roots.extend(root_at(&self.core.root_claims, at, read)?);
        }
        roots.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(roots)
    }

    /// Takes persistent memory and names it, both or neither.
    ///
    /// # Errors
    /// As [`Heap::persist_alloc`] and [`Heap::set_root`], or the name is taken.
    pub fn persist_alloc_named(&self, bytes: u64, name: &str) -> Result<Offset, HeapError> {
        self.transaction(|tx| {
            if tx.claim_new_root(name)?.is_some() {
                return Err(HeapError::RootTaken { name: name.to_owned() });
            }
            let object = tx.alloc(bytes)?;
            tx.set_root(name, Ptr::<u8>::new(object))?;
            Ok(object)
        })
    }

    fn find_root(&self, name: &str) -> Result<Option<(u64, Root)>, HeapError> {
        find(&self.core.root_claims, name, |at, entry| self.core.memory.read(at, entry))
    }
}

impl Tx<'_> {
    /// As [`Heap::set_root`], with the transaction.
    ///
    /// # Errors
    /// As [`Heap::set_root`].
    pub fn set_root<T: Persist>(&mut self, name: &str, object: Ptr<T>) -> Result<(), HeapError> {
        check_name(name)?;
        let value = sealed(object.offset().map_or(0, Offset::get)).to_le_bytes();
        if let Some((at, root)) = self.claim_new_root(name)? {
            check_type::<T>(&root)?;
            self.refuse_claimed(at, name)?;
            return self.write_table(at + AT_OBJECT, &value);
        }
        let at = self.claim_root(name, None)?;
        let mut entry = [0; ROOT_BYTES as usize];
        entry[..name.len()].copy_from_slice(name.as_bytes());
        entry[NAME_BYTES - 1] = name.len() as u8;
        entry[AT_TYPE as usize..][..8].copy_from_slice(&T::type_id().to_le_bytes());
        entry[AT_OBJECT as usize..][..8].copy_from_slice(&value);
        let state = state_of(&entry);
        entry[AT_STATE as usize..].copy_from_slice(&state.to_le_bytes());
        self.write_table(at, &entry)
    }

    /// As [`Heap::remove_root`], with the transaction.
    ///
    /// # Errors
    /// As [`Heap::remove_root`].
    pub fn remove_root(&mut self, name: &str) -> Result<(), HeapError> {
        let none = || HeapError::NoRoot { name: name.to_owned() };
        let (at, _) = self.find_root(name)?.ok_or_else(none)?;
        self.claim_root(name, Some(at))?;
        // Another transaction may have removed it in between.
        match self.find_root(name)? {
            Some((found, _)) if found == at => self.write_table(at + AT_STATE, &[0; 8]),
            _ => Err(none()),
        }
    }

    /// The object of a named root, as this transaction sees it.
    ///
    /// # Errors
    /// As [`Heap::root`].
    pub fn root<T: Persist>(&self, name: &str) -> Result<Option<Ptr<T>>, HeapError> {
        let Some((_, root)) = self.find_root(name)? else { return Ok(None) };
        check_type::<T>(&root)?;
        Ok(root.object.map(Ptr::new))
    }

    pub(crate) fn find_root(&self, name: &str) -> Result<Option<(u64, Root)>, HeapError> {
        find(&self.heap().core.root_claims, name, |at, entry| self.read_table(at, entry))
    }

    /// The object of a named root; if there is none, what `make` returns, and the root of it.
    pub(crate) fn root_or_make<T: Persist>(
        &mut self,
        name: &str,
        make: impl FnOnce(&mut Self) -> Result<Ptr<T>, HeapError>,
    ) -> Result<Ptr<T>, HeapError> {
        if let Some((_, root)) = self.claim_new_root(name)? {
            check_type::<T>(&root)?;
            if let Some(object) = root.object {
                return Ok(Ptr::new(object));
            }
        }
        let made = make(self)?;
        self.set_root(name, made)?;
        Ok(made)
    }

    /// The root, or `None` once nobody else can make one of this name.
    fn claim_new_root(&mut self, name: &str) -> Result<Option<(u64, Root)>, HeapError> {
        if let Some(found) = self.find_root(name)? {
            return Ok(Some(found));
        }
        self.claim_root(name, None)?;
        // Another transaction may have made it in between.
        self.find_root(name)
    }

    /// Whether another transaction is making or removing the root of an entry.
    fn refuse_claimed(&self, at: u64, name: &str) -> Result<(), HeapError> {
        let is_claimed = self.heap().core.root_claims.held().iter().any(|(of, _)| *of == at);
        match is_claimed && !self.claims.contains(&at) {
            true => Err(HeapError::RootTaken { name: name.to_owned() }),
            false => Ok(()),
        }
    }

    /// Claims an entry for a root that is made, or the one of a root that is removed, to this transaction's end: another
    /// one would take the same, or in undo mode one that may come back.
    fn claim_root(&mut self, name: &str, is_at: Option<u64>) -> Result<u64, HeapError> {
        if let Some(at) = is_at {
            self.refuse_claimed(at, name)?;
        }
        let mut claimed = self.heap().core.root_claims.held();
        let mine = claimed.iter().find(|(_, of)| of == name).map(|(at, _)| *at);
        match mine {
            Some(at) if self.claims.contains(&at) && is_at.is_none_or(|is_at| is_at == at) => {
                return Ok(at);
            }
            Some(at) if !self.claims.contains(&at) => {
                return Err(HeapError::RootTaken { name: name.to_owned() });
            }
            _ => {}
        }
        let is_free = |at: &u64| {
            let mut state = [0; 8];
            self.read_table(at + AT_STATE, &mut state);
            state == [0; 8] && !claimed.iter().any(|(of, _)| of == at)
        };
        let all = || (0..ROOTS_MAX).map(|index| AT_ROOTS + index * ROOT_BYTES);
        let full = || HeapError::RootsFull { name: name.to_owned(), roots_max: ROOTS_MAX };
        let at = is_at.or_else(|| all().find(is_free)).ok_or_else(full)?;
        claimed.push((at, name.to_owned()));
        drop(claimed);
        self.claims.push(at);
        Ok(at)
    }
}

/// Entries of roots that transactions are making or removing, by name.
#[derive(Debug, Default)]
pub(crate) struct RootClaims(Mutex<Vec<(u64, String)>>);

impl RootClaims {
    fn held(&self) -> MutexGuard<'_, Vec<(u64, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves entries to others.
    pub fn release(&self, claims: &[u64]) {
        if !claims.is_empty() {
            self.held().retain(|(at, _)| !claims.contains(at));
        }
    }
}

fn find(
    claims: &RootClaims,
    name: &str,
    read: impl Fn(u64, &mut [u8]),
) -> Result<Option<(u64, Root)>, HeapError> {
    check_name(name)?;
    for at in (0..ROOTS_MAX).map(|index| AT_ROOTS + index * ROOT_BYTES) {
        let mut begin = [0; NAME_BYTES];
        read(at, &mut begin);
        if begin[..name.len()] == *name.as_bytes()
            && let Some(root) = root_at(claims, at, |entry| read(at, entry))?
            && root.name == name
        {
            return Ok(Some((at, root)));
        }
    }
    Ok(None)
}

/// The root of an entry, which another transaction may be filling at the time.
fn root_at(
    claims: &RootClaims,
    at: u64,
    read: impl Fn(&mut [u8]),
) -> Result<Option<Root>, HeapError> {
    let entry = || {
        let mut entry = [0; ROOT_BYTES as usize];
        read(&mut entry);
        decode(at, &entry)
    };
    entry().or_else(|_| {
        if claims.held().iter().any(|(claimed, _)| *claimed == at) {
            // It is none until that transaction has ended.
            return Ok(None);
        }
        entry()
    })
}

pub(crate) fn decode(
    at: u64,
    entry: &[u8; ROOT_BYTES as usize],
) -> Result<Option<Root>, HeapError> {
    let word = |at: u64| {
        let mut word = [0; 8];
        word.copy_from_slice(&entry[at as usize..][..8]);
        u64::from_le_bytes(word)
    };
    let state = word(AT_STATE);
    if state == 0 {
        return Ok(None);
    }
    let corrupt = || HeapError::Corrupt { what: "root", offset: at, value: state };
    if state != state_of(entry) {
        return Err(corrupt());
    }
    let len = usize::from(entry[NAME_BYTES - 1]);
    let name = entry.get(..len).and_then(|name| std::str::from_utf8(name).ok());
    let name = name.ok_or_else(corrupt)?.to_owned();
    let damaged =
        HeapError::Corrupt { what: "root", offset: at + AT_OBJECT, value: word(AT_OBJECT) };
    let object = unsealed(word(AT_OBJECT)).ok_or(damaged)?;
    Ok(Some(Root { name, type_id: word(AT_TYPE), object: Offset::new(object) }))
}

/// Never zero, which is the state of no root.
fn state_of(entry: &[u8; ROOT_BYTES as usize]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&entry[..AT_OBJECT as usize]) | 1
}

fn check_name(name: &str) -> Result<(), HeapError> {
    if (1..=ROOT_NAME_MAX).contains(&name.len()) {
        return Ok(());
    }
    Err(HeapError::RootName { name: name.to_owned(), most: ROOT_NAME_MAX })
}

fn check_type<T: Persist>(root: &Root) -> Result<(), HeapError> {
    if root.type_id == T::type_id() {
        return Ok(());
    }
    Err(HeapError::RootType {
        name: root.name.clone(),
        found: root.type_id,
        expected: T::type_id(),
        expected_name: T::NAME,
    })
}
