//! Large lists against a naive oracle, also when operations are killed at every step.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use crate::harness::lists::change_list;
use crate::harness::*;
use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::{Config, Planted, Region};
use perdura_store::{Access, End, Expiry, Key, Kind, Store, StoreError, Tx, TxError, Unreadable};
use rand::Rng;

const BUDGET_BYTES: u64 = 1 << 20;
const LIST: Key<'static> = Key { db: 0, bytes: b"list" };

type Oracle = VecDeque<Vec<u8>>;

fn planted(seed: u64, planted: Planted) -> (Store, Arc<SimClock>, SimDevice) {
    let (device, clock) = (SimDevice::new(0, seed), Arc::new(SimClock::new(1_000_000)));
    let config = Config { planted, ..config(BUDGET_BYTES) };
    let region = Region::open(Arc::new(device.clone()), clock.clone(), config);
    (store_on(region.unwrap(), &clock), clock, device)
}

fn fresh(seed: u64) -> (Store, Arc<SimClock>, SimDevice) {
    planted(seed, Planted::None)
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

fn found(store: &Store, key: Key<'_>) -> Oracle {
    store.read(key, |entry| {
        let Some(list) = entry.map(|entry| entry.list().unwrap()) else { return Oracle::new() };
        list.assert_sound();
        let mut elements = Oracle::new();
        list.for_each(0..u64::MAX, false, &mut |element| elements.push_back(element.to_vec()));
        elements
    })
}

/// Ranges and single elements at random places, in both directions.
fn check(store: &Store, oracle: &Oracle, random: &mut Random, what: &str) {
    assert!(found(store, LIST) == *oracle, "{what}: elements differ");
    store.read(LIST, |entry| {
        let Some(entry) = entry else { return assert!(oracle.is_empty(), "{what}") };
        assert_eq!(entry.kind, Kind::List);
        let list = entry.list().unwrap();
        let len = oracle.len() as u64;
        assert_eq!(list.len(), len, "{what}");
        for _ in 0..40 {
            let index = random.random_range(0..len + 2);
            let got = list.get(index, <[u8]>::to_vec);
            assert_eq!(got.as_ref(), oracle.get(index as usize), "{what}: {index}");
            let (from, to) = (random.random_range(0..=len), random.random_range(0..=len + 2));
            let end = to.min(len).max(from);
            let wanted: Vec<_> = oracle.range(from as usize..end as usize).cloned().collect();
            for down in [false, true] {
                let mut met = Vec::new();
                list.for_each(from..to, down, &mut |element| met.push(element.to_vec()));
                if down {
                    met.reverse();
                }
                assert!(met == wanted, "{what}: {from}..{to}, down {down}");
            }
        }
    });
}

fn element(random: &mut Random) -> Vec<u8> {
    let len = match random.random_range(0..100) {
        0..40 => return random.random_range(-70_000..70_000).to_string().into_bytes(),
        40..60 => return format!("e{}", random.random_range(0..30)).into_bytes(),
        60..90 => random.random_range(0..200),
        90..99 => random.random_range(0..1_200),
        _ => random.random_range(0..9_000),
    };
    (0..len).map(|at| at as u8 ^ len as u8).collect()
}

fn draw_change(random: &mut Random, len: u64) -> Step {
    let end = if random.random_bool(0.5) { End::Front } else { End::Back };
    let name = LIST.bytes.to_vec();
    let index = random.random_range(0..=len);
    match random.random_range(0..100) {
        0..40 => {
            let count = if random.random_bool(0.9) { 1 } else { random.random_range(2..90) };
            Step::ListPush(0, name, end, (0..count).map(|_| element(random)).collect())
        }
        40..62 => Step::ListCut(0, name, end, if random.random_bool(0.97) { 1 } else { index / 4 }),
        62..80 => Step::ListInsert(0, name, index, element(random)),
        80..95 => Step::ListSet(0, name, index, element(random)),
        _ => {
            let most = [1, 2, u64::MAX][random.random_range(0..3)];
            Step::ListRemove(0, name, element(random), most, random.random_bool(0.5))
        }
    }
}

#[test]
fn a_list_of_thousands_agrees_with_the_oracle() {
    for seed in 0..number("PERDURA_SEEDS").unwrap_or(4) {
        let what = format!("seed {seed}");
        let (mut store, clock, device) = fresh(seed);
        let (mut random, mut oracle) = (seeded(seed), Oracle::new());
        for round in 0..12 {
            if round % 4 == 1 {
                let many: Vec<_> = (0..1_500).map(|_| element(&mut random)).collect();
                let step = Step::ListPush(0, LIST.bytes.to_vec(), End::Back, many);
                apply(&store, &step).unwrap();
                change_list(&mut oracle, &step);
            }
            for _ in 0..400 {
                let step = draw_change(&mut random, oracle.len() as u64);
                apply(&store, &step).unwrap_or_else(|error| panic!("{what}: {step:?}: {error}"));
                change_list(&mut oracle, &step);
            }
            check(&store, &oracle, &mut random, &what);
            if round % 3 == 2 {
                store = attach(store, &device, &clock);
                check(&store, &oracle, &mut random, &what);
            }
        }
        while !oracle.is_empty() {
            let count = random.random_range(0..60);
            let step = Step::ListCut(0, LIST.bytes.to_vec(), End::Front, count);
            apply(&store, &step).unwrap();
            change_list(&mut oracle, &step);
        }
        assert!(store.is_empty(0), "{what}");
        store.flush_all().unwrap();
        store.heap().reclaim();
        assert_eq!(store.stats().free_bytes, empty_bytes(), "{what}: memory leaked");
    }
}

fn put(store: &Store, elements: &Oracle) {
    let all = || elements.iter().map(Vec::as_slice);
    store.run(Access::Key(LIST), |tx| tx.list_put(LIST, all(), Expiry::None)).unwrap();
}

type Change<'c> = &'c dyn Fn(&mut Tx<'_>) -> Result<(), TxError>;

/// Runs `change` on a list of these elements, killed after `fuse` steps of the heap. Returns
/// whether it got through before, and whether the list was then neither as before nor as after, or
/// memory was lost.
fn killed_inside(
    before: &Oracle,
    change: Change<'_>,
    after: &Oracle,
    (fuse, bug): (u64, Planted),
) -> (bool, bool) {
    let (store, clock, device) = planted(fuse, bug);
    put(&store, before);
    store.heap().kill_after(fuse);
    let outcome = store.run(Access::Key(LIST), |tx| change(tx));
    assert!(matches!(outcome, Ok(()) | Err(StoreError::Killed)), "{outcome:?}");
    let got_through = outcome.is_ok() && !store.heap().is_killed();
    let store = if fuse.is_multiple_of(3) {
        store.region().close(1).unwrap();
        drop(store);
        open(&device.power_cycle(fuse), &clock, BUDGET_BYTES)
    } else {
        attach(store, &device, &clock)
    };
    let found = found(&store, LIST);
    let is_whole = found == *after || (outcome.is_err() && found == *before);
    store.delete(LIST).unwrap();
    store.flush_all().unwrap();
    store.heap().reclaim();
    (got_through, !is_whole || store.stats().free_bytes != empty_bytes())
}

/// How many deaths of a change, at every `stride`th step, left the list torn.
fn torn(before: &Oracle, change: Change<'_>, stride: u64, bug: Planted) -> u32 {
    let after = {
        let (store, ..) = fresh(1);
        put(&store, before);
        store.run(Access::Key(LIST), |tx| change(tx)).unwrap();
        found(&store, LIST)
    };
    let (mut fuse, mut count) = (1, 0);
    loop {
        let death = || killed_inside(before, change, &after, (fuse, bug));
        // A planted bug may leave what no store opens.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(death));
        let (got_through, is_torn) = match outcome {
            Ok(outcome) => outcome,
            Err(panic) if bug == Planted::None => std::panic::resume_unwind(panic),
            Err(_) => (false, true),
        };
        count += u32::from(is_torn);
        if got_through {
            return count;
        }
        fuse += stride;
    }
}

fn numbered(count: usize) -> Oracle {
    (0..count).map(|n| format!("element number {n}").into_bytes()).collect()
}

fn push(tx: &mut Tx<'_>, end: End, count: usize) -> Result<(), TxError> {
    let more: Vec<_> = (0..count).map(|n| format!("pushed {n}")).collect();
    tx.list_push(LIST, end, more.iter().map(|more| more.as_bytes())).map(drop)
}

#[test]
fn pushes_and_pops_killed_at_any_step_are_whole_or_absent() {
    let large = numbered(900);
    for end in [End::Front, End::Back] {
        assert_eq!(torn(&large, &|tx| push(tx, end, 1), 1, Planted::None), 0);
        assert_eq!(torn(&large, &|tx| push(tx, end, 60), 5, Planted::None), 0);
        assert_eq!(torn(&large, &|tx| push(tx, end, 800), 97, Planted::None), 0);
        // From packed to chunks.
        assert_eq!(torn(&numbered(40), &|tx| push(tx, end, 20), 1, Planted::None), 0);
        for count in [1, 120, 450, 899, 900] {
            let cut = |tx: &mut Tx<'_>| tx.list_cut(LIST, end, count).map(drop);
            assert_eq!(torn(&large, &cut, 1, Planted::None), 0, "{count}");
        }
        // Elements with records of their own come and go.
        let long = |tx: &mut Tx<'_>| {
            tx.list_cut(LIST, end, 3)?;
            tx.list_push(LIST, end, [&[7; 3_000][..], &[8; 1_001]].into_iter())?;
            tx.list_cut(LIST, end, 1).map(drop)
        };
        assert_eq!(torn(&large, &long, 1, Planted::None), 0);
    }
}

/// Room that one call makes is filled by the next, and a death has to put the old bytes back.
fn turned(end: End) -> impl Fn(&mut Tx<'_>) -> Result<(), TxError> {
    move |tx| {
        tx.list_cut(LIST, end, 5)?;
        push(tx, end, 4)
    }
}

#[test]
fn room_made_and_filled_by_one_operation_is_put_back() {
    for end in [End::Front, End::Back] {
        assert_eq!(torn(&numbered(300), &turned(end), 1, Planted::None), 0);
        assert!(torn(&numbered(300), &turned(end), 1, Planted::FillFreedRoom) > 0, "{end:?}");
    }
}

/// As [`turned`]: the room comes from elements that are removed, or become shorter.
#[test]
fn room_that_removals_and_shorter_elements_make_is_put_back() {
    let mut before = numbered(300);
    for index in [3, 290, 297] {
        before[index] = b"removed from the middle".to_vec();
    }
    let last = before.len() as u64 - 1;
    let removed = |tx: &mut Tx<'_>| {
        tx.list_remove(LIST, b"removed from the middle", u64::MAX, true)?;
        push(tx, End::Back, 2)
    };
    let shorter = |tx: &mut Tx<'_>| {
        tx.list_set(LIST, last, b"s")?;
        push(tx, End::Back, 1)?;
        tx.list_set(LIST, 0, b"s")?;
        push(tx, End::Front, 1)
    };
    let changes: [Change<'_>; 2] = [&removed, &shorter];
    for change in changes {
        assert_eq!(torn(&before, change, 1, Planted::None), 0);
        assert!(torn(&before, change, 1, Planted::FillFreedRoom) > 0);
    }
}

