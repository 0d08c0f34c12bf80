//! Damaged words: every word that no store writes is refused by place and value, when the store is
//! opened and when it is read before that.

use std::sync::Arc;

use crate::harness::{REGION_BYTES, config, deferred_on, open};
use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::{Config, Region};
use perdura_slots::LaneId;
use perdura_store::{
    Access, ChunkLimits, Damaged, Delivery, Expiry, Heap, Key, OpenError, Store, StoreOptions,
    StreamId, TxError, Unreadable,
};

const BUDGET_BYTES: u64 = 1 << 20;
const SHORT: u64 = 1 << 63;
const NAN: u64 = 0x7ff8 << 48;
/// A name of eight bytes, so that the value behind it is aligned.
const KEY: Key<'static> = Key { db: 0, bytes: b"the  key" };

const STRING: u64 = 0;
const PACKED_HASH: u64 = 1;
const FIELD: u64 = 3;
const PACKED_SORTED: u64 = 4;
const MEMBER: u64 = 6;
const FAR: u64 = 7;
const PACKED_LIST: u64 = 8;
const LARGE_LIST: u64 = 9;
const LIST_PART: u64 = 10;
const INT_SET: u64 = 11;
const PACKED_SET: u64 = 12;
const STREAM: u64 = 14;
const STREAM_GROUP: u64 = 16;
const STREAM_CONSUMER: u64 = 17;
const EXPIRING_HASH: u64 = 18;

/// The first word of a record's header.
fn header(kind: u64, value_len: u64, key_len: u64) -> u64 {
    value_len | key_len << 32 | kind << 56
}

fn region(device: &SimDevice) -> Region {
    let clock = Arc::new(SimClock::new(1_000_000));
    Region::open(Arc::new(device.clone()), clock, config(BUDGET_BYTES)).unwrap()
}

/// The image of a store that `fill` has filled, and the offset of the word that `find` names.
fn image(fill: &dyn Fn(&Store), find: &dyn Fn(&Store) -> u64) -> (SimDevice, u64) {
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1_000_000)));
    let store = open(&device, &clock, BUDGET_BYTES);
    fill(&store);
    let offset = find(&store);
    store.region().close(1).unwrap();
    (device, offset)
}

fn damage(device: &SimDevice, offset: u64, value: u64) {
    let bare = region(device);
    bare.lock(LaneId(0)).store(offset, value).unwrap();
    bare.close(1).unwrap();
}

fn place_of(store: &Store, word: u64) -> u64 {
    let found = (0..REGION_BYTES).step_by(8).find(|at| store.region().peek(*at) == word);
    found.unwrap_or_else(|| panic!("no word {word:#x}"))
}

fn string(store: &Store) {
    store.put(KEY, b"value").unwrap();
}

fn long_string(store: &Store) {
    store.put(KEY, &[b'v'; 300]).unwrap();
}

fn hash(store: &Store, fields: u32) {
    let fill = |tx: &mut perdura_store::Tx<'_>| {
        (0..fields)
            .try_for_each(|field| tx.hash_set(KEY, &field.to_be_bytes(), b"of a field").map(drop))
    };
    store.run(Access::Key(KEY), fill).unwrap();
}

fn sorted(store: &Store, members: u32) {
    let members: Vec<_> =
        (0..members).map(|member| (member.to_be_bytes().to_vec(), f64::from(member))).collect();
    store.run(Access::Key(KEY), |tx| tx.sorted_put(KEY, &members, Expiry::None)).unwrap();
}

fn set(store: &Store, names: &[&[u8]]) {
    let run = |tx: &mut perdura_store::Tx<'_>| tx.set_add_all(KEY, names.iter().copied());
    store.run(Access::Key(KEY), run).unwrap();
}

/// Expects opening to refuse the word `value` in the place of the word that `find` names: as `what`
/// of the structure that begins `back` bytes before the word.
fn expect_refused(
    what: &str,
    fill: &dyn Fn(&Store),
    find: &dyn Fn(&Store) -> u64,
    value: u64,
    back: u64,
) {
    let (device, offset) = image(fill, find);
    damage(&device, offset, value);
    let clock = Arc::new(SimClock::new(1_000_000));
    let heap = Heap::open(region(&device)).unwrap();
    match Store::open(heap, clock, StoreOptions::default()).map(drop) {
        Err(OpenError::Corrupt(found)) => {
            assert_eq!((found.what, found.offset), (what, offset - back), "{found}");
        }
        other => panic!("{what}, {value:#x}: {other:?}"),
    }
}

