//! Streams against a naive oracle, also when operations are killed at every step.

use std::sync::{Arc, OnceLock};

use crate::harness::streams::*;
use crate::harness::*;
use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::{Config, Planted, Region};
use perdura_store::{
    Access, ChunkLimits, Key, Kind, Store, StoreError, StreamId, StreamTrim, TrimTo, Tx, TxError,
};

const BUDGET_BYTES: u64 = 1 << 20;
const STREAM: Key<'static> = Key { db: 0, bytes: b"stream" };

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

fn found(store: &Store, key: Key<'_>) -> Option<StreamModel> {
    store.read(key, |entry| {
        let entry = entry?;
        assert_eq!(entry.kind, Kind::Stream);
        Some(model_of(&entry.stream().unwrap()))
    })
}

fn run<R>(store: &Store, f: impl Fn(&mut Tx<'_>) -> Result<R, TxError>) -> R {
    store.run(Access::Key(STREAM), |tx| f(tx)).unwrap()
}

#[test]
fn a_stream_of_thousands_agrees_with_the_oracle() {
    for seed in 0..number("PERDURA_SEEDS").unwrap_or(4) {
        let what = format!("seed {seed}");
        let (mut store, clock, device) = fresh(seed);
        let (mut random, mut oracle) = (seeded(seed), StreamModel::default());
        run(&store, |tx| tx.stream_create(STREAM));
        for round in 0..12 {
            if round % 4 == 1 {
                let pairs = |n: u64| vec![(b"n".to_vec(), n.to_string().into_bytes())];
                let many = (0..3_000).map(|n| (n % 3, pairs(n))).collect();
                let change = Change::Add(many, ChunkLimits::default());
                run(&store, |tx| apply_change(tx, STREAM, &change));
                oracle.change(&change);
            }
            for _ in 0..150 {
                let change = draw_change(&mut random);
                run(&store, |tx| apply_change(tx, STREAM, &change));
                oracle.change(&change);
                if round == 0 {
                    assert!(found(&store, STREAM).as_ref() == Some(&oracle), "{what}: {change:?}");
                }
            }
            assert!(found(&store, STREAM).as_ref() == Some(&oracle), "{what}, round {round}");
            if round % 3 == 2 {
                store = attach(store, &device, &clock);
                assert!(found(&store, STREAM).as_ref() == Some(&oracle), "{what}: attached");
            }
        }
        store.delete(STREAM).unwrap();
        store.flush_all().unwrap();
        store.heap().reclaim();
        assert_eq!(store.stats().free_bytes, empty_bytes(), "{what}: memory leaked");
    }
}

type Run<'c> = &'c dyn Fn(&mut Tx<'_>) -> Result<(), TxError>;

/// Runs `change` on a stream made by `before`, killed after `fuse` steps of the heap. Returns
/// whether it got through before, and whether the stream was then neither as before nor as after,
/// or memory was lost.
fn killed_inside(before: Run<'_>, change: Run<'_>, (fuse, bug): (u64, Planted)) -> (bool, bool) {
    let (store, clock, device) = planted(fuse, bug);
    run(&store, before);
    let as_before = found(&store, STREAM);
    let after = {
        let (store, ..) = fresh(1);
        run(&store, before);
        run(&store, change);
        found(&store, STREAM)
    };
    store.heap().kill_after(fuse);
    let outcome = store.run(Access::Key(STREAM), |tx| change(tx));
    assert!(matches!(outcome, Ok(()) | Err(StoreError::Killed)), "{outcome:?}");
    let got_through = outcome.is_ok() && !store.heap().is_killed();
    let store = if fuse.is_multiple_of(3) {
        store.region().close(1).unwrap();
        drop(store);
        open(&device.power_cycle(fuse), &clock, BUDGET_BYTES)
    } else {
        attach(store, &device, &clock)
    };
    let found = found(&store, STREAM);
    let is_whole = found == after || (outcome.is_err() && found == as_before);
    store.delete(STREAM).unwrap();
    store.flush_all().unwrap();
    store.heap().reclaim();
    (got_through, !is_whole || store.stats().free_bytes != empty_bytes())
}

/// How many deaths of a change, at every `stride`th step, left the stream torn.
fn torn(before: Run<'_>, change: Run<'_>, stride: u64, bug: Planted) -> u32 {
    let (mut fuse, mut count) = (1, 0);
    loop {
        let death = || killed_inside(before, change, (fuse, bug));
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

fn add(tx: &mut Tx<'_>, ids: std::ops::Range<u64>, value: &[u8]) -> Result<(), TxError> {
    ids.into_iter().try_for_each(|ms| {
        let pairs = [(&b"number"[..], ms.to_string().into_bytes()), (b"value", value.to_vec())];
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (*name, &value[..])).collect();
        tx.stream_add(STREAM, StreamId { ms, seq: 0 }, &pairs, ChunkLimits::default())
    })
}

/// A stream of these entries, with a group whose two consumers have some of them.
fn made(tx: &mut Tx<'_>, count: u64) -> Result<(), TxError> {
    add(tx, 1..count + 1, b"a value")?;
    tx.group_create(STREAM, b"group", StreamId::MIN, Some(0))?;
    for (consumer, from) in [(b"one", 10), (b"two", 12)] {
        tx.consumer_create(STREAM, b"group", consumer, 5)?;
        let all: Vec<_> = (from..(from + 150).min(count)).step_by(3).map(delivered).collect();
        tx.pending_assign(STREAM, b"group", consumer, &all)?;
    }
    Ok(())
}

fn delivered(ms: u64) -> perdura_store::Delivery {
    perdura_store::Delivery { id: id(ms), delivered_ms: 3, deliveries: 1 }
}

fn id(ms: u64) -> StreamId {
    StreamId { ms, seq: 0 }
}

fn exact(to: TrimTo) -> StreamTrim {
    StreamTrim { to, is_rough: false, limit: 0 }
}

#[test]
fn additions_killed_at_any_step_are_whole_or_absent() {
    // Into the record, into a chunk of its own, and into chunks that fill.
    for (count, more, stride) in [(1, 1, 1), (9, 1, 1), (40, 1, 1), (100, 1, 1), (730, 300, 41)] {
        let grow = |tx: &mut Tx<'_>| add(tx, count + 1..count + more + 1, b"a value");
        let before = |tx: &mut Tx<'_>| add(tx, 1..count + 1, b"a value");
        assert_eq!(torn(&before, &grow, stride, Planted::None), 0, "{count} {more}");
    }
    let empty = |tx: &mut Tx<'_>| {
        add(tx, 1..300, b"a value")?;
        tx.stream_trim(STREAM, exact(TrimTo::Len(0))).map(drop)
    };
    let long = |tx: &mut Tx<'_>| add(tx, 800..802, &[7; 5_000]);
    assert_eq!(torn(&empty, &long, 1, Planted::None), 0);
    let large = |tx: &mut Tx<'_>| made(tx, 700);
    assert_eq!(torn(&large, &long, 1, Planted::None), 0);
}

#[test]
fn deletions_killed_at_any_step_are_whole_or_absent() {
    let large = |tx: &mut Tx<'_>| made(tx, 730);
    let few = |tx: &mut Tx<'_>| made(tx, 5);
    for ids in [1..2, 150..152, 200..301, 701..731, 725..731] {
        let delete = |tx: &mut Tx<'_>| {
            let ids: Vec<_> = ids.clone().map(id).collect();
            tx.stream_delete(STREAM, &ids)?;
            add(tx, 800..802, b"added behind")
        };
        let stride = if ids.end - ids.start > 20 { 31 } else { 1 };
        assert_eq!(torn(&large, &delete, stride, Planted::None), 0, "{ids:?}");
    }
    for trim in [TrimTo::Len(728), TrimTo::Len(300), TrimTo::Len(0), TrimTo::Id(id(420))] {
        let cut = |tx: &mut Tx<'_>| {
            tx.stream_trim(STREAM, exact(trim))?;
            add(tx, 800..802, b"added behind")
        };
        assert_eq!(torn(&large, &cut, 3, Planted::None), 0, "{trim:?}");
    }
    let two = |tx: &mut Tx<'_>| tx.stream_delete(STREAM, &[id(2), id(4)]).map(drop);
    for before in [&large as Run<'_>, &few] {
        assert_eq!(torn(before, &two, 1, Planted::None), 0);
        assert!(torn(before, &two, 1, Planted::UnloggedDeletion) > 0);
    }
}

