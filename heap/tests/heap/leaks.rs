//! Leaks against a naive oracle: a graph whose edges are known, walked by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use perdura_heap::{
    Config, Durability, Heap, HeapError, Kind, Memory, Offset, Ptr, Reached, Visitor,
};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const MIB: u64 = 1 << 20;

fn open(path: &Path, threads: usize) -> Heap {
    let mut config = Config::default();
    config.threads = threads;
    Heap::open(Memory::file(path, 128 * MIB, Durability::Flushed).unwrap(), config).unwrap()
}

/// A graph in a heap. An object: how many edges, then the edges; the rest is its own.
#[derive(Default)]
struct Graph {
    edges: BTreeMap<Offset, Vec<Offset>>,
    roots: BTreeMap<String, Offset>,
    compartment: Vec<Offset>,
}

impl Graph {
    fn reached(&self) -> BTreeSet<Offset> {
        let mut stack: Vec<Offset> =
            self.roots.values().chain(&self.compartment).copied().collect();
        let mut reached = BTreeSet::new();
        while let Some(object) = stack.pop() {
            if reached.insert(object) {
                stack.extend(&self.edges[&object]);
            }
        }
        reached
    }
}

fn write_words(heap: &Heap, at: Offset, words: &[u64]) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    heap.transaction(|tx| tx.write_bytes(at, &bytes)).unwrap();
}

/// Edges are plain offsets, offsets into the object's middle, or addresses, if `is_mixed`.
fn build(heap: &Heap, random: &mut Random, count: usize, is_mixed: bool) -> Graph {
    let mut graph = Graph::default();
    let mut all = Vec::new();
    let mut lens = BTreeMap::new();
    for _ in 0..count {
        let bytes = match random.random_range(0..50) {
            0 => random.random_range(65_537..700_000),
            1..5 => random.random_range(1025..40_000),
            _ => random.random_range(64..1025),
        };
        let object = heap.persist_alloc(bytes).unwrap();
        let usable = heap.usable_bytes(object).unwrap();
        write_words(heap, object, &vec![0; usable as usize / 8]);
        lens.insert(object, usable);
        all.push(object);
    }
    let pick = |random: &mut Random, all: &[Offset]| all[random.random_range(0..all.len())];
    for object in &all {
        let mut edges = Vec::new();
        for _ in 0..random.random_range(0..3) {
            edges.push(pick(random, &all));
        }
        let mut words = vec![edges.len() as u64];
        for edge in &edges {
            let middle = random.random_range(0..lens[edge]);
            words.push(match random.random_range(0..3) {
                1 if is_mixed => edge.get() + middle,
                2 if is_mixed => heap.pointer(*edge) as u64 + middle,
                _ => edge.get(),
            });
        }
        write_words(heap, *object, &words);
        graph.edges.insert(*object, edges);
    }
    for name in ["a", "b", "c"] {
        let object = pick(random, &all);
        heap.set_root(name, Ptr::<u64>::new(object)).unwrap();
        graph.roots.insert(name.to_owned(), object);
    }
    let compartment = heap.compartment(Kind::Persistent, 200_000).unwrap();
    let object = pick(random, &all);
    let last = Offset::new(compartment.offset.get() + compartment.len_bytes - 8).unwrap();
    write_words(heap, last, &[object.get()]);
    graph.compartment.push(object);
    graph
}

fn trace(object: &Reached, visitor: &mut Visitor<'_>) {
    if object.is_compartment {
        if let Some(word) = visitor.read::<u64>(object, object.len_bytes - 8)
            && let Some(offset) = Offset::new(word)
        {
            visitor.visit(Ptr::<u64>::new(offset));
        }
        return;
    }
    assert_eq!(object.type_id, <u64 as perdura_heap::Persist>::type_id());
    for nth in 0..visitor.read::<u64>(object, 0).unwrap() {
        visitor.visit(visitor.read::<Ptr<u64>>(object, 8 + nth * 8).unwrap());
    }
}

