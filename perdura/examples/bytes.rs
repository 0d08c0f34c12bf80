//! Durable bytes: a log of lines in a region, whose length is a word that is changed last.
//! `cargo run --example bytes DIR LINE`

use std::error::Error;

use perdura::{Holder, Options, Region};

/// Place of the word that says how many bytes of the log there are.
const LEN: u64 = 0;
/// Place of the log.
const LOG: u64 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let holder = Holder::this_program();
    let mut words = std::env::args().skip(1);
    let dir = words.next().ok_or("bytes DIR LINE")?;
    let line = words.next().ok_or("bytes DIR LINE")? + "\n";

    let options = Options::new().memory_bytes(16 << 20).holder(holder);
    let region = Region::open_with(dir, &options)?;
    let end = region.load_word(LEN)?;
    region.write(LOG + end, line.as_bytes())?;
    // The word is whole or not changed after a crash; before it changes, the line is nobody's.
    region.store_word(LEN, end + line.len() as u64)?;

    let mut log = vec![0; usize::try_from(region.load_word(LEN)?)?];
    region.read(LOG, &mut log)?;
    print!("{}", String::from_utf8_lossy(&log));
    region.close()?;
    Ok(())
}
