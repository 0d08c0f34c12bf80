//! Sorted sets: packed in one record while small; above, a table by name and a tree by score.
//!
//! A large set has a root of its own: that of a table of member records, then the tree's top. The
//! table finds a member's record, which holds the score; the tree's leaves point to the same
//! records and repeat the score. Who adds, moves or removes a member changes both in one operation.
//!
//! The first sorted set raises the store's version (`store.rs`): programs that do not know the kind
//! refuse such a store, and still open one without.

mod node;
mod packed;
mod tree;
mod view;

use std::ops::Range;

use perdura_slots::{HeapError, Heat, Lane, LaneId, Marks, Op, Stop};

pub use node::Edge;
pub use view::Sorted;

use crate::api::{Entry, Expiry, Key, Kind};
use crate::error::{OpenError, TxError, WrongType};
use crate::record::{Header, RecordKind, hash_field, is_of};
use crate::staging::Halt;
use crate::store::{Place, VERSION_SORTED};
use crate::table::{self, Found, ROOT_BYTES};
use crate::tx::{Tx, check_key};
use node::{Item, Node, order_of};

/// Where the tree's top stands in a root; the table's part lies before it.
const AT_TOP: u64 = ROOT_BYTES;
/// Bytes of a root.
const SORTED_ROOT_BYTES: u64 = AT_TOP + 8;
/// Database number in the records of members: they belong to a key, not to a database.
const MEMBER_DB: u8 = 0;

/// How a set is stored.
enum Form {
    Packed(Vec<u8>),
    Tree(u64),
}

