//! A program that closes at a warning: SIGTERM, or a file that says that the UPS is on battery.
//! `cargo run --example warning DIR [SOURCE]`, such as `file:/run/ups/on-battery`

use std::error::Error;
use std::sync::Arc;

use perdura::{Holder, Options, RegionError, Store, StoreError, Warnings, on_warning, warning};

fn main() -> Result<(), Box<dyn Error>> {
    let holder = Holder::this_program();
    // Before any thread is started, so that the signal is nobody else's.
    let mut warnings = Warnings::by_signals()?;
    let mut words = std::env::args().skip(1);
    let dir = words.next().ok_or("warning DIR [SOURCE]")?;
    for source in words {
        warnings.add(warning::open(&source)?);
    }
    let options = Options::new().memory_bytes(16 << 20).holder(holder);
    let store = Arc::new(Store::open_with(dir, &options)?);
    let closed = Arc::clone(&store);
    on_warning(warnings, move |warning| {
        let flushed = closed.close();
        println!("{warning}: {flushed:?}");
        std::process::exit(i32::from(!flushed.is_ok_and(|flushed| flushed.is_in_time)))
    })?;
    println!("ready");
    for number in 0_u64.. {
        match store.set("number", number.to_string()) {
            Ok(()) => {}
            // The thread above ends the process.
            Err(StoreError::NotDurable(RegionError::Closed)) => std::thread::park(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
