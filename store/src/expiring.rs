//! Hashes with fields that expire.
//!
//! A field with an expiry has it in its record, in the word that a key has its own in, and its
//! entry in the hash's table has the same mark as that of a key with an expiry. The hash's root is
//! that of a large sorted set: behind the root of the table stands the top of a tree, whose entries
//! are the fields with an expiry, by time, then by name. So the number of expired fields is a rank
//! in that tree, and the first field to expire its first entry: nothing walks the hash for them.
//! There is no tree, and the word is 0, while no field has an expiry.
//!
//! An expired field is absent from its time on and stays in table and tree until the sweep
//! (`expire.rs`) or another value takes it away. A hash is absent when all its fields are. The
//! key's entry always has the mark of expiry, by which the sweep meets such hashes as it does keys
//! that expire, and by which an operation that finds a key knows that it has to ask.

use perdura_slots::{Lane, LaneId, Op, Stop};

use crate::entry::Entry;
use crate::error::Damaged;
use crate::members;
use crate::record::{Header, RecordKind, hash_field};
use crate::table::{self, Found};
use crate::tree::{self, Edge, Item, Node, name_of};

/// A field of a hash.
#[derive(Debug, Clone, Copy)]
pub struct Field<'f> {
    /// The field's name.
    pub name: &'f [u8],
    /// The field's value.
    pub value: &'f [u8],
    /// When the field goes away, in milliseconds since 1970; `None` for never.
    pub expire_at_ms: Option<u64>,
}

/// A time as the tree orders it. Times are below 2^53 ([`FIELD_EXPIRY_MAX_MS`]), so none is
/// rounded.
pub(crate) fn score(at_ms: u64) -> f64 {
    at_ms as f64
}

/// Latest time at which a field can expire, in milliseconds since 1970: that of Redis, 2^46 - 1.
pub const FIELD_EXPIRY_MAX_MS: u64 = (1 << 46) - 1;

/// Whether the key of an entry with a mark of expiry is there at this time.
#[cold]
pub(crate) fn is_live(lane: &Lane<'_>, found: &Found, now_ms: u64) -> bool {
    let at = found.record();
    let at_ms = lane.load(at + Header::AT_EXPIRY);
    if at_ms > now_ms {
        // Nearly always; the kind is looked at below only where it counts.
        return Header::load(lane, at).kind != RecordKind::ExpiringHash
            || has_live_fields(lane, at, now_ms);
    }
    at_ms == 0
        && Header::load(lane, at).kind == RecordKind::ExpiringHash
        && has_live_fields(lane, at, now_ms)
}

fn has_live_fields(lane: &Lane<'_>, record: u64, now_ms: u64) -> bool {
    live_len(lane, Entry::new(lane, record).table_root(), now_ms) > 0
}

/// Whether a field with a mark of expiry has expired at this time.
pub(crate) fn is_over(lane: &Lane<'_>, field: &Found, now_ms: u64) -> bool {
    lane.load(field.record() + Header::AT_EXPIRY) <= now_ms
}

/// The number of fields that have not expired.
pub(crate) fn live_len(lane: &Lane<'_>, root: u64, now_ms: u64) -> u64 {
    table::stored_len(lane, root).saturating_sub(expired_len(lane, root, now_ms))
}

/// The number of fields that have expired and are still in table and tree.
pub(crate) fn expired_len(lane: &Lane<'_>, root: u64, now_ms: u64) -> u64 {
    match members::top(lane, root) {
        0 => 0,
        top => {
            let edge = Edge::Score { score: score(now_ms), after: true };
            tree::members_before(lane, top, &edge)
        }
    }
}

/// Calls `f` with the record of every field of a bucket that has not expired.
pub(crate) fn for_each_live<'l>(
    lane: &'l Lane<'l>,
    root: u64,
    bucket: u64,
    now_ms: u64,
    mut f: impl FnMut(Entry<'l>),
) {
    table::for_each(lane, root, bucket, |found| {
        if !(found.expires() && is_over(lane, &found, now_ms)) {
            f(Entry::new(lane, found.record()));
        }
    });
}

/// Enters a field's record, which has this expiry, in the tree.
pub(crate) fn enter(
    op: &mut Op<'_>,
    id: LaneId,
    root: u64,
    at_ms: u64,
    record: u64,
) -> Result<(), Stop> {
    let item = Item::of_member(score(at_ms), record);
    let top = match members::top(op.lane(id), root) {
        0 => tree::build(op, id, vec![item])?,
        top => tree::insert(op, id, top, item)?,
    };
    members::store_top(op, id, root, top)
}

/// Takes a field's record, which has this expiry, out of the tree.
pub(crate) fn leave(
    op: &mut Op<'_>,
    id: LaneId,
    root: u64,
    at_ms: u64,
    record: u64,
) -> Result<(), Stop> {
    let lane = op.lane(id);
    let top = members::top(lane, root);
    if top == 0 {
        Damaged { what: "tree of expiring fields", offset: root, value: record }.unwind();
    }
    let node = Node::load(lane, top);
    if node.level() > 0 || node.len() > 1 {
        let top = tree::remove(op, id, top, score(at_ms), record)?;
        return members::store_top(op, id, root, top);
    }
    op.free(top);
    members::store_top(op, id, root, 0)
}

/// Gives a field another expiry, in tree and record.
pub(crate) fn move_field(
    op: &mut Op<'_>,
    id: LaneId,
    root: u64,
    (at_ms, record): (u64, u64),
    new_ms: u64,
) -> Result<(), Stop> {
    let top = members::top(op.lane(id), root);
    let top = tree::move_member(op, id, top, (score(at_ms), record), score(new_ms))?;
    members::store_top(op, id, root, top)?;
    op.store(id, record + Header::AT_EXPIRY, new_ms)
}

/// Takes up to `most` expired fields out of tree and table; other fields must be left in the table.
/// Returns how many have gone.
pub(crate) fn purge(
    op: &mut Op<'_>,
    id: LaneId,
    root: u64,
    now_ms: u64,
    most: u64,
) -> Result<u64, Stop> {
    let lane = op.lane(id);
    let count = expired_len(lane, root, now_ms).min(most);
    if count == 0 {
        return Ok(0);
    }
    let (len, top) = (table::stored_len(lane, root), members::top(lane, root));
    let mut first = Vec::with_capacity(count as usize);
    tree::walk(lane, top, 0, count, false, &mut |score, record| first.push((score, record)));
    for (score, record) in first {
        let lane = op.lane(id);
        let hash = hash_field(name_of(lane, record));
        let found = table::find(lane, root, hash, |other, _| other == record);
        let Some(found) = found else {
            Damaged { what: "tree of expiring fields", offset: root, value: record }.unwind()
        };
        leave(op, id, root, score as u64, record)?;
        op.store(id, found.at, 0)?;
        op.free(record);
    }
    table::store_len(op, id, root, len - count)?;
    Ok(count)
}
