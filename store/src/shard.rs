//! A shard's volatile state, and detached tables and lists, which are freed piece by piece.

use std::collections::BTreeSet;
use std::sync::Arc;

use perdura_slots::Lane;

use crate::api::OWN_DATABASE;
use crate::entry::Entry;
use crate::far::FarStorage;
use crate::list::chunk::Chunk;
use crate::list::{Root, index};
use crate::snapshot::ShardSnapshot;
use crate::stream::pieces::{self, Piece};
use crate::table::{self, Part, ROOT_WORDS};
use crate::tree;

/// Volatile state of a shard.
pub(crate) struct Shard {
    pub dbs: [ShardDb; OWN_DATABASE as usize + 1],
    /// Tables to which no reference leads any more, which are to be freed piece by piece.
    pub detached: Vec<Detached>,
    /// Who keeps the values that are not in memory.
    pub far: Option<Arc<dyn FarStorage>>,
    /// The snapshot that is being taken, until it has all keys of the shard.
    pub snapshot: Option<Box<ShardSnapshot>>,
}

/// Volatile state of one database's part of a shard.
#[derive(Default)]
pub(crate) struct ShardDb {
    /// Whether the root says how many keys the shard has, by its word for that or by having no
    /// buckets. An operation that changes the number must clear the word.
    pub is_saved: bool,
    /// All keys in order, once an operation has asked for a range of keys.
    pub ordered: Option<BTreeSet<Box<[u8]>>>,
}

impl Shard {
    pub fn new(far: Option<Arc<dyn FarStorage>>) -> Self {
        let dbs = std::array::from_fn(|_| ShardDb::default());
        Self { dbs, detached: Vec::new(), far, snapshot: None }
    }
}

/// A table, with a sorted set's tree, or pieces of a list or a stream, that an operation which has
/// committed cut off.
#[derive(Default)]
pub(crate) struct Detached {
    root: [u64; ROOT_WORDS],
    /// Offset of the root, if the root is an object of its own.
    root_at: Option<u64>,
    /// The first bucket whose records are not freed yet.
    next_bucket: u64,
    /// Nodes of the tree whose children are not freed yet; the tree is freed before the table.
    nodes: Vec<u64>,
    /// Nodes of a list's index of which nothing is freed yet.
    index_nodes: Vec<u64>,
    /// Chunks of a list that are not freed yet, nor the elements that have records of their own.
    chunks: Vec<u64>,
    /// Objects of a stream of which nothing is freed yet.
    stream: Vec<Piece>,
}

impl Detached {
    /// The table at `root`, which is an object of its own if `owned`.
    pub fn new(lane: &Lane<'_>, root: u64, owned: bool) -> Self {
        let words = table::root_words(lane, root);
        let root_at = owned.then_some(root);
        Self { root: words, root_at, ..Self::default() }
    }

    /// Pieces of a list's index, and chunks, to which no reference leads any more.
    pub fn of_pieces(index_nodes: Vec<u64>, chunks: Vec<u64>) -> Self {
        Self { index_nodes, chunks, ..Self::default() }
    }

    /// The chunks of a large list.
    fn of_list(root: &Root) -> Self {
        let present = |at: &u64| *at != 0;
        let index_nodes = [root.top].into_iter().filter(present).collect();
        let chunks = [root.head, root.tail].into_iter().filter(present).collect();
        Self::of_pieces(index_nodes, chunks)
    }

    /// Objects of a stream to which no reference leads any more.
    pub fn of_stream(stream: Vec<Piece>) -> Self {
        Self { stream, ..Self::default() }
    }

    /// What a record leads to, if it leads on.
    pub fn of(entry: &Entry<'_>) -> Option<Self> {
        if let Some(root) = entry.list_root() {
            return Some(Self::of_list(&root));
        }
        if let Some(root) = entry.stream_root() {
            return Some(Self::of_stream(pieces::of(&root)));
        }
        let nodes = entry.tree_top().into_iter().collect();
        let table = entry.has_table().then(|| Self::new(entry.lane, entry.table_root(), true))?;
        Some(Self { nodes, ..table })
    }
}

/// Whether deleted values wait in the shard to be freed.
pub(crate) fn has_detached(lane: &Lane<'_>) -> bool {
    lane.user::<Shard>().is_some_and(|shard| !shard.detached.is_empty())
}

/// Frees about `parts` parts of the shard's detached tables. Returns how many: fewer than that only
/// if no tables are left.
pub(crate) fn reap(lane: &mut Lane<'_>, parts: u64) -> u64 {
    let mut done = 0;
    while done < parts {
        let Some(shard) = lane.user_mut::<Shard>() else { break };
        let Some(mut table) = shard.detached.pop() else { break };
        let (mut doomed, mut nested, mut freed_far) = (Vec::new(), Vec::new(), Vec::new());
        while done < parts
            && let Some(node) = table.nodes.pop()
        {
            table.nodes.extend(tree::children(lane, node));
            doomed.push(node);
            done += 1;
        }
        while done < parts
            && let Some(at) = table.chunks.pop()
        {
            let chunk = Chunk::load(lane, at);
            doomed.extend(chunk.parts_in(lane, chunk.entries(lane)));
            doomed.push(at);
            done += 1 + chunk.parts;
        }
        while done < parts
            && let Some(node) = table.index_nodes.pop()
        {
            let (are_chunks, below) = index::children(lane, node);
            if are_chunks { &mut table.chunks } else { &mut table.index_nodes }.extend(below);
            doomed.push(node);
            done += 1;
        }
        while done < parts
            && let Some(piece) = table.stream.pop()
        {
            table.stream.extend(piece.below(lane));
            doomed.push(piece.at());
            done += 1;
        }
        while done < parts && table.next_bucket < table.root[0] {
            let before = doomed.len();
            let walked =
                table::parts_of_bucket::<()>(lane, &table.root, table.next_bucket, &mut |part| {
                    match part {
                        Part::Overflow(at) => doomed.push(at),
                        Part::Entry(entry) => {
                            let record = Entry::new(lane, table::record_of(entry));
                            nested.extend(Detached::of(&record));
                            freed_far.extend(record.far());
                            doomed.push(record.at);
                        }
                    }
                    Ok(())
                });
            debug_assert!(walked.is_ok());
            table.next_bucket += 1;
            done += 1 + (doomed.len() - before) as u64;
        }
        let is_list_left = !(table.index_nodes.is_empty() && table.chunks.is_empty());
        let is_left = is_list_left || !table.stream.is_empty();
        let finished = table.nodes.is_empty() && !is_left && table.next_bucket >= table.root[0];
        if finished {
            let listed = table::pieces::for_each::<()>(lane, &table.root, |at| {
                doomed.push(at);
                Ok(())
            });
            debug_assert!(listed.is_ok());
            doomed.extend(table.root_at);
        }
        doomed.into_iter().for_each(|object| lane.free_unreached(object));
        let was_found = lane.is_searched();
        if let Some(shard) = lane.user_mut::<Shard>() {
            if let Some(far) = &shard.far {
                freed_far.into_iter().for_each(|at| far.freed(at, was_found));
            }
            if !finished {
                shard.detached.push(table);
            }
            shard.detached.append(&mut nested);
        }
    }
    done
}
