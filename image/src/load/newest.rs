//! Finding the newest copy of each grain, part by part, so that the bitmaps in use stay in the
//! cache.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::table::{Parts, Table};
use perdura_dirty::extent::{mask, words};
use perdura_dirty::geometry::WORD_GRAINS;

/// The result for one part.
pub(super) struct Found {
    /// Number of grains of each block.
    pub(crate) blocks: Vec<u32>,
    pub(crate) small: SmallTables,
}

/// The numbers of the small tables that have pieces of each portion of a part. To load a block no
/// other small table is looked at. Large tables are so few that all are looked at, and a list of
/// them would be as long as they are.
pub(super) struct SmallTables([Vec<u32>; u64::BITS as usize]);

impl SmallTables {
    fn enter(&mut self, number: u32, mut portions: u64) {
        while portions != 0 {
            self.0[portions.trailing_zeros() as usize].push(number);
            portions &= portions - 1;
        }
    }

    /// Numbers of the small tables that have pieces of the portion.
    pub(crate) fn of(&self, portion: usize) -> &[u32] {
        &self.0[portion]
    }
}

/// Finds the newest copies in all parts, with several threads: the first of `tables` that holds a
/// grain has its newest copy. Sets a bit in `pending` for each grain that any table holds, and
/// counts the grains of each segment. Returns the result for each part.
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
    let mut small = SmallTables(std::array::from_fn(|_| Vec::new()));
    for (number, table) in (0..).zip(tables) {
        let share = table.share(part);
        if table.is_small() {
            small.enter(number, share.portions());
        }
        share.for_each_from_the_end(|run, won| {
            // No other thread has this word. There is no branch, because whether a piece is new is
            // unpredictable.
            let enter = |word: usize, mask: u64| {
                let known = pending[word - first_word].load(Relaxed);
                pending[word - first_word].store(known | mask, Relaxed);
                mask & !known
            };
            let (word, first) = ((run.grain / WORD_GRAINS) as usize, run.grain % WORD_GRAINS);
            if first + run.len <= WORD_GRAINS {
                won.set(0, enter(word, mask(first, run.len)) >> first);
                return;
            }
            for (word, mask) in words(run) {
                let first = u64::from(mask.trailing_zeros());
                won.set(word as u64 * WORD_GRAINS + first - run.grain, enter(word, mask) >> first);
            }
        });
        let found = share.won_grains();
        if found > 0 {
            segments[table.frame.segment as usize].fetch_add(found, Relaxed);
        }
    }
    let grains_of =
        |words: &[AtomicU64]| words.iter().map(|bits| bits.load(Relaxed).count_ones()).sum();
    Found { blocks: pending.chunks(1 << block_words_shift).map(grains_of).collect(), small }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus as Random;

    use super::*;
    use crate::arena::Arena;
    use crate::checks::Checks;
    use crate::frame::Frame;
    use crate::load::table::{Cursor, Piece, Tally};
    use perdura_dirty::extent::Extent;
    use perdura_dirty::geometry::{BLOCK_BYTES, GRAIN_SHIFT_BARRIER, GRAIN_SHIFT_TRAP, Geometry};

    /// Segment and place of each grain's newest copy.
    type Winners = BTreeMap<u64, (u32, u64)>;

    fn extents(random: &mut Random, grains: u64) -> Vec<Extent> {
        let longest = [1, 3, 70, 3000][random.random_range(0..4)];
        let one = |_| {
            let len = random.random_range(1..=longest).min(grains);
            Extent { grain: random.random_range(0..=grains - len), len }
        };
        (0..200).map(one).collect()
    }

    #[test]
    fn what_is_found_agrees_with_a_look_at_each_grain() {
        let mut arena = Arena::default();
        for seed in 0..60 {
            let mut random = Random::seed_from_u64(seed);
            let shift = [GRAIN_SHIFT_BARRIER, GRAIN_SHIFT_TRAP][seed as usize % 2];
            let region_bytes = random.random_range(1..100) * BLOCK_BYTES;
            let geometry = Geometry::new(region_bytes, shift, None, 4).unwrap();
            let (parts, grains) = (Parts::of(&geometry, region_bytes), region_bytes >> shift);
            let mut expected = Winners::new();
            let mut tables = Vec::new();
            for segment in 0..12 {
                let extents = extents(&mut random, grains);
                let mut own = Winners::new();
                let all = extents.iter().flat_map(|extent| extent.grain..extent.grain + extent.len);
                all.zip(0..).for_each(|(grain, place)| _ = own.insert(grain, (segment, place)));
                // The first table is the newest; within a table the last copy is.
                own.iter().for_each(|(grain, copy)| _ = expected.entry(*grain).or_insert(*copy));
                let (frame, none) = (Frame::in_segment(segment), Checks::none());
                let extents = extents.iter().copied();
                let mut tally = Tally::new(&parts);
                extents.clone().for_each(|extent| tally.add(extent));
                let table =
                    Table::new(frame, &tally, extents, none, Box::default(), &mut arena).unwrap();
                tables.push(table);
            }
            let words = grains.div_ceil(WORD_GRAINS) as usize;
            let pending: Vec<_> = (0..words).map(|_| AtomicU64::new(0)).collect();
            let segments: Vec<_> = (0..12).map(|_| AtomicU64::new(0)).collect();
            let found = find_all(&tables, &parts, &pending, &segments, 2);

            let (mut by_window, mut by_block) = (Winners::new(), Winners::new());
            for (number, table) in tables.iter().enumerate() {
                let mut live = 0;
                for part in 0..parts.count {
                    let mut cursor = Cursor::default();
                    let mut from = 0;
                    while from < 1 << 20 {
                        let to = from + random.random_range(1..5000);
                        table.share(part).for_each_winner(&mut cursor, from..to, |piece| {
                            live += piece.run.len;
                            enter(&mut by_window, number, piece.run, piece.place);
                        });
                        from = to;
                    }
                }
                assert_eq!(segments[number].load(Relaxed), live, "seed {seed}");
            }
            let blocks = found.iter().flat_map(|found| &found.blocks);
            for (block, grains) in (0..).zip(blocks) {
                let part = parts.of_block(block);
                let small = found[part].small.of(parts.portion_of_block(block));
                let before = by_block.len();
                for (number, table) in tables.iter().enumerate() {
                    let share = table.share(part);
                    let is_listed = small.contains(&(number as u32));
                    assert_eq!(is_listed, table.is_small() && share.may_have(block), "seed {seed}");
                    let enter = |piece: Piece| enter(&mut by_block, number, piece.run, piece.place);
                    if share.may_have(block) {
                        share.for_each_winner_of(block, enter);
                    } else {
                        share.for_each_winner_of(block, |_| panic!("seed {seed}: block {block}"));
                    }
                }
                assert_eq!(by_block.len() - before, *grains as usize, "seed {seed}");
            }
            assert!(by_window == expected && by_block == expected, "seed {seed}");
            for grain in 0..grains {
                let bit = pending[(grain / 64) as usize].load(Relaxed) >> (grain % 64) & 1;
                assert_eq!(bit == 1, expected.contains_key(&grain), "seed {seed}");
            }
        }
    }

    fn enter(winners: &mut Winners, table: usize, run: Extent, place: u64) {
        for (grain, place) in (run.grain..run.grain + run.len).zip(place..) {
            assert_eq!(winners.insert(grain, (table as u32, place)), None, "grain {grain} twice");
        }
    }
}