#[test]
fn a_damaged_record_is_refused_by_place_and_value() {
    let word = header(STRING, 5, 8) | SHORT;
    let find = |store: &Store| place_of(store, word);
    for kind in [15, 16, 17, 20, 100, FIELD, MEMBER, LIST_PART] {
        expect_refused("record's kind", &string, &find, word | kind << 56, 0);
    }
    expect_refused("far value's address", &string, &find, word | FAR << 56, 0);
    expect_refused("record's database", &string, &find, word | 1 << 48, 0);
    let find = |store: &Store| place_of(store, header(STRING, 300, 8)) + 8;
    expect_refused("record's expiry", &long_string, &find, 77, 0);
}

#[test]
fn damaged_hashes_of_expiring_fields_are_refused_by_place() {
    let expiring = |store: &Store| {
        hash(store, 2);
        let run = |tx: &mut perdura_store::Tx<'_>| {
            tx.hash_set_expiry(KEY, &0u32.to_be_bytes(), Some(2_000_000)).map(drop)
        };
        store.run(Access::Key(KEY), run).unwrap();
    };
    let record = |store: &Store| place_of(store, header(EXPIRING_HASH, 8, 8));
    let root = |store: &Store| store.region().peek(record(store) + 24);
    // The tree is lost; a field has no expiry in its record; the tree has no entries.
    let top = |store: &Store| root(store) + 256;
    expect_refused("number of expiring fields", &expiring, &top, 0, 256);
    let expiry = |store: &Store| place_of(store, header(FIELD, 10, 4)) + 8;
    expect_refused("record's expiry", &expiring, &expiry, 0, 0);
    let leaf = |store: &Store| store.region().peek(top(store));
    expect_refused("node of a sorted set", &expiring, &leaf, 0, 0);
}

#[test]
fn damaged_packed_values_are_refused_by_place() {
    let small_hash = |store: &Store| hash(store, 1);
    let record = |store: &Store| place_of(store, header(PACKED_HASH, 16, 8) | SHORT);
    let lengths = |store: &Store| record(store) + 16;
    expect_refused("packed hash", &small_hash, &lengths, 999, 16);
    expect_refused("packed hash", &small_hash, &lengths, 4 | 9 << 8, 16);
    let small_set = |store: &Store| sorted(store, 2);
    let record = |store: &Store| place_of(store, header(PACKED_SORTED, 26, 8) | SHORT);
    let first = |store: &Store| record(store) + 16;
    expect_refused("packed sorted set", &small_set, &first, NAN, 16);
    // The first member would be behind the second.
    expect_refused("packed sorted set", &small_set, &first, 9f64.to_bits(), 16);
}

/// A stream of some chunks, with a group whose consumer has two entries.
fn stream(store: &Store) {
    let id = |ms| StreamId { ms, seq: 0 };
    let fill = |tx: &mut perdura_store::Tx<'_>| {
        for ms in 1..301 {
            tx.stream_add(KEY, id(ms), &[(b"name", b"value")], ChunkLimits::default())?;
        }
        tx.group_create(KEY, b"group", id(9), None)?;
        tx.consumer_create(KEY, b"group", b"alice", 1)?;
        let all = [3, 4].map(|ms| Delivery { id: id(ms), delivered_ms: 1, deliveries: 1 });
        tx.pending_assign(KEY, b"group", b"alice", &all).map(drop)
    };
    store.run(Access::Key(KEY), fill).unwrap();
}

#[test]
fn damaged_streams_are_refused_by_place() {
    let root = |store: &Store| place_of(store, header(STREAM, 80, 8)) + 24;
    let len = |store: &Store| root(store) + 24;
    expect_refused("length of a stream", &stream, &len, 7, 24);
    expect_refused("last ID of a stream", &stream, &root, 1, 0);
    let pending = |store: &Store| place_of(store, header(STREAM_GROUP, 53, 0) | SHORT) + 32;
    expect_refused("pending entries of a group", &stream, &pending, 3, 32);
    let pending = |store: &Store| place_of(store, header(STREAM_CONSUMER, 37, 0) | SHORT) + 24;
    expect_refused("pending entries of a consumer", &stream, &pending, 1, 24);
    let group = |store: &Store| place_of(store, header(STREAM_GROUP, 53, 0) | SHORT);
    expect_refused("record's kind", &stream, &group, header(STREAM_CONSUMER, 53, 0) | SHORT, 0);
}

