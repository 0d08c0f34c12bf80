//! Named roots: words in the heap's header that are found by a name.

use perdura_region::{LaneGuard, Need};

use crate::layout::{AT_ROOTS, ROOT_BYTES, ROOT_NAME_BYTES, ROOTS_MAX};

/// The value of a named root.
pub(crate) fn load(meta: &LaneGuard<'_>, name: &str) -> Option<u64> {
    find(meta, name).map(|at| meta.load(at + ROOT_NAME_BYTES as u64))
}

/// Sets a named root. Returns whether there is a place for the root.
pub(crate) fn store(meta: &mut LaneGuard<'_>, name: &str, value: u64) -> Result<bool, Need> {
    if let Some(at) = find(meta, name) {
        meta.store(at + ROOT_NAME_BYTES as u64, value)?;
        return Ok(true);
    }
    let Some(at) = places().find(|&at| meta.load(at) == 0) else { return Ok(false) };
    meta.store(at + ROOT_NAME_BYTES as u64, value)?;
    // The name's first word makes the root exist, so it is stored last.
    for (index, word) in (0u64..).zip(name_words(name)).collect::<Vec<_>>().into_iter().rev() {
        meta.store(at + index * 8, word)?;
    }
    Ok(true)
}

fn find(meta: &LaneGuard<'_>, name: &str) -> Option<u64> {
    let words = name_words(name);
    places().find(|&at| (0u64..).zip(words).all(|(index, word)| meta.load(at + index * 8) == word))
}

fn places() -> impl Iterator<Item = u64> {
    (0..ROOTS_MAX).map(|index| AT_ROOTS + index * ROOT_BYTES)
}

fn name_words(name: &str) -> [u64; 3] {
    assert!(!name.is_empty() && name.len() <= ROOT_NAME_BYTES, "root name {name:?}");
    let mut bytes = [0; ROOT_NAME_BYTES];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    let (words, _) = bytes.as_chunks::<8>();
    [0, 1, 2].map(|index| u64::from_le_bytes(words[index]))
}
