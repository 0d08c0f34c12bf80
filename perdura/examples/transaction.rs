//! Changes of several keys, all or none: moves coins from one purse to another.
//! `cargo run --example transaction DIR COINS`

use std::error::Error;

use perdura::{Holder, Options, Store, StoreError, Transaction, TxError};

fn coins(tx: &Transaction<'_, '_>, purse: &str) -> Result<Option<u64>, TxError> {
    let found = tx.get(purse)?;
    Ok(found.and_then(|text| str::from_utf8(&text).ok()?.parse().ok()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let holder = Holder::this_program();
    let mut words = std::env::args().skip(1);
    let dir = words.next().ok_or("transaction DIR COINS")?;
    let moved: u64 = words.next().ok_or("transaction DIR COINS")?.parse()?;

    let options = Options::new().memory_bytes(16 << 20).holder(holder);
    let store = Store::open_with(dir, &options)?;
    // The closure runs again if another thread was quicker, and after a crash all of it is there.
    let outcome = store.transaction(&["alice", "bob"], |tx| {
        let alice = coins(tx, "alice")?.unwrap_or(100);
        let bob = coins(tx, "bob")?.unwrap_or(0);
        let Some(left) = alice.checked_sub(moved) else { return tx.abort("too few coins") };
        tx.set("alice", left.to_string())?;
        tx.set("bob", (bob + moved).to_string())?;
        Ok((left, bob + moved))
    });
    match outcome {
        Ok((alice, bob)) => println!("alice {alice}, bob {bob}"),
        Err(StoreError::Aborted(why)) => println!("nothing was moved: {why}"),
        Err(error) => return Err(error.into()),
    }
    Ok(store.close().map(drop)?)
}
