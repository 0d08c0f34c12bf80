//! The building blocks against `Vec` and `HashMap`, with aborts and crashes, however transactions
//! are logged.

use std::collections::HashMap;
use std::path::Path;

use perdura_heap::collections::{PMap, PVec};
use perdura_heap::{Config, Durability, Heap, HeapError, Logging, Memory, Offset, Tx};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

type Vector = PVec<[u64; 3]>;
type Map = PMap<u32, [u8; 12]>;

#[derive(Clone, Default)]
struct Model {
    vec: Vec<[u64; 3]>,
    map: HashMap<u32, [u8; 12]>,
}

enum Stop {
    Refused(HeapError),
    OnPurpose,
}

impl From<HeapError> for Stop {
    fn from(error: HeapError) -> Self {
        Self::Refused(error)
    }
}

fn open(path: &Path, logging: Logging) -> Heap {
    let mut config = Config::default();
    config.logging = logging;
    Heap::open(Memory::file(path, 32 << 20, Durability::Flushed).unwrap(), config).unwrap()
}

fn change(tx: &mut Tx<'_>, random: &mut Random, model: &mut Model) -> Result<(), Stop> {
    let (vec, map) = (Vector::named(tx, "vec")?, Map::named(tx, "map")?);
    for _ in 0..random.random_range(1..60) {
        let key = random.random_range(0..400);
        match random.random_range(0..9) {
            0..3 => {
                let value = random.random();
                vec.push(tx, value)?;
                model.vec.push(value);
            }
            3 => assert_eq!(vec.pop(tx)?, model.vec.pop()),
            4 => {
                let index = random.random_range(0..model.vec.len() as u64 + 2);
                let value = random.random();
                let there = model.vec.get_mut(index as usize).map(|old| *old = value).is_some();
                assert_eq!(vec.set(tx, index, value)?, there);
            }
            5..7 => {
                let value = random.random();
                assert_eq!(map.insert(tx, key, value)?, model.map.insert(key, value));
            }
            7 => assert_eq!(map.remove(tx, key)?, model.map.remove(&key)),
            _ => {
                assert_eq!(map.get(tx, key)?, model.map.get(&key).copied());
                assert_eq!(vec.get(tx, u64::from(key))?, model.vec.get(key as usize).copied());
            }
        }
    }
    assert_eq!(vec.len(tx)?, model.vec.len() as u64);
    if random.random_bool(0.25) { Err(Stop::OnPurpose) } else { Ok(()) }
}

fn compare(heap: &Heap, model: &Model, what: &str) {
    let vec = Vector::find(heap, "vec").unwrap();
    let found: Vec<[u64; 3]> =
        vec.map_or(Vec::new(), |vec| vec.iter(heap).unwrap().map(Result::unwrap).collect());
    assert_eq!(found, model.vec, "{what}");
    let map = Map::find(heap, "map").unwrap();
    let found: HashMap<u32, [u8; 12]> =
        map.map_or(HashMap::new(), |map| map.iter(heap).unwrap().map(Result::unwrap).collect());
    assert_eq!(found, model.map, "{what}");
}

#[test]
fn they_are_as_std_has_them_after_aborts_and_crashes() {
    for seed in 0..8 {
        let logging = if seed % 2 == 0 { Logging::Redo } else { Logging::Undo };
        let mut random = Random::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("heap");
        let mut heap = open(&path, logging);
        let mut model = Model::default();
        for step in 0..150 {
            let what = format!("seed {seed} step {step} {logging:?}");
            let mut after = model.clone();
            match heap.transaction(|tx| change(tx, &mut random, &mut after)) {
                Ok(()) => model = after,
                Err(Stop::OnPurpose) => {}
                Err(Stop::Refused(error)) => panic!("{what}: {error}"),
            }
            if random.random_bool(0.1) {
                // As a process that was killed.
                drop(heap);
                heap = open(&path, logging);
            }
            if step % 10 == 0 {
                compare(&heap, &model, &what);
            }
        }
        compare(&heap, &model, &format!("seed {seed}"));
        assert_eq!(heap.leaks().unwrap().leaks, 0, "seed {seed}");
        let found = heap.check().unwrap();
        assert!(found.is_sound(), "seed {seed}: {found}");
    }
}

