//! The oracle: the contents that a store should have, kept as naively as possible.
//!
//! Values are shared between copies, so that a copy can be kept for every state that a cut may lead
//! back to.

use std::collections::BTreeMap;
use std::rc::Rc;

use perdura_store::{Access, DATABASES, Expiry, Sorted, Store, StoreError, WrongType};

use super::name::Name;
use super::step::Change;

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Value {
    String(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    /// Scores, whole ones, by name.
    Sorted(BTreeMap<Vec<u8>, i32>),
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Held {
    value: Rc<Value>,
    expire_at_ms: Option<u64>,
}

/// The contents that a store has or should have.
#[derive(Clone, Default)]
pub(crate) struct Oracle {
    held: Rc<BTreeMap<Name, Held>>,
}

/// A difference between the contents found and those expected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Difference {
    #[error("{0} is missing")]
    Missing(String),
    #[error("{0} should not be there")]
    Surplus(String),
    #[error("{0} has another value")]
    Value(String),
    #[error("{name} expires at {found:?}, expected {expected:?}")]
    Expiry { name: String, found: Option<u64>, expected: Option<u64> },
}

impl Oracle {
    /// All contents of `store`, read by scanning.
    pub fn of(store: &Store) -> Result<Self, StoreError> {
        let mut all = BTreeMap::new();
        for db in 0..DATABASES {
            let (mut cursor, mut hashes) = (0, Vec::new());
            loop {
                cursor = store.scan(db, cursor, 64, |key, entry| {
                    let name = Name { db, key: key.into() };
                    let expire_at_ms = entry.expire_at_ms;
                    let value = match (entry.string(), entry.sorted()) {
                        (Some(bytes), _) => Value::String(bytes.to_vec()),
                        (_, Some(sorted)) => Value::Sorted(members_of(&sorted)),
                        _ => return hashes.push((name, expire_at_ms)),
                    };
                    all.insert(name, Held { value: Rc::new(value), expire_at_ms });
                });
                if cursor == 0 {
                    break;
                }
            }
            for (name, expire_at_ms) in hashes {
                let fields = store.run(Access::Key(name.key()), |tx| {
                    let mut fields = BTreeMap::new();
                    tx.hash_for_each(name.key(), &mut |field, value| {
                        fields.insert(field.to_vec(), value.to_vec());
                    })?;
                    Ok(fields)
                })?;
                let value = Rc::new(Value::Hash(fields));
                all.insert(name, Held { value, expire_at_ms });
            }
        }
        Ok(Self { held: Rc::new(all) })
    }

    /// The number of keys of a database that have not expired, and how many of these have an
    /// expiry.
    pub fn counts(&self, db: u8, now_ms: u64) -> (u64, u64) {
        let mut counts = (0, 0);
        for (_, held) in self.live(now_ms).filter(|(name, _)| name.db == db) {
            counts.0 += 1;
            counts.1 += u64::from(held.expire_at_ms.is_some());
        }
        counts
    }

    /// The contents after all of `changes`.
    pub fn after(&self, changes: &[Change], now_ms: u64) -> Result<Self, WrongType> {
        let mut after = self.clone();
        after.forget_expired(now_ms);
        changes.iter().try_for_each(|change| after.apply(change, now_ms))?;
        Ok(after)
    }

    /// The contents without one database, or without all.
    pub fn without(&self, db: Option<u8>) -> Self {
        let mut rest = self.clone();
        Rc::make_mut(&mut rest.held).retain(|name, _| db.is_some_and(|db| name.db != db));
        rest
    }

    /// The first difference to the contents found, at a time.
    pub fn compare(&self, found: &Self, now_ms: u64) -> Result<(), Difference> {
        let (mut expected, mut found) = (self.live(now_ms), found.live(now_ms));
        loop {
            let (name, want, have) = match (expected.next(), found.next()) {
                (None, None) => return Ok(()),
                (Some((name, _)), None) => return Err(Difference::Missing(name.to_string())),
                (None, Some((name, _))) => return Err(Difference::Surplus(name.to_string())),
                (Some((name, _)), Some((other, _))) if name < other => {
                    return Err(Difference::Missing(name.to_string()));
                }
                (Some((name, _)), Some((other, _))) if name > other => {
                    return Err(Difference::Surplus(other.to_string()));
                }
                (Some((name, want)), Some((_, have))) => (name.to_string(), want, have),
            };
            if want.value != have.value {
                return Err(Difference::Value(name));
            }
            if want.expire_at_ms != have.expire_at_ms {
                let (found, expected) = (have.expire_at_ms, want.expire_at_ms);
                return Err(Difference::Expiry { name, found, expected });
            }
        }
    }

    /// All keys of database 0 with their values.
    pub fn values(&self) -> impl Iterator<Item = (&[u8], &Value)> {
        let first = self.held.iter().filter(|(name, _)| name.db == 0);
        first.map(|(name, held)| (&*name.key, &*held.value))
    }

    fn live(&self, now_ms: u64) -> impl Iterator<Item = (&Name, &Held)> {
        self.held.iter().filter(move |(_, held)| is_live(held, now_ms))
    }

    fn apply(&mut self, change: &Change, now_ms: u64) -> Result<(), WrongType> {
        match change {
            Change::Put(name, bytes, expiry) => {
                let expire_at_ms = match expiry.at(now_ms) {
                    Expiry::None => None,
                    Expiry::AtMs(at_ms) => Some(at_ms),
                    Expiry::Keep => self.held.get(name).and_then(|held| held.expire_at_ms),
                };
                let value = Rc::new(Value::String(bytes.to_vec()));
                Rc::make_mut(&mut self.held).insert(name.clone(), Held { value, expire_at_ms });
            }
            Change::Delete(name) => drop(Rc::make_mut(&mut self.held).remove(name)),
            Change::Expire(name, expiry) => {
                if let Some(held) = Rc::make_mut(&mut self.held).get_mut(name) {
                    held.expire_at_ms = match expiry.at(now_ms) {
                        Expiry::AtMs(at_ms) => Some(at_ms),
                        Expiry::None | Expiry::Keep => None,
                    };
                }
            }
            Change::Append(name, tail) => self.string(name)?.extend_from_slice(tail),
            Change::Patch(name, offset, bytes) => {
                let (string, end) = (self.string(name)?, offset + bytes.len());
                string.resize(string.len().max(end), 0);
                string[*offset..end].copy_from_slice(bytes);
            }
            Change::Move { from, to, is_copy } => {
                let held = if *is_copy {
                    self.held.get(from).cloned()
                } else {
                    Rc::make_mut(&mut self.held).remove(from)
                };
                if let Some(held) = held {
                    Rc::make_mut(&mut self.held).insert(to.clone(), held);
                }
            }
            Change::HashSet(name, fields) => {
                let hash = self.hash(name)?;
                hash.extend(fields.iter().map(|(field, value)| (field.clone(), value.to_vec())));
            }
            Change::HashDelete(name, fields) => {
                if !self.held.contains_key(name) {
                    return Ok(());
                }
                let hash = self.hash(name)?;
                fields.iter().for_each(|field| drop(hash.remove(field)));
                if hash.is_empty() {
                    Rc::make_mut(&mut self.held).remove(name);
                }
            }
            Change::SortedAdd(name, members) => self.sorted(name)?.extend(members.iter().cloned()),
            Change::SortedRemove(name, members) => {
                if !self.held.contains_key(name) {
                    return Ok(());
                }
                let sorted = self.sorted(name)?;
                sorted.retain(|member, _| !members.contains(member));
                if sorted.is_empty() {
                    Rc::make_mut(&mut self.held).remove(name);
                }
            }
        }
        // A change may set an expiry that is already over.
        self.forget_expired(now_ms);
        Ok(())
    }

    fn forget_expired(&mut self, now_ms: u64) {
        if self.held.values().any(|held| !is_live(held, now_ms)) {
            Rc::make_mut(&mut self.held).retain(|_, held| is_live(held, now_ms));
        }
    }

    fn string(&mut self, name: &Name) -> Result<&mut Vec<u8>, WrongType> {
        match self.value(name, || Value::String(Vec::new())) {
            Value::String(bytes) => Ok(bytes),
            _ => Err(WrongType),
        }
    }

    fn hash(&mut self, name: &Name) -> Result<&mut BTreeMap<Vec<u8>, Vec<u8>>, WrongType> {
        match self.value(name, || Value::Hash(BTreeMap::new())) {
            Value::Hash(fields) => Ok(fields),
            _ => Err(WrongType),
        }
    }

    fn sorted(&mut self, name: &Name) -> Result<&mut BTreeMap<Vec<u8>, i32>, WrongType> {
        match self.value(name, || Value::Sorted(BTreeMap::new())) {
            Value::Sorted(members) => Ok(members),
            _ => Err(WrongType),
        }
    }

    fn value(&mut self, name: &Name, new: impl FnOnce() -> Value) -> &mut Value {
        let new = || Held { value: Rc::new(new()), expire_at_ms: None };
        let held = Rc::make_mut(&mut self.held).entry(name.clone()).or_insert_with(new);
        Rc::make_mut(&mut held.value)
    }
}

/// All members of a sorted set whose structure is sound.
fn members_of(sorted: &Sorted<'_>) -> BTreeMap<Vec<u8>, i32> {
    sorted.assert_sound();
    let mut members = BTreeMap::new();
    sorted.for_each(0..u64::MAX, false, &mut |name, score| {
        members.insert(name.to_vec(), score as i32);
    });
    members
}

fn is_live(held: &Held, now_ms: u64) -> bool {
    held.expire_at_ms.is_none_or(|at_ms| at_ms > now_ms)
}