#[test]
fn an_aborted_deletion_leaves_the_entries() {
    let is_kept = |bug| {
        let (store, ..) = planted(1, bug);
        run(&store, |tx| made(tx, 300));
        let before = found(&store, STREAM);
        let aborted = store.run(Access::Key(STREAM), |tx| {
            tx.stream_delete(STREAM, &[id(2), id(150)])?;
            add(tx, 400..402, b"added behind")?;
            tx.abort::<()>("on purpose")
        });
        assert!(matches!(aborted, Err(StoreError::Aborted(_))));
        let after =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| found(&store, STREAM)));
        after.is_ok_and(|after| after == before)
    };
    assert!(is_kept(Planted::None));
    assert!(!is_kept(Planted::UnloggedDeletion));
}

#[test]
fn changes_of_groups_killed_at_any_step_are_whole_or_absent() {
    let large = |tx: &mut Tx<'_>| made(tx, 330);
    let whole =
        |change: Run<'_>, stride| assert_eq!(torn(&large, change, stride, Planted::None), 0);
    whole(&|tx| tx.group_create(STREAM, b"another", id(3), None).map(drop), 1);
    whole(&|tx| tx.group_destroy(STREAM, b"group").map(drop), 1);
    whole(&|tx| tx.group_set(STREAM, b"group", id(40), Some(40)).map(drop), 1);
    whole(&|tx| tx.consumer_create(STREAM, b"group", b"three", 9).map(drop), 1);
    whole(&|tx| tx.consumer_delete(STREAM, b"group", b"one").map(drop), 7);
    whole(&|tx| tx.consumer_seen(STREAM, b"group", b"two", 9, true).map(drop), 1);
    let assign = |tx: &mut Tx<'_>| {
        let all: Vec<_> = [9, 10, 12, 13, 300, 301].into_iter().map(delivered).collect();
        tx.pending_assign(STREAM, b"group", b"two", &all).map(drop)
    };
    whole(&assign, 1);
    let many = |tx: &mut Tx<'_>| {
        let all: Vec<_> = (200..330).map(delivered).collect();
        tx.pending_assign(STREAM, b"group", b"one", &all).map(drop)
    };
    whole(&many, 23);
    let drop_some = |tx: &mut Tx<'_>| {
        let ids: Vec<_> = (10..60).map(id).collect();
        tx.pending_drop(STREAM, b"group", &ids).map(drop)
    };
    whole(&drop_some, 5);
    whole(&|tx| tx.delete(STREAM).map(drop), 1);
}

