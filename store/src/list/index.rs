//! The index of a large list: a B+tree of the chunks between the first and the last one, by the
//! number of elements before them.
//!
//! Pushes and pops change chunks at the ends, which are not in the tree: the tree changes when such
//! a chunk is full, or empty. Nodes change in place and are logged, as those of a sorted set's tree
//! do.
//!
//! Invariants:
//! - An entry says how many elements there are below; that is never 0.
//! - All children of nodes of level 0 are chunks, and those of a higher level nodes one level down.
//! - No node is empty; a list without chunks between its ends has no tree.
//! - The top has two entries or is of level 0.

use perdura_slots::{Lane, LaneId, Op, Stop};

pub(crate) use super::node::{Item, Node};
use super::node::{LEVELS_MAX, SLOTS};

/// A node with fewer entries is merged with a neighbour, if both are small.
const FEW: usize = SLOTS / 4;
/// Most entries of two nodes that are merged.
const MERGED_MAX: usize = SLOTS * 3 / 4;

/// The way from the top to an entry of a node of level 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
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
            let position = choose(&node).min(node.len() - 1);
            path.steps[usize::from(node.level())] = (node.at(), position);
            if node.level() == 0 {
                return path;
            }
            let child = Node::load(lane, node.item(lane, position).child);
            if child.level() + 1 != node.level() {
                child.damaged(lane).unwind();
            }
            node = child;
        }
    }

    /// Goes down to the chunk that has the element at `index`, which the tree must have. Returns
    /// the element's place in the chunk, too.
    pub fn to(lane: &Lane<'_>, top: u64, mut index: u64) -> (Self, u64) {
        let path = Self::down(lane, top, |node| {
            let mut position = 0;
            while position + 1 < node.len() {
                let count = node.item(lane, position).count;
                if index < count {
                    break;
                }
                index -= count;
                position += 1;
            }
            position
        });
        (path, index)
    }

    /// Goes down to the first chunk, or to the last one.
    pub fn to_end(lane: &Lane<'_>, top: u64, is_front: bool) -> Self {
        Self::down(lane, top, |node| if is_front { 0 } else { node.len() - 1 })
    }

    fn node(&self, lane: &Lane<'_>, level: usize) -> (Node, usize) {
        let (at, position) = self.steps[level];
        (Node::load(lane, at), position)
    }

    /// The entry that the path leads to.
    pub fn item(&self, lane: &Lane<'_>) -> Item {
        let (node, position) = self.node(lane, 0);
        node.item(lane, position)
    }

    /// The entry before or behind in the same node, if the node has such.
    pub fn neighbour(&self, lane: &Lane<'_>, is_behind: bool) -> Option<(Self, Item)> {
        let (node, position) = self.node(lane, 0);
        let position = if is_behind { position + 1 } else { position.checked_sub(1)? };
        let mut path = *self;
        path.steps[0].1 = position;
        (position < node.len()).then(|| (path, node.item(lane, position)))
    }

    /// Moves to the next chunk or, if `down`, to the one before. Returns false if there is none.
    pub fn step(&mut self, lane: &Lane<'_>, down: bool) -> bool {
        for level in 0..self.levels {
            let (node, position) = self.node(lane, level);
            let next = if down { position.checked_sub(1) } else { Some(position + 1) };
            let Some(next) = next.filter(|next| *next < node.len()) else { continue };
            self.steps[level].1 = next;
            if level > 0 {
                let below = Self::to_end(lane, node.item(lane, next).child, !down);
                if below.levels != level {
                    node.damaged(lane).unwind();
                }
                self.steps[..level].copy_from_slice(&below.steps[..level]);
            }
            return true;
        }
        false
    }
}

/// The number of slots of the tree's top, and whether its children are chunks; `None` without a
/// tree.
pub(crate) fn breadth(lane: &Lane<'_>, top: u64) -> Option<(usize, bool)> {
    let node = (top != 0).then(|| Node::load(lane, top))?;
    Some((node.len(), node.level() == 0))
}

/// Adds a chunk before all others, or behind them. Returns the tree's top.
pub(crate) fn push(
    op: &mut Op<'_>,
    id: LaneId,
    top: u64,
    item: Item,
    is_front: bool,
) -> Result<u64, Stop> {
    if top == 0 {
        return Node::create_small(op, id, 0, &[item], 1);
    }
    let path = Path::to_end(op.lane(id), top, is_front);
    insert(op, id, top, &path, item, !is_front)
}

/// Adds a chunk before or behind the one that the path leads to. Returns the tree's top.
pub(crate) fn insert(
    op: &mut Op<'_>,
    id: LaneId,
    top: u64,
    path: &Path,
    item: Item,
    is_behind: bool,
) -> Result<u64, Stop> {
    let (leaf, _) = path.node(op.lane(id), 0);
    if path.levels == 1 && leaf.is_full(op.lane(id)) && leaf.len() < SLOTS {
        // The only node, which has little memory, is made anew with more.
        let mut items: Vec<Item> = leaf.items(op.lane(id)).collect();
        items.insert(path.steps[0].1 + usize::from(is_behind), item);
        let slots = 2 * leaf.slots(op.lane(id)) + 4;
        let made = Node::create_small(op, id, 0, &items, slots)?;
        op.free(top);
        return Ok(made);
    }
    let mut carried = Some(item);
    for level in 0..path.levels {
        let (mut node, position) = path.node(op.lane(id), level);
        let mut position = position + usize::from(is_behind);
        if level > 0 {
            refresh(op, id, path, level)?;
            position = path.steps[level].1 + 1;
        }
        carried = match carried {
            Some(item) => insert_at(op, id, &mut node, position, item)?,
            None => None,
        };
    }
    let Some(right) = carried else { return Ok(top) };
    assert!(path.levels < LEVELS_MAX, "a list of {} levels", path.levels);
    let lane = op.lane(id);
    let left = Item { child: top, count: Node::load(lane, top).elements(lane) };
    Node::create(op, id, path.levels as u8, &[left, right])
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
    // At the ends nothing is left room for: what is pushed next comes there, too.
    let keep = if position == 0 || position == SLOTS { position } else { SLOTS / 2 };
    let mut right: Vec<Item> = node.items(op.lane(id)).skip(keep).collect();
    let goes_left = position < keep || keep == 0;
    if !goes_left {
        right.insert(position - keep, item);
    }
    let child = Node::create(op, id, node.level(), &right)?;
    node.remove(op, id, keep, SLOTS - keep)?;
    if goes_left {
        node.insert(op, id, position, &item)?;
    }
    Ok(Some(Item { child, count: right.iter().map(|item| item.count).sum() }))
}

