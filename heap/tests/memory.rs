//! Memory that a heap may lie in: files without names, and sizes that end within a word of the
//! allocator's bitmaps.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use perdura_heap::{Config, Durability, Heap, Memory, MemoryError};

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
fn a_large_object_in_a_file_has_room_before_it_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heap");
    let memory = Memory::file(&path, 256 << 20, Durability::Ordered).unwrap();
    let heap = Heap::open(memory, Config::default()).unwrap();
    for _ in 0..3 {
        let object = heap.cap_alloc(150 << 20).unwrap();
        let bytes = std::fs::metadata(&path).unwrap().blocks() * 512;
        assert!(bytes >= 150 << 20, "{bytes} bytes have room");
        heap.cap_free(object).unwrap();
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