#[test]
fn damaged_sets_are_refused_by_place() {
    let ints = |store: &Store| set(store, &[b"1", b"2", b"3"]);
    let record = |store: &Store| place_of(store, header(INT_SET, 7, 8) | SHORT);
    let value = |store: &Store| record(store) + 16;
    // The width is none; the members are out of order; there is half a member.
    expect_refused(
        "set of integers",
        &ints,
        &value,
        u64::from_le_bytes([3, 1, 0, 2, 0, 3, 0, 0]),
        16,
    );
    expect_refused(
        "set of integers",
        &ints,
        &value,
        u64::from_le_bytes([2, 1, 0, 2, 0, 1, 0, 0]),
        16,
    );
    expect_refused(
        "set of integers",
        &ints,
        &value,
        u64::from_le_bytes([4, 1, 0, 2, 0, 3, 0, 0]),
        16,
    );
    let small = |store: &Store| set(store, &[b"abc", b"def"]);
    let record = |store: &Store| place_of(store, header(PACKED_SET, 8, 8) | SHORT);
    let value = |store: &Store| record(store) + 16;
    expect_refused("packed set", &small, &value, 0x4443_4241_0463_6203, 16);
    let names: Vec<Vec<u8>> = (0..200).map(|n| format!("member:{n}").into_bytes()).collect();
    let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let large = |store: &Store| set(store, &names);
    // A member with a value would be a field.
    let word = |len| header(FIELD, len, 10) | SHORT;
    let member = |store: &Store| place_of(store, word(0));
    expect_refused("record's kind", &large, &member, word(3), 0);
}

#[test]
fn damaged_tables_and_trees_are_refused_by_place_and_value() {
    let large_hash = |store: &Store| hash(store, 600);
    let field = header(FIELD, 10, 4) | SHORT;
    let a_field = |store: &Store| place_of(store, field);
    expect_refused("record's kind", &large_hash, &a_field, header(2, 10, 4) | SHORT, 0);
    let key_record = header(2, 8, 8);
    let root = |store: &Store| store.region().peek(place_of(store, key_record) + 24);
    expect_refused("buckets of a table", &large_hash, &root, u64::MAX, 0);
    let large_set = |store: &Store| sorted(store, 300);
    let member = header(MEMBER, 0, 4);
    let a_member = |store: &Store| place_of(store, member);
    expect_refused("record's kind", &large_set, &a_member, header(STRING, 0, 4), 0);
    let score = |store: &Store| place_of(store, member) + 8;
    expect_refused("score of a member", &large_set, &score, NAN, 0);
    let key_record = header(5, 8, 8);
    let top = |store: &Store| {
        let root = store.region().peek(place_of(store, key_record) + 24);
        store.region().peek(root + 256)
    };
    let node = "node of a sorted set";
    for head in [61, 0, 2 | 24 << 8, 2 | 1 << 8 | 60 << 32] {
        expect_refused(node, &large_set, &top, head, 0);
    }
}

fn list(store: &Store, elements: u32) {
    let elements: Vec<_> = (0..elements).map(|number| format!("element {number}")).collect();
    let all = || elements.iter().map(|element| element.as_bytes());
    store.run(Access::Key(KEY), |tx| tx.list_put(KEY, all(), Expiry::None)).unwrap();
}

