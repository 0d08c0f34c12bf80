//! Power is lost at any instant of long runs: acknowledged operations are there, and all others are
//! whole or absent.
//!
//! `perdura sim order` tries every state that a short operation may leave. Here logs fill their
//! chunks, are folded, and change hands, thousands of operations long, with losses drawn at random.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod handed_over;
mod medium;
mod regressions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use medium::{Image, Medium};
use perdura_heap::{
    Bookkeeping, Config, Durability, Heap, HeapError, LogAs, Logging, Memory, Offset, Opened,
    Planted, Records, Tx,
};
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const HEAP_BYTES: u64 = 16 << 20;
const OBJECTS_MAX: usize = 400;
/// Between two losses, so that logs grow in between.
const QUIET_OPS_MAX: u64 = 400;
/// Stores, flushes and fences into an operation at which the power is lost.
const EVENTS_MAX: u64 = 60;

#[derive(Clone, Copy, Debug)]
struct Case {
    seed: u64,
    logging: Logging,
    records: Records,
    bookkeeping: Bookkeeping,
    planted: Planted,
}

impl Case {
    fn of(seed: u64) -> Self {
        let logging = [Logging::Redo, Logging::Undo][seed as usize % 2];
        let records = [Records::Hybrid, Records::Words, Records::Objects][(seed as usize / 2) % 3];
        let bookkeeping = match seed % 7 {
            6 => Bookkeeping::Conventional,
            _ => Bookkeeping::Logged,
        };
        Self { seed, logging, records, bookkeeping, planted: Planted::None }
    }

    fn config(&self, boot: u64) -> Config {
        let mut config = Config::default();
        config.logging = self.logging;
        config.records = self.records;
        config.bookkeeping = self.bookkeeping;
        config.planted = self.planted;
        // A range that is emptied is told to the tap as such.
        config.contiguous = false;
        config.log_bytes_max = 1 << 20;
        config.boot_id = Some([boot, !boot]);
        config
    }
}

fn case(logging: Logging) -> Case {
    Case { logging, bookkeeping: Bookkeeping::Logged, records: Records::Hybrid, ..Case::of(0) }
}

fn reopened(case: Case, bytes: &[u8], boot: u64) -> Heap {
    Heap::open(Memory::copy_of_bytes(bytes).unwrap(), case.config(boot)).unwrap()
}

/// An object as it must be found.
#[derive(Clone)]
struct Object {
    len: u64,
    /// None: nothing was written yet.
    bytes: Option<Vec<u8>>,
}

/// What a heap should hold.
#[derive(Clone, Default)]
struct Model {
    objects: BTreeMap<Offset, Object>,
    /// Freed since the last durable operation: may be found allocated.
    freed: BTreeSet<Offset>,
    /// What a loss on the way may leave besides.
    leaks_max: u64,
}

impl Model {
    /// Everything so far is durable.
    fn settle(&mut self) {
        self.freed.clear();
    }

    /// The first difference from what the heap holds.
    fn difference(&self, heap: &Heap, found: u64) -> Option<String> {
        if let Some(lost) = self.lost_in(heap) {
            return Some(lost);
        }
        let returned = self
            .freed
            .iter()
            .filter(|offset| !self.objects.contains_key(offset) && heap.is_object(**offset));
        let expected = (self.objects.len() + returned.count()) as u64;
        let leaks = expected..=expected + self.leaks_max;
        (!leaks.contains(&found)).then(|| format!("{found} objects, not {expected}"))
    }

    /// The first object that is not as it must be.
    fn lost_in(&self, heap: &Heap) -> Option<String> {
        for (offset, object) in &self.objects {
            if !heap.is_object(*offset) {
                return Some(format!("{offset} is lost"));
            }
            if heap.usable_bytes(*offset).unwrap() < object.len {
                return Some(format!("{offset} has less than {} bytes", object.len));
            }
            let mut bytes = vec![0; object.len as usize];
            heap.read_bytes(*offset, &mut bytes).unwrap();
            if let Some(expected) = &object.bytes
                && let Some(at) = (0..bytes.len()).find(|at| bytes[*at] != expected[*at])
            {
                return Some(format!(
                    "byte {at} of {} at {offset}: {:#x}, not {:#x}",
                    object.len, bytes[at], expected[at]
                ));
            }
        }
        None
    }
}

