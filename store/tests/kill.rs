//! A real process killed with SIGKILL while it writes into memory that this one holds.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "store/harness/mod.rs"]
mod harness;

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use harness::*;
use perdura_media::file::{Direct, Engine, FileDevice, OpenMode};
use perdura_media::{Clock, SimClock};
use perdura_region::{Config, Region};
use perdura_store::{Access, Expiry, Key, Store};
use rand::Rng;

const LIVES: u64 = 14;
const BUDGET_BYTES: u64 = 1 << 20;
const ACCOUNTS: u64 = 40;
const START: u64 = 1_000;
const THREADS: u64 = 2;

/// The seed; the children inherit it. Which instruction a kill hits no seed decides.
fn seed() -> u64 {
    number("PERDURA_SEED").unwrap_or(11)
}

fn live_config() -> Config {
    Config {
        thread: true,
        checkpoint_every: Some(Duration::from_millis(20)),
        ..config(BUDGET_BYTES)
    }
}

fn device(dir: &Path, mode: OpenMode) -> Arc<FileDevice> {
    let device = FileDevice::open(&dir.join("image"), mode, Engine::Auto, Direct::Auto);
    Arc::new(device.unwrap())
}

fn clock() -> Arc<SimClock> {
    Arc::new(SimClock::new(1_000_000))
}

/// Memory and ledger of a store that no process runs at present.
struct Held {
    memory: OwnedFd,
    ledger: OwnedFd,
}

impl Held {
    fn of(store: Store) -> Self {
        let (memory, ledger) = store.region().fds();
        let memory = inheritable(memory);
        let ledger = inheritable(ledger);
        Self { memory, ledger }
    }

    fn attach(&self, dir: &Path, clock: &Arc<SimClock>) -> Store {
        let (memory, ledger) = (self.memory.try_clone().unwrap(), self.ledger.try_clone().unwrap());
        attach(memory, ledger, dir, clock)
    }
}

fn attach(memory: OwnedFd, ledger: OwnedFd, dir: &Path, clock: &Arc<SimClock>) -> Store {
    let device = device(dir, OpenMode::Existing);
    let region = Region::attach(memory, ledger, device, clock.clone(), live_config());
    store_on(region.unwrap(), clock)
}

fn inheritable(fd: BorrowedFd<'_>) -> OwnedFd {
    let fd = fd.try_clone_to_owned().unwrap();
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::empty()).unwrap();
    fd
}

fn progress_of(file: &File, thread: u64) -> u64 {
    let mut bytes = [0; 8];
    match file.read_exact_at(&mut bytes, thread * 8) {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => 0,
    }
}

fn progress_file(dir: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(dir.join("progress")).unwrap()
}

