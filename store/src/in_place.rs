//! Operations that change one range, or one word, of a value that is there. They need no more of a
//! transaction than the undo of the range, or nothing, and are several times as fast. Others change
//! the table, or the table and the tree, that a value has: they are operations of the heap, without
//! all that a transaction keeps besides for several keys and for more attempts.
//!
//! Each does all of its work or nothing, also after a kill. `None` is the answer where there is
//! more to do: nothing has changed then, and [`Store::run`] does whatever there is to do.

mod hash;
mod list;
mod set;
mod sorted;
mod string;

use std::sync::atomic::Ordering::Relaxed;

use perdura_slots::{Heat, Lane, LaneId, Op};

use crate::api::{KEY_BYTES_MAX, Key};
use crate::record::{self, Header, RecordKind};
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

    /// Makes the changes of an operation on a held key final.
    #[inline]
    fn finish(&self, op: &mut Op<'_>, place: &Place) -> Option<()> {
        op.conclude().ok()?;
        self.note_use(place);
        Some(())
    }

    /// Writes the record of a new field or member, if it is one that a transaction would not write
    /// in pieces.
    fn write_part(
        &self,
        op: &mut Op<'_>,
        id: LaneId,
        header: &Header,
        name: &[u8],
        value: &[u8],
    ) -> Option<u64> {
        let bytes = header.len_bytes();
        if name.len() > KEY_BYTES_MAX || bytes > self.piece_bytes_max() {
            return None;
        }
        record::write(op, id, bytes, (header, name, &[value]), Heat::COLD).ok()
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

    /// The root of the key's table, if the value is of this kind.
    #[inline]
    fn table_root(&self, key: Key<'_>, kind: RecordKind) -> Option<u64> {
        let (at, _) = self.value(key, kind)?;
        Some(self.lane.load(at.next_multiple_of(8)))
    }
}
