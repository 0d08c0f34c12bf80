//! The promises of the public types, on real directories.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use perdura::heap_types::HeapError;
use perdura::{
    AccessError, Budget, CloseError, Durability, Heap, Key, OpenError, Options, Region,
    RegionError, Store, StoreError, TrappedRegion,
};

/// A new directory, and options with a small memory, in which changes do not wait for the SSD.
fn place() -> (tempfile::TempDir, PathBuf, Options) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let options = Options::new().memory_bytes(16 << 20).durability(Durability::Warned);
    (folder, dir, options)
}

#[test]
fn what_was_set_is_there_again_after_close_and_after_drop() {
    let (_folder, dir, options) = place();
    for number in 0..4_u8 {
        let store = Store::open_with(&dir, &options).unwrap();
        assert_eq!(store.len(), u64::from(number));
        store.set([number], [number; 100]).unwrap();
        assert_eq!(store.get([number]).unwrap().unwrap(), [number; 100]);
        assert_eq!(store.read([0], |value| value.map(<[u8]>::len)).unwrap(), Some(100));
        if number % 2 == 0 {
            let flushed = store.close().unwrap();
            assert!(flushed.dirty_bytes > 0 && flushed.is_in_time, "{flushed:?}");
            assert_eq!(store.close().unwrap(), flushed);
            let refused = store.set("late", "").unwrap_err();
            assert!(matches!(refused, StoreError::NotDurable(RegionError::Closed)), "{refused}");
            assert_eq!(store.get([0]).unwrap().unwrap(), [0; 100]);
        }
    }
}

#[test]
fn a_transaction_happens_wholly_or_not_at_all() {
    let (_folder, dir, options) = place();
    let store = Store::open_with(&dir, &options).unwrap();
    store.set("a", "1").unwrap();
    let refused = store.transaction(&["a", "b"], |tx| {
        tx.delete("a")?;
        tx.set("b", "2")?;
        if tx.get("a")?.is_some() { Ok(()) } else { tx.abort("as the test wants") }
    });
    assert!(matches!(refused, Err(StoreError::Aborted("as the test wants"))), "{refused:?}");
    assert!(store.contains("a") && !store.contains("b"));
    let refused = store.transaction(&["a"], |tx| {
        tx.set("a", "3")?;
        tx.set("c", "a key that is not named")
    });
    assert!(matches!(refused, Err(StoreError::Aborted(_))), "{refused:?}");
    assert_eq!(store.get("a").unwrap().unwrap(), b"1");
    store.transaction(&["a"], |tx| tx.expire("a", Some(Duration::from_secs(60)))).unwrap();
    assert!(store.expires_in("a").unwrap() > Duration::from_secs(50));
}

#[test]
fn transactions_of_many_threads_lose_nothing() {
    let (_folder, dir, options) = place();
    let options = options.durability(Durability::Fsync);
    let store = Store::open_with(&dir, &options).unwrap();
    let number = |text: Option<Vec<u8>>| {
        text.map_or(0, |text| String::from_utf8(text).unwrap().parse::<u64>().unwrap())
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let change = |tx: &mut perdura::Transaction<'_, '_>| {
                        for key in ["left", "right"] {
                            let text = (number(tx.get(key)?) + 1).to_string();
                            tx.set(key, text)?;
                        }
                        Ok(())
                    };
                    store.transaction(&["left", "right"], change).unwrap();
                }
            });
        }
    });
    for key in ["left", "right"] {
        assert_eq!(number(store.get(key).unwrap()), 200, "{key}");
    }
    let commits = store.engine().region().stats().group_commits;
    assert!((1..=200).contains(&commits), "{commits} commits");
}

#[test]
fn ranges_are_in_order_and_end_where_they_are_told_to() {
    let (_folder, dir, options) = place();
    let store = Store::open_with(&dir, &options).unwrap();
    for key in ["c", "a", "d", "b"] {
        store.set(key, key).unwrap();
    }
    let keys = |range: perdura::Range<'_>| {
        range.map(|(key, _)| String::from_utf8(key).unwrap()).collect::<String>()
    };
    assert_eq!(keys(store.iter()), "abcd");
    assert_eq!(keys(store.range("b".."d")), "bc");
    assert_eq!(keys(store.range("b"..="d")), "bcd");
    assert_eq!(keys(store.range(..="b")), "ab");
    let above_a = (std::ops::Bound::Excluded("a"), std::ops::Bound::<&str>::Unbounded);
    assert_eq!(keys(store.range::<&str, _>(above_a)), "bcd");
    assert_eq!((&store).into_iter().count(), 4);
    store.clear().unwrap();
    assert!(store.is_empty());
}

