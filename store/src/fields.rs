//! The fields of a hash, packed or in a table: finding them, and what changes with one in a table.

use perdura_region::Planted;
use perdura_slots::{Lane, LaneId, Op, Stop};

use crate::entry::Entry;
use crate::expiring;
use crate::packed;
use crate::record::{Header, RecordKind, hash_field, is_of};
use crate::table::{self, Found, Room};

/// Database number in the records of fields and members, which belong to a key and not to a
/// database.
pub(crate) const FIELD_DB: u8 = 0;

/// The value of a field of a hash.
pub(crate) fn field_of<'a>(entry: &Entry<'a>, field: &[u8]) -> Option<&'a [u8]> {
    if entry.header.kind == RecordKind::PackedHash {
        return packed::get(entry.value(), field);
    }
    let found = find_field(entry.lane, entry.table_root(), field)?;
    if found.expires() && expiring::is_over(entry.lane, &found, entry.now_ms()) {
        return None;
    }
    Some(Entry::new(entry.lane, found.record()).value())
}

/// Finds a field in the table of a large hash, expired or not, or a member in that of a large set or
/// sorted set.
pub(crate) fn find_field(lane: &Lane<'_>, root: u64, field: &[u8]) -> Option<Found> {
    table::find(lane, root, hash_field(field), |record, head| {
        is_of(lane, record, head, FIELD_DB, field)
    })
}

/// Finds a field as [`find_field`] does; else where its entry would be added.
pub(crate) fn find_or_room(lane: &Lane<'_>, root: u64, field: &[u8]) -> Result<Found, Room> {
    table::find_or_room(lane, root, hash_field(field), |record, head| {
        is_of(lane, record, head, FIELD_DB, field)
    })
}

/// Enters the record of a field that the table does not have, and counts the field. `room` is what
/// [`find_or_room`] has found, if it was asked.
pub(crate) fn enter(
    op: &mut Op<'_>,
    id: LaneId,
    root: u64,
    room: Option<Room>,
    field: &[u8],
    (record, header): (u64, &Header),
) -> Result<(), Stop> {
    let (hash, len) = (hash_field(field), table::stored_len(op.lane(id), root));
    let entry = table::entry(hash, record, header);
    table::insert(op, id, root, room, hash, entry)?;
    table::store_len(op, id, root, len + 1)
}

/// Takes a field out of the table, and frees its record; other fields must be left.
pub(crate) fn leave(
    op: &mut Op<'_>,
    id: LaneId,
    root: u64,
    found: &Found,
    planted: Planted,
) -> Result<(), Stop> {
    let len = table::stored_len(op.lane(id), root);
    op.store(id, found.at, 0)?;
    op.free(found.record());
    if planted.is(Planted::KeepFieldCount) {
        return Ok(());
    }
    table::store_len(op, id, root, len - 1)
}
