//! A shard's volatile state, and detached tables, which are freed piece by piece.

use std::collections::BTreeSet;
use std::sync::Arc;

use perdura_slots::Lane;

use crate::api::DATABASES;
use crate::entry::Entry;
use crate::far::FarStorage;
use crate::table::{self, Part, ROOT_WORDS};
use crate::tree;

/// Parts of detached tables that are freed under one hold of their shard.
pub(crate) const PARTS_PER_HOLD: u64 = 4096;

/// Volatile state of a shard.
pub(crate) struct Shard {
    pub dbs: [ShardDb; DATABASES as usize],
    /// Tables to which no reference leads any more, which are to be freed piece by piece.
    pub detached: Vec<Detached>,
    /// Who keeps the values that are not in memory.
    pub far: Option<Arc<dyn FarStorage>>,
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
        Self { dbs, detached: Vec::new(), far }
    }
}

/// A table, with a sorted set's tree, that an operation which has committed cut off.
pub(crate) struct Detached {
    root: [u64; ROOT_WORDS],
    /// Offset of the root, if the root is an object of its own.
    root_at: Option<u64>,
    /// The first bucket whose records are not freed yet.
    next_bucket: u64,
    /// Nodes of the tree whose children are not freed yet; the tree is freed before the table.
    nodes: Vec<u64>,
}

impl Detached {
    /// The table at `root`, which is an object of its own if `owned`.
    pub fn new(lane: &Lane<'_>, root: u64, owned: bool) -> Self {
        let words = table::root_words(lane, root);
        let root_at = owned.then_some(root);
        Self { root: words, root_at, next_bucket: 0, nodes: Vec::new() }
    }

    /// The table that a record leads to, if it has one.
    pub fn of(entry: &Entry<'_>) -> Option<Self> {
        let nodes = entry.tree_top().into_iter().collect();
        let table = entry.has_table().then(|| Self::new(entry.lane, entry.table_root(), true))?;
        Some(Self { nodes, ..table })
    }
}

/// Frees about `parts` parts of the shard's detached tables. Returns whether any tables are left.
pub(crate) fn reap(lane: &mut Lane<'_>, parts: u64) -> bool {
    let mut done = 0;
    while done < parts {
        let Some(shard) = lane.user_mut::<Shard>() else { return false };
        let Some(mut table) = shard.detached.pop() else { return false };
        let (mut doomed, mut nested, mut freed_far) = (Vec::new(), Vec::new(), Vec::new());
        while done < parts
            && let Some(node) = table.nodes.pop()
        {
            table.nodes.extend(tree::children(lane, node));
            doomed.push(node);
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
        let finished = table.nodes.is_empty() && table.next_bucket >= table.root[0];
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
    lane.user::<Shard>().is_some_and(|shard| !shard.detached.is_empty())
}
