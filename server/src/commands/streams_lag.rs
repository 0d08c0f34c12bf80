//! How far a group has read a stream: counts that deleted entries can make unknown.

use perdura_store::{Group, Stream, StreamId};

/// What the counts are reckoned from.
pub(super) struct Facts {
    len: u64,
    added: u64,
    first_id: StreamId,
    last_id: StreamId,
    max_deleted: StreamId,
}

impl Facts {
    pub fn of(stream: &Stream<'_>) -> Self {
        Self {
            len: stream.len(),
            added: stream.entries_added(),
            first_id: stream.first_id(),
            last_id: stream.last_id(),
            max_deleted: stream.max_deleted(),
        }
    }

    /// Whether an entry from `from` on may have been deleted by its ID.
    fn has_gap_from(&self, from: StreamId) -> bool {
        let has_gaps = self.len > 0 && self.max_deleted != StreamId::MIN;
        has_gaps && self.first_id <= self.max_deleted && from <= self.max_deleted
    }

    /// The number of entries that the stream ever got up to `id`, if it can be told.
    fn entries_up_to(&self, id: StreamId) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if (self.len == 0 && id <= self.last_id) || id == self.last_id {
            return Some(self.added);
        }
        if id > self.last_id {
            return None;
        }
        let is_whole = self.max_deleted == StreamId::MIN || self.max_deleted < self.first_id;
        let before = self.added.saturating_sub(self.len);
        match id.cmp(&self.first_id) {
            _ if !is_whole => None,
            std::cmp::Ordering::Less => Some(before),
            std::cmp::Ordering::Equal => Some(before + 1),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// The number of entries read once the one of this ID is, of a group that had read so many.
    pub fn read_with(&self, id: StreamId, entries_read: Option<u64>) -> Option<u64> {
        match entries_read {
            Some(read) if !self.has_gap_from(id) => Some(read.saturating_add(1)),
            read if self.added == 0 => read,
            _ => self.entries_up_to(id),
        }
    }

    /// The number of entries that a group has not got yet, if it can be told.
    pub fn lag(&self, group: &Group<'_>) -> Option<i64> {
        if self.added == 0 {
            return Some(0);
        }
        let read = match group.entries_read() {
            Some(read) if !self.has_gap_from(group.last_id()) => read,
            _ => self.entries_up_to(group.last_id())?,
        };
        Some((self.added as i64).wrapping_sub(read as i64))
    }
}
