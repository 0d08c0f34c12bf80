//! The ordered half of a large sorted set: a B+tree of members by score, then name.
//!
//! **Nodes change in place and are not copied.** A node copied for each change would dirty 1 to
//! 2 KiB for each level. Changed in place and logged, an insertion dirties two grains (64 B) of a
//! leaf, and one grain for the count at each level above: three levels for a million members. The
//! undo log's own grains are the same ones each time. Measured with a million members and a
//! checkpoint every thousand operations, an insertion dirties 380 B and a new score 400 B, the
//! member's record, its index entry and the log included; removing a range dirties 90 B for each
//! member. Nodes are made only by a split, and freed by a merge.
//!
//! Invariants:
//! - Entries ascend.
//! - An entry of an inner node says how many members there are below it and, unless it is the
//!   node's first, names the lowest of them. What the first names is never looked at, because a
//!   search that finds its place before the second entry goes to the first one anyway: so who takes
//!   out the lowest member of a set, again and again, changes nothing but counts above the leaf.
//!   The first entry may even name a member that is gone.
//! - All leaves are at level 0.
//! - No node is empty.
//! - The top has two entries or is a leaf.
//!
//! A node that a removal leaves with fewer than 15 entries is merged with a neighbour, if both fit
//! in 45 entries; a node that becomes empty is freed. An entry put behind all others of a full node
//! begins a new node, so ascending scores make full nodes. Nodes may therefore be nearly empty,
//! though no two neighbours are unless they were made so. The height grows by splits of the top
//! only, and [`LEVELS_MAX`] bounds every walk.

mod node;

use perdura_slots::{Lane, LaneId, Op, Stop};

pub use node::Edge;
pub(crate) use node::{Item, Node, name_of, order_of};

use crate::error::Damaged;
use node::{LEVELS_MAX, SLOTS};

/// A node with fewer entries is merged with a neighbour, if both are small.
const FEW: usize = SLOTS / 4;
/// Most entries of two nodes that are merged.
const MERGED_MAX: usize = SLOTS * 3 / 4;
/// Entries of the nodes of a tree that is built at once, so that some insertions need no split.
const FILL: usize = SLOTS * 9 / 10;

/// The way from the top to a leaf.
struct Path {
    /// Offset of the node at each level, and the position of the entry taken in the node.
    steps: [(u64, usize); LEVELS_MAX],
    levels: usize,
}

impl Path {
    /// Goes down from the top by the entries that `choose` picks in each node.
    fn down(lane: &Lane<'_>, top: u64, mut choose: impl FnMut(&Node) -> usize) -> Self {
        let mut node = Node::load(lane, top);
        let mut path = Self { steps: [(0, 0); LEVELS_MAX], levels: usize::from(node.level()) + 1 };
        loop {
            let position = choose(&node);
            path.steps[usize::from(node.level())] = (node.at(), position);
            if node.level() == 0 {
                return path;
            }
            let child = Node::load(lane, node.child(lane, position));
            if child.level() + 1 != node.level() {
                child.damaged(lane).unwind();
            }
            node = child;
        }
    }

    /// Goes down to where a member is, or would be.
    fn to(lane: &Lane<'_>, top: u64, score: f64, record: u64) -> Self {
        let member = name_of(lane, record);
        Self::down(lane, top, |node| {
            let after = node.level() > 0;
            let before = node.entries_before(lane, &Edge::Place { score, member, after });
            if after { before.saturating_sub(1) } else { before }
        })
    }

    /// Goes down to a member that the tree has; unwinds with [`Damaged`] if it does not.
    fn to_member(lane: &Lane<'_>, top: u64, score: f64, record: u64) -> Self {
        let path = Self::to(lane, top, score, record);
        let (leaf, position) = path.node(lane, 0);
        let found = (position < leaf.len()).then(|| leaf.item(lane, position).record);
        if found != Some(record) {
            // The table of the set has the member.
            Damaged { what: "tree of a sorted set", offset: top, value: record }.unwind();
        }
        path
    }

