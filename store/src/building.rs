//! Whole values of which an attempt cannot write all: they are built in steps where nobody sees
//! them.
//!
//! A command that makes a key a value of very many elements (RESTORE, SUNIONSTORE, COPY) would need
//! more budget than there is, for what leads to the elements. The attempt that meets such a value
//! ends. The value is built under a hidden key, in a table to which no reference leads: step after
//! step, each a transaction of its own, with no shard held in between. The next attempt asks for
//! the value again, compares it with what was built, and only moves the record from the hidden key
//! to its own. If it asks for another value, because what it reads has changed meanwhile, that is
//! built instead.
//!
//! Since no reference leads to the hidden table, a crash needs no care: the search for free memory
//! finds all of it free.

use perdura_region::Planted;
use perdura_slots::LaneId;

use crate::api::{Access, Expiry, Key, OWN_DATABASE};
use crate::error::{StoreError, TxError};
use crate::list::End;
use crate::record::hash_key;
use crate::run::Patience;
use crate::shard::{Detached, Shard};
use crate::staging::{Halt, Session};
use crate::store::{Place, Store};
use crate::tx::{FieldWithExpiry, StreamPart, Tx};

/// The number that hidden keys have in the place of a database's.
pub(crate) const HIDDEN_DATABASE: u8 = OWN_DATABASE + 1;
/// Times that a value was built for nothing, until an operation whose values keep changing is given
/// up.
const STRAYS_MAX: u32 = 16;
/// Bytes that a field or a member takes besides its own: headers, its entry in the table, its place
/// in the tree.
pub(crate) const IN_TABLE_BYTES: u64 = 64;
/// Bytes that an element of a list takes besides its own.
pub(crate) const IN_LIST_BYTES: u64 = 4;
/// Bytes of elements in one step. Less where the budget is small.
const STEP_BYTES_MAX: u64 = 1 << 20;

/// A value with all its elements.
#[derive(PartialEq)]
pub(crate) enum Whole {
    Hash(Vec<FieldWithExpiry>),
    Set(Vec<Vec<u8>>),
    /// In the order of the scores.
    Sorted(Vec<(f64, Vec<u8>)>),
    List(Vec<Vec<u8>>),
    Stream(Vec<StreamPart>),
}

/// A table for one hidden key.
#[derive(Clone, Copy)]
pub(crate) struct Site {
    pub lane: LaneId,
    /// Offset of the table's root.
    root: u64,
    /// The hidden key's name, which says where the table is.
    name: [u8; NAME_BYTES],
}

const NAME_BYTES: usize = 10;

/// A value that is being built, or was.
pub(crate) struct Built {
    site: Site,
    whole: Whole,
    /// Whether the present attempt has moved it to a key of its own.
    pub used: bool,
}

impl Site {
    fn new(lane: LaneId, root: u64) -> Self {
        let mut name = [0; NAME_BYTES];
        name[..8].copy_from_slice(&root.to_le_bytes());
        name[8..].copy_from_slice(&lane.0.to_le_bytes());
        Self { lane, root, name }
    }

    fn key(&self) -> Key<'_> {
        Key { db: HIDDEN_DATABASE, bytes: &self.name }
    }
}

/// The place of a hidden key.
///
/// # Panics
/// If the key is none.
pub(crate) fn place_of(key: Key<'_>) -> Place {
    let name: Result<[u8; NAME_BYTES], _> = key.bytes.try_into();
    let (Ok(name), HIDDEN_DATABASE) = (name, key.db) else {
        panic!("a key of database {}, of which there is none", key.db)
    };
    let (root, lane) = name.split_at(8);
    let root = root.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let lane = LaneId(u16::from_le_bytes([lane[0], lane[1]]));
    Place { lane, db: key.db, root, hash: hash_key(key.db, key.bytes) }
}

impl Whole {
    fn len(&self) -> usize {
        match self {
            Self::Hash(fields) => fields.len(),
            Self::Set(names) | Self::List(names) => names.len(),
            Self::Sorted(members) => members.len(),
            Self::Stream(parts) => parts.len(),
        }
    }

    /// Bytes that are written for an element, roughly.
    fn bytes_of(&self, index: usize) -> u64 {
        match self {
            Self::Hash(fields) => {
                (fields[index].0.len() + fields[index].1.len()) as u64 + IN_TABLE_BYTES
            }
            Self::Set(names) => names[index].len() as u64 + IN_TABLE_BYTES,
            Self::Sorted(members) => members[index].1.len() as u64 + IN_TABLE_BYTES,
            Self::List(elements) => elements[index].len() as u64 + IN_LIST_BYTES,
            Self::Stream(parts) => parts[index].weight(),
        }
    }