/// Opens what a loss left and finds it in one of `states`.
fn check(case: Case, image: &[u8], boot: u64, states: &[&Model]) -> Result<(), String> {
    let memory = Memory::copy_of_bytes(image).unwrap();
    let heap =
        Heap::open(memory, case.config(boot)).map_err(|error| format!("refused: {error}"))?;
    let Opened::Recovered(_) = heap.opened() else { return Err("made anew".to_owned()) };
    // No root names anything: all objects are leaks.
    let found = heap.leaks().unwrap().objects;
    let differences: Vec<_> =
        states.iter().map_while(|state| state.difference(&heap, found)).collect();
    if differences.len() == states.len() { Err(differences.join("; ")) } else { Ok(()) }
}

fn fill(random: &mut Random, len: u64) -> Vec<u8> {
    (0..len).map(|_| random.random()).collect()
}

fn size(random: &mut Random) -> u64 {
    match random.random_range(0..30) {
        0 => random.random_range(1..70_000),
        1 => random.random_range(1..5) * 4096,
        2..5 => random.random_range(1..5_000),
        _ => random.random_range(1..400),
    }
}

enum Undone {
    Wanted,
    Heap(HeapError),
}

impl From<HeapError> for Undone {
    fn from(error: HeapError) -> Self {
        Self::Heap(error)
    }
}

/// As [`operate`], of a thread among others, which has but so many objects.
fn operate_alone(heap: &Heap, random: &mut Random, model: &mut Model, objects_max: usize) {
    if model.objects.len() >= objects_max
        && let Some((offset, _)) = model.objects.pop_first()
    {
        heap.persist_free(offset).unwrap();
        model.freed.insert(offset);
        return;
    }
    operate(heap, random, model);
}

/// One operation on the heap and on its model. Returns states that it may pass through.
fn operate(heap: &Heap, random: &mut Random, model: &mut Model) -> Vec<Model> {
    let any = |model: &Model, random: &mut Random| model.objects.keys().choose(random).copied();
    match random.random_range(0..100) {
        0..40 if model.objects.len() < OBJECTS_MAX => {
            let len = size(random);
            let offset = heap.persist_alloc(len).unwrap();
            model.settle();
            assert!(model.objects.insert(offset, Object { len, bytes: None }).is_none());
        }
        0..70 => {
            if let Some(offset) = any(model, random) {
                heap.persist_free(offset).unwrap();
                model.objects.remove(&offset);
                model.freed.insert(offset);
            }
        }
        70..73 => {
            if let Some(offset) = any(model, random) {
                let len = size(random);
                let moved = heap.persist_realloc(offset, len).unwrap();
                return moved_to(model, offset, moved, len);
            }
        }
        73 => {
            heap.compact().unwrap();
            model.settle();
        }
        74..82 => link(heap, random, model),
        _ => transact(heap, random, model),
    }
    Vec::new()
}

/// Allocates, replaces or frees an object together with the word of another that names it.
fn link(heap: &Heap, random: &mut Random, model: &mut Model) {
    let holds_word = |object: &Object| object.bytes.as_ref().is_some_and(|bytes| bytes.len() >= 8);
    let all = model.objects.iter().filter(|(_, object)| holds_word(object));
    let Some(holder) = all.map(|(offset, _)| *offset).choose(random) else { return };
    let held = model.objects[&holder].bytes.as_ref().unwrap();
    // The first word, more often than not, so that it names an object now and then.
    let at = random.random_range(0..=held.len() / 8 - 1) * 8 * random.random_range(0..=1);
    let place = Offset::new(holder.get() + at as u64).unwrap();
    let word = u64::from_le_bytes(held[at..at + 8].try_into().unwrap());
    let old = Offset::new(word).filter(|old| model.objects.contains_key(old) && *old != holder);
    let contents = random.random::<bool>().then(|| {
        let len = size(random);
        fill(random, len)
    });
    let len = contents.as_ref().map_or_else(|| size(random), |contents| contents.len() as u64);
    let made = match (old, &contents) {
        (Some(old), None) if random.random() => {
            assert_eq!(heap.free_from(place).unwrap(), Some(old));
            None
        }
        (Some(_), None) => Some(heap.replace_at(place, len).unwrap()),
        (Some(_), Some(contents)) => Some(heap.replace_with(place, contents).unwrap()),
        (None, None) => Some(heap.alloc_into(place, len).unwrap()),
        (None, Some(contents)) => Some(heap.put_into(place, contents).unwrap()),
    };
    model.settle();
    if let Some(old) = old {
        model.objects.remove(&old);
    }
    if let Some(made) = made {
        assert!(model.objects.insert(made, Object { len, bytes: contents }).is_none());
    }
    let bytes = model.objects.get_mut(&holder).unwrap().bytes.as_mut().unwrap();
    bytes[at..at + 8].copy_from_slice(&made.map_or(0, Offset::get).to_le_bytes());
}

