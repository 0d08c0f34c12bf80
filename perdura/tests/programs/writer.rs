//! Writes without end, and prints the number of each write when its call has returned. To be
//! killed. `writer FACE DIR WAY`; see `options` below for the ways.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use perdura::{Durability, Holder, Options, Region, Store, Warnings, on_warning};

type Failed = Box<dyn std::error::Error>;

fn main() -> Result<(), Failed> {
    let holder = Holder::this_program();
    let warnings = Warnings::by_signals()?;
    let words: Vec<String> = std::env::args().collect();
    let options = Options::new().memory_bytes(16 << 20);
    let options = match words[3].as_str() {
        "holder" => options.holder(holder),
        "alone" => options,
        // Nothing but what is in memory: killed, it loses that; warned, it must not.
        "warned" => options.durability(Durability::Warned).checkpoint_every(None),
        other => return Err(format!("unknown way {other}").into()),
    };
    let options = options.warning(Duration::from_secs(10));
    match words[1].as_str() {
        "map" => map(&Arc::new(Store::open_with(&words[2], &options)?), warnings),
        "bytes" => bytes(&Region::open_with(&words[2], &options)?),
        other => Err(format!("unknown face {other}").into()),
    }
}

fn acknowledge(number: u64) -> Result<(), Failed> {
    let mut out = std::io::stdout();
    writeln!(out, "{number}")?;
    Ok(out.flush()?)
}

/// Moves one of a hundred coins from purse to purse, and counts the moves: always both.
fn map(store: &Arc<Store>, warnings: Warnings) -> Result<(), Failed> {
    let closed = Arc::clone(store);
    on_warning(warnings, move |_| std::process::exit(closed.close().map_or(1, |_| 0)))?;
    for number in 1_u64.. {
        let purse = format!("purse {}", number % 100);
        store.transaction(&["moves", purse.as_str()], |tx| {
            tx.set(&purse, number.to_string())?;
            tx.set("moves", number.to_string())
        })?;
        acknowledge(number)?;
    }
    Ok(())
}

fn bytes(region: &Region) -> Result<(), Failed> {
    for number in 1_u64.. {
        region.write(4096 + number % 1000 * 4096, &[number as u8; 4096])?;
        region.store_word(0, number)?;
        acknowledge(number)?;
    }
    Ok(())
}