    /// Goes down to the member of a rank, which the tree must have.
    fn to_rank(lane: &Lane<'_>, top: u64, mut rank: u64) -> Self {
        Self::down(lane, top, |node| {
            let mut position = 0;
            while node.level() > 0 && position + 1 < node.len() {
                let members = node.count(lane, position);
                if rank < members {
                    break;
                }
                rank -= members;
                position += 1;
            }
            if node.level() == 0 { rank as usize } else { position }
        })
    }

    /// Whether the member that the path leads to may have a new score without moving: the member
    /// stays between its neighbours in the leaf. At the ends of a leaf below other nodes the answer
    /// is no: one neighbour lies in another leaf, and a leaf's first entry is named by the nodes
    /// above.
    fn keeps_order(&self, lane: &Lane<'_>, record: u64, new: f64) -> bool {
        let (leaf, position) = self.node(lane, 0);
        let edge = Edge::Place { score: new, member: name_of(lane, record), after: false };
        let is_before = |position: usize| {
            let item = leaf.item(lane, position);
            edge.is_behind(item.score, || name_of(lane, item.record))
        };
        let is_only_leaf = self.levels == 1;
        let follows = position.checked_sub(1).map_or(is_only_leaf, is_before);
        let precedes =
            if position + 1 < leaf.len() { !is_before(position + 1) } else { is_only_leaf };
        follows && precedes
    }

    /// Whether the path leads to the first member below a node of this level's child: a change there
    /// gives the child another lowest member.
    fn leads_first(&self, level: usize) -> bool {
        self.steps[..level].iter().all(|(_, position)| *position == 0)
    }

    #[inline(always)]
    fn node(&self, lane: &Lane<'_>, level: usize) -> (Node, usize) {
        let (at, position) = self.steps[level];
        (Node::load(lane, at), position)
    }
}

/// The number of members before the edge.
pub(crate) fn members_before(lane: &Lane<'_>, top: u64, edge: &Edge<'_>) -> u64 {
    let mut members = 0;
    Path::down(lane, top, |node| {
        let before = node.entries_before(lane, edge);
        // The last child that begins before the edge may reach over it.
        let position = if node.level() > 0 { before.saturating_sub(1) } else { before };
        members += node.members_before(lane, position);
        position
    });
    members
}

/// Calls `f` with `count` members from the one of rank `from` on, backwards if `down`.
pub(crate) fn walk(
    lane: &Lane<'_>,
    top: u64,
    from: u64,
    mut count: u64,
    down: bool,
    f: &mut dyn FnMut(f64, u64),
) {
    let mut path = Path::to_rank(lane, top, from);
    while count > 0 {
        let (leaf, position) = path.node(lane, 0);
        let items = if down { position + 1 } else { leaf.len().saturating_sub(position) };
        let items = items.min(count as usize);
        for step in 0..items {
            let at = if down { position - step } else { position + step };
            let item = leaf.item(lane, at);
            f(item.score, item.record);
        }
        count -= items as u64;
        if count == 0 || !to_next_leaf(lane, &mut path, down) {
            return;
        }
    }
}

/// Moves to the first entry of the next leaf or, if `down`, to the last entry of the leaf before.
/// Returns false if there is no such leaf.
fn to_next_leaf(lane: &Lane<'_>, path: &mut Path, down: bool) -> bool {
    for level in 1..path.levels {
        let (node, position) = path.node(lane, level);
        let next = if down { position.checked_sub(1) } else { Some(position + 1) };
        let Some(next) = next.filter(|next| *next < node.len()) else { continue };
        path.steps[level].1 = next;
        let child = node.item(lane, next).child;
        let below = Path::down(lane, child, |node| if down { node.len() - 1 } else { 0 });
        path.steps[..level].copy_from_slice(&below.steps[..level]);
        return true;
    }
    false
}