/// Starts this test binary again as a child that runs only `test`, with the held memory.
fn child(test: &str, held: &Held, dir: &Path, from: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("PERDURA_CHILD_DIR", dir)
        .env("PERDURA_CHILD_MEMORY", held.memory.as_raw_fd().to_string())
        .env("PERDURA_CHILD_LEDGER", held.ledger.as_raw_fd().to_string())
        .env("PERDURA_CHILD_FROM", from.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The store this process was started to write, if it is such a child.
fn as_child() -> Option<(Store, File, u64)> {
    let dir = std::env::var_os("PERDURA_CHILD_DIR")?;
    let number = |name| std::env::var(name).unwrap().parse::<i64>().unwrap();
    // Opening it again gives a descriptor of our own for the same memory.
    let fd = |name| {
        let inherited = format!("/proc/self/fd/{}", number(name));
        OwnedFd::from(OpenOptions::new().read(true).write(true).open(inherited).unwrap())
    };
    let dir = Path::new(&dir);
    let store = attach(fd("PERDURA_CHILD_MEMORY"), fd("PERDURA_CHILD_LEDGER"), dir, &clock());
    Some((store, progress_file(dir), number("PERDURA_CHILD_FROM") as u64))
}

fn wait_for(child: &mut Child, progress: &File, threads: u64, target: u64) {
    while (0..threads).map(|thread| progress_of(progress, thread)).sum::<u64>() < target {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("the child ended by itself: {status}");
        }
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

fn steps(count: u64) -> impl Iterator<Item = Step> {
    let (mut random, now_ms) = (seeded(seed()), clock().unix_ms());
    (0..count).map(move |_| draw(&mut random, now_ms))
}

fn capacity() -> OpenMode {
    OpenMode::Create { capacity_bytes: 1 << 20 }
}

#[test]
fn every_acknowledged_operation_survives_kill_9() {
    if let Some((store, progress, from)) = as_child() {
        for (index, step) in steps(u64::MAX).enumerate().skip(from as usize) {
            apply(&store, &step).unwrap();
            progress.write_all_at(&(index as u64 + 1).to_le_bytes(), 0).unwrap();
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (dir, clock) = (dir.path(), clock());
    let region = Region::open(device(dir, capacity()), clock.clone(), live_config()).unwrap();
    let held = Held::of(store_on(region, &clock));
    let progress = progress_file(dir);
    let (mut random, mut done, mut model) = (seeded(seed() + 1), 0, Model::new());
    for number in 0..LIVES {
        let life = format!(
            "life {number}; replay: PERDURA_SEED={} cargo test -p perdura-store --test kill",
            seed()
        );
        let test = "every_acknowledged_operation_survives_kill_9";
        let mut child = child(test, &held, dir, done);
        wait_for(&mut child, &progress, 1, done + random.random_range(1..600));
        let acknowledged = progress_of(&progress, 0);
        for step in steps(acknowledged).skip(done as usize) {
            apply_to_model(&mut model, &step, clock.unix_ms());
        }
        done = acknowledged;
        let store = held.attach(dir, &clock);
        let found = contents(&store);
        if found != model {
            // The operation that was cut may have come through; it is whole then.
            let step = steps(done + 1).last().unwrap();
            apply_to_model(&mut model, &step, clock.unix_ms());
            assert_same(&found, &model, &format!("{life}, {done} steps"));
            done += 1;
            progress.write_all_at(&done.to_le_bytes(), 0).unwrap();
        }
    }
    let store = held.attach(dir, &clock);
    store.region().close(2).unwrap();
    drop((store, held));
    let image = device(dir, OpenMode::Existing);
    let region = Region::open(image, clock.clone(), live_config()).unwrap();
    assert_same(&contents(&store_on(region, &clock)), &model, "after the final flush");
}

/// Changes of one large sorted set, several members in one operation.
fn set_steps() -> impl Iterator<Item = Step> {
    let mut random = seeded(seed() ^ 0x5e7);
    std::iter::from_fn(move || {
        let member =
            |random: &mut Random| format!("member:{}", random.random_range(0..6_000)).into_bytes();
        let (name, count) = (b"set".to_vec(), random.random_range(1..12));
        Some(match random.random_range(0..100) {
            0..75 => {
                let score = |random: &mut Random| f64::from(random.random_range(0..2_000));
                let add = |_| (member(&mut random), score(&mut random));
                Step::SortedAdd(0, name, (0..count).map(add).collect())
            }
            75..95 => {
                Step::SortedRemove(0, name, (0..count).map(|_| member(&mut random)).collect())
            }
            95..99 => {
                let from = random.random_range(0..3_000);
                Step::SortedRemoveRanks(0, name, from, from + random.random_range(0..90))
            }
            _ => Step::SortedRemoveRanks(0, name, 0, 2_000),
        })
    })
}

#[test]
fn a_large_sorted_set_survives_kill_9_whole() {
    if let Some((store, progress, from)) = as_child() {
        for (index, step) in set_steps().enumerate().skip(from as usize) {
            apply(&store, &step).unwrap();
            progress.write_all_at(&(index as u64 + 1).to_le_bytes(), 0).unwrap();
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (dir, clock) = (dir.path(), clock());
    let region = Region::open(device(dir, capacity()), clock.clone(), live_config()).unwrap();
    let held = Held::of(store_on(region, &clock));
    let progress = progress_file(dir);
    let (mut random, mut done, mut model) = (seeded(seed() + 3), 0, Model::new());
    let mut steps = set_steps();
    for life in 0..LIVES {
        let mut child = child("a_large_sorted_set_survives_kill_9_whole", &held, dir, done);
        wait_for(&mut child, &progress, 1, done + random.random_range(1..1_500));
        for _ in done..progress_of(&progress, 0) {
            apply_to_model(&mut model, &steps.next().unwrap(), clock.unix_ms());
        }
        done = progress_of(&progress, 0);
        // Reading it looks at every invariant of the tree.
        let found = contents(&held.attach(dir, &clock));
        if found != model {
            apply_to_model(&mut model, &steps.next().unwrap(), clock.unix_ms());
            assert_same(&found, &model, &format!("life {life}, {done} steps, seed {}", seed()));
            done += 1;
            progress.write_all_at(&done.to_le_bytes(), 0).unwrap();
        }
    }
}

fn account(number: u64) -> Vec<u8> {
    format!("account:{number}").into_bytes()
}

fn balance(bytes: Option<&[u8]>) -> u64 {
    std::str::from_utf8(bytes.unwrap_or(b"0")).unwrap().parse().unwrap()
}

/// Moves money between accounts and counts the transfers, in one transaction over up to three
/// shards.
fn transfers(store: &Store, progress: &File, thread: u64, seed: u64) {
    let mut random = seeded(seed ^ thread);
    let counter = format!("counter:{thread}").into_bytes();
    loop {
        let (from, to) = (random.random_range(0..ACCOUNTS), random.random_range(0..ACCOUNTS));
        let (from, to) = (account(from), account(to));
        let [from, to, counter] = [&from, &to, &counter].map(|bytes| Key::new(bytes));
        let count = store
            .run(Access::Keys(&[from, to, counter]), |tx| {
                let read = |tx: &perdura_store::Tx<'_>, key| {
                    balance(tx.get(key).and_then(|entry| entry.string()))
                };
                let (left, count) = (read(tx, from), read(tx, counter) + 1);
                let amount = left.min(7);
                tx.put(from, (left - amount).to_string().as_bytes(), Expiry::None)?;
                let there = read(tx, to) + amount;
                tx.put(to, there.to_string().as_bytes(), Expiry::None)?;
                tx.put(counter, count.to_string().as_bytes(), Expiry::None)?;
                Ok(count)
            })
            .unwrap();
        progress.write_all_at(&count.to_le_bytes(), thread * 8).unwrap();
    }
}

#[test]
fn transactions_of_several_threads_are_whole_after_kill_9() {
    if let Some((store, progress, seed)) = as_child() {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (store, progress) = (&store, &progress);
                scope.spawn(move || transfers(store, progress, thread, seed));
            }
        });
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (dir, clock) = (dir.path(), clock());
    let region = Region::open(device(dir, capacity()), clock.clone(), live_config()).unwrap();
    let store = store_on(region, &clock);
    for number in 0..ACCOUNTS {
        store.put(Key::new(&account(number)), START.to_string().as_bytes()).unwrap();
    }
    let held = Held::of(store);
    let progress = progress_file(dir);
    let (mut random, mut total) = (seeded(seed() + 2), 0);
    for number in 0..LIVES {
        let life = format!(
            "life {number}; replay: PERDURA_SEED={} cargo test -p perdura-store --test kill",
            seed()
        );
        let test = "transactions_of_several_threads_are_whole_after_kill_9";
        let mut child = child(test, &held, dir, number);
        wait_for(&mut child, &progress, THREADS, total + random.random_range(1..20_000));
        let store = held.attach(dir, &clock);
        let read = |name: &[u8]| balance(store.get(Key::new(name)).as_deref());
        let sum: u64 = (0..ACCOUNTS).map(|number| read(&account(number))).sum();
        assert_eq!(sum, ACCOUNTS * START, "{life}: money was made or lost");
        total = 0;
        for thread in 0..THREADS {
            let count = read(format!("counter:{thread}").as_bytes());
            let acknowledged = progress_of(&progress, thread);
            assert!(
                (acknowledged..=acknowledged + 1).contains(&count),
                "{life}: {count} transfers, {acknowledged} acknowledged"
            );
            // A thread that acknowledges nothing in the next life is not owed one more there, too.
            progress.write_all_at(&count.to_le_bytes(), thread * 8).unwrap();
            total += count;
        }
    }
}

#[test]
fn threads_share_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, clock) = (dir.path(), clock());
    let region = Region::open(device(dir, capacity()), clock.clone(), live_config()).unwrap();
    let store = store_on(region, &clock);
    let lost = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (store, lost) = (&store, &lost);
            scope.spawn(move || {
                let mut random = seeded(seed() + thread);
                for round in 0..4_000u64 {
                    let own = format!("{thread}:{}", random.random_range(0..50)).into_bytes();
                    let value = vec![round as u8; random.random_range(0..3_000)];
                    store.put(Key::new(&own), &value).unwrap();
                    if store.get(Key::new(&own)) != Some(value) {
                        lost.fetch_add(1, Ordering::Relaxed);
                    }
                    if round % 500 == 0 {
                        store.put(Key::new(&own), &vec![7; 200_000]).unwrap();
                        store.delete(Key::new(&own)).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(lost.load(Ordering::Relaxed), 0);
    assert!(store.region().used_bytes_max() <= store.region().budget_bytes());
}
