//! Finding the fields of a hash, packed or in a table.

use perdura_slots::Lane;

use crate::entry::Entry;
use crate::expiring;
use crate::packed;
use crate::record::{RecordKind, hash_field, is_of};
use crate::table::{self, Found};

/// Database number in the records of fields, which belong to a key and not to a database.
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

/// Finds a field in the table of a large hash, expired or not.
pub(crate) fn find_field(lane: &Lane<'_>, root: u64, field: &[u8]) -> Option<Found> {
    table::find(lane, root, hash_field(field), |record, head| {
        is_of(lane, record, head, FIELD_DB, field)
    })
}
