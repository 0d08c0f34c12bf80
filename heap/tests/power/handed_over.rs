//! Threads hand objects and roots to each other under locks, some idle for long, some ended; logs
//! are folded beside them, and the power is lost at any instant, during recoveries, too.

use super::*;

const SHARED: usize = 6;
const SHARED_BYTES: usize = 320;

/// An object of the stress: its value at both ends, and with whom it was changed last.
fn shared_bytes(value: u64, partner: u64, partners: u64) -> Vec<u8> {
    let mut bytes = vec![value as u8; SHARED_BYTES];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes[8..16].copy_from_slice(&partner.to_le_bytes());
    bytes[16..24].copy_from_slice(&partners.to_le_bytes());
    bytes[SHARED_BYTES - 8..].copy_from_slice(&value.to_le_bytes());
    bytes
}

fn change_shared(
    tx: &mut Tx<'_>,
    object: Offset,
    random: &mut Random,
    value: u64,
    partner: u64,
    partners: u64,
) -> Result<(), HeapError> {
    let bytes = shared_bytes(value, partner, partners);
    match random.random_range(0..3) {
        0 => tx.write_as(object, &bytes, LogAs::Object),
        1 => tx.write_as(object, &bytes, LogAs::Words),
        _ => {
            tx.write_bytes(
                Offset::new(object.get() + SHARED_BYTES as u64 - 8).unwrap(),
                &bytes[..8],
            )?;
            tx.write_bytes(object, &bytes[..24])
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn check_shared(heap: &Heap, objects: &[Offset], acknowledged: &[u64]) -> Result<(), String> {
    let found: Vec<_> = objects
        .iter()
        .map(|object| {
            let mut bytes = vec![0; SHARED_BYTES];
            heap.read_bytes(*object, &mut bytes).unwrap();
            bytes
        })
        .collect();
    for (index, (bytes, done)) in found.iter().zip(acknowledged).enumerate() {
        let (value, partner, partners) = (word(bytes, 0), word(bytes, 8), word(bytes, 16));
        if value != word(bytes, SHARED_BYTES - 8) {
            return Err(format!(
                "object {index}: torn, {value} and {}",
                word(bytes, SHARED_BYTES - 8)
            ));
        }
        if !(*done..=*done + 1).contains(&value) {
            return Err(format!("object {index}: {value}, {done} acknowledged"));
        }
        if word(&found[partner as usize], 0) < partners {
            return Err(format!("object {index}: {value} came with {partners} of {partner}"));
        }
    }
    Ok(())
}

/// Threads hand objects to each other under locks; some are idle for long, some end; logs are
/// folded beside them.
fn hand_over(seed: u64, logging: Logging, heap_bytes: u64) -> Result<(), String> {
    let case = Case { seed, ..case(logging) };
    let (medium, heap) = on_medium(case, heap_bytes);
    let objects: Vec<_> =
        (0..SHARED).map(|_| heap.persist_alloc(SHARED_BYTES as u64).unwrap()).collect();
    for (index, object) in objects.iter().enumerate() {
        let bytes = shared_bytes(0, index as u64, 0);
        heap.transaction(|tx| tx.write_bytes(*object, &bytes)).unwrap();
    }
    heap.compact().unwrap();
    let counts: Vec<_> = (0..SHARED).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let locks: Vec<_> = (0..SHARED).map(|_| std::sync::Mutex::new(())).collect();
    medium.watch(&counts);
    let kept = std::sync::Mutex::new(Vec::new());
    let check_kept = |heap: &Heap| {
        let kept = kept.lock().unwrap();
        let lost = kept.iter().filter(|object| !heap.is_object(**object)).count();
        let (found, expected) = (heap.leaks().unwrap().objects as usize, kept.len() + SHARED);
        match (lost, found == expected) {
            (0, true) => Ok(()),
            _ => Err(format!("{lost} objects lost, {found} found, {expected} expected")),
        }
    };
    for round in 0..4_u64 {
        medium.lose_often(12, 12_000, seed << 8 | round);
        std::thread::scope(|scope| {
            let (done, may_end) = std::sync::mpsc::channel::<()>();
            let may_end = Arc::new(std::sync::Mutex::new(may_end));
            let mut busy = Vec::new();
            for thread in 0..4_u64 {
                let (heap, objects, counts, locks) = (&heap, &objects, &counts, &locks);
                let kept = &kept;
                let may_end = Arc::clone(&may_end);
                let handle = scope.spawn(move || {
                    let mut random = Random::seed_from_u64(seed << 16 | round << 8 | thread);
                    let is_idle = thread == 0 && round % 2 == 0;
                    let mut own = Vec::new();
                    for _ in 0..if is_idle { 7 } else { 1_500 } {
                        let one = random.random_range(0..SHARED);
                        let other = random.random_range(0..SHARED);
                        let (one, other) = (one.min(other), one.max(other));
                        let _first = locks[one].lock().unwrap();
                        let _second = (one != other).then(|| locks[other].lock().unwrap());
                        let value = counts[one].load(SeqCst) + 1;
                        let others = counts[other].load(SeqCst) + u64::from(one != other);
                        let fails = random.random_range(0..12);
                        let allocs = [0, 0, 0, 1, 3][random.random_range(0..5)];
                        let many = random
                            .random_range(0..if seed.is_multiple_of(2) { 300 } else { 3_000 })
                            == 0;
                        let outcome =
                            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                                heap.transaction(|tx| {
                                    let mut made = Vec::new();
                                    if one == other {
                                        change_shared(
                                            tx,
                                            objects[one],
                                            &mut random,
                                            value,
                                            one as u64,
                                            0,
                                        )?;
                                    } else {
                                        change_shared(
                                            tx,
                                            objects[one],
                                            &mut random,
                                            value,
                                            other as u64,
                                            others,
                                        )?;
                                        change_shared(
                                            tx,
                                            objects[other],
                                            &mut random,
                                            others,
                                            one as u64,
                                            value,
                                        )?;
                                    }
                                    for _ in 0..if many { 4_500 } else { allocs } {
                                        made.push(tx.alloc(16)?);
                                    }
                                    if fails == 0 {
                                        return Err(Undone::Wanted);
                                    }
                                    if fails == 1 {
                                        std::panic::resume_unwind(Box::new(()));
                                    }
                                    Ok(made)
                                })
                            }));
                        match outcome {
                            Ok(Ok(made)) => {
                                counts[one].store(value, SeqCst);
                                if one != other {
                                    counts[other].store(others, SeqCst);
                                }
                                own.extend(made);
                            }
                            Ok(Err(Undone::Wanted)) | Err(_) => {}
                            Ok(Err(Undone::Heap(HeapError::OutOfMemory { .. }))) => {}
                            Ok(Err(Undone::Heap(error))) => panic!("{error}"),
                        }
                        drop(_second);
                        drop(_first);
                        if own.len() > 50 {
                            own.retain(|object| {
                                random.random_range(0..10) == 0
                                    || heap.persist_free(*object).is_err()
                            });
                        }
                        if seed.is_multiple_of(2) && random.random_range(0..400) == 0 {
                            let _ = heap.compact();
                        }
                    }
                    heap.fence();
                    kept.lock().unwrap().extend(own);
                    if is_idle {
                        let _ = may_end.lock().unwrap().recv();
                    }
                });
                if !(thread == 0 && round % 2 == 0) {
                    busy.push(handle);
                }
            }
            busy.into_iter().for_each(|handle| handle.join().unwrap());
            drop(done);
        });
        let mut images = medium.take_images();
        images.push(medium.take_image().0);
        for (at, image) in images.iter().enumerate() {
            // A recovery that is cut off by another loss.
            let again = Arc::new(Medium::of(image.bytes.clone(), image.bytes.clone()));
            again.lose_after(1 + at as u64 * 97, seed);
            let mut config = case.config(2);
            config.tap = Some(Arc::clone(&again) as _);
            let found = Heap::open(Memory::copy_of_bytes(&image.bytes).unwrap(), config)
                .map_err(|error| format!("round {round}, image {at}: refused: {error}"))?;
            check_shared(&found, &objects, &image.acknowledged)
                .map_err(|found| format!("round {round}, image {at}: {found}"))?;
            drop(found);
            let found = reopened(case, &again.take_image().0.bytes, 3);
            check_shared(&found, &objects, &image.acknowledged)
                .map_err(|found| format!("round {round}, image {at}, lost again: {found}"))?;
        }
        let now: Vec<_> = counts.iter().map(|count| count.load(SeqCst)).collect();
        // Killed, recovered, and lost then.
        check_kept(&heap).map_err(|found| format!("round {round}, alive: {found}"))?;
        let again = Arc::new(Medium::of(medium.cache(), medium.take_image().0.bytes));
        let mut config = case.config(1);
        config.tap = Some(Arc::clone(&again) as _);
        let killed = Heap::open(Memory::copy_of_bytes(&again.cache()).unwrap(), config).unwrap();
        check_kept(&killed).map_err(|found| format!("round {round}, killed: {found}"))?;
        check_shared(&killed, &objects, &now)
            .map_err(|found| format!("round {round}, killed: {found}"))?;
        drop(killed);
        let found = reopened(case, &again.take_image().0.bytes, 2);
        check_shared(&found, &objects, &now)
            .map_err(|found| format!("round {round}, killed and lost: {found}"))?;
        check_kept(&found).map_err(|found| format!("round {round}, killed and lost: {found}"))?;
        let found = reopened(case, &images[images.len() - 1].bytes, 2);
        check_kept(&found).map_err(|found| format!("round {round}, lost: {found}"))?;
    }
    Ok(())
}

