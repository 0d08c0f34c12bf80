//! Large sorted sets against a naive oracle, also when operations are killed at every step.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::harness::*;
use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::Region;
use perdura_store::{
    Access, Edge, End, Expiry, Heap, Key, Kind, OpenError, Sorted, Store, StoreError, StoreOptions,
};
use rand::Rng;

const BUDGET_BYTES: u64 = 1 << 20;
const SET: Key<'static> = Key { db: 0, bytes: b"set" };

type Scores = BTreeMap<Vec<u8>, u64>;

fn fresh(seed: u64) -> (Store, Arc<SimClock>, SimDevice) {
    let (device, clock) = (SimDevice::new(0, seed), Arc::new(SimClock::new(1_000_000)));
    (open(&device, &clock, BUDGET_BYTES), clock, device)
}

fn attach(store: Store, device: &SimDevice, clock: &Arc<SimClock>) -> Store {
    let (memory, ledger) = store.region().fds();
    let fds = (memory.try_clone_to_owned().unwrap(), ledger.try_clone_to_owned().unwrap());
    drop(store);
    let device = Arc::new(device.clone());
    let region = Region::attach(fds.0, fds.1, device, clock.clone(), config(BUDGET_BYTES));
    store_on(region.unwrap(), clock)
}

/// Free bytes of a store without keys: to open one more for each death takes longer than the rest.
fn empty_bytes() -> u64 {
    static EMPTY_BYTES: OnceLock<u64> = OnceLock::new();
    *EMPTY_BYTES.get_or_init(|| fresh(1).0.stats().free_bytes)
}

fn add(store: &Store, members: &[(Vec<u8>, f64)]) -> Result<(), StoreError> {
    store.run(Access::Key(SET), |tx| {
        members.iter().try_for_each(|(name, score)| tx.sorted_add(SET, name, *score).map(drop))
    })
}

fn scores_of(sorted: &Sorted<'_>) -> Scores {
    let mut scores = Scores::new();
    sorted.for_each(0..u64::MAX, false, &mut |name, score| {
        scores.insert(name.to_vec(), score.to_bits());
    });
    scores
}

fn found(store: &Store) -> Scores {
    store.read(SET, |entry| {
        let Some(sorted) = entry.and_then(|entry| entry.sorted()) else { return Scores::new() };
        sorted.assert_sound();
        scores_of(&sorted)
    })
}

/// Every question that a set answers, asked at random places.
fn check(store: &Store, scores: &Scores, random: &mut Random, what: &str) {
    assert!(found(store) == *scores, "{what}: members differ");
    let ranked = ranked(scores);
    let len = ranked.len() as u64;
    store.read(SET, |entry| {
        let Some(entry) = entry else { return assert_eq!(len, 0, "{what}") };
        assert_eq!(entry.kind, Kind::Sorted);
        let sorted = entry.sorted().unwrap();
        for _ in 0..50 {
            let score = f64::from(random.random_range(-500..500)) / 4.0;
            for after in [false, true] {
                let before = ranked.iter().filter(|(s, _)| *s < score || after && *s == score);
                let edge = Edge::Score { score, after };
                assert_eq!(sorted.members_before(&edge), before.count() as u64, "{what}: {edge:?}");
            }
            let (from, to) = (random.random_range(0..=len), random.random_range(0..=len + 2));
            let mut met = Vec::new();
            sorted.for_each(from..to, false, &mut |name, score| met.push((score, name.to_vec())));
            let end = to.min(len).max(from);
            assert!(met == ranked[from as usize..end as usize], "{what}: {from}..{to}");
            let mut down = Vec::new();
            sorted.for_each(from..to, true, &mut |name, score| down.push((score, name.to_vec())));
            down.reverse();
            assert!(met == down, "{what}: {to}..{from}");
        }
        let (mut cursor, mut met) = (0, Scores::new());
        loop {
            cursor = sorted.scan(cursor, 7, &mut |name, score| {
                assert!(met.insert(name.to_vec(), score.to_bits()).is_none());
            });
            if cursor == 0 {
                break;
            }
        }
        assert!(met == *scores, "{what}: scan");
    });
}

fn draw_members(random: &mut Random, count: usize, names: u32) -> Vec<(Vec<u8>, f64)> {
    let member = |random: &mut Random| {
        let score = match random.random_range(0..20) {
            0 => f64::INFINITY,
            1 => f64::NEG_INFINITY,
            _ => f64::from(random.random_range(-400..400)) / 4.0,
        };
        (format!("member:{}", random.random_range(0..names)).into_bytes(), score)
    };
    (0..count).map(|_| member(random)).collect()
}