    /// The end of a step that begins with the element `from`.
    fn step_from(&self, from: usize, most: usize, bytes_max: u64) -> usize {
        let (mut end, mut bytes) = (from, 0);
        while end < self.len() && end - from < most {
            bytes += self.bytes_of(end);
            if end > from && bytes > bytes_max {
                break;
            }
            end += 1;
        }
        end
    }

    /// Adds some of the elements to the key.
    fn add(
        &self,
        tx: &mut Tx<'_>,
        key: Key<'_>,
        some: std::ops::Range<usize>,
    ) -> Result<(), TxError> {
        match self {
            Self::Hash(fields) => {
                for (name, value, expire_at_ms) in &fields[some] {
                    tx.hash_set(key, name, value)?;
                    if expire_at_ms.is_some() {
                        tx.hash_set_expiry(key, name, *expire_at_ms)?;
                    }
                }
            }
            Self::Set(names) => {
                tx.set_add_all(key, names[some].iter().map(Vec::as_slice))?;
            }
            Self::Sorted(members) => {
                for (score, name) in &members[some] {
                    tx.sorted_add(key, name, *score)?;
                }
            }
            Self::List(elements) => {
                tx.list_push(key, End::Back, elements[some].iter().map(Vec::as_slice))?;
            }
            Self::Stream(parts) => tx.stream_add_parts(key, &parts[some])?,
        }
        Ok(())
    }
}

/// Bytes that a value takes whose elements have these lengths, each with so many besides; roughly.
pub(crate) fn weight(lens: impl Iterator<Item = usize>, beside_bytes: u64) -> u64 {
    lens.map(|len| len as u64 + beside_bytes).sum()
}

impl Tx<'_> {
    /// Makes the key a value that is built where nobody sees it, if it is so large that an attempt
    /// does not write it itself. Returns whether it is.
    pub(crate) fn put_built(
        &mut self,
        place: &Place,
        key: Key<'_>,
        weight: u64,
        whole: impl FnOnce(&Self) -> Result<Whole, TxError>,
        expiry: Expiry,
    ) -> Result<bool, TxError> {
        let budget_bytes = self.store.region().budget_bytes();
        if weight <= budget_bytes / 16 {
            return Ok(false);
        }
        self.session.can_build = true;
        if weight <= budget_bytes / 2 && !self.session.builds {
            return Ok(false);
        }
        let whole = whole(self)?;
        let is_any = self.store.region().planted().is(Planted::LinkUnseen);
        let fits = |built: &&mut Built| {
            let is_here = !built.used && built.site.lane == place.lane;
            is_here && (is_any || built.whole == whole)
        };
        let Some(built) = self.session.built.iter_mut().find(fits) else {
            self.halt.get_or_insert(Halt::Build(place.lane, whole));
            return Err(TxError::Again);
        };
        built.used = true;
        let site = built.site;
        self.relink(site.key(), place, key, expiry)?;
        Ok(true)
    }
}

impl Store {
    /// Builds a value for an operation, while no shard is held.
    pub(crate) fn build(
        &self,
        lane: LaneId,
        whole: Whole,
        session: &mut Session,
    ) -> Result<(), StoreError> {
        if session.built.iter().any(|built| !built.used) {
            session.stray_builds += 1;
            if session.stray_builds > STRAYS_MAX {
                return Err(StoreError::Contended { attempts: session.stray_builds });
            }
            let (kept, strays) = session.built.drain(..).partition(|built| built.used);
            session.built = kept;
            self.free_built(strays);
        }
        let root = self.new_table(lane)?;
        // The site is entered first, so that it is freed whatever happens next.
        let site = Site::new(lane, root);
        session.built.push(Built { site, whole, used: false });
        let Some(Built { whole, .. }) = session.built.last() else { return Ok(()) };
        let bytes_max = (self.region().budget_bytes() / 8).min(STEP_BYTES_MAX);
        let (mut from, mut most) = (0, usize::MAX);
        while from < whole.len() {
            let end = whole.step_from(from, most, bytes_max);
            let access = Access::Key(site.key());
            let done = self.run_at(access, Patience::ForAll, session.now_ms, |tx| {
                whole.add(tx, site.key(), from..end)
            });
            match done {
                Ok(()) => from = end,
                Err(StoreError::TransactionTooLarge { .. }) if end - from > 1 => {
                    most = (end - from) / 2;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Frees what is left of sites: the tables, and values that nobody has moved away.
    pub(crate) fn free_built(&self, built: Vec<Built>) {
        if self.heap.is_killed() {
            return;
        }
        for Built { site, .. } in built {
            let mut lane = self.heap.lock(site.lane);
            let table = Detached::new(&lane, site.root, true);
            if let Some(shard) = lane.user_mut::<Shard>() {
                shard.detached.push(table);
            }
        }
    }
}