fn hand_over_in_heaps_of_both_sizes(logging: Logging) {
    for seed in 0..2 {
        // Chunks rest in the larger one only.
        for heap_bytes in [1 << 20, 16 << 20] {
            hand_over(seed, logging, heap_bytes).unwrap_or_else(|found| {
                panic!("hand_over({seed}, {logging:?}, {heap_bytes}): {found}")
            });
        }
    }
}

#[test]
fn what_changes_hands_under_locks_is_as_acknowledged_with_redo_logs() {
    hand_over_in_heaps_of_both_sizes(Logging::Redo);
}

#[test]
fn what_changes_hands_under_locks_is_as_acknowledged_with_undo_logs() {
    hand_over_in_heaps_of_both_sizes(Logging::Undo);
}

const NAMES: usize = 5;

/// Threads make, change and remove roots; entries of one name become another's.
fn roots_change_hands(seed: u64, logging: Logging) -> Result<(), String> {
    let case = Case { seed, ..case(logging) };
    let (medium, heap) = on_medium(case, 8 << 20);
    let objects: Vec<Vec<_>> = (0..NAMES)
        .map(|_| {
            (0..4).map(|_| perdura_heap::Ptr::<u64>::new(heap.persist_alloc(64).unwrap())).collect()
        })
        .collect();
    let counts: Vec<_> = (0..NAMES).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let locks: Vec<_> = (0..NAMES).map(|_| std::sync::Mutex::new(())).collect();
    medium.watch(&counts);
    medium.lose_often(60, 3_000, seed);
    let step = |tx: &mut Tx<'_>, name: usize, state: u64| {
        let root = format!("root{name}");
        match state % 3 {
            0 => tx.remove_root(&root),
            _ => tx.set_root(&root, objects[name][(state % 4) as usize]),
        }
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (heap, counts, locks, step) = (&heap, &counts, &locks, &step);
        let threads: Vec<_> = (0..3_u64)
            .map(|thread| {
                scope.spawn(move || {
                    let mut random = Random::seed_from_u64(seed << 8 | thread);
                    for _ in 0..1_000 {
                        let (one, other) =
                            (random.random_range(0..NAMES), random.random_range(0..NAMES));
                        let (one, other) = (one.min(other), one.max(other));
                        let _first = locks[one].lock().unwrap();
                        let _second = (one != other).then(|| locks[other].lock().unwrap());
                        let fails = random.random_range(0..6) == 0;
                        let backwards = random.random();
                        let done = heap.transaction(|tx| {
                            let mut both = vec![one, other];
                            both.dedup();
                            if backwards {
                                both.reverse();
                            }
                            for name in both {
                                step(tx, name, counts[name].load(SeqCst) + 1)?;
                            }
                            if fails { Err(Undone::Wanted) } else { Ok(()) }
                        });
                        match done {
                            Ok(()) => {
                                counts[one].fetch_add(1, SeqCst);
                                if one != other {
                                    counts[other].fetch_add(1, SeqCst);
                                }
                            }
                            Err(Undone::Wanted) => {}
                            Err(Undone::Heap(error)) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        let over = &over;
        scope.spawn(move || {
            while !over.load(SeqCst) {
                let roots = heap
                    .roots()
                    .unwrap_or_else(|error| panic!("while others change them: {error}"));
                assert!(roots.len() <= NAMES + 8, "{roots:?}");
            }
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        over.store(true, SeqCst);
    });
    let mut images = medium.take_images();
    images.push(medium.take_image().0);
    for image in images {
        let found = reopened(case, &image.bytes, 2);
        let roots = found.roots().map_err(|error| error.to_string())?;
        for (name, objects) in objects.iter().enumerate() {
            let of: Vec<_> =
                roots.iter().filter(|root| root.name == format!("root{name}")).collect();
            let done = image.acknowledged[name];
            let expected = |state: u64| match state % 3 {
                0 => None,
                _ => Some(objects[(state % 4) as usize].offset()),
            };
            let is = of.first().map(|root| root.object);
            if of.len() > 1 || ![expected(done), expected(done + 1)].contains(&is) {
                return Err(format!("root{name} after {done}: {of:?}"));
            }
        }
    }
    Ok(())
}

#[test]
fn roots_that_change_hands_are_as_acknowledged() {
    for seed in 0..2 {
        for logging in [Logging::Redo, Logging::Undo] {
            roots_change_hands(seed, logging)
                .unwrap_or_else(|found| panic!("roots_change_hands({seed}, {logging:?}): {found}"));
        }
    }
}
