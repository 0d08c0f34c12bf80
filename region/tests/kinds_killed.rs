//! A real process is killed with SIGKILL while it changes kinds in memory that this process holds.
//! Each block is as it was, or empty, and memory and image agree.

#![allow(clippy::unwrap_used, missing_docs)]
#[path = "region/support/mod.rs"]
mod support;

use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use perdura_media::RealClock;
use perdura_media::file::{Direct, Engine, FileDevice, OpenMode};
use perdura_region::{BLOCK_BYTES, Config, Kind, Region, TrapKind};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use support::*;

const LIVES: u64 = 12;
/// Time from one look at the child's steps to the next.
const POLL: Duration = Duration::from_micros(100);
const BLOCKS: u64 = 16;
/// Offset of the word that counts the steps made so far. A kill leaves the old number or the new
/// one.
const STEPS_AT: u64 = (BLOCKS - 1) * BLOCK_BYTES;
const PERSISTENT_TAG: u64 = 1 << 56;
const CAPACITY_TAG: u64 = 2 << 56;

fn seed() -> u64 {
    std::env::var("PERDURA_SEED").map_or(5, |seed| seed.parse().unwrap())
}

fn live_config(kind: TrapKind) -> Config {
    Config {
        region_bytes: BLOCKS * BLOCK_BYTES,
        reserved_bytes: Some(BLOCKS * BLOCK_BYTES),
        budget_bytes: 256 << 10,
        ..config(kind)
    }
}

fn device(dir: &Path, mode: OpenMode) -> FileDevice {
    FileDevice::open(&dir.join("image"), mode, Engine::Auto, Direct::Auto).unwrap()
}

fn attach(memory: OwnedFd, ledger: OwnedFd, dir: &Path, kind: TrapKind) -> Region {
    let device = Arc::new(device(dir, OpenMode::Existing));
    Region::attach(memory, ledger, device, Arc::new(RealClock), live_config(kind)).unwrap()
}

fn inheritable(fd: BorrowedFd<'_>) -> OwnedFd {
    let fd = fd.try_clone_to_owned().unwrap();
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::empty()).unwrap();
    fd
}

/// Fills blocks and changes their kinds until the process is killed. All words of a block are
/// equal, unless a fill was interrupted.
fn work(region: &Region, life: u64) -> ! {
    let base = region.trapped().unwrap().as_ptr() as usize;
    let mut random = Random::seed_from_u64(seed() + life);
    for step in load(base, STEPS_AT) + 1.. {
        let block = random.random_range(0..BLOCKS - 1);
        let kind = [Kind::Persistent, Kind::Capacity][random.random_range(0..2)];
        region.set_kind(block..block + 1, kind).unwrap();
        let tag = if kind == Kind::Capacity { CAPACITY_TAG } else { PERSISTENT_TAG };
        for page in 0..BLOCK_BYTES / PAGE {
            store(base, block * BLOCK_BYTES + page * PAGE, tag | step);
        }
        if step % 16 == 0 {
            region.checkpoint().unwrap();
        }
        store(base, STEPS_AT, step);
    }
    unreachable!()
}

/// Checks the words of one block: none is from capacity memory, and they are from one step, or from
/// two successive steps of which the second was interrupted.
fn check(region: &Region, at: &str) {
    let base = region.trapped().unwrap().as_ptr() as usize;
    let mut halves = 0;
    for block in 0..BLOCKS - 1 {
        assert_eq!(region.kind(block), Kind::Persistent, "{at}");
        let words: Vec<u64> = (0..BLOCK_BYTES / PAGE)
            .map(|page| load(base, block * BLOCK_BYTES + page * PAGE))
            .collect();
        let is_capacity = words.iter().any(|word| word & CAPACITY_TAG != 0);
        assert!(!is_capacity, "{at}: block {block} has bytes of capacity memory: {words:x?}");
        halves += u64::from(words.iter().any(|word| *word != words[0]));
        assert!(words.is_sorted_by(|a, b| a >= b), "{at}: block {block}: {words:x?}");
    }
    assert!(halves <= 1, "{at}: {halves} blocks are half of something");
}

/// Runs in the child process; without the parent it tests nothing.
#[test]
fn killed_child() {
    let Some(dir) = std::env::var_os("PERDURA_CHILD_DIR") else { return };
    let number = |name| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let fd = |name| {
        let inherited = format!("/proc/self/fd/{}", number(name));
        OwnedFd::from(OpenOptions::new().read(true).write(true).open(inherited).unwrap())
    };
    let kind = modes()[number("PERDURA_CHILD_MODE")];
    let (memory, ledger) = (fd("PERDURA_CHILD_MEMORY"), fd("PERDURA_CHILD_LEDGER"));
    let region = attach(memory, ledger, Path::new(&dir), kind);
    work(&region, number("PERDURA_CHILD_LIFE") as u64);
}

#[test]
fn killed_at_any_instruction_a_block_is_as_it_was_or_empty() {
    for (mode, kind) in modes().into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let mut random = Random::seed_from_u64(seed());
        let created = device(dir, OpenMode::Create { capacity_bytes: 1 << 20 });
        let region = open(&created, live_config(kind));
        let (memory, ledger) = region.fds();
        let held = [inheritable(memory), inheritable(ledger)];
        drop(region);
        drop(created);
        for life in 0..LIVES {
            let at = format!("{kind:?}, seed {}, life {life}", seed());
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "killed_child", "--nocapture"])
                .env("PERDURA_CHILD_DIR", dir)
                .env("PERDURA_CHILD_MEMORY", held[0].as_raw_fd().to_string())
                .env("PERDURA_CHILD_LEDGER", held[1].as_raw_fd().to_string())
                .env("PERDURA_CHILD_MODE", mode.to_string())
                .env("PERDURA_CHILD_LIFE", life.to_string())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let steps = || {
                let mut bytes = [0; 8];
                rustix::io::pread(&held[0], &mut bytes, STEPS_AT).unwrap();
                u64::from_le_bytes(bytes)
            };
            let target = steps() + random.random_range(5..200);
            while steps() < target {
                if let Some(status) = child.try_wait().unwrap() {
                    panic!("{at}: the child ended by itself: {status}");
                }
                // A parent that looks without a pause takes a processor from the child.
                std::thread::sleep(POLL);
            }
            child.kill().unwrap();
            child.wait().unwrap();
            let [memory, ledger] = [0, 1].map(|fd| held[fd].try_clone().unwrap());
            let region = attach(memory, ledger, dir, kind);
            check(&region, &at);
            let base = region.trapped().unwrap().as_ptr() as usize;
            let words = |base| -> Vec<u64> {
                (0..BLOCKS * BLOCK_BYTES / PAGE).map(|page| load(base, page * PAGE)).collect()
            };
            let before = words(base);
            // The memory as it is read from the image after a flush.
            region.checkpoint().unwrap();
            drop(region);
            let copy = dir.join(format!("copy-{life}"));
            std::fs::create_dir(&copy).unwrap();
            std::fs::copy(dir.join("image"), copy.join("image")).unwrap();
            let region = open(&device(&copy, OpenMode::Existing), live_config(kind));
            let base = region.trapped().unwrap().as_ptr() as usize;
            assert!(words(base) == before, "{at}: the image is not what memory was");
            drop(region);
            std::fs::remove_dir_all(&copy).unwrap();
        }
    }
}
