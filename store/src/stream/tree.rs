//! The trees that a stream is made of: B+trees of chunks and pending entries by their IDs, of
//! groups and consumers by their names.
//!
//! Nodes change in place and are logged, as those of a sorted set's tree do. An inner entry's key
//! is at most the lowest one below; in a tree of names it is the lowest, because a name is read
//! where its owner is, who may go.
//!
//! Invariants: entries ascend; all leaves are at level 0; no node is empty; the top has two entries
//! or is a leaf. A tree without entries has no top, which is 0.

use perdura_slots::{Lane, LaneId, Op, Stop};

use super::node::{LEVELS_MAX, Node, Probe, SLOTS, Tree, Words};

/// A node with fewer entries is merged with a neighbour, if both are small.
const FEW: usize = SLOTS / 4;
/// Most entries of two nodes that are merged.
const MERGED_MAX: usize = SLOTS * 3 / 4;

/// The way from the top to a place in a leaf, which may be the one behind its last entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
    tree: Tree,
    /// Offset of the node at each level, and the position of the entry taken in the node.
    steps: [(u64, usize); LEVELS_MAX],
    levels: usize,
}

impl Path {
    fn down(lane: &Lane<'_>, tree: Tree, top: u64, mut choose: impl FnMut(&Node) -> usize) -> Self {
        let mut node = Node::load(lane, tree, top);
        let levels = usize::from(node.level()) + 1;
        let mut path = Self { tree, steps: [(0, 0); LEVELS_MAX], levels };
        loop {
            let position = choose(&node);
            path.steps[usize::from(node.level())] = (node.at(), position);
            if node.level() == 0 {
                return path;
            }
            let child = Node::load(lane, tree, node.child(lane, position));
            if child.level() + 1 != node.level() {
                child.damaged(lane).unwind();
            }
            node = child;
        }
    }

    /// Goes down to the first entry that is not before `probe`, or to where such would be in the
    /// leaf that would have it; if `or_at`, the entry must be behind `probe`.
    fn to(lane: &Lane<'_>, tree: Tree, top: u64, probe: Probe<'_>, or_at: bool) -> Self {
        Self::down(lane, tree, top, |node| {
            let is_inner = node.level() > 0;
            let before = node.before(lane, probe, is_inner || or_at);
            if is_inner { before.saturating_sub(1) } else { before }
        })
    }

    /// Goes down to the first entry, or to the last one.
    pub fn to_end(lane: &Lane<'_>, tree: Tree, top: u64, is_front: bool) -> Self {
        Self::down(lane, tree, top, |node| if is_front { 0 } else { node.len() - 1 })
    }

    /// Goes down to the first entry that is not before `probe`; `None` if there is none.
    pub fn at_or_behind(lane: &Lane<'_>, tree: Tree, top: u64, probe: Probe<'_>) -> Option<Self> {
        let mut path = (top != 0).then(|| Self::to(lane, tree, top, probe, false))?;
        let (leaf, position) = path.node(lane, 0);
        (position < leaf.len() || path.step(lane, false)).then_some(path)
    }

    /// Goes down to the last entry that is not behind `probe`; `None` if there is none.
    pub fn at_or_before(lane: &Lane<'_>, tree: Tree, top: u64, probe: Probe<'_>) -> Option<Self> {
        let mut path = (top != 0).then(|| Self::to(lane, tree, top, probe, true))?;
        path.step(lane, true).then_some(path)
    }

    fn node(&self, lane: &Lane<'_>, level: usize) -> (Node, usize) {
        let (at, position) = self.steps[level];
        (Node::load(lane, self.tree, at), position)
    }

    /// The entry that the path leads to.
    pub fn item(&self, lane: &Lane<'_>) -> Words {
        let (node, position) = self.node(lane, 0);
        node.item(lane, position)
    }

    /// Moves to the next entry or, if `down`, to the one before. Returns false if there is none.
    pub fn step(&mut self, lane: &Lane<'_>, down: bool) -> bool {
        for level in 0..self.levels {
            let (node, position) = self.node(lane, level);
            let next = if down { position.checked_sub(1) } else { Some(position + 1) };
            let Some(next) = next.filter(|next| *next < node.len()) else { continue };
            self.steps[level].1 = next;
            if level > 0 {
                let below = Self::to_end(lane, self.tree, node.child(lane, next), !down);
                if below.levels != level {
                    node.damaged(lane).unwind();
                }
                self.steps[..level].copy_from_slice(&below.steps[..level]);
            }
            return true;
        }
        false
    }

