//! The oracle: the contents that a heap should have after each step, kept as naively as possible.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// An object that must be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    /// Bytes that were asked for.
    pub len_bytes: u64,
    /// Bytes of the object; `None` if they are arbitrary.
    pub bytes: Option<Vec<u8>>,
}

/// The contents that a heap should have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Expected {
    /// Step behind which the heap should have them.
    pub step: &'static str,
    /// Objects that must be allocated, by offset.
    pub objects: BTreeMap<u64, Object>,
    /// Offsets of objects that were freed, and may be allocated after a loss of power: a leak that
    /// the heap documents.
    pub maybe: BTreeSet<u64>,
    /// Type and object of every named root.
    pub roots: BTreeMap<String, (u64, u64)>,
    /// Bytes of every persistent compartment, by offset.
    pub compartments: BTreeMap<u64, u64>,
    /// Contents that a loss in the middle of the step may lead to as well.
    pub ways: Vec<Self>,
}

/// The contents that a heap was found to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Usable bytes of every allocated object, by offset.
    pub allocated: BTreeMap<u64, u64>,
    /// Number of objects that the recovery found, which may be more than `allocated`.
    pub objects: u64,
    /// Type and object of every named root.
    pub roots: BTreeMap<String, (u64, u64)>,
    /// Bytes of every persistent compartment, by offset.
    pub compartments: BTreeMap<u64, u64>,
}

/// A difference between the contents found and those expected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Difference {
    #[error("the object of {len_bytes} bytes at {offset:#x} is not allocated")]
    Lost { offset: u64, len_bytes: u64 },
    #[error("the object of {len_bytes} bytes at {offset:#x} has room for {usable_bytes} bytes")]
    Short { offset: u64, len_bytes: u64, usable_bytes: u64 },
    #[error("something is allocated at {offset:#x} ({usable_bytes} bytes)")]
    Surplus { offset: u64, usable_bytes: u64 },
    #[error("the compartment at {offset:#x} has {found:?} bytes, expected {expected:?}")]
    Compartment { offset: u64, found: Option<u64>, expected: Option<u64> },
    #[error("{count} objects are allocated, at places that were never given out")]
    Unknown { count: u64 },
    #[error("byte {at} of the object at {offset:#x} is {found:#04x}, expected {expected:#04x}")]
    Bytes { offset: u64, at: usize, found: u8, expected: u8 },
    #[error("the root {name} is {}, expected {}", Root(*.found), Root(*.expected))]
    Root { name: String, found: Option<(u64, u64)>, expected: Option<(u64, u64)> },
    #[error("the objects at {offset:#x} ({usable_bytes} bytes) and {next:#x} overlap")]
    Overlap { offset: u64, usable_bytes: u64, next: u64 },
}

struct Root(Option<(u64, u64)>);

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("not there"),
            Some((type_id, offset)) => write!(f, "of type {type_id:#x} at {offset:#x}"),
        }
    }
}

impl Expected {
    /// Notes that an object is allocated, perhaps where a freed one was.
    pub fn alloc(&mut self, offset: u64, len_bytes: u64, bytes: Option<Vec<u8>>) {
        self.maybe.remove(&offset);
        self.objects.insert(offset, Object { len_bytes, bytes });
    }

    /// Whether an object's bytes are known.
    pub fn has_bytes(&self, offset: u64) -> bool {
        self.objects.get(&offset).is_some_and(|object| object.bytes.is_some())
    }

    /// Notes that an object is freed. `may_return` says that the free is not durable yet.
    pub fn free(&mut self, offset: u64, may_return: bool) {
        self.objects.remove(&offset);
        if may_return {
            self.maybe.insert(offset);
        }
    }

    /// Notes that all frees so far are durable, because something after them is.
    pub fn settle(&mut self) {
        self.maybe.clear();
    }

    /// Notes that a loss in the middle of the step may lead to the contents so far.
    pub fn by_way(&mut self, step: &'static str) {
        let mut way = self.clone();
        way.step = step;
        way.ways.clear();
        self.ways.push(way);
    }

