//! What clients note of their commands.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::model::{Answer, Key, Op};

/// A command that was answered.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub client: usize,
    pub op: Op,
    pub answer: Answer,
    /// Before it was sent.
    pub called: u64,
    /// After its answer had come.
    pub returned: u64,
}

/// Moments, in their order.
#[derive(Debug, Default)]
pub(crate) struct Moments(AtomicU64);

impl Moments {
    /// The next moment.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, SeqCst)
    }
}

/// The events of each group of keys that commands connect, each in the order of calls.
///
/// An EXEC belongs to the keys that its client has watched, too.
pub(crate) fn parts(mut events: Vec<Event>) -> Vec<Vec<Event>> {
    events.sort_by_key(|event| event.called);
    let mut groups = Groups::default();
    let mut watched: BTreeMap<usize, Vec<Key>> = BTreeMap::new();
    let mut first_keys = Vec::new();
    for event in &events {
        let mut keys = event.op.keys();
        match &event.op {
            Op::Watch(more) => {
                let all = watched.entry(event.client).or_default();
                all.extend(more);
                keys.clone_from(all);
            }
            Op::Exec(_) => keys.extend(watched.remove(&event.client).into_iter().flatten()),
            _ => {}
        }
        keys.windows(2).for_each(|pair| groups.connect(pair[0], pair[1]));
        first_keys.push(keys.first().copied());
    }
    let mut parts: BTreeMap<Option<Key>, Vec<Event>> = BTreeMap::new();
    for (event, first) in events.into_iter().zip(first_keys) {
        parts.entry(first.map(|key| groups.first_of(key))).or_default().push(event);
    }
    parts.into_values().collect()
}

/// Keys that are connected: each leads, perhaps over others, to the first of its group.
#[derive(Debug, Default)]
struct Groups(BTreeMap<Key, Key>);

impl Groups {
    fn first_of(&self, mut key: Key) -> Key {
        while let Some(before) = self.0.get(&key) {
            key = *before;
        }
        key
    }

    fn connect(&mut self, one: Key, other: Key) {
        let (one, other) = (self.first_of(one), self.first_of(other));
        if one != other {
            self.0.insert(one.max(other), one.min(other));
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, op, answer, called, returned } = self;
        write!(f, "{called:>6} to {returned:>6}  client {client}: {op}  ->  {answer}")
    }
}
