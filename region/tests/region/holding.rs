//! Stores that wait while the power is low.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::support::*;
use perdura_media::sim::SimDevice;
use perdura_region::{BLOCK_BYTES, Config, Region, RegionError};

/// Longer than any store takes that does not wait.
const A_WHILE: Duration = Duration::from_millis(100);

/// Ends the threads of a test, even one that fails.
struct Over<'t>(&'t AtomicBool, &'t Region);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
        self.1.hold_writers(false);
    }
}

#[test]
fn held_stores_wait_with_nothing_dirty_and_then_go_on() {
    for kind in modes() {
        let device = SimDevice::new(0, 1);
        let region = open(&device, config(kind));
        let memory_of = region.trapped().unwrap();
        let (is_over, stores, prepared) =
            (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 1.. {
                    if is_over.load(SeqCst) {
                        break;
                    }
                    memory_of.write(turn % (REGION_BYTES / PAGE) * PAGE, &turn.to_ne_bytes());
                    stores.store(turn, SeqCst);
                }
            });
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    let pages = memory_of.prepare_write(PAGE..3 * PAGE).unwrap();
                    memory_of.write(PAGE + 8, &prepared.fetch_add(1, SeqCst).to_ne_bytes());
                    drop(pages);
                }
            });
            let _over = Over(&is_over, &region);
            let both = || (stores.load(SeqCst), prepared.load(SeqCst));
            for _ in 0..20 {
                let before = both();
                while both().0 < before.0 + 100 || both().1 < before.1 + 3 {
                    std::thread::yield_now();
                }
                region.hold_writers(true);
                region.checkpoint().unwrap();
                let bytes = memory(&region);
                std::thread::sleep(A_WHILE / 10);
                assert!(memory(&region) == bytes, "{kind:?}: a held store was made");
                // A prepared write that met the hold gives its budget back.
                assert_eq!(region.used_bytes(), 0, "{kind:?}: something is dirty");
                region.hold_writers(false);
            }
        });
    }
}

#[test]
fn a_region_is_closed_while_stores_are_held() {
    for kind in modes() {
        let device = SimDevice::new(0, 2);
        let region = open(&device, config(kind));
        let memory_of = region.trapped().unwrap();
        memory_of.write(0, &[7; 100]);
        region.hold_writers(true);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = Over(&is_over, &region);
            let waiting = scope.spawn(|| memory_of.prepare_write(0..PAGE).map(drop));
            std::thread::sleep(A_WHILE);
            assert!(!waiting.is_finished(), "{kind:?}: it did not wait");
            region.close(2).unwrap();
            assert!(waiting.join().unwrap().is_err(), "{kind:?}: it wrote to a closed region");
        });
        let region = open(&device, config(kind));
        assert_eq!(&memory(&region)[..100], [7; 100]);
    }
}

fn lanes_config() -> Config {
    Config {
        lanes: Some(lanes::LANES as u16),
        checkpoint_every: None,
        ..Config::new(lanes::REGION_BYTES, 1 << 20)
    }
}

#[test]
fn writers_that_announce_wait_with_everything_on_the_ssd_and_then_go_on() {
    let device = SimDevice::new(0, 3);
    let config = lanes_config();
    let region = lanes::open(&device, config.clone());
    let all = |region: &Region| -> Vec<Vec<u8>> {
        (0..lanes::BLOCKS).map(|block| lanes::read(region, block * BLOCK_BYTES, 3000)).collect()
    };
    let (is_over, writes) = (AtomicBool::new(false), AtomicU64::new(0));
    let write = |thread: u64| {
        for turn in 0.. {
            if is_over.load(SeqCst) {
                break;
            }
            let block = (turn * 2 + thread) % lanes::BLOCKS;
            lanes::write(&region, block * BLOCK_BYTES, &[turn as u8; 3000]).unwrap();
            writes.fetch_add(1, SeqCst);
        }
    };
    let found = std::thread::scope(|scope| {
        let write = &write;
        (0..2).for_each(|thread| drop(scope.spawn(move || write(thread))));
        let _over = Over(&is_over, &region);
        let mut found = Vec::new();
        for round in 0..20 {
            let before = writes.load(SeqCst);
            while writes.load(SeqCst) < before + 100 {
                std::thread::yield_now();
            }
            region.hold_writers(true);
            // The first one ends what has begun.
            region.checkpoint().unwrap();
            region.checkpoint().unwrap();
            found = all(&region);
            std::thread::sleep(A_WHILE / 10);
            assert!(all(&region) == found, "a held write was made");
            is_over.store(round == 19, SeqCst);
            region.hold_writers(false);
        }
        found
    });
    // What the threads wrote at the end is in no checkpoint.
    drop(region);
    assert!(all(&lanes::open(&device, config)) == found, "not everything was on the SSD");
}

#[test]
fn a_close_ends_the_wait_of_writers_that_announce() {
    let device = SimDevice::new(0, 4);
    let region = lanes::open(&device, lanes_config());
    lanes::write(&region, 0, &[7; 100]).unwrap();
    region.hold_writers(true);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| lanes::write(&region, 0, &[8; 100]));
        std::thread::sleep(A_WHILE);
        assert!(!waiting.is_finished(), "it did not wait");
        region.close(1).unwrap();
        assert!(matches!(waiting.join().unwrap(), Err(RegionError::Closed)));
    });
    assert_eq!(lanes::read(&region, 0, 100), [7; 100]);
}