#[test]
fn damaged_lists_are_refused_by_place_and_value() {
    let small = |store: &Store| list(store, 1);
    // Encoding, nine bytes, their length: the first bytes of the value, behind header and key.
    let record = |store: &Store| place_of(store, header(PACKED_LIST, 11, 8) | SHORT);
    let entry = |store: &Store| record(store) + 16;
    for word in [0, u64::from_le_bytes(*b"\x8aelement"), u64::from_le_bytes(*b"\xf5element")] {
        expect_refused("packed list", &small, &entry, word, 16);
    }
    let large = |store: &Store| list(store, 20_000);
    // First chunk, last chunk, top, elements below the top.
    let root = |store: &Store| place_of(store, header(LARGE_LIST, 32, 8)) + 24;
    let middle = |store: &Store| root(store) + 24;
    let first = |store: &Store| store.region().peek(root(store));
    let bounds = |store: &Store| first(store) + 8;
    let chunk = "chunk of a list";
    // Before the room, behind it, out of order; more elements than entries, none, parts.
    for (start, end, count, parts) in [
        (15, 4_000, 300, 0),
        (16, 4_097, 300, 0),
        (17, 16, 300, 0),
        (16, 4_000, 1, 0),
        (16, 16, 0, 0),
        (16, 4_000, 1, 2),
    ] {
        let word = start | end << 16 | count << 32 | parts << 48;
        expect_refused(chunk, &large, &bounds, word, 8);
    }
    expect_refused("record's kind", &large, &first, header(STRING, 8, 0), 0);
    expect_refused("record's kind", &large, &first, header(LIST_PART, 8, 0), 0);
    let top = |store: &Store| store.region().peek(root(store) + 16);
    for head in [61, 0, 2 | 24 << 8, 2 | 1 << 8 | 60 << 32] {
        expect_refused("node of a list", &large, &top, head, 0);
    }
    let long = |store: &Store| {
        let both = || [&[b'x'; 2_000][..], b"y"].into_iter();
        store.run(Access::Key(KEY), |tx| tx.list_put(KEY, both(), Expiry::None)).unwrap();
    };
    let part = |store: &Store| place_of(store, header(LIST_PART, 2_000, 0) | SHORT);
    expect_refused("record's kind", &long, &part, header(FIELD, 2_000, 0) | SHORT, 0);
    // What is wrong shows in what lies below the damaged word, or above it.
    let above = |find: &dyn Fn(&Store) -> u64, fill: &dyn Fn(&Store), value, what| {
        let (device, offset) = image(fill, find);
        damage(&device, offset, value);
        let clock = Arc::new(SimClock::new(1_000_000));
        let heap = Heap::open(region(&device)).unwrap();
        let opened = Store::open(heap, clock, StoreOptions::default()).map(drop);
        assert!(matches!(opened, Err(OpenError::Corrupt(found)) if found.what == what), "{what}");
    };
    above(&part, &long, header(LIST_PART, 9_000, 0) | SHORT, "record length");
    above(&(|store: &Store| top(store) + 64 + 8), &large, 1, "node of a list");
    above(&middle, &large, 77, "node of a list");
    let leaf = |store: &Store| store.region().peek(top(store) + 64);
    above(&(|store: &Store| leaf(store) + 64 + 8), &large, 1, "node of a list");
    above(&middle, &long, 77, "elements of a list");
    above(&first, &large, 0, "record's kind");
}

#[test]
fn a_damaged_list_that_is_read_before_the_rebuild_ends_that_operation_only() {
    let fill = |store: &Store| list(store, 20_000);
    let root = |store: &Store| place_of(store, header(LARGE_LIST, 32, 8)) + 24;
    let chunk = |store: &Store| store.region().peek(root(store));
    let top = |store: &Store| store.region().peek(root(store) + 16);
    for (find, value) in [
        (&(|store: &Store| chunk(store) + 8) as &dyn Fn(&Store) -> u64, u64::MAX),
        (&|store: &Store| chunk(store) + 16, u64::MAX),
        (&|store: &Store| top(store), 61),
        (&|store: &Store| root(store) + 24, 30_000),
    ] {
        let (device, offset) = image(&fill, find);
        damage(&device, offset, value);
        let store = deferred_on(region(&device), &Arc::new(SimClock::new(1_000_000)));
        let read = Unreadable::catch(|| {
            store.read(KEY, |entry| {
                entry.unwrap().list().unwrap().for_each(0..u64::MAX, false, &mut |_| {});
            });
        });
        assert!(matches!(read, Err(Unreadable::Damaged(_))), "{value:#x}: {read:?}");
        store.put(Key::new(b"other"), b"sound").unwrap();
        assert_eq!(store.get(Key::new(b"other")).unwrap(), b"sound");
    }
}

#[test]
fn a_damaged_record_that_is_read_before_the_rebuild_ends_that_operation_only() {
    let word = header(STRING, 5, 8) | SHORT;
    let other = Key::new(b"another key");
    let fill = |store: &Store| {
        string(store);
        store.put(other, b"sound").unwrap();
    };
    let (device, offset) = image(&fill, &|store| place_of(store, word));
    let value = word | 100 << 56;
    damage(&device, offset, value);
    let store = deferred_on(region(&device), &Arc::new(SimClock::new(1_000_000)));
    let expected = Damaged { what: "record's kind", offset, value };
    let refused = |outcome: Result<(), Unreadable>| match outcome {
        Err(Unreadable::Damaged(found)) => assert_eq!(found, expected),
        other => panic!("{other:?}"),
    };
    refused(Unreadable::catch(|| drop(store.get(KEY))));
    refused(Unreadable::catch(|| {
        let changed = store.run(Access::Keys(&[KEY, other]), |tx| {
            tx.put(other, b"half", Expiry::None)?;
            Ok::<_, TxError>(tx.get(KEY).is_some())
        });
        panic!("{changed:?}");
    }));
    assert_eq!(store.get(other).unwrap(), b"sound");
    while !matches!(store.rebuild_next(), Err(OpenError::Corrupt(found)) if found == expected) {}
    assert_eq!(store.get(other).unwrap(), b"sound");
}

