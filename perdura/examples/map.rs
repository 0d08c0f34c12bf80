//! A durable map: counts the visits of a guest, in a directory that every run opens again.
//! `cargo run --example map DIR GUEST`

use std::error::Error;

use perdura::{Holder, Options, Store};

fn main() -> Result<(), Box<dyn Error>> {
    // First in main: a second process keeps the memory when this one is killed.
    let holder = Holder::this_program();
    let mut words = std::env::args().skip(1);
    let dir = words.next().ok_or("map DIR GUEST")?;
    let guest = words.next().ok_or("map DIR GUEST")?;

    let options = Options::new().memory_bytes(16 << 20).holder(holder);
    let store = Store::open_with(dir, &options)?;
    store.update(format!("visits of {guest}"), |old| {
        let before = old.and_then(|text| str::from_utf8(text).ok()?.parse::<u64>().ok());
        Some((before.unwrap_or(0) + 1).to_string().into_bytes())
    })?;
    for (key, value) in store.range("visits of ".."visits of~") {
        println!("{}: {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
    }
    store.close()?;
    Ok(())
}