#[test]
fn a_key_goes_away_when_its_time_is_over() {
    let (_folder, dir, options) = place();
    let store = Store::open_with(&dir, &options).unwrap();
    store.set_expiring("now", "", Duration::ZERO).unwrap();
    assert!(!store.contains("now") && store.get("now").unwrap().is_none());
    store.set("later", "").unwrap();
    assert!(store.expire("later", Duration::from_secs(1000)).unwrap());
    assert!(store.expires_in("later").unwrap() > Duration::from_secs(900));
    assert!(store.persist("later").unwrap());
    assert_eq!(store.expires_in("later"), None);
    assert!(!store.expire("nobody", Duration::ZERO).unwrap());
}

#[test]
fn a_value_of_another_kind_is_named_as_such() {
    let (_folder, dir, options) = place();
    let store = Store::open_with(&dir, &options).unwrap();
    let key = perdura::engine::Key::new(b"hash");
    let made = store.engine().run(perdura::engine::Access::Key(key), |tx| {
        tx.hash_set(key, b"field", b"value").map(drop)
    });
    made.unwrap();
    assert!(matches!(store.get("hash"), Err(StoreError::WrongType(_))));
    assert!(store.contains("hash"));
}

#[test]
fn words_are_changed_by_many_threads_and_bytes_end_at_the_region() {
    let (_folder, dir, options) = place();
    let region = Region::open_with(&dir, &options).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for word in 0..1000 {
                    region.update_word(word % 10 * 65536, |count| count + 1).unwrap();
                }
            });
        }
    });
    for word in 0..10 {
        assert_eq!(region.load_word(word * 65536).unwrap(), 400);
    }
    let len_bytes = region.len_bytes();
    let long: Vec<u8> = (0..300_000).map(|at| at as u8).collect();
    let at = len_bytes - long.len() as u64;
    region.write(at, &long).unwrap();
    let mut found = vec![0; long.len()];
    region.read(at, &mut found).unwrap();
    assert!(found == long);
    assert!(matches!(region.write(at + 1, &long), Err(AccessError::OutOfRange { .. })));
    assert!(matches!(region.get::<u64>(u64::MAX), Err(AccessError::OutOfRange { .. })));
    assert!(matches!(region.store_word(4, 1), Err(AccessError::Misaligned { offset: 4, .. })));
    region.grow(2 * len_bytes).unwrap();
    region.set(2 * len_bytes - 8, &7_u64).unwrap();
    region.close().unwrap();
    let refused = region.store_word(0, 1).unwrap_err();
    assert!(matches!(refused, AccessError::Refused(RegionError::Closed)), "{refused}");
    drop(region);
    let region = Region::open_with(&dir, &options).unwrap();
    assert_eq!(region.get::<u64>(2 * len_bytes - 8).unwrap(), 7);
}

#[test]
fn writes_of_many_times_the_budget_wait_and_arrive() {
    let (_folder, dir, options) = place();
    let region = Region::open_with(&dir, &options.budget(Budget::Bytes(256 << 10))).unwrap();
    let all: Vec<u8> = (0..8 << 20).map(|at: u32| (at / 4096) as u8).collect();
    region.write(0, &all).unwrap();
    let used_bytes = region.inner().used_bytes_max();
    assert!(used_bytes <= region.promise().budget_bytes, "{used_bytes} bytes were dirty");
    let mut found = vec![0; all.len()];
    region.read(0, &mut found).unwrap();
    assert!(found == all);
}

#[test]
fn plain_stores_to_a_trapped_region_are_kept() {
    let (_folder, dir, options) = place();
    let region = TrappedRegion::open_with(&dir, &options).unwrap();
    region.write(5000, b"stored").unwrap();
    drop(region.prepare_write(0..4096).unwrap());
    assert!(matches!(region.write(u64::MAX, b"x"), Err(AccessError::OutOfRange { .. })));
    #[allow(clippy::reversed_empty_ranges)] // the caller's mistake that is tried here
    let empty = region.prepare_write(10..5);
    drop(empty.unwrap());
    region.commit().unwrap();
    region.close().unwrap();
    drop(region);
    let region = TrappedRegion::open_with(&dir, &options).unwrap();
    let mut found = [0; 6];
    region.read(5000, &mut found).unwrap();
    assert_eq!(&found, b"stored");
    drop(region);
    // An image with finer grains is another one.
    assert!(matches!(Region::open_with(&dir, &options), Err(OpenError::Directory(_))));
}

#[test]
fn a_heap_lies_in_a_file_or_in_a_directory() {
    let (folder, dir, options) = place();
    let file = folder.path().join("heap");
    let visit = |heap: &Heap| {
        let before = heap.root::<u64>("visits").unwrap();
        let count = before.map_or(0, |at| heap.read(at).unwrap()) + 1;
        let outcome = heap.transaction(|tx| -> Result<(), HeapError> {
            let at = tx.put(count)?;
            tx.set_root("visits", at)
        });
        outcome.unwrap();
        count
    };
    for count in 1..=3 {
        let heap = Heap::options().len_bytes(16 << 20).open(&file).unwrap();
        assert_eq!(visit(&heap), count);
        assert_eq!(heap.close().unwrap(), None);
        let heap = Heap::open_in(&dir, &options).unwrap();
        assert_eq!(visit(&heap), count);
        assert!(heap.close().unwrap().unwrap().dirty_bytes > 0);
    }
    let small = Heap::options().len_bytes(4096).open(folder.path().join("small"));
    assert!(matches!(small, Err(OpenError::Heap(HeapError::Size { .. }))));
    assert!(!folder.path().join("small").exists());
}

