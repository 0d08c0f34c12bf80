//! What users tried and may not do, newest first.

use std::collections::VecDeque;

use super::check::Reason;

/// Where a command came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Toplevel,
    Multi,
    /// A command of a script.
    Script,
}

impl Origin {
    /// The word for it in ACL LOG.
    pub fn word(self) -> &'static str {
        match self {
            Self::Toplevel => "toplevel",
            Self::Multi => "multi",
            Self::Script => "lua",
        }
    }
}

/// One or several tries of the same.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub count: u64,
    pub reason: Reason,
    pub origin: Origin,
    /// The command, key, channel or word of AUTH that was refused.
    pub object: Vec<u8>,
    pub username: Vec<u8>,
    /// The last client that tried, as in CLIENT LIST.
    pub client: String,
    pub id: u64,
    pub created_ms: u64,
    pub updated_ms: u64,
}

/// The log.
#[derive(Debug, Default)]
pub(crate) struct AclLog {
    pub entries: VecDeque<Entry>,
    next_id: u64,
}

/// Entries that a new one is compared with.
const COMPARED: usize = 10;
/// Time within which tries of the same are one entry, milliseconds.
const SAME_MS: u64 = 60_000;

impl AclLog {
    /// Notes a try. Its count and number are those that the log gives it.
    pub fn add(&mut self, new: Entry, len_max: usize) {
        let is_same = |old: &Entry| {
            old.reason == new.reason
                && old.origin == new.origin
                && old.object == new.object
                && old.username == new.username
                && old.updated_ms.abs_diff(new.updated_ms) <= SAME_MS
        };
        let same = self.entries.iter().take(COMPARED).position(is_same);
        match same.and_then(|at| self.entries.remove(at)) {
            Some(old) => {
                let (client, updated_ms) = (new.client, new.updated_ms);
                self.entries.push_front(Entry { count: old.count + 1, client, updated_ms, ..old });
            }
            None => {
                self.entries.push_front(Entry { id: self.next_id, count: 1, ..new });
                self.next_id += 1;
                self.entries.truncate(len_max);
            }
        }
    }
}