#[test]
fn an_aborted_operation_puts_the_room_back_that_it_filled() {
    let run = |bug| {
        let (store, ..) = planted(1, bug);
        let before = numbered(300);
        put(&store, &before);
        let aborted = store.run(Access::Key(LIST), |tx| {
            turned(End::Back)(tx)?;
            turned(End::Front)(tx)?;
            tx.abort::<()>("on purpose")
        });
        assert!(matches!(aborted, Err(StoreError::Aborted(_))));
        Unreadable::catch(|| found(&store, LIST) == before).unwrap_or(false)
    };
    assert!(run(Planted::None));
    assert!(!run(Planted::FillFreedRoom));
}

#[test]
fn changes_inside_killed_at_any_step_are_whole_or_absent() {
    let large = numbered(900);
    let whole =
        |change: Change<'_>, stride| assert_eq!(torn(&large, change, stride, Planted::None), 0);
    for index in [2, 300, 897] {
        whole(&|tx| tx.list_set(LIST, index, b"x").map(drop), 1);
        whole(&|tx| tx.list_set(LIST, index, &[9; 600]).map(drop), 1);
        whole(&|tx| tx.list_set(LIST, index, &[9; 2_000]).map(drop), 1);
        whole(&|tx| tx.list_insert(LIST, index, b"inserted"), 1);
        // Until the chunk is split, and more than once.
        whole(&|tx| (0..12).try_for_each(|_| tx.list_insert(LIST, index, &[b'i'; 900])), 11);
    }
    let mut equal = numbered(400);
    equal.iter_mut().step_by(3).for_each(|element| *element = b"equal".to_vec());
    for (most, down) in [(1, false), (9, true), (u64::MAX, false), (u64::MAX, true)] {
        let remove = |tx: &mut Tx<'_>| tx.list_remove(LIST, b"equal", most, down).map(drop);
        assert_eq!(torn(&equal, &remove, 1, Planted::None), 0);
    }
}