    /// Writes `bytes` into the object at `offset`, `at` bytes behind the object's begin.
    pub fn write(&mut self, offset: u64, at: usize, bytes: &[u8]) {
        if let Some(Object { bytes: Some(held), .. }) = self.objects.get_mut(&offset) {
            held[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// The first difference to `held`; `read` gives an object's bytes. Freed objects may return
    /// after a loss of power, not after a loss of the process alone.
    pub fn difference(
        &self,
        held: &Held,
        freed_may_return: bool,
        read: &dyn Fn(u64, usize) -> Vec<u8>,
    ) -> Option<Difference> {
        self.allocated_differ(held, freed_may_return)
            .or_else(|| self.roots_differ(held))
            .or_else(|| self.compartments_differ(held))
            .or_else(|| self.bytes_differ(read))
    }

    fn allocated_differ(&self, held: &Held, freed_may_return: bool) -> Option<Difference> {
        for (offset, object) in &self.objects {
            let (offset, len_bytes) = (*offset, object.len_bytes);
            match held.allocated.get(&offset) {
                None => return Some(Difference::Lost { offset, len_bytes }),
                Some(usable_bytes) if *usable_bytes < len_bytes => {
                    let usable_bytes = *usable_bytes;
                    return Some(Difference::Short { offset, len_bytes, usable_bytes });
                }
                Some(_) => {}
            }
        }
        let is_allowed = |offset: &u64| {
            self.objects.contains_key(offset) || freed_may_return && self.maybe.contains(offset)
        };
        held.allocated
            .iter()
            .find(|(offset, _)| !is_allowed(offset))
            .map(|(offset, usable)| Difference::Surplus { offset: *offset, usable_bytes: *usable })
            .or_else(|| held.overlap())
            .or_else(|| held.unknown())
    }

    fn roots_differ(&self, held: &Held) -> Option<Difference> {
        let names: BTreeSet<&String> = self.roots.keys().chain(held.roots.keys()).collect();
        let differing = |name: &&String| self.roots.get(*name) != held.roots.get(*name);
        names.into_iter().find(differing).map(|name| Difference::Root {
            name: name.clone(),
            found: held.roots.get(name).copied(),
            expected: self.roots.get(name).copied(),
        })
    }

    fn compartments_differ(&self, held: &Held) -> Option<Difference> {
        let mut offsets = self.compartments.keys().chain(held.compartments.keys());
        let of = |all: &BTreeMap<u64, u64>, offset: &u64| all.get(offset).copied();
        let differing =
            |offset: &&u64| of(&self.compartments, offset) != of(&held.compartments, offset);
        offsets.find(differing).map(|offset| Difference::Compartment {
            offset: *offset,
            found: of(&held.compartments, offset),
            expected: of(&self.compartments, offset),
        })
    }

    fn bytes_differ(&self, read: &dyn Fn(u64, usize) -> Vec<u8>) -> Option<Difference> {
        for (offset, object) in &self.objects {
            let Some(expected) = &object.bytes else { continue };
            let found = read(*offset, expected.len());
            if let Some(at) = (0..expected.len()).find(|at| found[*at] != expected[*at]) {
                let (found, expected) = (found[at], expected[at]);
                return Some(Difference::Bytes { offset: *offset, at, found, expected });
            }
        }
        None
    }
}

impl Held {
    fn unknown(&self) -> Option<Difference> {
        let count = self.objects.saturating_sub(self.allocated.len() as u64);
        (count > 0).then_some(Difference::Unknown { count })
    }

    fn overlap(&self) -> Option<Difference> {
        let next = self.allocated.keys().skip(1);
        self.allocated
            .iter()
            .zip(next)
            .find(|((offset, usable), next)| **offset + **usable > **next)
            .map(|((offset, usable), next)| Difference::Overlap {
                offset: *offset,
                usable_bytes: *usable,
                next: *next,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> Expected {
        let mut expected = Expected::default();
        expected.alloc(64, 3, Some(vec![1, 2, 3]));
        expected.alloc(128, 16, None);
        expected.free(128, true);
        expected.roots.insert("a".to_owned(), (7, 64));
        expected
    }

    fn held() -> Held {
        Held {
            allocated: BTreeMap::from([(64, 16)]),
            objects: 1,
            roots: BTreeMap::from([("a".to_owned(), (7, 64))]),
            compartments: BTreeMap::new(),
        }
    }

    #[test]
    fn each_difference_is_found() {
        let difference = |change: &dyn Fn(&mut Held), bytes: &'static [u8]| {
            let mut held = held();
            change(&mut held);
            expected()
                .difference(&held, true, &|_, len| bytes[..len].to_vec())
                .map(|found| found.to_string())
        };
        assert_eq!(difference(&|_| (), &[1, 2, 3]), None);
        let why = difference(&|_| (), &[1, 9, 3]);
        assert_eq!(why.as_deref(), Some("byte 1 of the object at 0x40 is 0x09, expected 0x02"));
        let why = difference(&|held| held.allocated.clear(), &[1, 2, 3]);
        assert_eq!(why.as_deref(), Some("the object of 3 bytes at 0x40 is not allocated"));
        let why = difference(&|held| held.roots.clear(), &[1, 2, 3]);
        assert_eq!(why.as_deref(), Some("the root a is not there, expected of type 0x7 at 0x40"));
        let why = difference(&|held| held.allocated.extend([(72, 8)]), &[1, 2, 3]);
        assert_eq!(why.as_deref(), Some("something is allocated at 0x48 (8 bytes)"));
    }

    #[test]
    fn what_was_freed_may_return_after_a_loss_of_power_only() {
        let mut held = held();
        held.allocated.insert(128, 16);
        let read = |_: u64, _: usize| vec![1, 2, 3];
        assert!(expected().difference(&held, true, &read).is_none());
        assert!(expected().difference(&held, false, &read).is_some());
    }
}
