//! The members of a large sorted set: a table by name and a tree by score.
//!
//! A large set has a root of its own: that of a table of member records, then the tree's top. The
//! table finds a member's record, which holds the score; the tree's leaves point to the same
//! records and repeat the score. An operation that adds, moves or removes a member changes table
//! and tree together.

use perdura_slots::{HeapError, Heat, Lane, LaneId, Marks, Op, Stop};

use crate::error::{Damaged, OpenError};
use crate::record::{Header, hash_field};
use crate::table::{self, Found, ROOT_BYTES, Room};
use crate::tree::{self, Item, Node, name_of};

/// Where the tree's top stands in a root, behind the root of the table.
const AT_TOP: u64 = ROOT_BYTES;
/// Bytes of the root of a large sorted set, and of a hash with expiring fields.
pub(crate) const SORTED_ROOT_BYTES: u64 = AT_TOP + 8;

/// A new root without members, to which no reference leads yet.
pub(crate) fn new_root(op: &mut Op<'_>, id: LaneId) -> Result<u64, Stop> {
    let root = op.alloc(id, SORTED_ROOT_BYTES)?;
    op.fill(id, root, SORTED_ROOT_BYTES as usize, Some(Heat::COLD))?.fill(0);
    Ok(root)
}

/// Makes the tree of a new root from all its members, which are in the table already, in order.
pub(crate) fn build(op: &mut Op<'_>, id: LaneId, root: u64, items: Vec<Item>) -> Result<(), Stop> {
    let len = items.len() as u64;
    let top = tree::build(op, id, items)?;
    op.store(id, root + AT_TOP, top)?;
    table::store_len(op, id, root, len)
}

/// Makes another node the top of the tree.
pub(crate) fn store_top(op: &mut Op<'_>, id: LaneId, root: u64, top: u64) -> Result<(), Stop> {
    op.store(id, root + AT_TOP, top)
}

/// The top of the tree.
pub(crate) fn top(lane: &Lane<'_>, root: u64) -> u64 {
    lane.load(root + AT_TOP)
}

/// Enters the record of a member that the set does not have in the table. `room` is what
/// [`find_or_room`](crate::fields::find_or_room) has found, if it was asked.
pub(crate) fn enter_in_table(
    op: &mut Op<'_>,
    id: LaneId,
    root: u64,
    room: Option<Room>,
    member: &[u8],
    (record, header): (u64, &Header),
) -> Result<(), Stop> {
    let hash = hash_field(member);
    table::insert(op, id, root, room, hash, table::entry(hash, record, header))
}

/// Enters the record of a member that the set does not have in table and tree, and counts the
/// member. `room` is what [`find_or_room`](crate::fields::find_or_room) has found.
pub(crate) fn enter(
    op: &mut Op<'_>,
    id: LaneId,
    root: u64,
    room: Room,
    member: &[u8],
    (record, header): (u64, &Header),
) -> Result<(), Stop> {
    enter_in_table(op, id, root, Some(room), member, (record, header))?;
    let lane = op.lane(id);
    let (len, top) = (table::stored_len(lane, root), lane.load(root + AT_TOP));
    let item = Item::of_member(f64::from_bits(header.expire_at_ms), record);
    let top = tree::insert(op, id, top, item)?;
    op.store(id, root + AT_TOP, top)?;
    table::store_len(op, id, root, len + 1)
}

/// Takes a member out of tree and table.
pub(crate) fn leave(
    op: &mut Op<'_>,
    id: LaneId,
    root: u64,
    score: f64,
    found: &Found,
) -> Result<(), Stop> {
    let lane = op.lane(id);
    let (len, top) = (table::stored_len(lane, root), lane.load(root + AT_TOP));
    let top = tree::remove(op, id, top, score, found.record())?;
    op.store(id, root + AT_TOP, top)?;
    op.store(id, found.at, 0)?;
    op.free(found.record());
    table::store_len(op, id, root, len - 1)
}

/// Takes `count` members from the rank `from` on out of tree and table; other members must be left.
/// The leaves are changed one by one, each once for all the entries that it loses. `gone` is called
/// with the record of each member.
pub(crate) fn leave_run(
    op: &mut Op<'_>,
    id: LaneId,
    root: u64,
    from: u64,
    mut count: u64,
    gone: &mut dyn FnMut(u64),
) -> Result<(), Stop> {
    let lane = op.lane(id);
    let (len, mut top) = (table::stored_len(lane, root) - count, lane.load(root + AT_TOP));
    while count > 0 {
        let left = tree::remove_some(op, id, top, from, count, &mut |op, record| {
            let lane = op.lane(id);
            let hash = hash_field(name_of(lane, record));
            let found = table::find(lane, root, hash, |other, _| other == record);
            let Some(found) = found else {
                Damaged { what: "tree of a sorted set", offset: root, value: record }.unwind()
            };
            gone(record);
            op.free(record);
            op.store(id, found.at, 0)
        })?;
        (top, count) = (left.0, count - left.1);
    }
    op.store(id, root + AT_TOP, top)?;
    table::store_len(op, id, root, len)
}

/// Gives a member another score, in tree and record.
pub(crate) fn move_member(
    op: &mut Op<'_>,
    id: LaneId,
    root: u64,
    (score, record): (f64, u64),
    new: f64,
) -> Result<(), Stop> {
    let top = op.lane(id).load(root + AT_TOP);
    let top = tree::move_member(op, id, top, (score, record), new)?;
    op.store(id, root + AT_TOP, top)?;
    op.store(id, record + Header::AT_SCORE, new.to_bits())
}

/// A score, but 0 for -0: both have the same place, so they are one score.
pub(crate) fn plain(score: f64) -> f64 {
    score + 0.0
}

/// Bytes of memory of a tree's nodes.
pub(crate) fn nodes_bytes(lane: &Lane<'_>, top: u64) -> u64 {
    let (mut left, mut sum) = (vec![top], 0);
    while let Some(node) = left.pop() {
        sum += lane.usable_bytes(node);
        left.extend(tree::children(lane, node));
    }
    sum
}

/// Marks the nodes of the tree below `top`.
pub(crate) fn trace(lane: &Lane<'_>, marks: &mut Marks<'_>, top: u64) -> Result<(), OpenError> {
    let mut left = vec![(top, None)];
    while let Some((at, level)) = left.pop() {
        marks.mark(at).map_err(|error: HeapError| OpenError::from(error))?;
        let node = Node::load(lane, at);
        let fits = level.is_none_or(|level| level == node.level());
        if !node.is_sound() || !fits {
            return Err(node.damaged(lane).into());
        }
        left.extend(tree::children(lane, at).map(|child| (child, node.level().checked_sub(1))));
    }
    Ok(())
}
