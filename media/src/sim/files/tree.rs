//! Names of simulated files and folders: as programs see them, and as a power cut leaves them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rand::Rng;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Folder,
    /// The number of the file's contents.
    File(usize),
}

/// All names by full path.
#[derive(Clone)]
pub(super) struct Tree {
    now: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
    /// Changes in the order in which they were made, since their folder was synced.
    unsynced: Vec<Change>,
}

/// One change of the names in one folder. A power cut leaves it done or undone, never half done.
#[derive(Clone)]
struct Change {
    folder: PathBuf,
    removed: Option<PathBuf>,
    added: Option<(PathBuf, Node)>,
}

impl Tree {
    /// Only the root.
    pub(super) fn new() -> Self {
        let root = BTreeMap::from([(PathBuf::from("/"), Node::Folder)]);
        Self { now: root.clone(), durable: root, unsynced: Vec::new() }
    }

    pub(super) fn get(&self, path: &Path) -> Option<Node> {
        self.now.get(path).copied()
    }

    pub(super) fn add(&mut self, path: &Path, node: Node) {
        self.change(path, None, Some((path.to_owned(), node)));
    }

    pub(super) fn remove(&mut self, path: &Path) {
        self.change(path, Some(path.to_owned()), None);
    }

    /// Gives `node`, which is called `from`, the name `to` in the same folder.
    pub(super) fn rename(&mut self, from: &Path, to: &Path, node: Node) {
        self.change(to, Some(from.to_owned()), Some((to.to_owned(), node)));
    }

    /// Makes the names in one folder durable, but not the name of the folder.
    pub(super) fn sync(&mut self, folder: &Path) {
        let durable = &mut self.durable;
        self.unsynced.retain(|change| {
            let is_meant = change.folder == folder;
            if is_meant {
                change.apply(durable);
            }
            !is_meant
        });
    }

    /// The names after a power cut. A name is found only through all of its folders.
    pub(super) fn survivors(&self, random: &mut impl Rng) -> Self {
        let mut left = self.durable.clone();
        let kept = [0.0, 0.5, 1.0][random.random_range(0..3)];
        for change in &self.unsynced {
            if random.random_bool(kept) {
                change.apply(&mut left);
            }
        }
        let mut found: BTreeMap<PathBuf, Node> = BTreeMap::new();
        // In this order a folder comes before what lies in it.
        for (path, node) in left {
            if path.parent().is_none_or(|above| found.get(above) == Some(&Node::Folder)) {
                found.insert(path, node);
            }
        }
        Self { now: found.clone(), durable: found, unsynced: Vec::new() }
    }

    fn change(&mut self, within: &Path, removed: Option<PathBuf>, added: Option<(PathBuf, Node)>) {
        let folder = within.parent().unwrap_or(within).to_owned();
        let change = Change { folder, removed, added };
        change.apply(&mut self.now);
        self.unsynced.push(change);
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        if let Some(path) = &self.removed {
            names.remove(path);
        }
        if let Some((path, node)) = &self.added {
            names.insert(path.clone(), *node);
        }
    }
}
