//! Watched keys: optimistic updates by several threads lose none, and nothing stays behind.

use std::sync::{Arc, Mutex};

use crate::harness::open;
use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_store::{Access, Changed, Expiry, Key, Listener, Store, Watch};

fn is_unchanged(store: &Store, watch: &Watch) -> bool {
    store.run(Access::Key(watch.key()), |tx| Ok(tx.is_unchanged(watch))).unwrap()
}

#[test]
fn optimistic_updates_by_several_threads_lose_none() {
    let clock = Arc::new(SimClock::new(1_000_000));
    let store = open(&SimDevice::new(0, 1), &clock, 4 << 20);
    let key = Key::new(b"counter");
    // A counter that goes round: the value alone would often be the same again.
    let rounds = |store: &Store| {
        let mut done = 0;
        while done < 500 {
            let watch = store.watch(key);
            let old: u64 = store
                .get(key)
                .map_or(0, |text| std::str::from_utf8(&text).unwrap().parse().unwrap());
            let new = ((old + 1) % 3).to_string();
            let swapped = store.run(Access::Key(key), |tx| {
                let unchanged = tx.is_unchanged(&watch);
                if unchanged {
                    tx.put(key, new.as_bytes(), Expiry::None)?;
                }
                Ok(unchanged)
            });
            done += u64::from(swapped.unwrap());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| rounds(&store));
        }
    });
    // 2,000 steps of 1 modulo 3: one that was lost would show.
    assert_eq!(store.get(key).unwrap(), (2_000 % 3).to_string().as_bytes());
}

#[test]
fn a_watch_sees_writes_removal_and_expiry_and_nothing_else() {
    let clock = Arc::new(SimClock::new(1_000_000));
    let store = open(&SimDevice::new(0, 1), &clock, 4 << 20);
    let (key, other) = (Key::new(b"k"), Key { db: 1, bytes: b"k" });
    store.put(key, b"1").unwrap();
    let first = store.watch(key);
    store.put(other, b"1").unwrap();
    store.put(Key::new(b"l"), b"1").unwrap();
    store.get(key);
    assert!(is_unchanged(&store, &first));
    // What was refused or given up was not written.
    let refused = store.run(Access::Key(key), |tx| {
        tx.put(key, b"2", Expiry::None)?;
        tx.abort::<()>("no")
    });
    assert!(refused.is_err() && is_unchanged(&store, &first));
    store.put(key, b"1").unwrap();
    assert!(!is_unchanged(&store, &first));
    let second = store.watch(key);
    assert!(is_unchanged(&store, &second) && !is_unchanged(&store, &first));
    store.delete(key).unwrap();
    assert!(!is_unchanged(&store, &second));
    drop((first, second));

    // Expired after it was watched: changed. Expired before, and swept meanwhile: not.
    let soon = clock_ms(&clock) + 10;
    store.run(Access::Key(key), |tx| tx.put(key, b"1", Expiry::AtMs(soon))).unwrap();
    let before = store.watch(key);
    assert!(is_unchanged(&store, &before));
    clock.advance_ns(20_000_000);
    let after = store.watch(key);
    assert!(!is_unchanged(&store, &before) && is_unchanged(&store, &after));
    store.expire_some(10_000).unwrap();
    assert!(!is_unchanged(&store, &before) && is_unchanged(&store, &after));
}

fn clock_ms(clock: &SimClock) -> u64 {
    perdura_media::Clock::unix_ms(clock)
}

/// Notes what it is told.
#[derive(Debug, Default)]
struct Ear(Mutex<Vec<(Vec<Changed>, bool)>>);

impl Listener for Ear {
    fn changed(&self, keys: &[Changed], has_emptied: bool) {
        self.0.lock().unwrap().push((keys.to_vec(), has_emptied));
    }
}

#[test]
fn a_listener_is_told_of_each_key_that_was_changed_or_removed_and_of_nothing_else() {
    let clock = Arc::new(SimClock::new(1_000_000));
    let store = open(&SimDevice::new(0, 1), &clock, 4 << 20);
    let ear = Arc::new(Ear::default());
    let told = || std::mem::take(&mut *ear.0.lock().unwrap());
    let changed = |key: &[u8], is_removal| Changed { db: 0, key: key.into(), is_removal };
    let (a, b) = (Key { db: 0, bytes: b"a" }, Key { db: 0, bytes: b"b" });
    store.put(a, b"1").unwrap();
    store.listen(Some(ear.clone()));
    store.put(a, b"2").unwrap();
    assert_eq!(told(), [(vec![changed(b"a", false)], false)]);
    assert!(store.delete(a).unwrap() && !store.delete(a).unwrap());
    assert_eq!(told(), [(vec![changed(b"a", true)], false)]);
    // What is rolled back is not told.
    let undone = store.run(Access::Keys(&[a, b]), |tx| {
        tx.put(a, b"3", Expiry::None)?;
        tx.abort::<()>("no")
    });
    assert!(undone.is_err() && told().is_empty());
    store
        .run(Access::Keys(&[a, b]), |tx| {
            tx.put(a, b"4", Expiry::None)?;
            tx.put(b, b"5", Expiry::None)?;
            tx.delete(b).map(drop)
        })
        .unwrap();
    let all = vec![changed(b"a", false), changed(b"b", false), changed(b"b", true)];
    assert_eq!(told(), [(all, false)]);
    store.flush_db(0).unwrap();
    assert_eq!(told(), [(Vec::new(), true)]);
    // A removal is no write for who watches.
    let watch = store.watch(a);
    store.put(a, b"6").unwrap();
    store.listen(None);
    store.put(b, b"7").unwrap();
    assert_eq!(told(), [(vec![changed(b"a", false)], false)]);
    assert!(!is_unchanged(&store, &watch));
}