    /// Changes the value of the entry that the path leads to.
    pub fn set(&self, op: &mut Op<'_>, id: LaneId, item: &Words) -> Result<(), Stop> {
        let (node, position) = self.node(op.lane(id), 0);
        node.set(op, id, position, item)
    }
}

/// Finds the entry that `probe` is the key of.
pub(crate) fn find(lane: &Lane<'_>, tree: Tree, top: u64, probe: Probe<'_>) -> Option<Path> {
    let path = (top != 0).then(|| Path::to(lane, tree, top, probe, false))?;
    let (leaf, position) = path.node(lane, 0);
    let is_found = position < leaf.len()
        && tree.compare(lane, &leaf.item(lane, position), probe) == std::cmp::Ordering::Equal;
    is_found.then_some(path)
}

/// The number of entries. Looks at every leaf.
pub(crate) fn count(lane: &Lane<'_>, tree: Tree, top: u64) -> u64 {
    if top == 0 {
        return 0;
    }
    let node = Node::load(lane, tree, top);
    match node.level() {
        0 => node.len() as u64,
        _ => (0..node.len()).map(|at| count(lane, tree, node.child(lane, at))).sum(),
    }
}

/// Adds an entry that the tree does not have. Returns the tree's top.
pub(crate) fn insert(
    op: &mut Op<'_>,
    id: LaneId,
    tree: Tree,
    top: u64,
    item: Words,
) -> Result<u64, Stop> {
    if top == 0 {
        return Node::create(op, id, (tree, 0), &[item], 1);
    }
    let lane = op.lane(id);
    let path = Path::to(lane, tree, top, tree.probe_of(lane, &item), false);
    let (leaf, position) = path.node(lane, 0);
    if path.levels == 1 && leaf.len() < SLOTS && leaf.len() >= leaf.slots(lane) {
        // The only node, which has little memory, is made anew with more.
        let mut items: Vec<Words> = leaf.items(lane).collect();
        items.insert(position, item);
        let made = Node::create(op, id, (tree, 0), &items, 2 * leaf.slots(op.lane(id)))?;
        op.free(top);
        return Ok(made);
    }
    let mut carried = Some(item);
    for level in 0..path.levels {
        let (mut node, mut position) = path.node(op.lane(id), level);
        if level > 0 {
            refresh(op, id, &node, position, path.steps[level - 1], false)?;
            position += 1;
        }
        carried = match carried {
            Some(item) => insert_at(op, id, tree, &mut node, position, item)?,
            None => None,
        };
    }
    let Some(right) = carried else { return Ok(top) };
    assert!(path.levels < LEVELS_MAX, "a stream's tree of {} levels", path.levels);
    let left = inner(tree, &Node::load(op.lane(id), tree, top).item(op.lane(id), 0), top);
    Node::create(op, id, (tree, path.levels as u8), &[left, right], SLOTS)
}

/// The inner entry of a node whose lowest entry this is.
fn inner(tree: Tree, lowest: &Words, child: u64) -> Words {
    let mut words = Words::default();
    words[..tree.key_words()].copy_from_slice(&lowest[..tree.key_words()]);
    words[tree.key_words()] = child;
    words
}

/// Makes an inner entry's key that of the first entry of the node below, if that is the one that
/// has changed and the key must follow.
fn refresh(
    op: &mut Op<'_>,
    id: LaneId,
    node: &Node,
    position: usize,
    (child, changed): (u64, usize),
    was_removal: bool,
) -> Result<(), Stop> {
    let tree = node.tree();
    let is_exact = matches!(tree, Tree::Groups | Tree::Consumers);
    if changed > 0 || (was_removal && !is_exact) {
        return Ok(());
    }
    let lane = op.lane(id);
    let wanted = inner(tree, &Node::load(lane, tree, child).item(lane, 0), child);
    match node.item(lane, position) == wanted {
        true => Ok(()),
        false => node.set(op, id, position, &wanted),
    }
}

/// Adds an entry to a node. A full node is split, and the entry of the new node behind it is
/// returned.
fn insert_at(
    op: &mut Op<'_>,
    id: LaneId,
    tree: Tree,
    node: &mut Node,
    position: usize,
    item: Words,
) -> Result<Option<Words>, Stop> {
    if node.len() < SLOTS {
        return node.insert(op, id, position, &item).map(|()| None);
    }
    // Behind the last entry nothing is left room for: most trees grow there.
    let keep = if position == SLOTS { SLOTS } else { SLOTS / 2 };
    let mut right: Vec<Words> = node.items(op.lane(id)).skip(keep).collect();
    let goes_right = position > keep || keep == SLOTS;
    if goes_right {
        right.insert(position - keep, item);
    }
    let child = Node::create(op, id, (tree, node.level()), &right, SLOTS)?;
    node.remove(op, id, keep, SLOTS - keep)?;
    if !goes_right {
        node.insert(op, id, position, &item)?;
    }
    Ok(Some(inner(tree, &right[0], child)))
}