#[test]
fn a_stream_many_times_the_budget_is_copied_trimmed_and_goes() {
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1_000_000)));
    let budget_bytes = 256 << 10;
    let store = open(&device, &clock, budget_bytes);
    for from in (1..60_001).step_by(500) {
        run(&store, |tx| add(tx, from..from + 500, b"a value"));
    }
    run(&store, |tx| tx.group_create(STREAM, b"group", id(17), Some(17)).map(drop));
    let mut oracle = found(&store, STREAM).unwrap();
    assert_eq!(oracle.entries.len(), 60_000);
    let other = Key { db: 1, bytes: b"other" };
    let both = Access::Keys(&[STREAM, other]);
    assert!(store.run(both, |tx| tx.copy(STREAM, other)).unwrap());
    assert!(found(&store, other).unwrap() == oracle);
    for key in [STREAM, other] {
        let trim = |to| store.run(Access::Key(key), |tx| tx.stream_trim(key, exact(to))).unwrap();
        assert_eq!(trim(TrimTo::Len(31_234)), 28_766);
        assert_eq!(trim(TrimTo::Len(50_000)), 0);
        assert_eq!(trim(TrimTo::Id(id(59_301))), 59_300 - 28_766);
    }
    assert!(store.region().used_bytes_max() <= budget_bytes);
    oracle.entries = oracle.entries.split_off(&id(59_301));
    assert!(found(&store, STREAM).unwrap() == oracle && found(&store, other).unwrap() == oracle);
    store.region().close(1).unwrap();
    drop(store);
    let store = open(&device, &clock, budget_bytes);
    assert!(found(&store, STREAM).unwrap() == oracle);
    store.run(both, |tx| tx.rename(STREAM, other)).unwrap();
    assert!(found(&store, STREAM).is_none() && found(&store, other).unwrap() == oracle);
    store.put(other, b"a string").unwrap();
    store.flush_all().unwrap();
    store.heap().reclaim();
    assert_eq!(store.stats().free_bytes, empty_bytes(), "memory leaked");
}