#[test]
fn chunks_that_lose_most_of_their_elements_are_merged() {
    for down in [false, true] {
        let (store, ..) = fresh(1);
        let mut oracle = numbered(4_000);
        for (number, element) in oracle.iter_mut().enumerate() {
            if number % 50 != 7 {
                *element = vec![b'x'; 20];
            }
        }
        put(&store, &oracle);
        let memory = |store: &Store| store.read(LIST, |entry| entry.unwrap().memory_bytes());
        let before = memory(&store);
        let gone =
            store.run(Access::Key(LIST), |tx| tx.list_remove(LIST, &[b'x'; 20], u64::MAX, down));
        assert_eq!(gone.unwrap(), 3_920);
        oracle.retain(|element| element.len() != 20);
        check(&store, &oracle, &mut seeded(1), "merged");
        assert!(memory(&store) < before / 8, "{} of {before}", memory(&store));
    }
}

#[test]
fn a_list_many_times_the_budget_is_copied_trimmed_and_goes() {
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1_000_000)));
    let budget_bytes = 256 << 10;
    let store = open(&device, &clock, budget_bytes);
    let mut oracle = numbered(60_000);
    oracle[30_000] = vec![b'l'; 100_000];
    // In one operation, and longer than the budget.
    put(&store, &oracle);
    let other = Key { db: 1, bytes: b"other" };
    let both = Access::Keys(&[LIST, other]);
    assert!(store.run(both, |tx| tx.copy(LIST, other)).unwrap());
    assert!(found(&store, other) == oracle);
    for key in [LIST, other] {
        let (at, len) = (Access::Key(key), oracle.len() as u64);
        store.run(at, |tx| tx.list_cut(key, End::Front, len / 2)).unwrap();
        store.run(at, |tx| tx.list_cut(key, End::Back, len / 2 - 700)).unwrap();
    }
    assert!(store.region().used_bytes_max() <= budget_bytes);
    oracle.drain(..30_000);
    oracle.truncate(700);
    check(&store, &oracle, &mut seeded(3), "trimmed");
    assert!(found(&store, other) == oracle);
    store.region().close(1).unwrap();
    drop(store);
    let store = open(&device, &clock, budget_bytes);
    check(&store, &oracle, &mut seeded(4), "reopened");
    store.run(both, |tx| tx.rename(LIST, other)).unwrap();
    assert!(store.run(Access::Key(LIST), |tx| Ok(tx.has(LIST))).is_ok_and(|has| !has));
    store.put(other, b"a string").unwrap();
    store.flush_all().unwrap();
    store.heap().reclaim();
    assert_eq!(store.stats().free_bytes, empty_bytes(), "memory leaked");
}

