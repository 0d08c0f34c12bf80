//! Sequences that once lost something, each as short as it can be.

use super::*;

/// Runs `f` on a thread of its own, and with that another log.
fn elsewhere<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(f).join().unwrap())
}

fn write(heap: &Heap, object: Offset, byte: u8, len: usize) {
    heap.transaction(|tx| tx.write_bytes(object, &vec![byte; len])).unwrap();
}

fn byte_of(heap: &Heap, object: Offset) -> u8 {
    let mut byte = [0];
    heap.read_bytes(object, &mut byte).unwrap();
    byte[0]
}

#[test]
fn an_idle_threads_older_write_does_not_come_over_a_newer_one() {
    for logging in [Logging::Redo, Logging::Undo] {
        let case = case(logging);
        let (medium, heap) = on_medium(case, HEAP_BYTES);
        let (one, other) = (heap.persist_alloc(64).unwrap(), heap.persist_alloc(64).unwrap());
        // The chunk that has the records of the two must stay anyway.
        (0..1_200).for_each(|_| write(&heap, other, 3, 8));
        // Both threads live on, so that each keeps its log.
        let (done, may_end) = std::sync::mpsc::channel::<()>();
        let heap = &heap;
        std::thread::scope(|scope| {
            let (wrote, has_written) = std::sync::mpsc::channel();
            scope.spawn(move || {
                write(heap, one, 1, 8);
                wrote.send(()).unwrap();
                let _ = may_end.recv();
            });
            has_written.recv().unwrap();
            write(heap, one, 2, 8);
            for round in 0..5 {
                // More than a chunk of the log has room for: each is used again some time.
                (0..1_200).for_each(|_| write(heap, other, 3, 8));
                for image in [medium.take_image().0.bytes, medium.cache()] {
                    let found = byte_of(&reopened(case, &image, 2), one);
                    assert_eq!(found, 2, "{logging:?}, round {round}");
                }
            }
            drop(done);
        });
    }
}

#[test]
fn records_of_a_transaction_over_several_chunks_stay() {
    for logging in [Logging::Redo, Logging::Undo] {
        let case = case(logging);
        let (medium, heap) = on_medium(case, HEAP_BYTES);
        let small = heap.persist_alloc(64).unwrap();
        let made = heap
            .transaction(|tx| (0..9_000).map(|_| tx.alloc(16)).collect::<Result<Vec<_>, _>>())
            .unwrap();
        (0..3_000).for_each(|_| write(&heap, small, 3, 8));
        let killed = reopened(case, &medium.cache(), 1);
        assert!(made.iter().all(|object| killed.is_object(*object)), "{logging:?}, killed");
        heap.close().unwrap();
        let closed = reopened(case, &medium.take_image().0.bytes, 2);
        assert!(made.iter().all(|object| closed.is_object(*object)), "{logging:?}, closed");
    }
}

#[test]
fn a_transaction_of_very_many_writes_is_undone_as_a_whole() {
    let case = case(Logging::Undo);
    let medium = Arc::new(Medium::new(HEAP_BYTES));
    let mut config = case.config(1);
    config.log_bytes_max = 64 << 20;
    config.tap = Some(Arc::clone(&medium) as _);
    let heap =
        Heap::open(Memory::anonymous(HEAP_BYTES, Durability::Flushed).unwrap(), config).unwrap();
    let objects: Vec<_> = (0..10).map(|_| heap.persist_alloc(16).unwrap()).collect();
    objects.iter().for_each(|object| write(&heap, *object, 0, 8));
    let image = heap.transaction(|tx| {
        for number in 0..70_000_usize {
            tx.write_bytes(objects[number % 10], &[1; 8])?;
        }
        Ok::<_, HeapError>(medium.cache())
    });
    let found = reopened(case, &image.unwrap(), 1);
    assert!(objects.iter().all(|object| byte_of(&found, *object) == 0));
}

#[test]
fn a_transaction_over_several_chunks_survives_a_kill_and_then_a_loss() {
    let case = case(Logging::Redo);
    let (medium, heap) = on_medium(case, HEAP_BYTES);
    let (large, one, other) = (
        heap.persist_alloc(60_000).unwrap(),
        heap.persist_alloc(64).unwrap(),
        heap.persist_alloc(64).unwrap(),
    );
    heap.compact().unwrap();
    heap.transaction(|tx| {
        tx.write_bytes(one, &[1; 8])?;
        for round in 1..4 {
            tx.write_as(large, &[round; 30_000], LogAs::Words)?;
        }
        tx.write_bytes(other, &[1; 64])
    })
    .unwrap();
    // Nothing was written back but what the heap itself has.
    let (image, _) = medium.take_image();
    let again = Arc::new(Medium::of(medium.cache(), image.bytes));
    let mut config = case.config(1);
    config.tap = Some(Arc::clone(&again) as _);
    let killed = Heap::open(Memory::copy_of_bytes(&again.cache()).unwrap(), config).unwrap();
    drop(killed);
    let found = reopened(case, &again.take_image().0.bytes, 2);
    assert_eq!((byte_of(&found, one), byte_of(&found, other)), (1, 1));
}

