//! The histogram of writes per page.

use std::collections::BTreeMap;

/// How often pages were written, and how many pages so often; most counts are small.
pub(super) fn histogram_of(counts: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    const SMALL: usize = 4096;
    let (mut small, mut large) = (vec![0u64; SMALL], BTreeMap::new());
    for count in counts {
        match small.get_mut(count as usize) {
            Some(pages) => *pages += 1,
            None => *large.entry(count).or_insert(0) += 1,
        }
    }
    let small = small.into_iter().enumerate().map(|(count, pages)| (count as u64, pages));
    small.filter(|(count, pages)| *count > 0 && *pages > 0).chain(large).collect()
}
