//! Measures the parts of the cost of a miss in paged memory. Run it in release, alone on the
//! machine.
//!
//! The medium is on a virtual clock, so no time is waited for: the trap, the decision and the page
//! table are left.
#![allow(clippy::unwrap_used, clippy::expect_used)] // an example's own failure

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use perdura_media::emulator::{Emulator, Pace};
use perdura_media::profile::System;
use perdura_region::paged::{PagedConfig, PagedMemory};

const LEN_BYTES: u64 = 192 << 20;
const CAP_BYTES: u64 = 64 << 20;

fn main() {
    println!("{:28} {:>6} {:>8} {:>8} {:>12}", "", "pages", "ns", "in it", "outside it");
    for fault_pages in [1, 8, 16] {
        for inactive_percent in [0, 25] {
            let memory = open(fault_pages, inactive_percent);
            let touch = |store: bool| {
                let unit = memory.unit_bytes();
                (0..LEN_BYTES / unit).for_each(|at| one(&memory, at * unit, store));
                LEN_BYTES / unit
            };
            let title = |what: &str| format!("{what}, {inactive_percent} % inactive");
            measure(&memory, &title("first store"), fault_pages, || touch(true));
            measure(&memory, &title("store, dirty goes"), fault_pages, || touch(true));
            touch(false);
            measure(&memory, &title("load, clean goes"), fault_pages, || touch(false));
        }
    }
    let memory = open(1, 50);
    // All of the memory is in DRAM, and half of it is inactive: always the half that is touched
    // next.
    let reactivate = || {
        (0..CAP_BYTES / 4096).for_each(|page| one(&memory, page * 4096, false));
        CAP_BYTES / 4096
    };
    reactivate();
    measure(&memory, "load of an inactive page", 1, reactivate);
    let memory = open(1, 0);
    (0..CAP_BYTES / 4096).for_each(|page| one(&memory, page * 4096, false));
    measure(&memory, "first store to a clean page", 1, || {
        (0..CAP_BYTES / 4096).for_each(|page| one(&memory, page * 4096, true));
        CAP_BYTES / 4096
    });
}

fn open(fault_pages: u32, inactive_percent: u32) -> PagedMemory {
    let system = System::find("pcie-pcm").unwrap();
    let medium = Emulator::anonymous(&system, LEN_BYTES, Pace::Virtual).unwrap();
    let config =
        PagedConfig { fault_pages, inactive_percent, ..PagedConfig::new(LEN_BYTES, CAP_BYTES) };
    PagedMemory::open(&config, Arc::new(medium)).unwrap()
}

fn one(memory: &PagedMemory, offset: u64, store: bool) {
    // SAFETY: the word is inside the memory and aligned, and any bytes are valid in an atomic.
    let word = unsafe { &*memory.base().wrapping_add(offset as usize).cast::<AtomicU64>() };
    if store {
        word.store(offset, Relaxed);
    } else {
        std::hint::black_box(word.load(Relaxed));
    }
}

fn measure(memory: &PagedMemory, what: &str, pages: u32, work: impl Fn() -> u64) {
    let before = memory.stats();
    let began = Instant::now();
    let touches = work();
    let spent_ns = began.elapsed().as_nanos() as u64 / touches;
    let after = memory.stats();
    assert_eq!(after.traps() - before.traps(), touches, "{what}: every touch traps once");
    let inside_ns = (after.handler_ns - before.handler_ns) / touches;
    println!("{what:28} {pages:6} {spent_ns:8} {inside_ns:8} {:12}", spent_ns - inside_ns);
}