fn moved_to(model: &mut Model, from: Offset, to: Offset, len: u64) -> Vec<Model> {
    let Some(old) = model.objects.get(&from).cloned() else { return Vec::new() };
    let kept = old.len.min(len) as usize;
    // What lies behind the old object's bytes came along and is anything.
    let bytes = old.bytes.filter(|_| len as usize == kept).map(|bytes| bytes[..kept].to_vec());
    if to == from {
        model.objects.insert(to, Object { len, bytes });
        return Vec::new();
    }
    model.settle();
    let mut both = model.clone();
    both.objects.insert(to, Object { len, bytes: None });
    model.objects.remove(&from);
    model.freed.insert(from);
    model.objects.insert(to, Object { len, bytes });
    vec![both]
}

fn transact(heap: &Heap, random: &mut Random, model: &mut Model) {
    let before = model.clone();
    let parts = random.random_range(1..6);
    let aborts = random.random_range(0..6) == 0;
    let result = heap.transaction(|tx| {
        for _ in 0..parts {
            if random.random_range(0..5) > 0 {
                part(tx, random, model)?;
                continue;
            }
            let outer = model.clone();
            let undoes = random.random_range(0..2) == 0;
            let inner = tx.nested(|tx| {
                part(tx, random, model)?;
                part(tx, random, model)?;
                if undoes { Err(Undone::Wanted) } else { Ok(()) }
            });
            match inner {
                Err(Undone::Wanted) => *model = outer,
                other => other?,
            }
        }
        if aborts { Err(Undone::Wanted) } else { Ok(()) }
    });
    match result {
        Ok(()) => {}
        Err(Undone::Wanted | Undone::Heap(HeapError::LogFull { .. })) => *model = before,
        Err(Undone::Heap(error)) => panic!("{error}"),
    }
}

/// A change in a transaction.
fn part(tx: &mut Tx<'_>, random: &mut Random, model: &mut Model) -> Result<(), HeapError> {
    let object = model.objects.keys().choose(random).copied();
    match (random.random_range(0..6), object) {
        (0, Some(offset)) => {
            tx.free(offset)?;
            model.objects.remove(&offset);
        }
        (1, _) if model.objects.len() < OBJECTS_MAX => {
            let len = size(random);
            let offset = tx.alloc(len)?;
            let bytes = fill(random, len);
            tx.write_bytes(offset, &bytes)?;
            assert!(model.objects.insert(offset, Object { len, bytes: Some(bytes) }).is_none());
        }
        (_, Some(offset)) => {
            let object = model.objects.get_mut(&offset).unwrap();
            let len = match random.random_range(0..4) {
                0 => object.len,
                _ => random.random_range(1..=object.len.min(64)),
            };
            let at = random.random_range(0..=object.len - len);
            let bytes = fill(random, len);
            let log = if random.random_range(0..2) == 0 { LogAs::Words } else { LogAs::Object };
            tx.write_as(Offset::new(offset.get() + at).unwrap(), &bytes, log)?;
            match &mut object.bytes {
                Some(old) => old[at as usize..(at + len) as usize].copy_from_slice(&bytes),
                None if len == object.len => object.bytes = Some(bytes),
                None => {}
            }
        }
        _ => {}
    }
    Ok(())
}

/// A life with many losses, each of which is only looked at: the heap goes on.
fn live(case: Case, ops: u64) -> Result<(), String> {
    let mut random = Random::seed_from_u64(case.seed);
    let (medium, heap) = on_medium(case, HEAP_BYTES);
    let mut model = Model::default();
    let mut done = 0;
    while done < ops {
        for _ in 0..random.random_range(0..QUIET_OPS_MAX) {
            operate(&heap, &mut random, &mut model);
            done += 1;
        }
        let before = model.clone();
        medium.lose_after(random.random_range(1..EVENTS_MAX), random.random());
        let on_the_way = operate(&heap, &mut random, &mut model);
        done += 1;
        let (image, came) = medium.take_image();
        let mut states = vec![model.clone()];
        if came {
            states.extend(on_the_way);
            states.push(before);
            // Bits of what is born come before the commit, of what dies behind it.
            let leaks_max = if case.bookkeeping == Bookkeeping::Conventional { 20 } else { 0 };
            states.iter_mut().for_each(|state| state.leaks_max = leaks_max);
        }
        let states: Vec<_> = states.iter().collect();
        check(case, &image.bytes, 2, &states)
            .map_err(|found| format!("operation {done}: {found}"))?;
        check(case, &medium.cache(), 1, &[&model])
            .map_err(|found| format!("operation {done}, killed: {found}"))?;
    }
    Ok(())
}

