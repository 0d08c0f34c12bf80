//! What an operation on a large list dirties, in bytes: the grains that are dirty after a thousand
//! operations that begin with none, divided by a thousand. No device is used, so the figures do not
//! depend on the machine.
//!
//! ```sh
//! cargo run --release -p perdura-store --example list_dirty
//! ```

use std::error::Error;
use std::sync::Arc;

use perdura_media::{SimClock, SimDevice};
use perdura_region::{Config, Region};
use perdura_store::{Access, End, Heap, Key, Store, StoreOptions, Tx, TxError};

const LIST: Key<'static> = Key { db: 0, bytes: b"mylist" };
const OPERATIONS: u64 = 1000;
const ELEMENTS: u64 = 100_000;

type Change<'c> = &'c dyn Fn(&mut Tx<'_>, u64, &[u8]) -> Result<(), TxError>;

fn main() -> Result<(), Box<dyn Error>> {
    println!("bytes that an operation dirties, of a list of {ELEMENTS} elements");
    for len in [8, 64, 1024] {
        let clock = Arc::new(SimClock::new(1));
        let config = Config { thread: false, ..Config::new(512 << 20, 128 << 20) };
        let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock.clone(), config)?;
        let store = Store::open(Heap::open(region)?, clock, StoreOptions::default())?;
        let element = vec![b'x'; len];
        let fill: Vec<&[u8]> = (0..1000).map(|_| &element[..]).collect();
        for _ in 0..ELEMENTS / 1000 {
            let all = || fill.iter().copied();
            store.run(Access::Key(LIST), |tx| tx.list_push(LIST, End::Back, all()))?;
        }
        // A step that is prime to the number of elements, so that all parts of the list are met.
        let somewhere = |number: u64| number * 7919 % ELEMENTS;
        let changes: [(&str, Change<'_>); 7] = [
            ("LPUSH", &|tx, _, element| push(tx, End::Front, element)),
            ("RPUSH", &|tx, _, element| push(tx, End::Back, element)),
            ("LPOP", &|tx, _, _| tx.list_cut(LIST, End::Front, 1).map(drop)),
            ("RPOP", &|tx, _, _| tx.list_cut(LIST, End::Back, 1).map(drop)),
            ("RPOPLPUSH, one list", &|tx, _, element| {
                tx.list_cut(LIST, End::Back, 1)?;
                push(tx, End::Front, element)
            }),
            ("LSET anywhere", &|tx, number, element| {
                let mut other = element.to_vec();
                other[0] = number as u8 | 128;
                tx.list_set(LIST, somewhere(number), &other).map(drop)
            }),
            ("LINSERT anywhere", &|tx, number, element| {
                tx.list_insert(LIST, somewhere(number), element)
            }),
        ];
        for (name, change) in changes {
            store.region().checkpoint()?;
            let before = store.region().used_bytes();
            for number in 0..OPERATIONS {
                store.run(Access::Key(LIST), |tx| change(tx, number, &element))?;
            }
            let dirty = store.region().used_bytes() - before;
            println!("{len:>5} B  {name:<20} {:>5} B", dirty / OPERATIONS);
        }
    }
    Ok(())
}

fn push(tx: &mut Tx<'_>, end: End, element: &[u8]) -> Result<(), TxError> {
    tx.list_push(LIST, end, std::iter::once(element)).map(drop)
}
