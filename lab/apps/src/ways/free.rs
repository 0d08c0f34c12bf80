//! Room in a file for objects: freed pieces by length, and the end.

use std::collections::HashMap;

use crate::access::ObjectId;

/// The first object lies behind this, so that none is 0.
const FIRST: u64 = 64;
const ALIGN_BYTES: u64 = 16;

/// Kept in memory: as of a program that would rebuild it by reading its file.
#[derive(Debug)]
pub struct Room {
    end: u64,
    freed: HashMap<u64, Vec<u64>>,
}

impl Room {
    pub fn new() -> Self {
        Self { end: FIRST, freed: HashMap::new() }
    }

    /// A place for an object; that may be behind the end, which is then further back.
    pub fn take(&mut self, len_bytes: usize) -> ObjectId {
        let taken = Self::taken(len_bytes);
        if let Some(place) = self.freed.get_mut(&taken).and_then(Vec::pop) {
            return place;
        }
        let place = self.end;
        self.end += taken;
        place
    }

    pub fn give(&mut self, id: ObjectId, len_bytes: usize) {
        self.freed.entry(Self::taken(len_bytes)).or_default().push(id);
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    fn taken(len_bytes: usize) -> u64 {
        (len_bytes as u64).next_multiple_of(ALIGN_BYTES).max(ALIGN_BYTES)
    }
}