/// Sets the count in the entry at a level above 0 to that of the node below.
fn refresh(op: &mut Op<'_>, id: LaneId, path: &Path, level: usize) -> Result<(), Stop> {
    let lane = op.lane(id);
    let (node, position) = path.node(lane, level);
    let child = Node::load(lane, path.steps[level - 1].0);
    let item = Item { child: child.at(), count: child.elements(lane) };
    node.set(op, id, position, &item)
}

/// Puts a chunk in the place of the one that the path leads to, or changes its count.
pub(crate) fn replace(op: &mut Op<'_>, id: LaneId, path: &Path, item: Item) -> Result<(), Stop> {
    let (node, position) = path.node(op.lane(id), 0);
    node.set(op, id, position, &item)?;
    (1..path.levels).try_for_each(|level| refresh(op, id, path, level))
}

/// Takes out the chunk that the path leads to. Returns the tree's top.
pub(crate) fn remove(op: &mut Op<'_>, id: LaneId, top: u64, path: &Path) -> Result<u64, Stop> {
    let (mut leaf, position) = path.node(op.lane(id), 0);
    leaf.remove(op, id, position, 1)?;
    let mut is_empty = leaf.len() == 0;
    for level in 1..path.levels {
        let (mut node, position) = path.node(op.lane(id), level);
        let child = path.steps[level - 1].0;
        if is_empty {
            node.remove(op, id, position, 1)?;
            op.free(child);
            is_empty = node.len() == 0;
            continue;
        }
        refresh(op, id, path, level)?;
        if Node::load(op.lane(id), child).len() < FEW {
            merge(op, id, &mut node, position)?;
        }
    }
    if is_empty {
        op.free(top);
        return Ok(0);
    }
    Ok(lowered(op, id, top))
}

/// The top of a tree whose highest nodes may have one entry only; these are freed.
fn lowered(op: &mut Op<'_>, id: LaneId, mut top: u64) -> u64 {
    loop {
        let lane = op.lane(id);
        let node = Node::load(lane, top);
        if node.level() == 0 || node.len() > 1 {
            return top;
        }
        let child = node.item(lane, 0).child;
        op.free(top);
        top = child;
    }
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
        let moving: Vec<Item> = from.items(lane).collect();
        for item in &moving {
            let end = to.len();
            to.insert(op, id, end, item)?;
        }
        let merged = Item { child: left.child, count: left.count + right.count };
        node.set(op, id, left_at, &merged)?;
        node.remove(op, id, left_at + 1, 1)?;
        op.free(right.child);
        return Ok(());
    }
    Ok(())
}

/// Takes out all chunks before the one that the path leads to or, from the back, all behind it.
/// `f` gets the level and the offset of each node or chunk that is cut off with all below it.
/// Returns the tree's top.
pub(crate) fn cut(
    op: &mut Op<'_>,
    id: LaneId,
    top: u64,
    path: &Path,
    is_front: bool,
    f: &mut dyn FnMut(Option<u8>, u64),
) -> Result<u64, Stop> {
    for level in 0..path.levels {
        let lane = op.lane(id);
        let (mut node, position) = path.node(lane, level);
        let gone = if is_front { 0..position } else { position + 1..node.len() };
        let below = (level as u8).checked_sub(1);
        for position in gone.clone() {
            f(below, node.item(lane, position).child);
        }
        if level > 0 {
            refresh(op, id, path, level)?;
        }
        node.remove(op, id, gone.start, gone.len())?;
    }
    Ok(lowered(op, id, top))
}

/// Makes a tree of these chunks. Returns the tree's top; 0 without chunks.
pub(crate) fn build(op: &mut Op<'_>, id: LaneId, mut items: Vec<Item>) -> Result<u64, Stop> {
    if items.is_empty() {
        return Ok(0);
    }
    for level in 0..LEVELS_MAX as u8 {
        // Only a node that is the whole tree may have little memory.
        let is_tree = level == 0 && items.len() <= SLOTS;
        let made = items.chunks(SLOTS).map(|part| {
            let slots = if is_tree { part.len() } else { SLOTS };
            let child = Node::create_small(op, id, level, part, slots)?;
            Ok(Item { child, count: part.iter().map(|item| item.count).sum() })
        });
        items = made.collect::<Result<_, Stop>>()?;
        if let [top] = items[..] {
            return Ok(top.child);
        }
    }
    unreachable!("a list of {} nodes in its top level", items.len())
}

/// The nodes below a node, or the chunks.
pub(crate) fn children(lane: &Lane<'_>, node: u64) -> (bool, Vec<u64>) {
    let node = Node::load(lane, node);
    (node.level() == 0, node.items(lane).map(|item| item.child).collect())
}
