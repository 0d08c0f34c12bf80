//! Drawing an entry of a table at random.

use perdura_slots::Lane;

use super::{Found, buckets, for_each, stored_len};

/// Entries that a bucket's chain is first taken to have at most. Tables are grown so that longer
/// chains are rare.
const CHAIN_MAX: u64 = 24;
/// Buckets that are drawn at least before all are walked.
const DRAWS_MIN: u64 = 64;

/// An entry of a table of fields or members, each with the same chance; `None` if there is none.
/// `draw(n)` draws a number below `n`.
///
/// A bucket and a place in its chain are drawn until there is an entry at the place, so that an
/// entry's chance does not depend on how many share its bucket. A table that has lost most of its
/// entries is walked instead.
pub(crate) fn pick(lane: &Lane<'_>, root: u64, draw: &mut dyn FnMut(u64) -> u64) -> Option<Found> {
    let (buckets, len) = (buckets(lane, root), stored_len(lane, root));
    if len == 0 || buckets == 0 {
        return None;
    }
    let mut places = CHAIN_MAX;
    for _ in 0..DRAWS_MIN + buckets / 4 {
        let drawn = draw(buckets * places);
        let (bucket, place) = (drawn / places, drawn % places);
        let (mut entries, mut chosen) = (0, None);
        for_each(lane, root, bucket, |found| {
            if entries == place {
                chosen = Some(found);
            }
            entries += 1;
        });
        if entries > places {
            // Further places than were drawn from hold entries.
            places = entries.next_power_of_two();
        } else if chosen.is_some() {
            return chosen;
        }
    }
    let (mut left, mut chosen) = (draw(len), None);
    for bucket in 0..buckets {
        for_each(lane, root, bucket, |found| match left.checked_sub(1) {
            None if chosen.is_none() => chosen = Some(found),
            None => {}
            Some(less) => left = less,
        });
        if chosen.is_some() {
            break;
        }
    }
    chosen
}
