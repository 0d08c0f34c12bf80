//! The parts of heaps that threads keep, and give back.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::cell::RefCell;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use perdura_heap::{Config, Durability, Heap, HeapError, Memory, Offset};

/// Bytes of addresses that this process has mapped.
fn mapped_bytes() -> u64 {
    let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
    sizes.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

fn open() -> Heap {
    let memory = Memory::anonymous(16 << 20, Durability::Ordered).unwrap();
    Heap::open(memory, Config::default()).unwrap()
}

/// Uses a heap for both kinds of memory.
fn touch(heap: &Heap) {
    heap.cap_free(heap.cap_alloc(100).unwrap()).unwrap();
    heap.persist_free(heap.persist_alloc(100).unwrap()).unwrap();
}

#[test]
fn a_thread_keeps_nothing_of_heaps_that_were_closed() {
    let stays = open();
    touch(&stays);
    let mut before = 0;
    for round in 0..300 {
        let (one, other) = (open(), open());
        touch(&one);
        touch(&other);
        // Closed in either order, and used beside one that stays.
        if round % 2 == 0 {
            one.close().unwrap();
            other.close().unwrap();
        } else {
            drop(other);
            drop(one);
        }
        touch(&stays);
        if round == 50 {
            before = mapped_bytes();
        }
    }
    let grown_bytes = mapped_bytes().saturating_sub(before);
    assert!(grown_bytes < 1 << 20, "{grown_bytes} bytes more after 250 rounds");
}

#[test]
fn a_destructor_that_runs_late_may_use_a_heap_within_its_transaction() {
    struct Late(Arc<Heap>, mpsc::Sender<Result<Offset, HeapError>>);
    impl Drop for Late {
        fn drop(&mut self) {
            let heap = &self.0;
            let taken = heap.transaction(|tx| {
                heap.cap_free(heap.cap_alloc(64)?)?;
                heap.persist_alloc(32)?;
                tx.alloc(64)
            });
            self.1.send(taken).unwrap();
        }
    }
    thread_local! {
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }
    let heap = Arc::new(open());
    let (sender, receiver) = mpsc::channel();
    let of_thread = Arc::clone(&heap);
    std::thread::spawn(move || {
        // Entered before the thread has anything of the heap, and so destroyed after it has left
        // it.
        LATE.with(|late| *late.borrow_mut() = Some(Late(Arc::clone(&of_thread), sender)));
        touch(&of_thread);
    });
    let taken = receiver.recv_timeout(Duration::from_secs(20)).unwrap().unwrap();
    assert!(heap.is_object(taken));
    heap.compact().unwrap();
}

/// Chunks of the logs are used again and again while others go on, and though one thread has
/// stopped in its tracks.
#[test]
fn threads_transactions_get_by_with_the_chunks_they_have() {
    const WORKERS: u64 = 2;
    const CHUNK_BYTES: u64 = 64 << 10;
    let memory = Memory::anonymous(64 << 20, Durability::Flushed).unwrap();
    let heap = Heap::open(memory, Config::default()).unwrap();
    let before_bytes = heap.stats().free_bytes;
    let done = std::sync::Barrier::new(WORKERS as usize + 1);
    std::thread::scope(|scope| {
        let write = |object: Offset, value: u8| {
            heap.transaction(|tx| tx.write_bytes(object, &[value; 64])).unwrap();
        };
        let (heap, done) = (&heap, &done);
        scope.spawn(move || {
            write(heap.persist_alloc(64).unwrap(), 1);
            done.wait();
        });
        for _ in 0..WORKERS {
            scope.spawn(move || {
                let objects: Vec<_> = (0..64).map(|_| heap.persist_alloc(64).unwrap()).collect();
                (0..20_000).for_each(|n| write(objects[n % 64], n as u8));
                done.wait();
            });
        }
    });
    let stats = heap.stats();
    assert_eq!(stats.folds, 0);
    assert!(stats.word_log_bytes > 30 * CHUNK_BYTES && stats.object_log_bytes > 30 * CHUNK_BYTES);
    // Two of each log, and a run of objects.
    let most_bytes = (WORKERS + 1) * 5 * CHUNK_BYTES;
    let taken_bytes = before_bytes - stats.free_bytes;
    assert!(taken_bytes <= most_bytes, "{taken_bytes} B taken for logs, at most {most_bytes} B");
}
