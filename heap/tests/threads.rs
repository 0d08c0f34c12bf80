//! What threads have of heaps, and give up.
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
        // Entered before the thread has anything of the heap, and so destroyed after it has left it.
        LATE.with(|late| *late.borrow_mut() = Some(Late(Arc::clone(&of_thread), sender)));
        touch(&of_thread);
    });
    let taken = receiver.recv_timeout(Duration::from_secs(20)).unwrap().unwrap();
    assert!(heap.is_object(taken));
    heap.compact().unwrap();
}
