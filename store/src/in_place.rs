//! Operations that change one range, or one word, of a value that is there. They need no more of a
//! transaction than the undo of the range, or nothing, and are several times as fast.
//!
//! Each does all of its work or nothing, also after a kill. `None` is the answer where there is
//! more to do: nothing has changed then, and [`Store::run`] does whatever there is to do.

mod hash;
mod list;
mod string;

use std::sync::atomic::Ordering::Relaxed;

use perdura_slots::Lane;

use crate::api::Key;
use crate::record::{Header, RecordKind};
use crate::store::{Place, Store};
use crate::table::Found;

/// A key's shard, held, and the key's place in its index.
struct Held<'s> {
    lane: Lane<'s>,
    found: Found,
}

impl Store {
    /// Holds the shard of a key, if the key is there and nobody has to know of a change of it.
    #[inline]
    fn hold(&self, key: Key<'_>, place: &Place) -> Option<Held<'_>> {
        self.region().check_open().ok()?;
        let lane = self.heap.lock(place.lane);
        // Relaxed is enough for both: who begins to watch, or begins a snapshot, holds the key's
        // shard afterwards.
        if self.has_snapshot.load(Relaxed) || self.watches.is_awaited(key, false) {
            return None;
        }
        let found = self.find_live(&lane, place, key)?;
        Some(Held { lane, found })
    }

    /// Replaces the bytes that a held key has at a place, and of this length, by those that `f`
    /// makes of them, if these are as many.
    #[inline]
    fn replace_held<'v, R>(
        &self,
        mut held: Held<'_>,
        place: &Place,
        (at, len): (u64, usize),
        f: impl FnOnce(&[u8]) -> Option<(&'v [u8], R)>,
    ) -> Option<R> {
        let (new, result) = f(held.lane.bytes(at, len))?;
        // An error is met again, and answered, by who does the operation in general.
        if new.len() != len || !held.lane.replace(at, new).unwrap_or(false) {
            return None;
        }
        self.note_use(place);
        Some(result)
    }
}

impl Held<'_> {
    /// Where the key's value lies, and its bytes, if the value is of this kind. It is in memory.
    #[inline]
    fn value(&self, key: Key<'_>, kind: RecordKind) -> Option<(u64, usize)> {
        let record = self.found.record();
        let first = self.lane.load(record);
        let is_such = Header::kind_of(first) == kind as u8;
        let at = record + self.found.head_bytes() + key.bytes.len() as u64;
        is_such.then_some((at, first as u32 as usize))
    }
}
