//! Memory that others map: their stores are tracked as one's own. The guest here is this process,
//! with a mapping and a userfaultfd of its own; tests of the command line have real ones.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::support::*;
use perdura_dirty::sys::Uffd;
use perdura_media::sim::SimDevice;
use perdura_region::{Guest, Planted, Region, TrapKind};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

/// A mapping of the whole region that a guest has.
struct Mapped {
    base: usize,
    guest: Guest,
}

impl Mapped {
    /// `None`, with a message, where only privileged processes may be guests.
    fn new(region: &Region) -> Option<Self> {
        let Ok(uffd) = Uffd::open_for_host() else {
            eprintln!("SKIPPED: userfaultfd delivers messages to privileged processes only");
            return None;
        };
        let guest = region.admit_guest(uffd).unwrap();
        let base = map(region, 0, REGION_BYTES);
        guest.map(base, 0, REGION_BYTES).unwrap();
        Some(Self { base, guest })
    }
}

fn map(region: &Region, offset: u64, len: u64) -> usize {
    let (fd, write) = (region.fds().0.as_raw_fd(), libc::PROT_READ | libc::PROT_WRITE);
    let (len, offset) = (len as usize, offset as i64);
    // SAFETY: the mapping is new, and the tests only store words inside it.
    let base =
        unsafe { libc::mmap(std::ptr::null_mut(), len, write, libc::MAP_SHARED, fd, offset) };
    assert_ne!(base, libc::MAP_FAILED);
    base as usize
}

fn unmap(base: usize, len: u64) {
    // SAFETY: the range was mapped by `map`, and nobody uses it any more.
    assert_eq!(unsafe { libc::munmap(base as *mut _, len as usize) }, 0);
}

/// Stores at random through a guest's mappings, several threads at once.
fn storm_at(bases: &[usize], seed: u64, stores: u64) {
    std::thread::scope(|scope| {
        for (thread, base) in bases.iter().copied().enumerate() {
            scope.spawn(move || {
                let mut random = Random::seed_from_u64(seed * 1000 + thread as u64);
                for _ in 0..stores {
                    let within = if random.random() { REGION_BYTES } else { REGION_BYTES / 16 };
                    store(base, random.random_range(0..within / 8) * 8, random.random::<u64>() | 1);
                }
            });
        }
    });
}

#[test]
fn what_guests_store_is_within_the_budget_and_whole_on_the_device_and_in_the_ledger() {
    for seed in 0..6 {
        let device = SimDevice::new(0, seed);
        let region = open(&device, config(TrapKind::Guests));
        let Some(first) = Mapped::new(&region) else { return };
        let second = Mapped::new(&region).unwrap();
        storm_at(&[first.base, second.base, first.base, second.base], seed, 2_000);
        if seed % 2 == 0 {
            region.checkpoint().unwrap();
            storm_at(&[second.base], seed + 100, 100);
        }
        drop((first.guest, second.guest));
        assert!(region.used_bytes_max() <= BUDGET_BYTES);
        let fds = kill(region);
        let device = Arc::new(device.power_cycle(seed));
        prove(&fds, device, config(TrapKind::Guests), BUDGET_BYTES).unwrap();
    }
}

#[test]
fn a_guest_that_is_not_asked_about_its_stores_is_found() {
    let mut caught = false;
    for seed in 0..4 {
        let device = SimDevice::new(0, seed);
        let region = open(&device, planted(TrapKind::Guests, Planted::OpenBeforeAccounting));
        let Some(mapped) = Mapped::new(&region) else { return };
        storm_at(&[mapped.base], seed, 1_000);
        drop(mapped.guest);
        let fds = kill(region);
        let device = Arc::new(device.power_cycle(seed));
        caught |= prove(&fds, device, config(TrapKind::Guests), BUDGET_BYTES).is_err();
    }
    assert!(caught);
}

#[test]
fn system_calls_store_and_parts_can_be_unmapped_and_mapped_again() {
    let device = SimDevice::new(0, 1);
    let region = open(&device, config(TrapKind::Guests));
    let Some(mapped) = Mapped::new(&region) else { return };
    let zero = std::fs::File::open("/dev/zero").unwrap();
    // SAFETY: the range is inside the mapping, and nobody else uses it.
    let read = unsafe { libc::read(zero.as_raw_fd(), (mapped.base + 100) as *mut _, 9_000) };
    assert_eq!((read, region.used_bytes()), (9_000, 3 * PAGE));
    // A hole in the middle, whose place another mapping of the same memory takes.
    let (hole, len) = (mapped.base + 4 * PAGE as usize, 2 * PAGE);
    mapped.guest.unmap(hole, len);
    unmap(hole, len);
    for page in [3, 6] {
        store(mapped.base, page * PAGE, 5);
    }
    assert_eq!(region.used_bytes(), 5 * PAGE);
    let again = map(&region, 20 * PAGE, len);
    mapped.guest.map(again, 20 * PAGE, len).unwrap();
    store(again, 8, 6);
    assert_eq!(load(mapped.base, 20 * PAGE + 8), 6);
    assert_eq!(region.used_bytes(), 6 * PAGE);
    // A mapping that comes when the page is open traps once, and nothing is paid again.
    let late = Mapped::new(&region).unwrap();
    store(late.base, 20 * PAGE + 16, 7);
    assert_eq!(region.used_bytes(), 6 * PAGE);
    // After a checkpoint every mapping traps again.
    region.checkpoint().unwrap();
    assert_eq!(region.used_bytes(), 0);
    store(mapped.base, 20 * PAGE, 8);
    store(late.base, 30 * PAGE, 8);
    assert_eq!(region.used_bytes(), 2 * PAGE);
    for (offset, len) in [(0, REGION_BYTES + PAGE), (1, PAGE), (u64::MAX - 10, 100)] {
        assert!(mapped.guest.map(mapped.base, offset, len).is_err());
    }
}

#[test]
fn a_region_of_another_kind_has_no_guests() {
    let Ok(uffd) = Uffd::open_for_host() else { return };
    let region = open(&SimDevice::new(0, 1), config(TrapKind::Auto));
    assert!(region.admit_guest(uffd).is_err());
}