#[test]
fn a_rough_trim_takes_whole_chunks_and_no_more_than_its_limit() {
    let (store, ..) = fresh(1);
    run(&store, |tx| add(tx, 1..1_051, b"v"));
    let trim = |to, limit| {
        let trim = StreamTrim { to, is_rough: true, limit };
        run(&store, |tx| tx.stream_trim(STREAM, trim))
    };
    assert_eq!(trim(TrimTo::Len(900), 0), 100);
    assert_eq!(trim(TrimTo::Len(0), 99), 0);
    assert_eq!(trim(TrimTo::Len(0), 299), 200);
    assert_eq!(trim(TrimTo::Id(id(400)), 0), 0);
    assert_eq!(trim(TrimTo::Id(id(401)), 0), 100);
    assert_eq!(trim(TrimTo::Id(id(1_050)), 0), 600);
    assert_eq!(trim(TrimTo::Id(id(1_051)), 0), 50);
    assert_eq!(found(&store, STREAM).unwrap().entries.len(), 0);
}

/// Memory of streams of one size of values, beside Redis': listpacks of at most 100 entries or
/// 4 KiB, cut to what they need when they are full, for which jemalloc has classes of a quarter of
/// a power of two; and 40 B for a leaf of the radix tree.
#[test]
fn entries_take_no_more_memory_than_in_redis() {
    let class = |bytes: u64| {
        let step = (bytes.next_power_of_two() / 8).max(16);
        bytes.next_multiple_of(step)
    };
    for len in
        [1, 8, 16, 40, 64, 100, 128, 200, 256, 300, 400, 512, 700, 1_000, 1_024, 2_000, 5_000]
    {
        let (store, ..) = fresh(1);
        let count = (4u64 << 20) / (len + 20);
        let value = vec![b'v'; len as usize];
        for from in (1..=count).step_by(50) {
            run(&store, |tx| {
                (from..(from + 50).min(count + 1)).try_for_each(|ms| {
                    let pairs = [(&b"field"[..], &value[..])];
                    tx.stream_add(STREAM, id(ms), &pairs, ChunkLimits::default())
                })
            });
        }
        let ours = store.read(STREAM, |entry| entry.unwrap().memory_bytes());
        // Flags, two differences of IDs and the number of elements take 2 B each.
        let entry = 8 + len + if len < 64 { 1 } else { 2 } + if len < 126 { 1 } else { 2 };
        let head = 7 + 8 + 7;
        let per_node = (4_096u64.saturating_sub(head + len) / entry + 1).clamp(1, 100);
        let theirs = count.div_ceil(per_node) * (class(head + per_node * entry) + 40);
        assert!(ours <= theirs + theirs / 50, "{len} B: {ours} bytes, Redis {theirs}");
    }
}

