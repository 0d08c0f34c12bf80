//! Objects that survive: a linked list of visits, and plain memory on the same medium.
//! `cargo run --example heap FILE`

use std::error::Error;

use perdura::Heap;
use perdura::heap_types::{HeapError, Ptr};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("heap FILE")?;
    let heap = Heap::options().len_bytes(16 << 20).open(path)?;

    // A visit is its number, and the place of the visit before it.
    let last = heap.root::<[u64; 2]>("last visit")?;
    let number = match last {
        Some(visit) => heap.read(visit)?[0] + 1,
        None => 1,
    };
    heap.transaction(|tx| -> Result<(), HeapError> {
        let before = last.and_then(Ptr::offset).map_or(0, |place| place.get());
        let visit = tx.put([number, before])?;
        tx.set_root("last visit", visit)
    })?;

    let scratch = heap.cap_alloc(1 << 20)?; // gone at the next opening
    heap.cap_free(scratch)?;
    println!("visit {number}");
    heap.close()?;
    Ok(())
}
