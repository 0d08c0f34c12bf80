//! Shared code of the tests of trap mode: the modes that this machine allows, writers that just
//! store, and the independent proof of the budget.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

pub mod lanes;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perdura_media::{Device, RealClock};
use perdura_region::{
    Attachment, BLOCK_BYTES, Config, FlushOptions, OpenError, Planted, Region, SetupError,
    TrackingKind, TrapKind,
};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

pub const PAGE: u64 = 4096;
pub const REGION_BYTES: u64 = 64 * BLOCK_BYTES;
pub const BUDGET_BYTES: u64 = 512 << 10;
/// The byte of clean pages in the proof's copy of memory; no writer stores it.
const FILL: u8 = 0xa5;

pub fn config(kind: TrapKind) -> Config {
    Config {
        segment_bytes: Some(64 << 10),
        reserved_bytes: Some(REGION_BYTES),
        checkpoint_every: None,
        tracking: TrackingKind::Trap(kind),
        ..Config::new(REGION_BYTES, BUDGET_BYTES)
    }
}

pub fn planted(kind: TrapKind, planted: Planted) -> Config {
    Config { planted, ..config(kind) }
}

pub fn open(device: &(impl Device + Clone + 'static), config: Config) -> Region {
    Region::open(Arc::new(device.clone()), Arc::new(RealClock), config).unwrap()
}

/// The trap modes that this machine allows. The others are printed with the reason.
pub fn modes() -> Vec<TrapKind> {
    let all = [TrapKind::UffdSigbus, TrapKind::UffdThread, TrapKind::Mprotect];
    let granted = |kind: &TrapKind| {
        let device = Arc::new(perdura_media::sim::SimDevice::new(0, 0));
        match Region::open(device, Arc::new(RealClock), config(*kind)) {
            Ok(_) => true,
            Err(OpenError::Setup(SetupError::Tracking { mode, source })) => {
                eprintln!("skipped: {mode}: {source}");
                false
            }
            Err(error) => panic!("{error}"),
        }
    };
    all.into_iter().filter(granted).collect()
}

/// Stores 8 random bytes at random places through plain pointers, by several threads, `stores`
/// times each.
pub fn storm(region: &Region, seed: u64, threads: u64, stores: u64) {
    let memory = region.trapped().unwrap();
    let (base, len) = (memory.as_ptr() as usize, memory.len_bytes());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut random = Random::seed_from_u64(seed * 1000 + thread);
                for _ in 0..stores {
                    // Half of the stores go to one sixteenth of the region.
                    let within = if random.random() { len } else { len / 16 };
                    let offset = random.random_range(0..within / 8) * 8;
                    store(base, offset, random.random::<u64>() | 1);
                }
            });
        }
    });
}

/// Makes one plain store of 8 bytes.
pub fn store(base: usize, offset: u64, value: u64) {
    let place = (base + offset as usize) as *const AtomicU64;
    // SAFETY: the word is inside a live trapped region and aligned; threads of a test may store to
    // the same word.
    unsafe { (*place).store(value, Ordering::Relaxed) };
}

pub fn load(base: usize, offset: u64) -> u64 {
    let place = (base + offset as usize) as *const AtomicU64;
    // SAFETY: as in `store`.
    unsafe { (*place).load(Ordering::Relaxed) }
}

pub fn memory(region: &Region) -> Vec<u8> {
    let mut out = vec![0; REGION_BYTES as usize];
    region.trapped().unwrap().read(0, &mut out);
    out
}

/// Drops the region as a kill would, and keeps memory and ledger as a holder would.
pub fn kill(region: Region) -> (OwnedFd, OwnedFd) {
    let (memory, ledger) = region.fds();
    (memory.try_clone_to_owned().unwrap(), ledger.try_clone_to_owned().unwrap())
}

fn copy_fd(fd: BorrowedFd<'_>, fill: Option<u8>) -> OwnedFd {
    let len = rustix::fs::fstat(fd).unwrap().st_size as u64;
    let copy = memfd_create("copy", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&copy, len).unwrap();
    let mut bytes = vec![fill.unwrap_or(0); 1 << 20];
    let end = if fill.is_some() { REGION_BYTES } else { len };
    let mut at = 0;
    while at < end {
        let part = bytes.len().min((end - at) as usize);
        if fill.is_none() {
            assert_eq!(rustix::io::pread(fd, &mut bytes[..part], at).unwrap(), part);
        }
        assert_eq!(rustix::io::pwrite(copy.as_fd(), &bytes[..part], at).unwrap(), part);
        at += part as u64;
    }
    copy
}

/// Proves that the image on `device`, a copy, and the ledger's dirty pages together have all of
/// memory, and that these pages fit the budget. The tracker is not asked: a holder flushes memory
/// in which every byte was replaced. Pages that have the replacement afterwards are those that the
/// ledger calls dirty; all others were on the device, and must be equal to memory. Returns the
/// number of dirty pages.
pub fn prove(
    fds: &(OwnedFd, OwnedFd),
    device: Arc<dyn Device>,
    config: Config,
    budget_bytes: u64,
) -> Result<u64, String> {
    let mut expected = vec![0; REGION_BYTES as usize];
    rustix::io::pread(&fds.0, &mut expected[..], 0).unwrap();
    let replaced = copy_fd(fds.0.as_fd(), Some(FILL));
    let holder = Attachment::new(replaced, copy_fd(fds.1.as_fd(), None)).unwrap();
    let charged = holder.used_bytes();
    let report = holder.flush(&*device, FlushOptions { threads: 1, unix_ms: 7 }).unwrap();
    let region = Region::open(device, Arc::new(RealClock), config).unwrap();
    let found = memory(&region);
    let mut dirty = 0;
    for (page, (found, expected)) in
        found.chunks(PAGE as usize).zip(expected.chunks(PAGE as usize)).enumerate()
    {
        if found.iter().all(|byte| *byte == FILL) {
            dirty += 1;
        } else if found != expected {
            return Err(format!("page {page} is not on the device and not in the ledger"));
        }
    }
    if dirty * PAGE != report.dirty_bytes {
        return Err(format!("{dirty} pages were dirty, the flush says {} B", report.dirty_bytes));
    }
    if charged > budget_bytes || dirty * PAGE > budget_bytes {
        return Err(format!("{dirty} dirty pages, {charged} B charged, budget {budget_bytes} B"));
    }
    Ok(dirty)
}
