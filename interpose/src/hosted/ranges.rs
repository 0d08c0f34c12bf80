//! Where served files are mapped, for a look without a lock: a database asks at every commit, by
//! `msync`.

use std::sync::atomic::{AtomicUsize, Ordering::*, fence};

/// Ranges that are kept here. With more of them, the list under the lock is looked at.
const RANGES: usize = 64;

/// Odd while the ranges change.
static VERSION: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);
static STARTS: [AtomicUsize; RANGES] = [const { AtomicUsize::new(0) }; RANGES];
static ENDS: [AtomicUsize; RANGES] = [const { AtomicUsize::new(0) }; RANGES];

/// Publishes all ranges, as addresses and lengths. The caller holds the lock of the list.
pub fn publish(ranges: impl Iterator<Item = (usize, usize)>) {
    VERSION.fetch_add(1, AcqRel);
    let mut count = 0;
    for (address, len) in ranges {
        if let (Some(start), Some(end)) = (STARTS.get(count), ENDS.get(count)) {
            start.store(address, Release);
            end.store(address + len, Release);
        }
        count += 1;
    }
    COUNT.store(count, Release);
    VERSION.fetch_add(1, Release);
}

/// Whether a range holds `address`; `None`: they are changing, or too many.
pub fn hold(address: usize) -> Option<bool> {
    meet(address, address.saturating_add(1))
}

/// Whether a range has a part between two addresses; `None` as in [`hold`].
pub fn meet(from: usize, to: usize) -> Option<bool> {
    let before = VERSION.load(Acquire);
    let count = COUNT.load(Acquire);
    if !before.is_multiple_of(2) || count > RANGES {
        return None;
    }
    let mut ranges = STARTS.iter().zip(&ENDS).take(count);
    let found = ranges.any(|(start, end)| start.load(Acquire) < to && from < end.load(Acquire));
    fence(Acquire);
    (VERSION.load(Relaxed) == before).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_published_last_is_found_unless_it_is_too_much_or_changes() {
        publish([(4096, 8192), (1 << 30, 4096)].into_iter());
        let holds = [4095, 4096, 12_287, 12_288, (1 << 30) + 4095].map(hold);
        assert_eq!(holds, [false, true, true, false, true].map(Some));
        let meets = [(0, 4096), (0, 4097), (12_288, 1 << 30), (12_287, 12_288)];
        assert_eq!(meets.map(|(from, to)| meet(from, to)), [false, true, false, true].map(Some));
        publish((0..65).map(|n| (n << 12, 4096)));
        assert_eq!(hold(0), None);
        publish((0..64).map(|n| (n << 12, 4096)));
        assert_eq!([hold(63 << 12), hold(64 << 12)], [Some(true), Some(false)]);
        VERSION.fetch_add(1, Relaxed);
        assert_eq!(hold(0), None);
        VERSION.fetch_add(1, Relaxed);
        publish(std::iter::empty());
        assert_eq!(hold(0), Some(false));
    }
}
