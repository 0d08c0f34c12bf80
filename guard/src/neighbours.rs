//! Regions on one device: whoever waits for a group commit must not wait behind all that the
//! cleaners of others have in the device's queue.
//!
//! While a region commits, the others keep a short queue: one write of a small frame at a time,
//! which leaves them most of the device's rate. Regions count as neighbours if their images lie in
//! the same file system.

use std::collections::BTreeMap;
use std::time::Duration;

use perdura_region::holder::wire::ImageFile;

/// Time for which a region counts as committing after it was seen to. A guard without a battery
/// looks each second.
const COMMITS_FOR: Duration = Duration::from_secs(2);

/// What is seen of the regions' group commits.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    seen: BTreeMap<ImageFile, Commits>,
}

#[derive(Debug, Clone, Copy)]
struct Commits {
    count: u64,
    /// Until when the region counts as committing.
    until_ns: u64,
}

impl Neighbours {
    /// Notes how many group commits each region has made. Returns the regions with a neighbour that
    /// commits.
    pub(crate) fn look(&mut self, regions: &[(ImageFile, u64)], now_ns: u64) -> Vec<ImageFile> {
        let see = |&(name, count): &(ImageFile, u64)| {
            let until_ns = match self.seen.get(&name) {
                Some(before) if before.count == count => before.until_ns,
                Some(_) => now_ns + COMMITS_FOR.as_nanos() as u64,
                // What it has committed before says nothing of now.
                None => 0,
            };
            (name, Commits { count, until_ns })
        };
        self.seen = regions.iter().map(see).collect();
        let commits = |name: &ImageFile| u32::from(now_ns < self.seen[name].until_ns);
        let mut on_device = BTreeMap::<u64, u32>::new();
        for name in self.seen.keys() {
            *on_device.entry(name.dev).or_default() += commits(name);
        }
        let names = self.seen.keys().copied();
        names.filter(|name| on_device[&name.dev] > commits(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ImageFile = ImageFile { dev: 1, ino: 1 };
    const B: ImageFile = ImageFile { dev: 1, ino: 2 };
    const FAR: ImageFile = ImageFile { dev: 2, ino: 1 };

    #[test]
    fn the_neighbours_of_a_region_that_commits_are_named_and_nobody_else() {
        let mut neighbours = Neighbours::default();
        let until_ns = COMMITS_FOR.as_nanos() as u64;
        let mut look = |counts: [u64; 3], now_ns| {
            let [a, b, far] = counts;
            neighbours.look(&[(A, a), (B, b), (FAR, far)], now_ns)
        };
        assert_eq!(look([7, 0, 9], 0), [], "commits before the first look");
        assert_eq!(look([7, 0, 9], 1), []);
        assert_eq!(look([8, 0, 9], 10), [B]);
        assert_eq!(look([8, 0, 9], 9 + until_ns), [B]);
        assert_eq!(look([8, 0, 9], 10 + until_ns), [], "it commits no more");
        assert_eq!(look([9, 0, 10], 11 + until_ns), [B], "who is alone on its device has none");
        assert_eq!(look([9, 1, 10], 12 + until_ns), [A, B], "both commit");
        // A count that starts again, as of a new region under the name, is a change, too.
        assert_eq!(look([0, 1, 10], 12 + 3 * until_ns), [B]);
    }

    #[test]
    fn a_region_that_was_gone_counts_from_its_return() {
        let mut neighbours = Neighbours::default();
        assert_eq!(neighbours.look(&[(A, 0), (B, 0)], 0), []);
        assert_eq!(neighbours.look(&[(A, 1), (B, 0)], 1), [B]);
        assert_eq!(neighbours.look(&[(B, 0)], 2), []);
        assert_eq!(neighbours.look(&[(A, 5), (B, 0)], 3), []);
    }
}