#[test]
fn one_may_lie_in_another_and_types_are_told_apart() {
    let memory = Memory::anonymous(8 << 20, Durability::Ordered).unwrap();
    let heap = Heap::open(memory, Config::default()).unwrap();
    heap.transaction(|tx| {
        let outer = PMap::<u64, PVec<u64>>::named(tx, "lists")?;
        for key in 0..40 {
            let inner = PVec::new(tx)?;
            for value in 0..key {
                inner.push(tx, value * key)?;
            }
            outer.insert(tx, key, inner)?;
        }
        Ok::<_, HeapError>(())
    })
    .unwrap();
    let outer = PMap::<u64, PVec<u64>>::find(&heap, "lists").unwrap().unwrap();
    let inner = outer.get(&heap, 7).unwrap().unwrap();
    let found: Vec<u64> = inner.iter(&heap).unwrap().map(Result::unwrap).collect();
    assert_eq!(found, (0..7).map(|value| value * 7).collect::<Vec<_>>());
    assert!(matches!(PMap::<u64, u64>::find(&heap, "lists"), Err(HeapError::RootType { .. })));
    assert!(matches!(PVec::<u64>::find(&heap, "lists"), Err(HeapError::RootType { .. })));
    assert_eq!(heap.leaks().unwrap().leaks, 0);
    heap.transaction(|tx| {
        for entry in outer.iter(tx)?.collect::<Result<Vec<_>, _>>()? {
            entry.1.free(tx)?;
        }
        outer.free(tx)?;
        tx.remove_root("lists")
    })
    .unwrap();
    assert_eq!(heap.leaks().unwrap().objects, 0);
}

#[test]
fn damaged_heads_and_states_are_refused_by_place_and_value() {
    const AT_LEN: u64 = 8;
    const AT_BUCKETS: u64 = 8;
    let memory = Memory::anonymous(4 << 20, Durability::Ordered).unwrap();
    let heap = Heap::open(memory, Config::default()).unwrap();
    let (map, vec) = heap
        .transaction(|tx| {
            let (map, vec) = (PMap::<u64, u64>::named(tx, "map")?, PVec::<u64>::named(tx, "vec")?);
            map.insert(tx, 1, 2)?;
            vec.push(tx, 3)?;
            Ok::<_, HeapError>((map, vec))
        })
        .unwrap();
    let head = |name| match name {
        "map" => heap.root::<PMap<u64, u64>>(name).unwrap().unwrap().offset().unwrap(),
        _ => heap.root::<PVec<u64>>(name).unwrap().unwrap().offset().unwrap(),
    };
    let word = |at: u64| {
        let mut word = [0; 8];
        heap.read_bytes(Offset::new(at).unwrap(), &mut word).unwrap();
        u64::from_le_bytes(word)
    };
    let put = |at: u64, value: u64| {
        let at = Offset::new(at).unwrap();
        heap.transaction(|tx| tx.write_bytes(at, &value.to_le_bytes())).unwrap();
    };
    let refused = |found: Result<(), HeapError>, at: u64, value: u64| match found {
        Err(HeapError::Corrupt { offset, value: found, .. }) => {
            assert_eq!((offset, found), (at, value));
        }
        other => panic!("{other:?}"),
    };
    let vec_head = head("vec").get();
    put(vec_head + AT_LEN, 1 << 40);
    refused(vec.get(&heap, 0).map(drop), vec_head, 1 << 40);
    let map_head = head("map").get();
    let (table, buckets) = (word(map_head), word(map_head + AT_BUCKETS));
    put(map_head + AT_BUCKETS, 7);
    refused(map.get(&heap, 1).map(drop), map_head, 7);
    put(map_head + AT_BUCKETS, buckets);
    let entry = (0..buckets).map(|index| table + index * 24).find(|at| word(*at) != 0).unwrap();
    put(entry, 4);
    refused(map.get(&heap, 1).map(drop), entry, 4);
    refused(map.iter(&heap).unwrap().next().unwrap().map(drop), entry, 4);
}