#[test]
fn leaks_are_what_no_walk_from_the_roots_meets() {
    for seed in 0..12 {
        let mut random = Random::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("heap");
        let threads = 1 + seed as usize % 3;
        let mut heap = open(&path, threads);
        let is_mixed = seed % 2 == 0;
        let graph = build(&heap, &mut random, 600, is_mixed);
        if !is_mixed && seed % 4 == 1 {
            drop(heap);
            heap = open(&path, threads);
        }
        let reached = graph.reached();
        let expected: BTreeSet<Offset> =
            graph.edges.keys().filter(|object| !reached.contains(object)).copied().collect();
        assert!(!expected.is_empty() && reached.len() > 3, "seed {seed}: a dull graph");
        let leaks = heap.leaks().unwrap();
        let found: BTreeSet<Offset> = leaks.listed.iter().map(|leak| leak.object).collect();
        assert_eq!(found, expected, "seed {seed}");
        assert_eq!(leaks.objects, graph.edges.len() as u64);
        let bytes: u64 = expected.iter().map(|object| heap.usable_bytes(*object).unwrap()).sum();
        assert_eq!((leaks.leaks, leaks.leaked_bytes), (expected.len() as u64, bytes));
        if !is_mixed {
            let traced = heap.leaks_traced(trace).unwrap();
            assert_eq!(traced.listed, leaks.listed, "seed {seed}");
        }

        // One of them is linked before they are reclaimed: it and what it reaches stay.
        let saved = *expected.first().unwrap();
        heap.set_root("d", Ptr::<u64>::new(saved)).unwrap();
        let mut graph = graph;
        graph.roots.insert("d".to_owned(), saved);
        let reached = graph.reached();
        let done = if is_mixed { heap.reclaim(&leaks) } else { heap.reclaim_traced(&leaks, trace) };
        let done = done.unwrap();
        let kept = expected.intersection(&reached).count() as u64;
        assert_eq!((done.kept, done.objects), (kept, expected.len() as u64 - kept), "seed {seed}");
        assert_eq!(heap.leaks().unwrap().leaks, 0);
        drop(heap);
        let heap = open(&path, threads);
        for object in graph.edges.keys() {
            assert_eq!(heap.is_object(*object), reached.contains(object), "seed {seed} {object:?}");
        }
    }
}

#[test]
fn leaks_of_another_heap_are_refused_and_so_is_a_search_inside_a_transaction() {
    let make = || {
        let memory = Memory::anonymous(4 * MIB, Durability::Ordered).unwrap();
        Heap::open(memory, Config::default()).unwrap()
    };
    let (one, other) = (make(), make());
    one.persist_alloc(64).unwrap();
    let leaks = one.leaks().unwrap();
    assert_eq!(leaks.leaks, 1);
    assert!(matches!(other.reclaim(&leaks), Err(HeapError::OtherHeap)));
    let inside = one.transaction(|_| one.leaks().map(|_| ()));
    assert!(matches!(inside, Err(HeapError::InTransaction { .. })));
    assert_eq!(one.reclaim(&leaks).unwrap().objects, 1);
    assert_eq!(one.reclaim(&leaks).unwrap().kept, 1, "it is gone: nothing is freed twice");
}

#[test]
fn a_chain_and_a_wide_object_are_followed_to_their_ends() {
    let memory = Memory::anonymous(256 * MIB, Durability::Ordered).unwrap();
    let mut config = Config::default();
    config.threads = 4;
    let heap = Heap::open(memory, config).unwrap();
    // An object of 4 MiB full of references, each the head of a short chain.
    let wide = heap.persist_alloc(4 * MIB).unwrap();
    for nth in 0..4 * MIB / 8 {
        let mut next = 0;
        for _ in 0..nth % 3 {
            let link = heap.persist_alloc(16).unwrap();
            // SAFETY: an object of this test's own, of 16 bytes.
            unsafe { heap.pointer(link).cast::<[u64; 2]>().write([next, 0]) };
            next = link.get();
        }
        // SAFETY: as above, inside the wide object.
        unsafe { heap.pointer(wide).cast::<u64>().add(nth as usize).write(next) };
    }
    heap.set_root("wide", Ptr::<u8>::new(wide)).unwrap();
    let lost = heap.persist_alloc(100).unwrap();
    let leaks = heap.leaks().unwrap();
    assert_eq!(leaks.listed.iter().map(|leak| leak.object).collect::<Vec<_>>(), [lost]);
}