/// Saved numbers of keys have this bit.
const SAVED: u64 = 1 << 63;

#[test]
fn a_damaged_number_of_keys_is_refused() {
    let fill = |store: &Store| {
        string(store);
        store.save_counts();
    };
    let find = |store: &Store| place_of(store, SAVED | 1);
    // Not marked as saved; more keys with an expiry than keys; another number than there are.
    for value in [7, SAVED | 1 << 32, SAVED | 2] {
        expect_refused("number of keys", &fill, &find, value, 248);
    }
}

#[test]
fn the_sweep_leaves_a_damaged_shard_out_and_empties_all_others() {
    const KEYS: u32 = 2_000;
    let fill = |store: &Store| {
        for number in 0..KEYS {
            let name = number.to_be_bytes();
            let key = Key::new(&name);
            let put = store
                .run(Access::Key(key), |tx| tx.put(key, &[b'v'; 300], Expiry::AtMs(2_000_000_000)));
            put.unwrap();
        }
        store.save_counts();
    };
    let first = header(STRING, 300, 4);
    let (device, offset) = image(&fill, &|store| place_of(store, first));
    // One bit of a record's kind: whoever reads the record unwinds.
    damage(&device, offset, first ^ 1 << 59);
    let clock = Arc::new(SimClock::new(1_000_000));
    let store = {
        let config = Config { defer_load: true, ..config(BUDGET_BYTES) };
        let region = Region::open(Arc::new(device.clone()), clock.clone(), config).unwrap();
        deferred_on(region, &clock)
    };
    clock.advance_ns(3_000_000_000 * 1_000_000);
    assert_eq!((store.len(0), store.expire_some(1 << 20).unwrap()), (u64::from(KEYS), 0));
    while store.region().load_next().unwrap() {}
    let searches: Vec<_> = (0..5).map(|_| store.rebuild_next()).collect();
    assert_eq!(searches.iter().filter(|search| search.is_err()).count(), 1, "{searches:?}");
    for _ in 0..100 {
        store.expire_some(64).unwrap();
    }
    // What is left is in one of five shards.
    let left = store.len(0);
    assert!((1..u64::from(KEYS) / 3).contains(&left), "{left} keys left");
    assert_eq!(store.stats().expired_keys + left, u64::from(KEYS));
}

#[test]
fn a_chain_of_buckets_that_comes_round_is_not_followed_for_ever() {
    const KEYS: u32 = 200;
    let name = |number: u32| number.to_le_bytes();
    let fill = |store: &Store| {
        for number in 0..KEYS {
            store.put(Key::new(&name(number)), b"value").unwrap();
        }
    };
    // The last word of a bucket is the offset of another one, which begins with an entry.
    let find = |store: &Store| {
        let is_link = |at: &u64| {
            let link = store.region().peek(*at);
            let is_bucket = link > 0 && link < REGION_BYTES && link.is_multiple_of(64);
            is_bucket && store.region().peek(link) >> 43 != 0
        };
        (56..REGION_BYTES).step_by(64).find(is_link).unwrap()
    };
    let (device, link_at) = image(&fill, &find);
    let first = link_at - 56;
    damage(&device, link_at, first);
    let store = deferred_on(region(&device), &Arc::new(SimClock::new(1_000_000)));
    let comes_round = Damaged { what: "chain of buckets", offset: first, value: first };
    // The shard of this bucket is not counted.
    let counted = store.len(0);
    assert!((1..u64::from(KEYS)).contains(&counted), "{counted} keys counted");
    // Neither looking for keys nor going over them goes on for ever.
    let met = |met: Unreadable| match met {
        Unreadable::Damaged(found) => assert_eq!(found, comes_round),
        other => panic!("{other:?}"),
    };
    met(Unreadable::catch(|| store.scan(0, 0, usize::MAX, |_, _| {})).unwrap_err());
    let mut refused = 0;
    for number in 0..10 * KEYS {
        if let Err(error) = Unreadable::catch(|| store.get(Key::new(&name(number)))) {
            met(error);
            refused += 1;
        }
    }
    assert!(refused > 0, "no key was looked for in the chain");
    while !matches!(store.rebuild_next(), Err(OpenError::Corrupt(found)) if found == comes_round) {}
}