/// No opening in between finds what is lost.
#[test]
fn elements_with_records_of_their_own_come_and_go_without_a_trace() {
    let (store, clock, device) = fresh(1);
    let run = |change: Change<'_>| store.run(Access::Key(LIST), |tx| change(tx)).unwrap();
    let long = |len: usize| vec![b'l'; len];
    let mut oracle = numbered(300);
    for index in [0, 5, 100, 101, 290, 299] {
        oracle[index] = long(1_001 + index);
    }
    for _ in 0..2 {
        // The second time it replaces a large list by one with a root of the same length.
        put(&store, &oracle);
    }
    for (index, element) in [(0, long(3_000)), (100, long(4_000)), (101, b"short".to_vec())] {
        run(&|tx| tx.list_set(LIST, index as u64, &element).map(drop));
        oracle[index] = element;
    }
    run(&|tx| tx.list_insert(LIST, 50, &long(2_500)));
    oracle.insert(50, long(2_500));
    run(&|tx| tx.list_remove(LIST, &long(4_000), u64::MAX, false).map(drop));
    run(&|tx| tx.list_remove(LIST, &long(4_000), 1, true).map(drop));
    oracle.retain(|element| element.len() != 4_000);
    check(&store, &oracle, &mut seeded(1), "changed");
    // A single element, too long to be packed.
    run(&|tx| tx.list_cut(LIST, End::Front, 299).map(drop));
    oracle.drain(..299);
    assert_eq!((oracle.len(), oracle[0].len()), (1, 1_300));
    check(&store, &oracle, &mut seeded(1), "one long element");
    let bytes = store.stats().free_bytes;
    store.region().checkpoint().unwrap();
    let store = attach(store, &device, &clock);
    check(&store, &oracle, &mut seeded(1), "attached");
    store.heap().reclaim();
    assert!(store.stats().free_bytes >= bytes);
    drop(store);
    let (store, ..) = fresh(1);
    put(&store, &numbered(300));
    let run = |change: Change<'_>| store.run(Access::Key(LIST), |tx| change(tx)).unwrap();
    for end in [End::Front, End::Back] {
        run(&|tx| tx.list_push(LIST, end, [&long(2_000)[..], &long(5_000)].into_iter()).map(drop));
        run(&|tx| tx.list_set(LIST, 1, &long(1_500)).map(drop));
        run(&|tx| tx.list_set(LIST, 1, b"short").map(drop));
        run(&|tx| tx.list_cut(LIST, end, 1).map(drop));
    }
    put(&store, &oracle);
    store.delete(LIST).unwrap();
    store.flush_all().unwrap();
    store.heap().reclaim();
    assert_eq!(store.stats().free_bytes, empty_bytes(), "memory leaked");
}