#[test]
fn a_region_is_not_taken_for_a_heap_though_its_beginning_is_empty() {
    let (_folder, dir, options) = place();
    let region = TrappedRegion::open_with(&dir, &options).unwrap();
    region.write(9 << 20, b"stored").unwrap();
    region.close().unwrap();
    drop(region);
    let refused = Heap::open_in(&dir, &options).unwrap_err();
    assert!(matches!(refused, OpenError::Heap(HeapError::NotAHeap { found: 0 })), "{refused}");
    let region = TrappedRegion::open_with(&dir, &options).unwrap();
    let mut found = [0; 6];
    region.read(9 << 20, &mut found).unwrap();
    assert_eq!(&found, b"stored");
    region.write(9 << 20, &[0; 6]).unwrap();
    region.close().unwrap();
    drop(region);
    // One that is all zeros may be what a kill left of the making of a heap.
    Heap::open_in(&dir, &options).unwrap().close().unwrap();
}

#[test]
fn a_directory_is_one_process_s_at_a_time_and_what_cannot_be_promised_is_refused() {
    let (_folder, dir, options) = place();
    let fsync = options.clone().durability(Durability::Fsync);
    assert!(matches!(TrappedRegion::open_with(&dir, &fsync), Err(OpenError::Setting { .. })));
    let idle = options.clone().flush_threads(0);
    assert!(matches!(Store::open_with(&dir, &idle), Err(OpenError::Setting { .. })));
    assert!(!dir.exists());
    let told = Arc::new(AtomicU64::new(0));
    let bytes = Arc::clone(&told);
    let listening = options.clone().on_progress(move |done, _| bytes.store(done, SeqCst));
    let store = Store::open_with(&dir, &listening).unwrap();
    assert!(told.load(SeqCst) > 0, "nobody was told how the rate was proven");
    assert!(matches!(Store::open_with(&dir, &options), Err(OpenError::Directory(_))));
    store.checkpoint().unwrap();
    drop(store);
    let hasty = options.warning(Duration::from_millis(51)).budget(Budget::Percent(100.0));
    let refused = Store::open_with(&dir, &hasty).unwrap_err();
    assert!(refused.to_string().contains("the largest budget it allows"), "{refused}");
}

#[test]
fn an_encrypted_image_shows_nothing_and_opens_with_its_key_only() {
    const SECRET: &[u8] = b"nobody finds these words on the SSD";
    let (_folder, dir, options) = place();
    let key = |byte| options.clone().key(Key::new([byte; 32]));
    let store = Store::open_with(&dir, &key(1)).unwrap();
    store.set("secret", SECRET).unwrap();
    store.close().unwrap();
    drop(store);
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.windows(SECRET.len()).all(|words| words != SECRET), "{}", path.display());
    }
    for wrong in [&options, &key(2)] {
        let refused = Store::open_with(&dir, wrong).unwrap_err();
        assert!(refused.to_string().contains("key"), "{refused}");
    }
    let store = Store::open_with(&dir, &key(1)).unwrap();
    assert_eq!(store.get("secret").unwrap().as_deref(), Some(SECRET));
    assert!(format!("{:?}", key(1)).contains("key: Some(\"kept secret\")"));
    let in_files = Store::open_with(dir.with_extension("2"), &key(1).memory_dir("/dev/shm"));
    assert!(matches!(in_files, Err(OpenError::Setting { name: "memory_dir", .. })));
}

#[test]
fn a_forked_child_closes_nothing() {
    let (_folder, dir, options) = place();
    let store = Store::open_with(&dir, &options).unwrap();
    store.set("mine", "1").unwrap();
    // The child's exit status says how it went; nothing in it allocates or prints.
    let code = in_forked_child(|| match store.close() {
        Err(CloseError::Forked { .. }) => 0,
        _ => 1,
    });
    assert_eq!(code, 0);
    store.set("mine", "2").unwrap();
    store.close().unwrap();
}

/// Runs `f` in a forked child, and returns what the child exits with.
fn in_forked_child(f: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs `f`, which takes no lock that another thread may hold, and ends
    // without running destructors.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let code = f();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) }
    }
    let mut status = 0;
    // SAFETY: `status` is a valid place for the child's status.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(waited, child);
    libc::WEXITSTATUS(status)
}
