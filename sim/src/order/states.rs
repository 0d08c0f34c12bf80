//! The choice of crash states that are tried at a point: all of them, or those that find most.
//!
//! A *selection* says for each dirty line which of the line's cuts is found; 0 is the guaranteed
//! cut. Selections of a point are numbered. The same counts, bound and seed give the same list, so
//! a number names a state.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

/// The number of a cut for each dirty line.
pub(crate) type Selection = Vec<usize>;

/// Selections of a point.
pub(crate) struct Selections {
    pub list: Vec<Selection>,
    /// Whether the list has every selection of the point.
    pub is_all: bool,
}

impl Selections {
    /// At most `states_max` (or 2, if that is more) of the selections from lines with `counts` cuts
    /// each.
    pub fn of(counts: &[usize], states_max: usize, seed: u64) -> Self {
        let product = counts.iter().fold(1_usize, |product, count| product.saturating_mul(*count));
        if product <= states_max.max(2) {
            return Self { list: all(counts), is_all: true };
        }
        let mut random = Random::seed_from_u64(seed);
        let mut list = vec![vec![0; counts.len()], whole(counts)];
        // Each kind may fill half of what is left, the last one all.
        deviations(counts, &mut list, states_max, &mut random);
        pairs(counts, &mut list, states_max, &mut random);
        while list.len() < states_max {
            list.push(counts.iter().map(|count| random.random_range(0..*count)).collect());
        }
        Self { list, is_all: false }
    }
}

/// The selection in which every line is as it is now.
fn whole(counts: &[usize]) -> Selection {
    counts.iter().map(|count| count - 1).collect()
}

/// Every selection; the first line's cut changes fastest.
fn all(counts: &[usize]) -> Vec<Selection> {
    let mut list = Vec::new();
    let mut selection = vec![0; counts.len()];
    loop {
        list.push(selection.clone());
        let Some(line) = (0..counts.len()).find(|line| selection[*line] + 1 < counts[*line]) else {
            return list;
        };
        selection[..line].fill(0);
        selection[line] += 1;
    }
}

/// Selections in which everything was persisted but one line, or nothing but one line. Whole lines
/// come first, then lines with a part of their stores.
fn deviations(counts: &[usize], list: &mut Vec<Selection>, states_max: usize, random: &mut Random) {
    // Whether everything else was persisted; the line; its cut. The selections are made of those
    // that are kept: of thousands of lines, all selections would take more time than the recoveries
    // from those that are tried.
    let mut ends = Vec::new();
    let mut between = Vec::new();
    for (line, count) in counts.iter().enumerate() {
        ends.push((true, line, 0));
        ends.push((false, line, count - 1));
        for cut in 1..count - 1 {
            between.push((true, line, cut));
            between.push((false, line, cut));
        }
    }
    for mut kind in [ends, between] {
        let room = (states_max.saturating_sub(list.len())).div_ceil(2);
        thin(&mut kind, room, random);
        list.extend(kind.into_iter().map(|(is_whole, line, cut)| {
            let mut selection = if is_whole { whole(counts) } else { vec![0; counts.len()] };
            selection[line] = cut;
            selection
        }));
    }
}

/// Selections in which everything was persisted but two lines, or nothing but two lines.
fn pairs(counts: &[usize], list: &mut Vec<Selection>, states_max: usize, random: &mut Random) {
    let room = (states_max.saturating_sub(list.len())).div_ceil(2);
    let lines = counts.len();
    let mut kind: Vec<(usize, usize, bool)> = if lines * lines <= 4 * room {
        let pair =
            |one| (one + 1..lines).flat_map(move |two| [(one, two, true), (one, two, false)]);
        (0..lines).flat_map(pair).collect()
    } else {
        let mut draw =
            || (random.random_range(0..lines), random.random_range(0..lines), random.random());
        (0..room).map(|_| draw()).collect()
    };
    thin(&mut kind, room, random);
    list.extend(kind.into_iter().map(|(one, two, is_lost)| {
        let mut selection = if is_lost { whole(counts) } else { vec![0; lines] };
        for line in [one, two] {
            selection[line] = if is_lost { 0 } else { counts[line] - 1 };
        }
        selection
    }));
}

/// Keeps `len` items, drawn at random, in their order.
fn thin<T>(items: &mut Vec<T>, len: usize, random: &mut Random) {
    let mut left = items.len();
    let mut wanted = len;
    items.retain(|_| {
        let is_kept = left > 0 && random.random_range(0..left) < wanted;
        left -= 1;
        wanted -= usize::from(is_kept);
        is_kept
    });
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn all_selections_are_there_once_if_there_are_few() {
        let found = Selections::of(&[2, 3, 4], 24, 1);
        assert!(found.is_all);
        assert_eq!(found.list.iter().collect::<HashSet<_>>().len(), 24);
        assert_eq!(found.list.len(), 24);
        assert_eq!(Selections::of(&[], 1, 1).list, [Vec::<usize>::new()]);
    }

    #[test]
    fn the_bound_holds_and_each_lone_line_is_tried() {
        let counts = [3; 20];
        let found = Selections::of(&counts, 200, 1);
        assert!(!found.is_all && found.list.len() <= 200);
        for line in 0..20 {
            let mut lost = whole(&counts);
            lost[line] = 0;
            assert!(found.list.contains(&lost), "line {line}");
        }
        for selection in &found.list {
            assert!(selection.iter().zip(counts).all(|(cut, count)| *cut < count));
        }
    }

    #[test]
    fn a_seed_decides_what_is_tried() {
        let counts = [9; 300];
        let list = |seed| Selections::of(&counts, 64, seed).list;
        assert_eq!(list(1), list(1));
        assert_ne!(list(1), list(2));
        assert_eq!(list(1).len(), 64);
    }
}