/// Pending entries beside Redis': 32 B for what is noted of one (three words), and a leaf of 32 B
/// at least in the radix tree of the group and in that of the consumer.
#[test]
fn pending_entries_take_no_more_memory_than_in_redis() {
    let (store, ..) = fresh(1);
    run(&store, |tx| {
        add(tx, 1..2, b"v")?;
        tx.group_create(STREAM, b"group", StreamId::MIN, None)?;
        tx.consumer_create(STREAM, b"group", b"alice", 1)
    });
    let bytes = || store.read(STREAM, |entry| entry.unwrap().memory_bytes());
    let before = bytes();
    assert!(before <= 512, "{before} B for an entry, a group and a consumer");
    for from in (1..20_001).step_by(100) {
        let all: Vec<_> = (from..from + 100).map(delivered).collect();
        run(&store, |tx| tx.pending_assign(STREAM, b"group", b"alice", &all));
    }
    let each = (bytes() - before) / 20_000;
    assert!(each <= 96, "{each} B for each pending entry");
}

/// No opening in between finds what is lost, and the trees of names have several levels.
#[test]
fn hundreds_of_groups_and_consumers_come_and_go_without_a_trace() {
    let (store, ..) = fresh(1);
    let name = |number: u64| format!("{:03}", number * 37 % 300).into_bytes();
    let groups = |check: &dyn Fn(&Option<StreamModel>)| check(&found(&store, STREAM));
    // The only chunk grows in the record, then outside of it, and is followed by others.
    for ms in 1..400 {
        run(&store, |tx| add(tx, ms..ms + 1, b"a value"));
    }
    for number in 0..300 {
        run(&store, |tx| {
            tx.group_create(STREAM, &name(number), id(number), None)?;
            tx.consumer_create(STREAM, b"000", &name(number), 1)?;
            tx.pending_assign(STREAM, b"000", &name(number), &[delivered(number)])
        });
    }
    groups(&|model| {
        let groups = &model.as_ref().unwrap().groups;
        assert_eq!((groups.len(), groups[&b"000"[..]].consumers.len()), (300, 300));
    });
    // The lowest of each leaf among them; then lower ones again.
    for number in (0..300).filter(|number| number % 4 != 3) {
        run(&store, |tx| {
            let gone = name(number);
            tx.consumer_delete(STREAM, b"000", &gone)?;
            if gone != b"000" { tx.group_destroy(STREAM, &gone) } else { Ok(true) }
        });
        if number % 20 == 0 {
            groups(&|model| assert!(model.is_some()));
        }
    }
    for number in 0..60 {
        let low = format!("!{:02}", 60 - number).into_bytes();
        run(&store, |tx| tx.group_create(STREAM, &low, id(number), None));
    }
    groups(&|model| assert_eq!(model.as_ref().unwrap().groups.len(), 136));
    // Pending entries below all that there are, and a trim that cuts single chunks off.
    run(&store, |tx| tx.consumer_create(STREAM, b"000", b"late", 1));
    for ms in (1_000..1_400).rev() {
        run(&store, |tx| tx.pending_assign(STREAM, b"000", b"late", &[delivered(ms)]));
    }
    groups(&|model| assert!(model.is_some()));
    run(&store, |tx| tx.stream_trim(STREAM, exact(TrimTo::Len(250))));
    groups(&|model| assert_eq!(model.as_ref().unwrap().entries.len(), 250));
    store.delete(STREAM).unwrap();
    store.flush_all().unwrap();
    store.heap().reclaim();
    assert_eq!(store.stats().free_bytes, empty_bytes(), "memory leaked");
}