impl Tx<'_> {
    /// Sets a member's score; -0 is 0. Returns the one it had. Panics if the score is NaN.
    ///
    /// # Errors
    /// The key holds another kind; the name is too long; the attempt is over.
    pub fn sorted_add(
        &mut self,
        key: Key<'_>,
        member: &[u8],
        score: f64,
    ) -> Result<Option<f64>, TxError> {
        assert!(!score.is_nan(), "a score that is no number");
        let score = plain(score);
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
            self.put_sorted_record(&place, key, RecordKind::PackedSorted, &[&new], Expiry::Keep)?;
            return Ok(old_score);
        }
        let mut members: Vec<_> = packed::iter(&old).filter(|(_, name)| *name != member).collect();
        members.push((score, member));
        let root = self.make_tree(place.lane, &mut members)?;
        self.put_sorted_root(&place, key, root, Expiry::Keep)?;
        Ok(old_score)
    }

    /// Removes a member; the last one takes the key with it. Returns the score it had.
    ///
    /// # Errors
    /// The key holds another kind; the attempt is over.
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
                self.put_sorted_record(&place, key, kind, &[&new], Expiry::Keep)?;
            }
            _ => {
                self.delete(key)?;
            }
        }
        Ok(old_score)
    }

    /// Removes the members of these ranks, as far as there are such. Returns how many.
    ///
    /// # Errors
    /// As [`Tx::sorted_remove`].
    pub fn sorted_remove_ranks(&mut self, key: Key<'_>, ranks: Range<u64>) -> Result<u64, TxError> {
        let Some(sorted) = self.sorted(key)? else { return Ok(0) };
        let len = sorted.len();
        let end = ranks.end.min(len);
        if ranks.start >= end {
            return Ok(0);
        }
        let count = end - ranks.start;
        if count == len {
            self.delete(key)?;
            return Ok(count);
        }
        let place = self.place(key);
        match self.sorted_form(key)? {
            Some(Form::Tree(root)) => {
                self.touch(key);
                let done = leave_run(&mut self.op, place.lane, root, ranks.start, count);
                done.map_err(|stop| self.stop(stop))?;
            }
            Some(Form::Packed(old)) => {
                let members = (0u64..).zip(packed::iter(&old));
                let rest = members.filter(|(rank, _)| !ranks.contains(rank)).map(|(_, rest)| rest);
                let rest = packed::pack(&rest.collect::<Vec<_>>());
                let Some(rest) = rest else { unreachable!("a part of what was packed is smaller") };
                let kind = RecordKind::PackedSorted;
                self.put_sorted_record(&place, key, kind, &[&rest], Expiry::Keep)?;
            }
            None => {}
        }
        Ok(count)
    }

    /// Makes the key a sorted set of these members, whatever it held; no name may be there twice.
    /// Without members the key is removed.
    ///
    /// # Errors
    /// A name is too long; the attempt is over.
    pub fn sorted_put(
        &mut self,
        key: Key<'_>,
        members: &[(Vec<u8>, f64)],
        expiry: Expiry,
    ) -> Result<(), TxError> {
        check_key(key.bytes)?;
        if members.is_empty() {
            return self.delete(key).map(drop);
        }
        members.iter().try_for_each(|(name, _)| check_key(name))?;
        let place = self.place(key);
        let mut ordered: Vec<(f64, &[u8])> =
            members.iter().map(|(name, score)| (plain(*score), name.as_slice())).collect();
        ordered.sort_unstable_by(|a, b| order_of(a.0, b.0).then_with(|| a.1.cmp(b.1)));
        if let Some(packed) = packed::pack(&ordered) {
            let kind = RecordKind::PackedSorted;
            return self.put_sorted_record(&place, key, kind, &[&packed], expiry);
        }
        let root = self.make_tree(place.lane, &mut ordered)?;
        self.put_sorted_root(&place, key, root, expiry)
    }

    /// The key's sorted set; `None` if there is no such key.
    ///
    /// # Errors
    /// The key holds another kind.
    pub fn sorted(&self, key: Key<'_>) -> Result<Option<Sorted<'_>>, TxError> {
        match self.get(key) {
            Some(entry) if entry.kind != Kind::Sorted => Err(WrongType.into()),
            other => Ok(other.and_then(|entry| entry.sorted())),
        }
    }

    /// Copies a large set, member by member.
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

    fn put_sorted_root(
        &mut self,
        place: &Place,
        key: Key<'_>,
        root: u64,
        expiry: Expiry,
    ) -> Result<(), TxError> {
        let value_at = Header::BYTES as usize + key.bytes.len();
        let padding = &[0; 8][..value_at.next_multiple_of(8) - value_at];
        let value = [padding, &root.to_le_bytes()];
        self.put_sorted_record(place, key, RecordKind::TreeSorted, &value, expiry)
    }

    /// Every set comes into being here: not before the store's version says that there are such.
    fn put_sorted_record(
        &mut self,
        place: &Place,
        key: Key<'_>,
        kind: RecordKind,
        value: &[&[u8]],
        expiry: Expiry,
    ) -> Result<(), TxError> {
        if self.store.version() < VERSION_SORTED {
            return Err(self.halt(Halt::Version(VERSION_SORTED)));
        }
        self.put_record(place, key, kind, value, expiry, 0)
    }

    /// A root of its own for these members, in order or nearly so. Nothing reaches it yet.
    fn make_tree(&mut self, lane: LaneId, members: &mut [(f64, &[u8])]) -> Result<u64, TxError> {
        members.sort_unstable_by(|a, b| order_of(a.0, b.0).then_with(|| a.1.cmp(b.1)));
        let root = new_root(&mut self.op, lane).map_err(|stop| self.stop(stop))?;
        let mut items = Vec::with_capacity(members.len());
        for (score, name) in members.iter() {
            let record = self.add_record(lane, root, name, *score)?;
            items.push(Item::of_member(*score, record));
        }
        let len = items.len() as u64;
        let made = tree::build(&mut self.op, lane, items).and_then(|top| {
            self.op.store(lane, root + AT_TOP, top)?;
            table::store_len(&mut self.op, lane, root, len)
        });
        made.map_err(|stop| self.stop(stop)).map(|()| root)
    }

    /// Writes a member's record and enters it in the table, but not in the tree.
    fn add_record(
        &mut self,
        lane: LaneId,
        root: u64,
        member: &[u8],
        score: f64,
    ) -> Result<u64, TxError> {
        let header = Header::of(member, MEMBER_DB, RecordKind::Member, 0, score.to_bits());
        let record = self.write(lane, header, member, &[], 0, Heat::COLD)?;
        let hash = hash_field(member);
        let entry = table::entry(hash, record, &header);
        let inserted = table::insert(&mut self.op, lane, root, hash, entry);
        inserted.map_err(|stop| self.stop(stop)).map(|()| record)
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
        let Some(found) = find_member(self.op.lane(id), root, member) else {
            self.touch(key);
            let record = self.add_record(id, root, member, score)?;
            let done = enter(&mut self.op, id, root, Item::of_member(score, record));
            return done.map_err(|stop| self.stop(stop)).map(|()| None);
        };
        let record = found.record();
        let old = f64::from_bits(self.op.lane(id).load(record + Header::AT_SCORE));
        if old == score {
            return Ok(Some(old));
        }
        self.touch(key);
        let done = move_member(&mut self.op, id, root, (old, record), score);
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
        let Some(found) = find_member(lane, root, member) else { return Ok(None) };
        let record = found.record();
        let score = f64::from_bits(lane.load(record + Header::AT_SCORE));
        if table::stored_len(lane, root) == 1 {
            return self.delete(key).map(|_| Some(score));
        }
        self.touch(key);
        let done = leave(&mut self.op, place.lane, root, score, &found);
        done.map_err(|stop| self.stop(stop)).map(|()| Some(score))
    }
}

/// Enters a member in the tree, and counts it.
fn enter(op: &mut Op<'_>, id: LaneId, root: u64, item: Item) -> Result<(), Stop> {
    let lane = op.lane(id);
    let (len, top) = (table::stored_len(lane, root), lane.load(root + AT_TOP));
    let top = tree::insert(op, id, top, item)?;
    op.store(id, root + AT_TOP, top)?;
    table::store_len(op, id, root, len + 1)
}