#[test]
fn a_set_of_thousands_agrees_with_the_oracle() {
    for seed in 0..number("PERDURA_SEEDS").unwrap_or(4) {
        let what = format!("seed {seed}");
        let (mut store, clock, device) = fresh(seed);
        let (mut random, mut scores) = (seeded(seed), Scores::new());
        for round in 0..60 {
            let names = if round < 40 { 20_000 } else { 4_000 };
            for (name, score) in draw_members(&mut random, 300, names) {
                if random.random_bool(if round < 40 { 0.9 } else { 0.2 }) {
                    add(&store, &[(name.clone(), score)]).unwrap();
                    scores.insert(name, score.to_bits());
                } else {
                    let removed = store.run(Access::Key(SET), |tx| tx.sorted_remove(SET, &name));
                    let had = scores.remove(&name);
                    assert_eq!(removed.unwrap().map(f64::to_bits), had, "{what}");
                }
            }
            if round % 10 == 9 {
                let from = random.random_range(0..scores.len() as u64);
                let gone = ranked(&scores);
                let gone = &gone[from as usize..gone.len().min(from as usize + 700)];
                let ranks = from..from + 700;
                let count = store
                    .run(Access::Key(SET), |tx| tx.sorted_remove_ranks(SET, ranks.clone()))
                    .unwrap();
                assert_eq!(count, gone.len() as u64, "{what}");
                for (_, name) in gone {
                    scores.remove(name);
                }
                check(&store, &scores, &mut random, &what);
                store = attach(store, &device, &clock);
                check(&store, &scores, &mut random, &what);
            }
        }
        // Member by member to the last, in a random order.
        let mut names: Vec<_> = scores.keys().cloned().collect();
        while !names.is_empty() {
            let name = names.swap_remove(random.random_range(0..names.len()));
            store.run(Access::Key(SET), |tx| tx.sorted_remove(SET, &name)).unwrap();
            scores.remove(&name);
            if names.len() % 500 == 0 {
                check(&store, &scores, &mut random, &what);
            }
        }
        assert!(store.is_empty(0));
        store.flush_all().unwrap();
        store.heap().reclaim();
        assert_eq!(store.stats().free_bytes, empty_bytes(), "{what}: memory leaked");
    }
}

#[test]
fn ascending_and_descending_scores_make_a_sound_tree() {
    for step in [1.0, -1.0] {
        let (store, ..) = fresh(1);
        let mut scores = Scores::new();
        for number in 0..6_000 {
            let name = format!("user{number}").into_bytes();
            let score = step * f64::from(number) + 0.0;
            add(&store, &[(name.clone(), score)]).unwrap();
            scores.insert(name, score.to_bits());
        }
        check(&store, &scores, &mut seeded(1), "ascending");
        let bytes = store.read(SET, |entry| entry.unwrap().memory_bytes());
        // A record of 64 B, an index entry, 16 B in a leaf that is full or half so.
        assert!(bytes < 6_000 * 160, "{bytes} bytes for 6,000 members");
    }
}

/// The first entries of inner nodes name members that are gone then, in nodes that are merged and
/// split later.
#[test]
fn a_tree_whose_lowest_members_go_is_searched_and_merged_rightly() {
    let (store, ..) = fresh(6);
    let (mut random, mut scores) = (seeded(6), Scores::new());
    // Of the same score: so each search compares names.
    let members: Vec<_> = (0..9_000).map(|n| (format!("{:04}", n * 7 % 9_000), 1.0)).collect();
    for part in members.chunks(500) {
        let part: Vec<_> = part.iter().map(|(name, s)| (name.clone().into_bytes(), *s)).collect();
        add(&store, &part).unwrap();
        scores.extend(part.into_iter().map(|(name, score)| (name, score.to_bits())));
    }
    let place = store.place(SET);
    for round in 0.. {
        // The lowest ones, or a range that begins where some node does, or others.
        for _ in 0..200.min(scores.len() - 130) {
            let popped = store.sorted_pop_at(SET, place, End::Front, |name, _| name.to_vec());
            assert_eq!(popped, scores.pop_first().map(|(name, _)| name));
        }
        let (from, len) = (random.random_range(0..scores.len()), random.random_range(0..300));
        if scores.len() > len + 130 {
            let gone: Vec<_> = scores.keys().skip(from).take(len).cloned().collect();
            let ranks = from as u64..(from + len) as u64;
            store.run(Access::Key(SET), |tx| tx.sorted_remove_ranks(SET, ranks.clone())).unwrap();
            for name in &gone {
                scores.remove(name);
            }
        }
        if round % 3 == 0 {
            let lower: Vec<_> =
                (0..90).map(|n| (format!("!{:03}-{n}", 999 - round).into_bytes(), 1.0)).collect();
            add(&store, &lower).unwrap();
            scores.extend(lower.into_iter().map(|(name, score)| (name, score.to_bits())));
        }
        assert!(found(&store) == scores, "round {round}");
        if scores.len() < 400 {
            assert!(round > 15, "{round}");
            return;
        }
    }
}