fn replay(case: Case) -> String {
    format!(
        "{case:?}; replay: PERDURA_SEED={} cargo test -p perdura-heap --test power replay",
        case.seed
    )
}

#[test]
fn what_was_acknowledged_survives_any_loss() {
    for seed in 0..14 {
        let case = Case::of(seed);
        live(case, 4_000).unwrap_or_else(|found| panic!("{found}\n{}", replay(case)));
    }
}

#[test]
fn replay_one_life_from_the_environment() {
    if let Ok(seed) = std::env::var("PERDURA_SEED") {
        let case = Case::of(seed.parse().unwrap());
        live(case, 20_000).unwrap_or_else(|found| panic!("{found}\n{}", replay(case)));
    }
}

#[test]
fn planted_bugs_are_caught() {
    for planted in [Planted::SettleUnflushed, Planted::ReplayIntoReused, Planted::LinkUnnoted] {
        let caught = (0..20).any(|seed| {
            let logging = Logging::Redo;
            let case = Case { planted, logging, ..Case::of(seed) };
            live(case, 2_000).is_err()
        });
        assert!(caught, "{planted:?} was not caught");
    }
}

/// A heap under a medium, in its first boot.
fn on_medium(case: Case, len_bytes: u64) -> (Arc<Medium>, Heap) {
    let medium = Arc::new(Medium::new(len_bytes));
    let mut config = case.config(1);
    config.tap = Some(Arc::clone(&medium) as _);
    let memory = Memory::anonymous(len_bytes, Durability::Flushed).unwrap();
    (medium, Heap::open(memory, config).unwrap())
}

/// Threads come and go, and with them logs, while others are folded; more of them in each round, so
/// that new logs are made besides those that ended threads leave.
fn change_hands(seed: u64) -> Result<(), String> {
    let case = Case { seed, ..Case::of(0) };
    let (medium, heap) = on_medium(case, HEAP_BYTES);
    let mut all = Model::default();
    for round in 1..6 {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..1 << round)
                .map(|thread| {
                    let heap = &heap;
                    let seed = seed << 32 | round << 8 | thread;
                    scope.spawn(move || lead_a_short_life(heap, seed))
                })
                .collect();
            for _ in 0..Random::seed_from_u64(seed << 8 | round).random_range(1..20) {
                heap.compact().unwrap();
            }
            for thread in threads {
                all.objects.extend(thread.join().unwrap().objects);
            }
        });
        let (image, _) = medium.take_image();
        check(case, &image.bytes, 2, &[&all]).map_err(|found| format!("round {round}: {found}"))?;
    }
    Ok(())
}

fn lead_a_short_life(heap: &Heap, seed: u64) -> Model {
    let mut random = Random::seed_from_u64(seed);
    let mut model = Model::default();
    for _ in 0..6 {
        let len = random.random_range(1..200);
        let offset = heap.persist_alloc(len).unwrap();
        model.objects.insert(offset, Object { len, bytes: None });
        transact(heap, &mut random, &mut model);
    }
    if let Some((offset, _)) = model.objects.pop_first() {
        heap.persist_free(offset).unwrap();
    }
    heap.fence();
    model
}

#[test]
fn logs_that_change_hands_lose_nothing() {
    for seed in 0..15 {
        change_hands(seed).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
    }
}

/// An object freed and another of its size taken, which is likely to get its memory: as many
/// records as can be.
fn churn(heap: &Heap, random: &mut Random, model: &mut Model) {
    if model.objects.len() > 20 && random.random() {
        let offset = *model.objects.keys().choose(random).unwrap();
        heap.persist_free(offset).unwrap();
        model.objects.remove(&offset);
        model.freed.insert(offset);
    } else {
        let offset = heap.persist_alloc(64).unwrap();
        model.settle();
        model.objects.insert(offset, Object { len: 64, bytes: None });
    }
}