#[test]
fn a_compartment_is_not_written_over_by_what_was_there() {
    let case = case(Logging::Redo);
    let (medium, heap) = on_medium(case, 2 << 20);
    let large = heap.persist_alloc(100_000).unwrap();
    write(&heap, large, 0x55, 200);
    heap.persist_free(large).unwrap();
    // Until one lies there.
    let take = || heap.compartment(perdura_heap::Kind::Persistent, 60_000).unwrap();
    let area = std::iter::repeat_with(take).find(|area| area.offset == large).unwrap();
    let found = reopened(case, &medium.take_image().0.bytes, 2);
    assert_eq!(byte_of(&found, area.offset), 0);
}

#[test]
fn what_a_failed_transaction_freed_is_there() {
    for logging in [Logging::Redo, Logging::Undo] {
        let case = case(logging);
        let (medium, heap) = on_medium(case, 2 << 20);
        let kept = heap.persist_alloc(64).unwrap();
        let large = heap.persist_alloc(400_000).unwrap();
        let mut others = Vec::new();
        while let Ok(object) = heap.persist_alloc(1_000) {
            others.push(object);
        }
        let failed = heap.transaction(|tx| {
            tx.free(kept)?;
            for _ in 0..4 {
                tx.write_as(large, &[7; 60_000], LogAs::Words)?;
            }
            Ok::<(), HeapError>(())
        });
        assert!(failed.is_err(), "{logging:?}: there was room for it");
        elsewhere(|| others.drain(..).for_each(|object| heap.persist_free(object).unwrap()));
        heap.compact().unwrap();
        let found = reopened(case, &medium.take_image().0.bytes, 2);
        assert!(heap.is_object(kept) && found.is_object(kept), "{logging:?}");
    }
}

/// Two threads commit and then store over it, made durable by `persist`: each call settles what
/// both have committed.
#[test]
fn what_was_persisted_is_not_written_over_by_an_older_transaction() {
    const ROUNDS: u64 = 400;
    let case = case(Logging::Redo);
    let (medium, heap) = on_medium(case, 2 << 20);
    let objects = [heap.persist_alloc(64).unwrap(), heap.persist_alloc(64).unwrap()];
    objects.iter().for_each(|object| write(&heap, *object, 0, 8));
    let counts: Vec<_> = objects.iter().map(|_| Arc::new(AtomicU64::new(0))).collect();
    medium.watch(&counts);
    medium.lose_often(500, 30, 3);
    std::thread::scope(|scope| {
        for (object, count) in objects.iter().zip(&counts) {
            let (heap, medium) = (&heap, &medium);
            scope.spawn(move || {
                for value in (2..=2 * ROUNDS).step_by(2) {
                    let older = (value - 1).to_le_bytes();
                    heap.transaction(|tx| tx.write_bytes(*object, &older)).unwrap();
                    // The medium does not see plain stores.
                    perdura_heap::Tap::store(&**medium, object.get(), &value.to_le_bytes());
                    // SAFETY: inside the object, which this thread alone changes.
                    unsafe { heap.pointer(*object).cast::<u64>().write(value) };
                    heap.persist(*object, 8);
                    count.store(value, SeqCst);
                }
            });
        }
    });
    let mut images = medium.take_images();
    images.push(medium.take_image().0);
    for image in images {
        let found = reopened(case, &image.bytes, 2);
        for (object, persisted) in objects.iter().zip(&image.acknowledged) {
            let mut value = [0; 8];
            found.read_bytes(*object, &mut value).unwrap();
            let value = u64::from_le_bytes(value);
            assert!(
                (*persisted..=persisted + 2).contains(&value),
                "{value}, {persisted} persisted"
            );
        }
    }
}

/// A transaction's records lie in two chunks while a third, without records, rests: a fold must
/// apply all of them.
#[test]
fn records_over_two_chunks_are_folded_beside_a_chunk_that_rests() {
    for logging in [Logging::Redo, Logging::Undo] {
        let case = case(logging);
        let (medium, heap) = on_medium(case, HEAP_BYTES);
        let small = heap.persist_alloc(64).unwrap();
        // The first chunk has a record and stays; the second one comes to rest; the third is in
        // use.
        (0..2_500).for_each(|_| write(&heap, small, 3, 8));
        let made = heap
            .transaction(|tx| (0..9_000).map(|_| tx.alloc(16)).collect::<Result<Vec<_>, _>>())
            .unwrap();
        let before = reopened(case, &medium.take_image().0.bytes, 2);
        let lost = made.iter().filter(|object| !before.is_object(**object)).count();
        assert_eq!(lost, 0, "{logging:?}, before the fold");
        heap.compact().unwrap();
        let after = reopened(case, &medium.take_image().0.bytes, 2);
        let lost = made.iter().filter(|object| !after.is_object(**object)).count();
        assert_eq!(lost, 0, "{logging:?}, after the fold: objects lost of {}", made.len());
    }
}