/// Adds a member that the tree does not have. Returns the tree's top.
pub(crate) fn insert(op: &mut Op<'_>, id: LaneId, top: u64, item: Item) -> Result<u64, Stop> {
    let path = Path::to(op.lane(id), top, item.score, item.record);
    let mut carried = Some(item);
    for level in 0..path.levels {
        let (mut node, mut position) = path.node(op.lane(id), level);
        if level > 0 {
            let moved = carried.map_or(0, |right: Item| right.count);
            let count = node.count(op.lane(id), position) + 1 - moved;
            if position > 0 && path.leads_first(level) {
                let lowest = lowest_of(op.lane(id), path.steps[level - 1].0);
                node.rename(op, id, position, lowest, count)?;
            } else {
                node.recount(op, id, position, count)?;
            }
            position += 1;
        }
        carried = match carried {
            Some(item) => insert_at(op, id, &mut node, position, item)?,
            None => None,
        };
    }
    let Some(right) = carried else { return Ok(top) };
    assert!(path.levels < LEVELS_MAX, "a sorted set of {} levels", path.levels);
    let lane = op.lane(id);
    let count = Node::load(lane, top).members(lane);
    let left = Item { child: top, count, ..lowest_of(lane, top) };
    Node::create(op, id, path.levels as u8, &[left, right])
}

/// The lowest member below a node.
pub(crate) fn lowest_of(lane: &Lane<'_>, node: u64) -> Item {
    let path = Path::down(lane, node, |_| 0);
    let (leaf, position) = path.node(lane, 0);
    leaf.item(lane, position)
}

/// Adds an entry to a node. A full node is split, and the entry of the new node behind it is
/// returned.
fn insert_at(
    op: &mut Op<'_>,
    id: LaneId,
    node: &mut Node,
    position: usize,
    item: Item,
) -> Result<Option<Item>, Stop> {
    if node.len() < SLOTS {
        return node.insert(op, id, position, &item).map(|()| None);
    }
    let keep = if position == SLOTS { SLOTS } else { SLOTS / 2 };
    let lane = op.lane(id);
    let mut right: Vec<Item> = node.items(lane).skip(keep).collect();
    let goes_right = position > keep || keep == SLOTS;
    if goes_right {
        right.insert(position - keep, item);
    }
    let made = create(op, id, node.level(), &right)?;
    node.truncate(op, id, keep)?;
    if !goes_right {
        node.insert(op, id, position, &item)?;
    }
    Ok(Some(made))
}

/// Makes a node, and returns the entry that the node's parent has to get.
fn create(op: &mut Op<'_>, id: LaneId, level: u8, items: &[Item]) -> Result<Item, Stop> {
    let child = Node::create(op, id, level, items)?;
    let count = items.iter().map(|item| item.count).sum();
    Ok(Item { child, count, ..items[0] })
}

/// Takes out a member that the tree has; another member must be left. Returns the tree's top.
pub(crate) fn remove(
    op: &mut Op<'_>,
    id: LaneId,
    top: u64,
    score: f64,
    record: u64,
) -> Result<u64, Stop> {
    let path = Path::to_member(op.lane(id), top, score, record);
    remove_run(op, id, &path, 1)
}