/// Takes out the entry that the path leads to. Returns the tree's top.
pub(crate) fn remove(op: &mut Op<'_>, id: LaneId, top: u64, path: &Path) -> Result<u64, Stop> {
    let (mut leaf, position) = path.node(op.lane(id), 0);
    leaf.remove(op, id, position, 1)?;
    let mut is_empty = leaf.len() == 0;
    for level in 1..path.levels {
        let (mut node, position) = path.node(op.lane(id), level);
        let (child, changed) = path.steps[level - 1];
        if is_empty {
            node.remove(op, id, position, 1)?;
            op.free(child);
            is_empty = node.len() == 0;
            continue;
        }
        refresh(op, id, &node, position, (child, changed), true)?;
        if Node::load(op.lane(id), path.tree, child).len() < FEW {
            merge(op, id, &mut node, position)?;
        }
    }
    if is_empty {
        op.free(top);
        return Ok(0);
    }
    Ok(lowered(op, id, path.tree, top))
}

/// The top of a tree whose highest nodes may have one entry only; these are freed.
fn lowered(op: &mut Op<'_>, id: LaneId, tree: Tree, mut top: u64) -> u64 {
    loop {
        let lane = op.lane(id);
        let node = Node::load(lane, tree, top);
        if node.level() == 0 || node.len() > 1 {
            return top;
        }
        let child = node.child(lane, 0);
        op.free(top);
        top = child;
    }
}

/// Merges the child at `position` with a neighbour, if both are small.
fn merge(op: &mut Op<'_>, id: LaneId, node: &mut Node, position: usize) -> Result<(), Stop> {
    let tree = node.tree();
    // The neighbour before is tried first: then the entries that move are those of the small node.
    let pairs = [position.checked_sub(1), (position + 1 < node.len()).then_some(position)];
    for left_at in pairs.into_iter().flatten() {
        let lane = op.lane(id);
        let (left, right) = (node.child(lane, left_at), node.child(lane, left_at + 1));
        let (mut to, from) = (Node::load(lane, tree, left), Node::load(lane, tree, right));
        if to.len() + from.len() > MERGED_MAX || to.len() + from.len() > to.slots(lane) {
            continue;
        }
        let moving: Vec<Words> = from.items(lane).collect();
        for item in &moving {
            let end = to.len();
            to.insert(op, id, end, item)?;
        }
        node.remove(op, id, left_at + 1, 1)?;
        op.free(right);
        return Ok(());
    }
    Ok(())
}

/// What a cut takes off a tree.
#[derive(Debug, Default)]
pub(crate) struct CutOff {
    /// Nodes with all below them.
    pub nodes: Vec<u64>,
    /// Entries of a leaf that stays.
    pub items: Vec<Words>,
}

/// Takes out all entries before the one that the path leads to. Returns the tree's top.
pub(crate) fn cut_before(
    op: &mut Op<'_>,
    id: LaneId,
    top: u64,
    path: &Path,
    off: &mut CutOff,
) -> Result<u64, Stop> {
    for level in 0..path.levels {
        let lane = op.lane(id);
        let (mut node, position) = path.node(lane, level);
        for position in 0..position {
            match level {
                0 => off.items.push(node.item(lane, position)),
                _ => off.nodes.push(node.child(lane, position)),
            }
        }
        node.remove(op, id, 0, position)?;
    }
    Ok(lowered(op, id, path.tree, top))
}

/// Makes a tree of these entries, which are in order. Returns the tree's top.
pub(crate) fn build(
    op: &mut Op<'_>,
    id: LaneId,
    tree: Tree,
    mut items: Vec<Words>,
) -> Result<u64, Stop> {
    if items.is_empty() {
        return Ok(0);
    }
    for level in 0..LEVELS_MAX as u8 {
        // Only a leaf that is the whole tree may have little memory.
        let is_tree = level == 0 && items.len() <= SLOTS;
        let made = items.chunks(SLOTS).map(|part| {
            let slots = if is_tree { part.len() } else { SLOTS };
            let child = Node::create(op, id, (tree, level), part, slots)?;
            Ok(inner(tree, &part[0], child))
        });
        items = made.collect::<Result<_, Stop>>()?;
        if let [top] = items[..] {
            return Ok(top[tree.key_words()]);
        }
    }
    unreachable!("a stream's tree of {} nodes in its top level", items.len())
}