/// As above, in a transaction that takes and frees little and writes much.
#[test]
fn a_few_records_before_many_writes_are_folded_beside_a_chunk_that_rests() {
    let case = case(Logging::Redo);
    let (medium, heap) = on_medium(case, HEAP_BYTES);
    let small = heap.persist_alloc(64).unwrap();
    let large = heap.persist_alloc(32 << 10).unwrap();
    let old: Vec<_> = (0..10).map(|_| heap.persist_alloc(64).unwrap()).collect();
    (0..2_500).for_each(|_| write(&heap, small, 3, 8));
    let made = heap
        .transaction(|tx| {
            old.iter().try_for_each(|object| tx.free(*object))?;
            let made = (0..10).map(|_| tx.alloc(512)).collect::<Result<Vec<_>, _>>()?;
            for at in 0..3_900 {
                tx.write_bytes(Offset::new(large.get() + at * 8).unwrap(), &[7; 8])?;
            }
            Ok::<_, HeapError>(made)
        })
        .unwrap();
    heap.compact().unwrap();
    let after = reopened(case, &medium.take_image().0.bytes, 2);
    let lost = made.iter().filter(|object| !after.is_object(**object)).count();
    let back = old.iter().filter(|object| after.is_object(**object)).count();
    assert_eq!((lost, back), (0, 0), "made and lost, freed and back");
}

/// Threads that only write log nothing that a fold would have to keep, however many they are.
#[test]
fn threads_that_only_write_are_not_folded() {
    const THREADS: usize = 6;
    let mut config = case(Logging::Redo).config(1);
    config.log_bytes_max = 1 << 20;
    let memory = Memory::anonymous(64 << 20, Durability::Flushed).unwrap();
    let heap = Heap::open(memory, config).unwrap();
    let objects: Vec<_> = (0..THREADS).map(|_| heap.persist_alloc(4096).unwrap()).collect();
    let begin = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for object in &objects {
            let (heap, begin) = (&heap, &begin);
            scope.spawn(move || {
                begin.wait();
                for round in 0..20_000 {
                    write(heap, *object, round as u8, if round % 4 == 0 { 256 } else { 8 });
                }
                begin.wait();
            });
        }
    });
    assert!(heap.stats().folds < 3, "{} folds", heap.stats().folds);
}

/// One thread has filled a heap, and others come that only write: a fold gives them nothing.
#[test]
fn a_full_heap_is_not_folded_with_every_write() {
    const THREADS: usize = 4;
    const WRITES: u64 = 8_000;
    let memory = Memory::anonymous(2 << 20, Durability::Flushed).unwrap();
    let heap = Heap::open(memory, case(Logging::Redo).config(1)).unwrap();
    let mut objects = Vec::new();
    while let Ok(object) = heap.persist_alloc(64) {
        objects.push(object);
    }
    let folds = heap.stats().folds;
    let begin = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for object in &objects[..THREADS] {
            let (heap, begin) = (&heap, &begin);
            scope.spawn(move || {
                begin.wait();
                (0..WRITES / THREADS as u64).for_each(|round| write(heap, *object, round as u8, 8));
                begin.wait();
            });
        }
    });
    let folds = heap.stats().folds - folds;
    assert!(folds < WRITES / 100, "{folds} folds of {WRITES} writes");
}

/// There are hardly any instants at which none of several threads has an undo transaction open.
#[test]
fn undo_transactions_that_overlap_let_the_logs_be_folded() {
    const THREADS: usize = 8;
    let mut config = case(Logging::Undo).config(1);
    config.log_bytes_max = 1 << 20;
    let memory = Memory::anonymous(16 << 20, Durability::Flushed).unwrap();
    let heap = Heap::open(memory, config).unwrap();
    let objects: Vec<_> = (0..THREADS).map(|_| heap.persist_alloc(4096).unwrap()).collect();
    std::thread::scope(|scope| {
        for object in &objects {
            let heap = &heap;
            scope.spawn(move || {
                let mut last = None;
                for round in 0..5_000_u32 {
                    let made = heap.transaction(|tx| {
                        tx.write_bytes(*object, &[round as u8; 300])?;
                        std::thread::yield_now();
                        let made = tx.alloc(64)?;
                        last.map_or(Ok(()), |last| tx.free(last))?;
                        Ok::<_, HeapError>(made)
                    });
                    last = Some(made.unwrap_or_else(|error| panic!("round {round}: {error}")));
                }
            });
        }
    });
    assert!(heap.stats().folds > 5, "{} folds", heap.stats().folds);
}