#[test]
fn a_list_trimmed_to_little_is_packed_again_and_takes_little() {
    let (store, ..) = fresh(1);
    put(&store, &numbered(5_000));
    store.run(Access::Key(LIST), |tx| tx.list_cut(LIST, End::Back, 4_995)).unwrap();
    assert_eq!(found(&store, LIST), numbered(5));
    assert!(store.read(LIST, |entry| entry.unwrap().memory_bytes()) <= 192);
}

/// Memory of lists of one size of elements, beside Redis' quicklist: a listpack of at most 8 KiB,
/// exactly as long as its entries, for which jemalloc has classes of a quarter of a power of two,
/// and 40 B for its node.
#[test]
fn elements_take_no_more_memory_than_in_redis() {
    let class = |bytes: u64| {
        let step = (bytes.next_power_of_two() / 8).max(16);
        bytes.next_multiple_of(step)
    };
    for len in [1, 8, 16, 40, 64, 100, 128, 200, 256, 400, 512, 700, 1_000, 1_024, 2_000] {
        let (store, ..) = fresh(1);
        let count = (4u64 << 20) / (len + 20);
        let elements: Oracle = (0..count).map(|_| vec![b'v'; len as usize]).collect();
        for part in elements.iter().map(Vec::as_slice).collect::<Vec<_>>().chunks(50) {
            let pushed = store
                .run(Access::Key(LIST), |tx| tx.list_push(LIST, End::Back, part.iter().copied()));
            pushed.unwrap();
        }
        let ours = store.read(LIST, |entry| entry.unwrap().memory_bytes());
        let entry = len + if len < 64 { 1 } else { 2 } + if len < 126 { 1 } else { 2 };
        let per_node = (8192 - 7) / entry;
        let theirs = count.div_ceil(per_node) * (class(per_node * entry + 7) + 40);
        assert!(ours <= theirs + theirs / 50, "{len} B: {ours} bytes, Redis {theirs}");
    }
}
