//! The objects that a stream is made of, for who frees, counts or checks them all.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use perdura_slots::{Lane, Marks};

use super::chunk::{Bounds, Chunk};
use super::group::{ConsumerWords, GroupWords};
use super::node::{Node, Tree, Words, id_of};
use super::{INSIDE, Root, StreamId};
use crate::error::{Damaged, OpenError};

/// An object of a stream besides its record.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Piece {
    Chunk(u64),
    Node(Tree, u64),
    Group(u64),
    Consumer(u64),
}

fn node(tree: Tree, top: u64) -> Option<Piece> {
    (top != 0).then_some(Piece::Node(tree, top))
}

/// The objects that a stream's root names.
pub(crate) fn of(root: &Root) -> Vec<Piece> {
    let tail = (root.tail > INSIDE).then_some(Piece::Chunk(root.tail));
    let trees = [node(Tree::Chunks, root.chunks_top), node(Tree::Groups, root.groups_top)];
    tail.into_iter().chain(trees.into_iter().flatten()).collect()
}

impl Piece {
    /// Offset of the object.
    pub fn at(self) -> u64 {
        match self {
            Self::Chunk(at) | Self::Node(_, at) | Self::Group(at) | Self::Consumer(at) => at,
        }
    }

    /// The objects that this one names.
    pub fn below(self, lane: &Lane<'_>) -> Vec<Self> {
        match self {
            Self::Chunk(_) => Vec::new(),
            Self::Node(tree, at) => {
                let node = Node::load(lane, tree, at);
                match node.level() {
                    0 => node.items(lane).filter_map(|words| of_leaf(tree, &words)).collect(),
                    _ => (0..node.len()).map(|n| Self::Node(tree, node.child(lane, n))).collect(),
                }
            }
            Self::Group(at) => {
                let group = GroupWords::load(lane, at);
                let pending = node(Tree::Pending, group.pending_top);
                pending.into_iter().chain(node(Tree::Consumers, group.consumers_top)).collect()
            }
            Self::Consumer(at) => {
                node(Tree::Owned, ConsumerWords::load(lane, at).pending_top).into_iter().collect()
            }
        }
    }
}

/// The object that an entry of a leaf names, if it belongs to the tree.
pub(crate) fn of_leaf(tree: Tree, words: &Words) -> Option<Piece> {
    match tree {
        Tree::Chunks => Some(Piece::Chunk(words[2])),
        Tree::Groups => Some(Piece::Group(words[0])),
        Tree::Consumers => Some(Piece::Consumer(words[0])),
        Tree::Pending | Tree::Owned => None,
    }
}

/// Bytes of memory that a stream takes beside its record.
pub(crate) fn memory_bytes(lane: &Lane<'_>, root: &Root) -> u64 {
    let (mut left, mut sum) = (of(root), 0);
    while let Some(piece) = left.pop() {
        sum += lane.usable_bytes(piece.at());
        left.extend(piece.below(lane));
    }
    sum
}

/// Marks all that a stream's root leads to, and refuses what no store writes.
pub(crate) fn trace(lane: &Lane<'_>, marks: &mut Marks<'_>, root: &Root) -> Result<(), OpenError> {
    check(lane, root, &mut |at| Ok(marks.mark(at)?))
}

/// What is wrong with a stream.
pub(crate) fn problem(lane: &Lane<'_>, root: &Root) -> Option<OpenError> {
    check(lane, root, &mut |_| Ok(())).err()
}

type Mark<'m> = &'m mut dyn FnMut(u64) -> Result<(), OpenError>;

fn refuse<T>(what: &'static str, offset: u64, value: u64) -> Result<T, OpenError> {
    Err(Damaged { what, offset, value }.into())
}

