//! Which copy of each grain is the newest: part by part, so that what is looked at is in the cache.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::table::{Parts, Table};
use super::words;
use crate::format::Extent;
use crate::geometry::WORD_GRAINS;

/// What was found for one part.
pub(super) struct Found {
    pub sources: Sources,
    /// Grains of each of its blocks.
    pub blocks: Vec<u32>,
}

/// The tables that have winners of each block of a part: lists, all in one vector.
pub(super) struct Sources {
    /// By block: the last table that was entered, and its entry plus one, or 0.
    last: Vec<(u32, u32)>,
    /// A table, and the entry before it plus one.
    entries: Vec<(u32, u32)>,
}

impl Sources {
    #[inline]
    fn enter(&mut self, block: usize, table: u32) {
        let last = &mut self.last[block];
        if last.1 == 0 || last.0 != table {
            self.entries.push((table, last.1));
            *last = (table, self.entries.len() as u32);
        }
    }

    /// The newest first.
    pub fn of(&self, block: usize) -> Vec<u32> {
        let mut at = self.last[block].1;
        let mut tables = Vec::new();
        while at != 0 {
            let (table, before) = self.entries[at as usize - 1];
            tables.push(table);
            at = before;
        }
        tables.reverse();
        tables
    }
}

/// Finds them in all parts, with several threads: the first of `tables` that holds a grain has it. Sets a bit in
/// `pending` for each grain that is anywhere, and counts those of each segment.
pub(super) fn find_all(
    tables: &[Table],
    parts: &Parts,
    pending: &[AtomicU64],
    segments: &[AtomicU64],
    threads: usize,
) -> Vec<Found> {
    let next = AtomicUsize::new(0);
    let find = || {
        let mut found = Vec::new();
        loop {
            let part = next.fetch_add(1, Relaxed);
            if part >= parts.count {
                return found;
            }
            found.push((part, find_newest(tables, parts, part, pending, segments)));
        }
    };
    let find = &find;
    let mut found: Vec<_> = std::thread::scope(|scope| {
        let spawn = || std::thread::Builder::new().spawn_scoped(scope, find).ok();
        let helpers: Vec<_> = (1..threads).filter_map(|_| spawn()).collect();
        let own = find();
        let theirs = helpers
            .into_iter()
            .map(|helper| helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        theirs.chain([own]).flatten().collect()
    });
    found.sort_unstable_by_key(|(part, _)| *part);
    found.into_iter().map(|(_, found)| found).collect()
}

fn find_newest(
    tables: &[Table],
    parts: &Parts,
    part: usize,
    pending: &[AtomicU64],
    segments: &[AtomicU64],
) -> Found {
    let grains = parts.grains(part);
    let first_word = (grains.start / WORD_GRAINS) as usize;
    let end_word = pending.len().min((grains.end / WORD_GRAINS) as usize);
    let pending = &pending[first_word..end_word];
    let block_words_shift = parts.block_shift - WORD_GRAINS.trailing_zeros();
    let blocks = pending.len().div_ceil(1 << block_words_shift);
    let mut sources = Sources { last: vec![(0, 0); blocks], entries: Vec::new() };
    for (number, table) in (0..).zip(tables) {
        let mut found = 0;
        table.share(part).for_each_from_the_end(|piece, won| {
            for_each_word(piece.run, |word, mask| {
                let inside = word - first_word;
                let known = pending[inside].load(Relaxed);
                let new = mask & !known;
                if new == 0 {
                    return;
                }
                // No other thread has this word.
                pending[inside].store(known | new, Relaxed);
                sources.enter(inside >> block_words_shift, number);
                let first = u64::from(mask.trailing_zeros());
                let from = word as u64 * WORD_GRAINS + first - piece.run.grain;
                won.set(from, new >> first);
                found += u64::from(new.count_ones());
            });
        });
        if found > 0 {
            segments[table.frame.segment as usize].fetch_add(found, Relaxed);
        }
    }
    let blocks = pending
        .chunks(1 << block_words_shift)
        .map(|words| words.iter().map(|bits| bits.load(Relaxed).count_ones()).sum())
        .collect();
    Found { sources, blocks }
}

/// As [`words`], for most runs are within one.
#[inline]
fn for_each_word(run: Extent, mut f: impl FnMut(usize, u64)) {
    let first = run.grain % WORD_GRAINS;
    if first + run.len <= WORD_GRAINS {
        return f((run.grain / WORD_GRAINS) as usize, crate::announce::mask(first, run.len));
    }
    words(run).for_each(|(word, mask)| f(word, mask));
}
