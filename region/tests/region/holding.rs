//! Stores that wait while the power is low.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::support::*;
use perdura_media::sim::SimDevice;
use perdura_region::TrappedMemory;

/// Longer than any store takes that does not wait.
const A_WHILE: Duration = Duration::from_millis(100);

/// Ends the threads of a test, even one that fails.
struct Over<'t>(&'t AtomicBool, TrappedMemory<'t>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
        self.1.hold_stores(false);
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
            let _over = Over(&is_over, memory_of);
            let both = || (stores.load(SeqCst), prepared.load(SeqCst));
            for _ in 0..20 {
                let before = both();
                while both().0 < before.0 + 100 || both().1 < before.1 + 3 {
                    std::thread::yield_now();
                }
                memory_of.hold_stores(true);
                region.checkpoint().unwrap();
                let bytes = memory(&region);
                std::thread::sleep(A_WHILE / 10);
                assert!(memory(&region) == bytes, "{kind:?}: a held store was made");
                // A prepared write that met the hold gives its budget back.
                assert_eq!(region.used_bytes(), 0, "{kind:?}: something is dirty");
                memory_of.hold_stores(false);
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
        memory_of.hold_stores(true);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = Over(&is_over, memory_of);
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
