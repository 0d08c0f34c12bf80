//! Capacity memory on a NUMA node; and heaps in files without names.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

use std::path::Path;

use perdura_heap::{Config, Durability, Heap, HeapError, Memory, MemoryError};

const LEN_BYTES: u64 = 32 << 20;

fn on_node(node: u32) -> Result<Heap, HeapError> {
    let mut config = Config::default();
    config.numa_node = Some(node);
    Heap::open(Memory::anonymous(LEN_BYTES, Durability::Ordered)?, config)
}

/// The policy of the mapping that holds an address.
fn policy_of(address: usize) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/numa_maps").ok()?;
    let mut starts = maps.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let start = usize::from_str_radix(words.next()?, 16).ok()?;
        Some((start, words.next()?.to_owned()))
    });
    starts.rfind(|(start, _)| *start <= address).map(|(_, policy)| policy)
}

#[test]
fn capacity_memory_is_bound_to_the_node_and_persistent_memory_is_not() {
    if !Path::new("/sys/devices/system/node/node0").exists() {
        eprintln!("skipped: this kernel knows of no NUMA nodes");
        return;
    }
    let heap = on_node(0).unwrap();
    let capacity = heap.cap_alloc(100).unwrap();
    let persistent = heap.pointer(heap.persist_alloc(100).unwrap());
    // SAFETY: two objects of a hundred bytes, nobody else's.
    unsafe {
        capacity.as_ptr().write_bytes(1, 100);
        persistent.write_bytes(1, 100);
    }
    let Some(policy) = policy_of(capacity.as_ptr() as usize) else {
        eprintln!("skipped: no /proc/self/numa_maps");
        return;
    };
    assert_eq!(policy, "bind:0");
    assert_eq!(policy_of(persistent as usize).unwrap(), "default");
}

#[test]
fn a_node_that_does_not_exist_is_refused_when_the_heap_is_opened() {
    for node in [99, 1023, 1024, u32::MAX] {
        match on_node(node) {
            Err(HeapError::Memory(MemoryError::Node { node: named, .. })) => {
                assert_eq!(named, node);
            }
            Err(error) => panic!("node {node}: {error}"),
            Ok(_) => panic!("node {node} was taken"),
        }
    }
}

#[test]
fn a_file_without_a_name_takes_room_as_it_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Memory::unnamed_file(folder.path(), 1 << 30).unwrap();
    let heap = Heap::open(memory, Config::default()).unwrap();
    let object = heap.cap_alloc(5 << 20).unwrap();
    // SAFETY: an object of that size, nobody else's.
    unsafe { object.as_ptr().write_bytes(7, 5 << 20) };
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    heap.cap_free(object).unwrap();
    match Memory::unnamed_file(Path::new("/nonexistent/folder"), 1 << 30) {
        Err(MemoryError::File { path, what: "open", .. }) => {
            assert_eq!(path, Path::new("/nonexistent/folder"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_large_heap_has_all_its_spans_free_wherever_its_words_end() {
    // The spans' bits lie in words of 64: first and last ones are whole or not.
    for spans in [16, 63, 64, 65, 127, 128, 129, 1000] {
        let memory = Memory::anonymous(spans * 65536, Durability::Ordered).unwrap();
        let heap = Heap::open(memory, Config::default()).unwrap();
        let free = heap.stats().free_bytes / 65536;
        assert!(free < spans && free + 5 >= spans, "{free} of {spans} spans are free");
        let mut taken = 0;
        while heap.cap_alloc(60_000).is_ok() {
            taken += 1;
        }
        assert!(taken > 0 && taken <= spans, "{taken} objects in {spans} spans");
    }
}
