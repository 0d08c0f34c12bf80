//! Named roots: where a program finds its data again.
//!
//! An entry holds name (39 B and its length), type, object and state. The state is stored last and
//! makes the root exist: it is a sum of name and type, so an entry whose making was cut off is no
//! root. One store sets another object, because the object's word is sealed by itself.

use crate::claims::RootClaims;
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
    /// The name of the root.
    pub name: String,
    /// The number of the object's type, from [`Persist::type_id`].
    pub type_id: u64,
    /// The object that the root names; `None` if the root is null.
    pub object: Option<Offset>,
}

impl Heap {
    /// The object of a named root; `None` if there is no such root or it is null.
    ///
    /// # Errors
    /// The root is of another type.
    pub fn root<T: Persist>(&self, name: &str) -> Result<Option<Ptr<T>>, HeapError> {
        let Some((_, root)) = self.find_root(name)? else { return Ok(None) };
        check_type::<T>(&root)?;
        Ok(root.object.map(Ptr::new))
    }

    /// Names an object, in a transaction of its own. The root is made if there is none.
    ///
    /// # Errors
    /// The root is of another type, the name is empty or too long, all roots are taken, or a
    /// transaction of another thread is changing this root ([`HeapError::RootTaken`]).
    pub fn set_root<T: Persist>(&self, name: &str, object: Ptr<T>) -> Result<(), HeapError> {
        self.transaction(|tx| tx.set_root(name, object))
    }

    /// Removes a root; its object stays.
    ///
    /// # Errors
    /// There is no such root, or a transaction of another thread is changing it
    /// ([`HeapError::RootTaken`]).
    pub fn remove_root(&self, name: &str) -> Result<(), HeapError> {
        self.transaction(|tx| tx.remove_root(name))
    }

    /// All roots, in the order of their names.
    ///
    /// # Errors
    /// The table of roots holds an entry that no correct program writes.
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