/// Takes out members from the one of rank `from` on, as far as one leaf has them and `most` allows;
/// other members must be left. `f` gets their records first. Returns the tree's top and how many
/// members were taken out.
pub(crate) fn remove_some(
    op: &mut Op<'_>,
    id: LaneId,
    top: u64,
    from: u64,
    most: u64,
    f: &mut dyn FnMut(&mut Op<'_>, u64) -> Result<(), Stop>,
) -> Result<(u64, u64), Stop> {
    let path = Path::to_rank(op.lane(id), top, from);
    let (leaf, position) = path.node(op.lane(id), 0);
    let count = (leaf.len() - position).min(usize::try_from(most).unwrap_or(usize::MAX));
    for position in position..position + count {
        let record = leaf.item(op.lane(id), position).record;
        f(op, record)?;
    }
    // Who takes out the first member, or the last, likely does it again.
    let next = Some(position + count).filter(|next| *next < leaf.len());
    if let Some(next) = next.or(position.checked_sub(1)) {
        let lane = op.lane(id);
        lane.prefetch_changed(leaf.item(lane, next).record, 1);
    }
    Ok((remove_run(op, id, &path, count)?, count as u64))
}

/// Takes out `count` entries of the leaf that the path leads to. Returns the tree's top.
fn remove_run(op: &mut Op<'_>, id: LaneId, path: &Path, count: usize) -> Result<u64, Stop> {
    // The last one that was changed is in `child`: first the leaf, in the end the top.
    let (mut leaf, position) = path.node(op.lane(id), 0);
    leaf.remove(op, id, position, count)?;
    let mut child = leaf;
    for level in 1..path.levels {
        let (mut node, position) = path.node(op.lane(id), level);
        if child.len() == 0 {
            node.remove(op, id, position, 1)?;
            op.free(child.at());
        } else {
            let lane = op.lane(id);
            let members = node.count(lane, position) - count as u64;
            if position > 0 && path.leads_first(level) {
                let lowest = lowest_of(lane, child.at());
                node.rename(op, id, position, lowest, members)?;
            } else {
                node.recount(op, id, position, members)?;
            }
            if child.len() < FEW {
                merge(op, id, &mut node, position)?;
            }
        }
        child = node;
    }
    let mut top = child;
    while top.level() > 0 && top.len() == 1 {
        op.free(top.at());
        top = Node::load(op.lane(id), top.child(op.lane(id), 0));
    }
    Ok(top.at())
}

/// Merges the child at `position` with a neighbour, if both are small.
fn merge(op: &mut Op<'_>, id: LaneId, node: &mut Node, position: usize) -> Result<(), Stop> {
    // The neighbour before is tried first: then the entries that move are those of the small node.
    let pairs = [position.checked_sub(1), (position + 1 < node.len()).then_some(position)];
    for left_at in pairs.into_iter().flatten() {
        let lane = op.lane(id);
        let (left, right) = (node.item(lane, left_at), node.item(lane, left_at + 1));
        let (mut to, from) = (Node::load(lane, left.child), Node::load(lane, right.child));
        if to.len() + from.len() > MERGED_MAX {
            continue;
        }
        let mut moving: Vec<Item> = from.items(lane).collect();
        // A first entry that is none any more needs its name.
        moving[0] = Item { score: right.score, record: right.record, ..moving[0] };
        to.extend(op, id, &moving)?;
        node.recount(op, id, left_at, left.count + right.count)?;
        node.remove(op, id, left_at + 1, 1)?;
        op.free(right.child);
        return Ok(());
    }
    Ok(())
}

/// Gives a member another score. Returns the tree's top.
pub(crate) fn move_member(
    op: &mut Op<'_>,
    id: LaneId,
    top: u64,
    (score, record): (f64, u64),
    new: f64,
) -> Result<u64, Stop> {
    let path = Path::to_member(op.lane(id), top, score, record);
    if path.keeps_order(op.lane(id), record, new) {
        let (leaf, position) = path.node(op.lane(id), 0);
        leaf.rescore(op, id, position, new)?;
        return Ok(top);
    }
    // The tree is not empty in between: an only member keeps its place.
    let top = remove_run(op, id, &path, 1)?;
    insert(op, id, top, Item::of_member(new, record))
}

/// Makes a tree of these members, which are in order. Returns the tree's top.
pub(crate) fn build(op: &mut Op<'_>, id: LaneId, mut items: Vec<Item>) -> Result<u64, Stop> {
    for level in 0..LEVELS_MAX as u8 {
        let made = items.chunks(FILL).map(|part| create(op, id, level, part));
        items = made.collect::<Result<_, _>>()?;
        if let [top] = items[..] {
            return Ok(top.child);
        }
    }
    unreachable!("a sorted set of {} nodes in its top level", items.len())
}

/// The children of a node.
pub(crate) fn children(lane: &Lane<'_>, node: u64) -> impl Iterator<Item = u64> {
    let node = Node::load(lane, node);
    let len = if node.level() == 0 { 0 } else { node.len() };
    (0..len).map(move |position| node.item(lane, position).child)
}
