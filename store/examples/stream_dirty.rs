//! What an operation on a large stream dirties, in bytes: the grains that are dirty after a
//! thousand operations that begin with none, divided by a thousand. No device is used, so the
//! figures do not depend on the machine. Then the memory that streams of some sizes take.
//!
//! ```sh
//! cargo run --release -p perdura-store --example stream_dirty
//! ```

use std::error::Error;
use std::sync::Arc;

use perdura_media::{SimClock, SimDevice};
use perdura_region::{Config, Region};
use perdura_store::{
    Access, ChunkLimits, Delivery, Heap, Key, Store, StoreOptions, StreamId, StreamTrim, TrimTo,
    Tx, TxError,
};

const STREAM: Key<'static> = Key { db: 0, bytes: b"mystream" };
const GROUP: &[u8] = b"group";
const OPERATIONS: u64 = 1000;
const ENTRIES: u64 = 100_000;

type Change<'c> = &'c dyn Fn(&mut Tx<'_>, u64) -> Result<(), TxError>;

fn main() -> Result<(), Box<dyn Error>> {
    println!("bytes that an operation dirties, of a stream of {ENTRIES} entries with one field");
    for len in [8, 64, 1024] {
        let clock = Arc::new(SimClock::new(1));
        let config = Config { thread: false, ..Config::new(512 << 20, 128 << 20) };
        let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock.clone(), config)?;
        let store = Store::open(Heap::open(region)?, clock, StoreOptions::default())?;
        let value = vec![b'x'; len];
        let add = |tx: &mut Tx<'_>, ms: u64| {
            let pairs = [(&b"field"[..], &value[..])];
            tx.stream_add(STREAM, id(ms), &pairs, ChunkLimits::default())
        };
        for from in (1..=ENTRIES).step_by(1000) {
            let all = |tx: &mut Tx<'_>| (from..from + 1000).try_for_each(|ms| add(tx, ms));
            store.run(Access::Key(STREAM), all)?;
        }
        store.run(Access::Key(STREAM), |tx| {
            tx.group_create(STREAM, GROUP, StreamId::MIN, Some(0))?;
            tx.consumer_create(STREAM, GROUP, b"alice", 1)?;
            tx.consumer_create(STREAM, GROUP, b"bob", 1)
        })?;
        let changes: [(&str, Change<'_>); 7] = [
            ("XADD", &|tx, number| add(tx, ENTRIES + 1 + number)),
            ("XADD MAXLEN = of its length", &|tx, number| {
                add(tx, ENTRIES + OPERATIONS + 1 + number)?;
                let to = TrimTo::Len(ENTRIES + OPERATIONS);
                tx.stream_trim(STREAM, StreamTrim { to, is_rough: false, limit: 0 }).map(drop)
            }),
            ("XDEL anywhere", &|tx, number| {
                tx.stream_delete(STREAM, &[id(2000 + number * 7919 % 90_000)]).map(drop)
            }),
            ("XREADGROUP of one", &|tx, number| {
                tx.group_set(STREAM, GROUP, id(5000 + number), None)?;
                assign(tx, b"alice", 5000 + number)?;
                tx.consumer_seen(STREAM, GROUP, b"alice", number, true).map(drop)
            }),
            ("XREADGROUP of 100", &|tx, number| {
                let ids = (0..100).map(|n| delivery(10_000 + number * 100 + n));
                let all: Vec<Delivery> = ids.filter(|_| number < 100).collect();
                tx.pending_assign(STREAM, GROUP, b"alice", &all).map(drop)
            }),
            ("XCLAIM of one", &|tx, number| assign(tx, b"bob", 5000 + number)),
            ("XACK of one", &|tx, number| {
                tx.pending_drop(STREAM, GROUP, &[id(5000 + number)]).map(drop)
            }),
        ];
        for (name, change) in changes {
            store.region().checkpoint()?;
            let before = store.region().used_bytes();
            for number in 0..OPERATIONS {
                store.run(Access::Key(STREAM), |tx| change(tx, number))?;
            }
            let dirty = store.region().used_bytes() - before;
            // Only a tenth of the large deliveries are made, so that all lie in the stream.
            let operations = if name.ends_with("100") { 100 } else { OPERATIONS };
            println!("{len:>5} B  {name:<28} {:>5} B", dirty / operations);
        }
    }
    for (entries, len) in SIZES {
        memory(entries, len)?;
    }
    Ok(())
}

/// Entries of a stream, and bytes of a value.
const SIZES: [(u64, usize); 8] = [
    (1, 8),
    (5, 8),
    (50, 8),
    (100_000, 8),
    (100_000, 40),
    (100_000, 64),
    (20_000, 300),
    (20_000, 1000),
];

/// Prints the memory of a stream, and of entries that a consumer has.
fn memory(entries: u64, len: usize) -> Result<(), Box<dyn Error>> {
    let clock = Arc::new(SimClock::new(1));
    let config = Config { thread: false, ..Config::new(512 << 20, 128 << 20) };
    let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock.clone(), config)?;
    let store = Store::open(Heap::open(region)?, clock, StoreOptions::default())?;
    let value = vec![b'v'; len];
    for n in 0..entries {
        let pairs = [(&b"field"[..], &value[..])];
        let at = id(1_700_000_000_000 + n);
        let add = |tx: &mut Tx<'_>| tx.stream_add(STREAM, at, &pairs, ChunkLimits::default());
        store.run(Access::Key(STREAM), add)?;
    }
    let bytes = || store.read(STREAM, |entry| entry.map_or(0, |entry| entry.memory_bytes()));
    let stream = bytes();
    println!("{entries:>7} entries of {len:>4} B: {:.1} B each", stream as f64 / entries as f64);
    store.run(Access::Key(STREAM), |tx| {
        tx.group_create(STREAM, GROUP, StreamId::MIN, None)?;
        tx.consumer_create(STREAM, GROUP, b"alice", 1)
    })?;
    let before = bytes();
    for from in (0..entries).step_by(1000) {
        let all: Vec<_> = (from..entries.min(from + 1000)).map(delivery).collect();
        let assign = |tx: &mut Tx<'_>| tx.pending_assign(STREAM, GROUP, b"alice", &all);
        store.run(Access::Key(STREAM), assign)?;
    }
    let each = (bytes() - before) as f64 / entries as f64;
    println!("  a group and a consumer: {} B; pending: {each:.1} B each", before - stream);
    Ok(())
}

fn id(ms: u64) -> StreamId {
    StreamId { ms, seq: 0 }
}

fn delivery(ms: u64) -> Delivery {
    Delivery { id: id(ms), delivered_ms: 1, deliveries: 1 }
}

fn assign(tx: &mut Tx<'_>, consumer: &[u8], ms: u64) -> Result<(), TxError> {
    tx.pending_assign(STREAM, GROUP, consumer, &[delivery(ms)]).map(drop)
}
