//! Places for objects in a file: freed pieces by length, and the end of the file.

use std::collections::HashMap;

use crate::access::ObjectId;

/// Offset of the first object; it is not 0, for no object may have number 0.
const FIRST: u64 = 64;
const ALIGN_BYTES: u64 = 16;

/// Free places, kept in memory only, as in a program that would rebuild them by reading its file.
#[derive(Debug)]
pub struct Room {
    end: u64,
    freed: HashMap<u64, Vec<u64>>,
}

impl Room {
    pub fn new() -> Self {
        Self { end: FIRST, freed: HashMap::new() }
    }

    /// A place for an object: a freed one of that length, or the end, which moves.
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