/// Calls `mark` with every object that a stream's root leads to, before it is looked at.
fn check(lane: &Lane<'_>, root: &Root, mark: Mark<'_>) -> Result<(), OpenError> {
    let (mut len, mut last) = (0, None);
    let chunks = entries_of(lane, Tree::Chunks, root.chunks_top, mark)?;
    for words in &chunks {
        mark(words[2])?;
        let chunk = Chunk::load(lane, words[2]);
        if chunk.master(lane) != id_of(words) {
            return Err(chunk.damaged().into());
        }
        check_chunk(lane, &chunk, &mut last, &mut len)?;
    }
    if root.tail > INSIDE {
        mark(root.tail)?;
    }
    match root.tail(lane) {
        Some(chunk) => check_chunk(lane, &chunk, &mut last, &mut len)?,
        None if chunks.is_empty() && root.bounds == Bounds::default() => {}
        None => return refuse("last chunk of a stream", root.at, root.bounds.word()),
    }
    if len != root.len {
        return refuse("length of a stream", root.at, root.len);
    }
    if last.is_some_and(|last| last > root.last_id) {
        return refuse("last ID of a stream", root.at, root.last_id.ms);
    }
    for words in entries_of(lane, Tree::Groups, root.groups_top, mark)? {
        check_group(lane, words[0], mark)?;
    }
    Ok(())
}

fn check_chunk(
    lane: &Lane<'_>,
    chunk: &Chunk,
    last: &mut Option<StreamId>,
    len: &mut u64,
) -> Result<(), OpenError> {
    let first = chunk.entries(lane).next().map(|entry| entry.id);
    let is_behind = last.is_none_or(|last| first > Some(last));
    if !chunk.is_sound(lane) || !is_behind || first != Some(chunk.master(lane)) {
        return Err(chunk.damaged().into());
    }
    if chunk.bounds.live == 0 {
        return Err(chunk.damaged().into());
    }
    *last = Some(chunk.last_id(lane));
    *len += chunk.bounds.live;
    Ok(())
}

fn check_group(lane: &Lane<'_>, at: u64, mark: Mark<'_>) -> Result<(), OpenError> {
    let group = GroupWords::load(lane, at);
    let mut owned = BTreeMap::new();
    for words in entries_of(lane, Tree::Consumers, group.consumers_top, mark)? {
        let consumer = ConsumerWords::load(lane, words[0]);
        let ids = entries_of(lane, Tree::Owned, consumer.pending_top, mark)?;
        if ids.len() as u64 != consumer.pending {
            return refuse("pending entries of a consumer", words[0], consumer.pending);
        }
        for id in ids {
            if owned.insert(id_of(&id), words[0]).is_some() {
                return refuse("pending entry of two consumers", words[0], id[0]);
            }
        }
    }
    let pending = entries_of(lane, Tree::Pending, group.pending_top, mark)?;
    let is_owned = |words: &Words| owned.get(&id_of(words)) == Some(&words[2]);
    let is_whole = pending.len() == owned.len() && pending.iter().all(is_owned);
    match is_whole && pending.len() as u64 == group.pending {
        true => Ok(()),
        false => refuse("pending entries of a group", at, group.pending),
    }
}

/// The entries of a tree's leaves. Objects that entries of names lead to are marked, too, because
/// the names lie in them.
fn entries_of(
    lane: &Lane<'_>,
    tree: Tree,
    top: u64,
    mark: Mark<'_>,
) -> Result<Vec<Words>, OpenError> {
    let (mut entries, mut left) = (Vec::new(), Vec::new());
    left.extend((top != 0).then_some((top, None)));
    let is_of_names = matches!(tree, Tree::Groups | Tree::Consumers);
    // The last node is looked at first, so that they come in order.
    while let Some((at, above)) = left.pop() {
        mark(at)?;
        let node = Node::load(lane, tree, at);
        let lowest = node.item(lane, 0);
        let is_below = |(level, key): (u8, Words)| {
            let is_lowest = key[0] == lowest[0];
            let fits = if is_of_names { is_lowest } else { id_of(&key) <= id_of(&lowest) };
            level == node.level() && fits
        };
        if !above.is_none_or(is_below) {
            return Err(node.damaged(lane).into());
        }
        if node.level() > 0 {
            for position in (0..node.len()).rev() {
                let above = (node.level() - 1, node.item(lane, position));
                left.push((node.child(lane, position), Some(above)));
            }
            continue;
        }
        for words in node.items(lane) {
            if is_of_names {
                mark(words[0])?;
            }
            entries.push(words);
        }
        if !node.is_sound(lane) {
            return Err(node.damaged(lane).into());
        }
    }
    let ascend = |pair: &[Words]| {
        tree.compare(lane, &pair[0], tree.probe_of(lane, &pair[1])) == Ordering::Less
    };
    match entries.windows(2).all(ascend) {
        true => Ok(entries),
        false => refuse("order of a stream's tree", top, entries.len() as u64),
    }
}