    /// Takes persistent memory and names it, in one transaction.
    ///
    /// # Errors
    /// The errors of [`Heap::persist_alloc`] and [`Heap::set_root`], or the name is taken.
    pub fn persist_alloc_named(&self, bytes: u64, name: &str) -> Result<Offset, HeapError> {
        self.transaction(|tx| {
            if tx.find_root(name)?.is_some() || tx.claim_root(name)?.1.is_some() {
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
    /// Names an object as [`Heap::set_root`] does, as a part of the transaction.
    ///
    /// # Errors
    /// The errors of [`Heap::set_root`].
    pub fn set_root<T: Persist>(&mut self, name: &str, object: Ptr<T>) -> Result<(), HeapError> {
        check_name(name)?;
        let value = sealed(object.offset().map_or(0, Offset::get)).to_le_bytes();
        let (at, root) = self.claim_root(name)?;
        if let Some(root) = root {
            check_type::<T>(&root)?;
            return self.write_table(at + AT_OBJECT, &value);
        }
        let mut entry = [0; ROOT_BYTES as usize];
        entry[..name.len()].copy_from_slice(name.as_bytes());
        entry[NAME_BYTES - 1] = name.len() as u8;
        entry[AT_TYPE as usize..][..8].copy_from_slice(&T::type_id().to_le_bytes());
        entry[AT_OBJECT as usize..][..8].copy_from_slice(&value);
        let state = state_of(&entry);
        entry[AT_STATE as usize..].copy_from_slice(&state.to_le_bytes());
        self.write_table(at, &entry)
    }

    /// Removes a root as [`Heap::remove_root`] does, as a part of the transaction.
    ///
    /// # Errors
    /// The errors of [`Heap::remove_root`].
    pub fn remove_root(&mut self, name: &str) -> Result<(), HeapError> {
        let none = || HeapError::NoRoot { name: name.to_owned() };
        self.find_root(name)?.ok_or_else(none)?;
        let (at, root) = self.claim_root(name)?;
        root.ok_or_else(none)?;
        self.write_table(at + AT_STATE, &[0; 8])
    }

    /// The object of a named root, as this transaction sees it.
    ///
    /// # Errors
    /// The errors of [`Heap::root`].
    pub fn root<T: Persist>(&self, name: &str) -> Result<Option<Ptr<T>>, HeapError> {
        let Some((_, root)) = self.find_root(name)? else { return Ok(None) };
        check_type::<T>(&root)?;
        Ok(root.object.map(Ptr::new))
    }

    pub(crate) fn find_root(&self, name: &str) -> Result<Option<(u64, Root)>, HeapError> {
        find(&self.heap().core.root_claims, name, |at, entry| self.read_table(at, entry))
    }

    /// The object of a named root. If there is none, `make` makes the object, and a root is made
    /// for it.
    pub(crate) fn root_or_make<T: Persist>(
        &mut self,
        name: &str,
        make: impl FnOnce(&mut Self) -> Result<Ptr<T>, HeapError>,
    ) -> Result<Ptr<T>, HeapError> {
        let found = match self.find_root(name)? {
            Some((_, root)) if root.object.is_some() => Some(root),
            _ => self.claim_root(name)?.1,
        };
        if let Some(root) = found {
            check_type::<T>(&root)?;
            if let Some(object) = root.object {
                return Ok(Ptr::new(object));
            }
        }
        let made = make(self)?;
        self.set_root(name, made)?;
        Ok(made)
    }

    /// Claims a name until this transaction ends. Returns the name's entry and its root, or a free
    /// entry if there is no such root. Without the claim another transaction could take the same
    /// entry, could write to an entry that has become another root's, or in undo mode could take an
    /// entry that comes back.
    fn claim_root(&mut self, name: &str) -> Result<(u64, Option<Root>), HeapError> {
        loop {
            let found = self.find_root(name)?.map(|(at, _)| at);
            let at = self.claim_entry(name, found)?;
            // Another transaction may have changed the root before the claim; from here on none
            // can.
            match self.find_root(name)? {
                Some((now, root)) if now == at => return Ok((at, Some(root))),
                None if found.is_none() => return Ok((at, None)),
                _ => {}
            }
        }
    }

    /// Claims an entry for a name: the one given, or a free one.
    fn claim_entry(&mut self, name: &str, at: Option<u64>) -> Result<u64, HeapError> {
        let mut claimed = self.heap().core.root_claims.held();
        let is_others = |at: &u64| {
            !self.claims.contains(at) && claimed.iter().any(|(claimed, _)| claimed == at)
        };
        let is_free = |at: &u64| {
            let mut state = [0; 8];
            self.read_table(at + AT_STATE, &mut state);
            state == [0; 8] && !is_others(at)
        };
        let mut all = (0..ROOTS_MAX).map(|index| AT_ROOTS + index * ROOT_BYTES);
        let full = || HeapError::RootsFull { name: name.to_owned(), roots_max: ROOTS_MAX };
        let mut of_name = claimed.iter().filter(|(_, of)| of == name).map(|(at, _)| at);
        if at.iter().chain(&mut of_name).any(is_others) {
            return Err(HeapError::RootTaken { name: name.to_owned() });
        }
        let at = at.or_else(|| all.find(is_free)).ok_or_else(full)?;
        if !claimed.iter().any(|(claimed, of)| *claimed == at && of == name) {
            claimed.push((at, name.to_owned()));
            drop(claimed);
            self.claims.push(at);
        }
        Ok(at)
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

/// The root that an entry holds, which another transaction may be filling at the time.
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
        // While this is locked, no transaction begins to change the entry.
        let claimed = claims.held();
        if claimed.iter().any(|(claimed, _)| *claimed == at) {
            // The entry is no root until the transaction that claimed it has ended.
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

/// The state of an entry that is a root; never 0, which is the state of a free entry.
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