/// Runs `operation` on a set made by `prepare`, killed after `fuse` steps of the heap. Returns
/// whether it got through before.
fn killed_inside(
    members: &[(Vec<u8>, f64)],
    operation: &dyn Fn(&Store) -> Result<(), StoreError>,
    after: &Scores,
    fuse: u64,
) -> bool {
    let (store, clock, device) = fresh(fuse);
    let before: Scores = members.iter().map(|(n, s)| (n.clone(), s.to_bits())).collect();
    store.run(Access::Key(SET), |tx| tx.sorted_put(SET, members, Expiry::None)).unwrap();
    store.heap().kill_after(fuse);
    let outcome = operation(&store);
    assert!(matches!(outcome, Ok(()) | Err(StoreError::Killed)), "{outcome:?}");
    let got_through = outcome.is_ok() && !store.heap().is_killed();
    let store = if fuse.is_multiple_of(3) {
        store.region().close(1).unwrap();
        drop(store);
        open(&device.power_cycle(fuse), &clock, BUDGET_BYTES)
    } else {
        attach(store, &device, &clock)
    };
    let found = found(&store);
    assert!(found == *after || (outcome.is_err() && found == before), "killed after {fuse}");
    store.delete(SET).unwrap();
    store.flush_all().unwrap();
    store.heap().reclaim();
    assert_eq!(store.stats().free_bytes, empty_bytes(), "killed after {fuse}: memory leaked");
    got_through
}

fn killed_everywhere(
    members: &[(Vec<u8>, f64)],
    operation: &dyn Fn(&Store) -> Result<(), StoreError>,
    stride: u64,
) {
    let after = {
        let (store, ..) = fresh(1);
        store.run(Access::Key(SET), |tx| tx.sorted_put(SET, members, Expiry::None)).unwrap();
        operation(&store).unwrap();
        found(&store)
    };
    let mut fuse = 1;
    while !killed_inside(members, operation, &after, fuse) {
        fuse += stride;
    }
}

fn numbered(count: usize) -> Vec<(Vec<u8>, f64)> {
    (0..count).map(|n| (format!("m{n}").into_bytes(), n as f64)).collect()
}

#[test]
fn a_split_killed_at_any_step_is_whole_or_absent() {
    // Leaves are built with 54 entries: seven more between two of them split one.
    let more: Vec<_> = (0..7).map(|n| (format!("x{n}").into_bytes(), 20.5)).collect();
    killed_everywhere(&numbered(200), &|store| add(store, &more), 1);
    // From packed to a tree, and to the first inner node.
    killed_everywhere(&numbered(40), &|store| add(store, &numbered(130)), 23);
    // Two levels above the leaves.
    let many: Vec<_> = (0..300).map(|n| (format!("x{n}").into_bytes(), 100.5)).collect();
    killed_everywhere(&numbered(3_000), &|store| add(store, &many), 211);
}

#[test]
fn removals_and_merges_killed_at_any_step_are_whole_or_absent() {
    let remove = |range: std::ops::Range<u64>| {
        move |store: &Store| {
            let ranks = range.clone();
            store.run(Access::Key(SET), |tx| tx.sorted_remove_ranks(SET, ranks.clone())).map(drop)
        }
    };
    killed_everywhere(&numbered(200), &remove(60..63), 1);
    killed_everywhere(&numbered(200), &remove(10..190), 37);
    killed_everywhere(&numbered(3_300), &remove(30..3_280), 1_501);
    killed_everywhere(&numbered(200), &|store| store.delete(SET).map(drop), 1);
    // The slot that one member leaves is taken by another, before the operation is over.
    let exchanged = |store: &Store| {
        store.run(Access::Key(SET), |tx| {
            tx.sorted_remove(SET, b"m20")?;
            tx.sorted_add(SET, b"other", 21.5)?;
            tx.sorted_remove_ranks(SET, 80..84)?;
            tx.sorted_add(SET, b"third", 90.5).map(drop)
        })
    };
    killed_everywhere(&numbered(200), &exchanged, 1);
    let moved = |store: &Store| add(store, &[(b"m7".to_vec(), 150.5), (b"m9".to_vec(), 9.5)]);
    killed_everywhere(&numbered(200), &moved, 1);
}

