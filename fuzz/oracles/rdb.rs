//! Any bytes are read as a dump and as a payload: there is no panic, memory is bounded, and what
//! can be read comes back from what is written of it.
use perdura_rdb::{Encoder, Item, Reader, Value, open_payload, seal_payload};

/// Most bytes of memory for a value.
const MAX_BYTES: u64 = 1 << 20;

fn payload_of(value: &Value) -> Vec<u8> {
    let mut payload = Vec::new();
    Encoder::new(&mut payload, true).value(value);
    seal_payload(&mut payload);
    payload
}

/// Checks one input: behind the first byte, a dump without its head if that is 0, else a payload's
/// value.
pub fn check(data: &[u8]) {
    let Some((first, input)) = data.split_first() else { return };
    if *first == 0 {
        let dump = [b"REDIS0011", input].concat();
        let Ok(mut reader) = Reader::new(&dump[..], MAX_BYTES) else { return };
        while let Ok(Some(item)) = reader.next_item() {
            if let Item::Key(item) = item {
                comes_back(&item.value);
            }
        }
        assert!(reader.offset() <= dump.len() as u64);
        return;
    }
    let mut payload = input.to_vec();
    seal_payload(&mut payload);
    if let Ok(value) = open_payload(&payload, MAX_BYTES) {
        comes_back(&value);
    }
}

fn comes_back(value: &Value) {
    let back = open_payload(&payload_of(value), 16 * MAX_BYTES);
    let back = back.unwrap_or_else(|error| panic!("{value:?}: {error}"));
    match (value, &back) {
        // The form that is written does not say when a consumer was active.
        (Value::Stream(a), Value::Stream(b)) => assert_eq!(a.entries, b.entries),
        (a, b) => assert_eq!(a, b),
    }
}
