//! The heap on a region: battery-backed memory with a bounded dirty set, and capacity memory that
//! never counts.

use std::sync::Arc;

use perdura_heap::{Config, Heap, HeapError, Kind, Memory, MemoryError, Offset, Opened, Ptr};
use perdura_media::file::{Direct, Engine, FileDevice, OpenMode};
use perdura_media::{Device, RealClock};
use perdura_region::{Config as RegionConfig, Region, TrackingKind, TrapKind};

const MIB: u64 = 1 << 20;

fn device(dir: &std::path::Path) -> Arc<dyn Device> {
    let path = dir.join("image");
    let mode = if path.exists() {
        OpenMode::Existing
    } else {
        OpenMode::Create { capacity_bytes: 1 << 20 }
    };
    Arc::new(FileDevice::open(&path, mode, Engine::Auto, Direct::Off).unwrap())
}

fn config() -> RegionConfig {
    RegionConfig {
        tracking: TrackingKind::Trap(TrapKind::Auto),
        reserved_bytes: Some(64 * MIB),
        ..RegionConfig::new(64 * MIB, 8 * MIB)
    }
}

fn open(region: &Arc<Region>) -> Heap {
    Heap::open(Memory::region(Arc::clone(region)).unwrap(), Config::default()).unwrap()
}

/// Fills more capacity memory than the budget, and some persistent objects.
fn fill(heap: &Heap) -> Vec<Offset> {
    for _ in 0..200 {
        let memory = heap.cap_alloc(100_000).unwrap();
        // SAFETY: an object of that size, nobody else's.
        unsafe { memory.as_ptr().write_bytes(0xca, 100_000) };
    }
    let objects: Vec<Offset> = (0..500).map(|_| heap.persist_alloc(1000).unwrap()).collect();
    for (number, object) in (0_u64..).zip(&objects) {
        heap.transaction(|tx| tx.write(Ptr::new(*object), number)).unwrap();
    }
    heap.set_root("first", Ptr::<u64>::new(objects[0])).unwrap();
    objects
}

fn check(heap: &Heap, objects: &[Offset]) {
    let Opened::Recovered(found) = heap.opened() else { panic!("not recovered") };
    assert_eq!(found.objects, objects.len() as u64);
    for (number, object) in (0_u64..).zip(objects) {
        assert_eq!(heap.read(Ptr::<u64>::new(*object)).unwrap(), number);
    }
    assert_eq!(heap.root("first").unwrap(), Some(Ptr::<u64>::new(objects[0])));
}

#[test]
fn capacity_memory_never_counts_and_persistent_memory_is_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let (objects, written) = {
        let region =
            Arc::new(Region::open(device(dir.path()), Arc::new(RealClock), config()).unwrap());
        let heap = open(&region);
        let objects = fill(&heap);
        assert!(heap.stats().capacity_bytes >= 20 * MIB);
        assert!(region.used_bytes_max() <= 8 * MIB, "the budget holds");
        drop(heap);
        region.close(2).unwrap();
        (objects, region.stats().device_bytes)
    };
    assert!(written < 12 * MIB, "{written} bytes written, with 20 MiB of capacity memory filled");
    let image = std::fs::read(dir.path().join("image")).unwrap();
    assert!(!image.windows(64).any(|window| window == [0xca; 64]), "capacity bytes on the SSD");
    let region = Arc::new(Region::open(device(dir.path()), Arc::new(RealClock), config()).unwrap());
    let heap = open(&region);
    check(&heap, &objects);
    drop(heap);
    region.close(1).unwrap();
}

#[test]
fn memory_that_a_holder_kept_shows_no_capacity_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let region = Arc::new(Region::open(device(dir.path()), Arc::new(RealClock), config()).unwrap());
    let heap = open(&region);
    let objects = fill(&heap);
    let (memory, ledger) = region.fds();
    let (memory, ledger) =
        (memory.try_clone_to_owned().unwrap(), ledger.try_clone_to_owned().unwrap());
    // As a process that was killed: nothing is closed.
    drop(heap);
    drop(region);
    let device = device(dir.path());
    let region =
        Arc::new(Region::attach(memory, ledger, device, Arc::new(RealClock), config()).unwrap());
    let mut bytes = vec![0; region.len_bytes() as usize];
    region.trapped().unwrap().read(0, &mut bytes);
    assert!(!bytes.windows(64).any(|window| window == [0xca; 64]), "capacity bytes can be read");
    let heap = open(&region);
    check(&heap, &objects);
    let capacity = heap.compartment(Kind::Capacity, 4 * MIB).unwrap();
    heap.remove_compartment(capacity).unwrap();
    drop(heap);
    region.close(1).unwrap();
}

#[test]
fn a_region_that_tracks_announced_writes_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = RegionConfig::new(16 * MIB, 2 * MIB);
    let region = Arc::new(Region::open(device(dir.path()), Arc::new(RealClock), config).unwrap());
    assert!(matches!(Memory::region(region), Err(MemoryError::NotTrapped)));
    let tiny = Memory::anonymous(64 << 10, perdura_heap::Durability::Flushed).unwrap();
    let refused = Heap::open(tiny, Config::default()).err();
    assert!(matches!(refused, Some(HeapError::Size { what: "a heap", .. })));
}
