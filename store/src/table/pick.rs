//! Drawing an entry of a table at random.

use perdura_slots::Lane;

use super::{AT_LINK, Chain, ENTRIES, Found, bucket_at, buckets, for_each, stored_len};

/// Places for entries that a bucket's chain is first taken to have at most: those of four buckets.
/// Tables are grown so that longer chains are rare.
const CHAIN_MAX: u64 = 4 * ENTRIES as u64;
/// Buckets that are drawn at least before all are walked.
const DRAWS_MIN: u64 = 64;

/// An entry of a table of fields or members, each with the same chance; `None` if there is none.
/// `draw(n)` draws a number below `n`.
///
/// A bucket and a place in its chain are drawn until there is an entry at the place, so that an
/// entry's chance does not depend on how many share its bucket. A draw reads two words of the
/// bucket, and the processor begins the next one before they have come from memory. A table that
/// has lost most of its entries is walked instead.
pub(crate) fn pick(lane: &Lane<'_>, root: u64, draw: &mut dyn FnMut(u64) -> u64) -> Option<Found> {
    let (buckets, len) = (buckets(lane, root), stored_len(lane, root));
    if len == 0 || buckets == 0 {
        return None;
    }
    let mut places = CHAIN_MAX;
    for _ in 0..DRAWS_MIN + buckets / 4 {
        let drawn = draw(buckets * places);
        let (bucket, place) = (drawn / places, drawn % places);
        let (chosen, in_chain) = entry_at(lane, root, bucket, place);
        if in_chain > places {
            // There are further places than were drawn from.
            places = in_chain;
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

/// The entry at a place of a bucket's chain, if there is one, and how many places the chain has.
fn entry_at(lane: &Lane<'_>, root: u64, bucket: u64, place: u64) -> (Option<Found>, u64) {
    let mut at = bucket_at(lane, root, bucket);
    let (mut chain, mut places, mut found) = (Chain::from(at), 0, None);
    while at != 0 {
        if (places..places + ENTRIES as u64).contains(&place) {
            let at = at + (place - places) * 8;
            found = Some(Found { at, entry: lane.load(at) }).filter(|found| found.entry != 0);
        }
        places += ENTRIES as u64;
        at = chain.behind(at, lane.load(at + AT_LINK));
    }
    (found, places)
}
