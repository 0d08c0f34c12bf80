//! A heap whose capacity memory is larger than what may be in DRAM.

use std::sync::Arc;

use perdura_heap::{Config, Heap, Memory};
use perdura_media::emulator::{Emulator, Pace};
use perdura_media::profile::System;
use perdura_region::paged::{PagedConfig, PagedMemory};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const LEN_BYTES: u64 = 64 << 20;
const CAP_BYTES: u64 = 6 << 20;

fn paged() -> Arc<PagedMemory> {
    let system = System::find("pcie-pcm").unwrap();
    let medium = Arc::new(Emulator::anonymous(&system, LEN_BYTES, Pace::Virtual).unwrap());
    let config = PagedConfig { fault_pages: 4, ..PagedConfig::new(LEN_BYTES, CAP_BYTES) };
    Arc::new(PagedMemory::open(&config, medium).unwrap())
}

#[test]
fn capacity_memory_beyond_the_cap_holds_what_was_stored() {
    let paged = paged();
    let heap = Heap::open(Memory::paged(Arc::clone(&paged)), Config::default()).unwrap();
    for seed in 0..3 {
        let mut random = Random::seed_from_u64(seed);
        let mut live: Vec<(std::ptr::NonNull<u8>, usize, u8)> = vec![];
        let mut live_bytes = 0;
        for step in 0..4000usize {
            if live_bytes > 24 << 20 || (!live.is_empty() && random.random_range(0..3) == 0) {
                let (at, len, value) = live.swap_remove(random.random_range(0..live.len()));
                // SAFETY: an object of that length that this test has not freed.
                let bytes = unsafe { std::slice::from_raw_parts(at.as_ptr(), len) };
                assert!(bytes.iter().all(|byte| *byte == value), "seed {seed}, step {step}");
                heap.cap_free(at).unwrap();
                live_bytes -= len;
            } else {
                let largest = [200, 5000, 300_000][step % 3];
                let len = random.random_range(1..largest);
                let at = heap.cap_alloc(len as u64).unwrap();
                // SAFETY: as above.
                unsafe { std::ptr::write_bytes(at.as_ptr(), step as u8, len) };
                live.push((at, len, step as u8));
                live_bytes += len;
            }
        }
        for (at, _, _) in live {
            heap.cap_free(at).unwrap();
        }
    }
    let stats = paged.stats();
    assert!(stats.page_ins > 0 && stats.page_outs > 0, "{stats:?}");
    assert!(stats.resident_bytes_max <= CAP_BYTES, "{stats:?}");
    assert!(heap.memory().describe().contains("paged"));
}

#[test]
fn paged_memory_is_bound_to_no_node() {
    let mut config = Config::default();
    config.numa_node = Some(0);
    let refused = Heap::open(Memory::paged(paged()), config).err().unwrap();
    assert!(refused.to_string().contains("modelled medium"), "{refused}");
}