/// Takes a member out of tree and table.
fn leave(op: &mut Op<'_>, id: LaneId, root: u64, score: f64, found: &Found) -> Result<(), Stop> {
    let lane = op.lane(id);
    let (len, top) = (table::stored_len(lane, root), lane.load(root + AT_TOP));
    let top = tree::remove(op, id, top, score, found.record())?;
    op.store(id, root + AT_TOP, top)?;
    op.store(id, found.at, 0)?;
    op.free(found.record());
    table::store_len(op, id, root, len - 1)
}

/// Takes members from a rank on out of tree and table, not all of them. Leaf by leaf, so that a
/// node is written once for all that it loses.
fn leave_run(
    op: &mut Op<'_>,
    id: LaneId,
    root: u64,
    from: u64,
    mut count: u64,
) -> Result<(), Stop> {
    let lane = op.lane(id);
    let (len, mut top) = (table::stored_len(lane, root) - count, lane.load(root + AT_TOP));
    while count > 0 {
        let left = tree::remove_some(op, id, top, from, count, &mut |op, record| {
            let lane = op.lane(id);
            let hash = hash_field(node::name_of(lane, record));
            let found = table::find(lane, root, hash, |other, _| other == record);
            let Some(found) = found else { panic!("a sorted set's tree and table differ") };
            op.free(record);
            op.store(id, found.at, 0)
        })?;
        (top, count) = (left.0, count - left.1);
    }
    op.store(id, root + AT_TOP, top)?;
    table::store_len(op, id, root, len)
}

fn move_member(
    op: &mut Op<'_>,
    id: LaneId,
    root: u64,
    (score, record): (f64, u64),
    new: f64,
) -> Result<(), Stop> {
    let top = op.lane(id).load(root + AT_TOP);
    if !tree::rescore(op, id, top, (score, record), new)? {
        // A set of one member keeps its tree: the new place is made before the old one is left, so
        // that the tree is never empty. The two places differ, because the scores do.
        let top = tree::insert(op, id, top, Item::of_member(new, record))?;
        let top = tree::remove(op, id, top, score, record)?;
        op.store(id, root + AT_TOP, top)?;
    }
    op.store(id, record + Header::AT_SCORE, new.to_bits())
}

/// 0 for -0: both have one place, so they are one score.
fn plain(score: f64) -> f64 {
    score + 0.0
}

fn new_root(op: &mut Op<'_>, id: LaneId) -> Result<u64, Stop> {
    let root = op.alloc(id, SORTED_ROOT_BYTES)?;
    op.fill(id, root, SORTED_ROOT_BYTES as usize, Some(Heat::COLD))?.fill(0);
    Ok(root)
}

fn find_member(lane: &Lane<'_>, root: u64, member: &[u8]) -> Option<Found> {
    table::find(lane, root, hash_field(member), |record, head| {
        is_of(lane, record, head, MEMBER_DB, member)
    })
}

/// The tree's top, where an entry is a large set.
pub(crate) fn top_of(entry: &Entry<'_>) -> Option<u64> {
    let is_tree = entry.header.kind == RecordKind::TreeSorted;
    is_tree.then(|| entry.lane.load(entry.table_root() + AT_TOP))
}

/// The children of a node of a tree that was unlinked.
pub(crate) fn children(lane: &Lane<'_>, node: u64) -> impl Iterator<Item = u64> {
    tree::children(lane, node)
}

/// Bytes of memory of a tree's nodes.
pub(crate) fn memory_bytes(lane: &Lane<'_>, top: u64) -> u64 {
    let (mut left, mut sum) = (vec![top], 0);
    while let Some(node) = left.pop() {
        sum += lane.usable_bytes(node);
        left.extend(tree::children(lane, node));
    }
    sum
}

/// Marks the nodes of a large set, whose root and table are marked already.
pub(crate) fn trace(
    lane: &Lane<'_>,
    marks: &mut Marks<'_>,
    entry: &Entry<'_>,
) -> Result<(), OpenError> {
    let Some(top) = top_of(entry) else { return Ok(()) };
    let mut left = vec![(top, None)];
    while let Some((at, level)) = left.pop() {
        marks.mark(at).map_err(|error: HeapError| OpenError::from(error))?;
        let node = Node::load(lane, at);
        let fits = level.is_none_or(|level| level == node.level())
            && usize::from(node.level()) < tree::LEVELS_MAX;
        if !node.is_sound() || !fits {
            let value = lane.load(at);
            return Err(OpenError::Corrupt { what: "node of a sorted set", offset: at, value });
        }
        left.extend(tree::children(lane, at).map(|child| (child, node.level().checked_sub(1))));
    }
    Ok(())
}