#[test]
fn a_large_set_is_copied_renamed_replaced_and_expires() {
    let (store, clock, _) = fresh(1);
    let members = numbered(2_000);
    let other = Key { db: 1, bytes: b"other" };
    let scores: Scores = members.iter().map(|(n, s)| (n.clone(), s.to_bits())).collect();
    let both = Access::Keys(&[SET, other]);
    let read = |store: &Store, key| {
        store.read(key, |entry| {
            let sorted = entry.and_then(|entry| entry.sorted())?;
            sorted.assert_sound();
            Some(scores_of(&sorted))
        })
    };
    store
        .run(Access::Key(SET), |tx| tx.sorted_put(SET, &members, Expiry::AtMs(2_000_000)))
        .unwrap();
    assert!(store.run(both, |tx| tx.copy(SET, other)).unwrap());
    add(&store, &[(b"only here".to_vec(), -3.0)]).unwrap();
    assert!(read(&store, other) == Some(scores.clone()));
    assert!(store.run(both, |tx| tx.rename(SET, other)).unwrap());
    let renamed = read(&store, other).unwrap();
    assert_eq!(renamed.len(), 2_001);
    assert!(read(&store, SET).is_none());
    clock.advance_ns(2_000_000_000_000);
    assert!(read(&store, other).is_none());
    store.expire_some(100).unwrap();
    // Replaced by a string: the tree goes piece by piece.
    add(&store, &members).unwrap();
    store.put(SET, b"a string").unwrap();
    assert!(matches!(add(&store, &members), Err(StoreError::WrongType(_))));
    store.flush_all().unwrap();
    store.heap().reclaim();
    assert_eq!(store.stats().free_bytes, empty_bytes(), "memory leaked");
}

#[test]
fn a_set_many_times_the_budget_grows_is_read_and_goes() {
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1_000_000)));
    let budget_bytes = 256 << 10;
    let store = open(&device, &clock, budget_bytes);
    let (mut random, mut scores) = (seeded(5), Scores::new());
    for (name, score) in draw_members(&mut random, 30_000, 25_000) {
        add(&store, &[(name.clone(), score)]).unwrap();
        scores.insert(name, score.to_bits());
    }
    assert!(store.region().used_bytes_max() <= budget_bytes);
    store.region().close(1).unwrap();
    drop(store);
    let store = open(&device, &clock, budget_bytes);
    check(&store, &scores, &mut random, "reopened");
    // All of it at once is more than the budget; nothing of it happens. Piece by piece is not.
    let all = scores.len() as u64;
    let refused = store.run(Access::Key(SET), |tx| tx.sorted_remove_ranks(SET, 1..all));
    assert!(matches!(refused, Err(StoreError::TransactionTooLarge { .. })), "{refused:?}");
    assert!(found(&store) == scores);
    for _ in 0..all.div_ceil(200) {
        store.run(Access::Key(SET), |tx| tx.sorted_remove_ranks(SET, 0..200)).unwrap();
    }
    assert!(store.is_empty(0));
    store.flush_all().unwrap();
    store.heap().reclaim();
    assert_eq!(store.stats().free_bytes, empty_bytes(), "memory leaked");
}

#[test]
fn a_store_of_another_version_is_refused() {
    let (store, clock, device) = fresh(1);
    add(&store, &[(b"m".to_vec(), 1.0)]).unwrap();
    assert_eq!(store.heap().root("store"), Some(1));
    store.region().close(1).unwrap();
    drop(store);
    let store = open(&device, &clock, BUDGET_BYTES);
    assert_eq!(found(&store).len(), 1);
    store.heap().set_root("store", 2).unwrap();
    store.region().close(1).unwrap();
    drop(store);
    let device = Arc::new(device);
    let region = Region::open(device, clock.clone(), config(BUDGET_BYTES)).unwrap();
    let refused = Store::open(Heap::open(region).unwrap(), clock, StoreOptions::default());
    let refused = refused.map(drop).unwrap_err();
    assert!(matches!(refused, OpenError::Version { found: 2, supported: 1 }), "{refused}");
}