/// Threads that live beside each other, each with its own objects; memory that one frees another
/// takes. The power is lost while all of them are in the middle of something, and logs are folded.
fn live_together(case: Case, ops: u64, churns: bool) -> Result<(), String> {
    const THREADS: u64 = 3;
    let (medium, heap) = on_medium(case, if churns { 2 << 20 } else { HEAP_BYTES });
    let counts: Vec<_> = (0..THREADS).map(|_| Arc::new(AtomicU64::new(0))).collect();
    medium.watch(&counts);
    let (times, events) = if churns { (200, 60) } else { (10, 10_000) };
    medium.lose_often(times, events, case.seed);
    let is_over = AtomicBool::new(false);
    // What each thread had after each of its operations.
    let histories: Vec<Vec<Model>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .zip(&counts)
            .map(|(thread, count)| {
                let heap = &heap;
                scope.spawn(move || {
                    let mut random = Random::seed_from_u64(case.seed << 8 | thread);
                    let mut model = Model::default();
                    let mut history = vec![model.clone()];
                    for done in 1..=ops {
                        if churns {
                            churn(heap, &mut random, &mut model);
                        } else {
                            operate_alone(heap, &mut random, &mut model, OBJECTS_MAX / 8);
                        }
                        history.push(model.clone());
                        count.store(done, SeqCst);
                    }
                    history
                })
            })
            .collect();
        if churns {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    heap.compact().unwrap();
                }
            });
        }
        let histories = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        is_over.store(true, SeqCst);
        histories
    });
    let mut images = medium.take_images();
    images.push(medium.take_image().0);
    images.iter().try_for_each(|image| check_all(case, image, &histories))
}

/// Finds each thread's objects as after what was acknowledged to it, or after what it was about to
/// do.
fn check_all(case: Case, image: &Image, histories: &[Vec<Model>]) -> Result<(), String> {
    let memory = Memory::copy_of_bytes(&image.bytes).unwrap();
    let found = Heap::open(memory, case.config(2)).map_err(|error| format!("refused: {error}"))?;
    let mut most = 0;
    for ((thread, history), done) in histories.iter().enumerate().zip(&image.acknowledged) {
        let done = *done as usize;
        let states = &history[done..history.len().min(done + 2)];
        let differences: Vec<_> = states.iter().map_while(|state| state.lost_in(&found)).collect();
        if differences.len() == states.len() {
            return Err(format!("thread {thread} after {done}: {}", differences.join("; ")));
        }
        most +=
            states.iter().map(|state| state.objects.len() + state.freed.len()).max().unwrap_or(0);
    }
    let objects = found.leaks().unwrap().objects;
    if objects > most as u64 { Err(format!("{objects} objects, {most} at most")) } else { Ok(()) }
}

#[test]
fn threads_beside_each_other_lose_nothing_that_was_acknowledged() {
    for seed in 0..10 {
        let case =
            Case { logging: Logging::Redo, bookkeeping: Bookkeeping::Logged, ..Case::of(seed) };
        live_together(case, 250, false).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
        live_together(case, 1_000, true).unwrap_or_else(|found| panic!("seed {seed}: {found}"));
    }
}

/// A heap without room for another object goes on, folds its logs, and opens after a loss at any
/// instant of that.
#[test]
fn a_full_heap_is_folded_and_opened() {
    for logging in [Logging::Redo, Logging::Undo] {
        let case = Case { logging, bookkeeping: Bookkeeping::Logged, ..Case::of(0) };
        let (medium, heap) = on_medium(case, 2 << 20);
        let mut objects = Vec::new();
        while let Ok(object) = heap.persist_alloc(64) {
            objects.push(object);
        }
        let folds = heap.stats().folds;
        medium.lose_often(120, 3_000, 7);
        let mut random = Random::seed_from_u64(7);
        for _ in 0..60_000 {
            let at = random.random_range(0..objects.len());
            heap.persist_free(objects[at]).unwrap();
            objects[at] = heap.persist_alloc(64).unwrap();
        }
        assert!(heap.stats().folds > folds + 3, "{} folds", heap.stats().folds - folds);
        let (last, _) = medium.take_image();
        for image in medium.take_images().iter().chain([&last]) {
            let memory = Memory::copy_of_bytes(&image.bytes).unwrap();
            let found = Heap::open(memory, case.config(2)).unwrap();
            let count = found.leaks().unwrap().objects;
            assert!((objects.len() as u64 - 1..=objects.len() as u64).contains(&count), "{count}");
            found.compact().unwrap();
        }
        objects.into_iter().for_each(|object| heap.persist_free(object).unwrap());
    }
}
