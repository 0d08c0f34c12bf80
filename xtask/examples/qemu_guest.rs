//! The client inside the guest of `cargo xtask test-qemu`: checks the store that an earlier boot
//! left, then writes until the machine is cut.
//!
//! The host learns the result from lines on the console: `guest: found N`, `guest: acked N`, or
//! `guest: FAILED why`.

#[path = "../src/oracle.rs"]
mod oracle;

use std::io;
use std::time::{Duration, Instant};

use oracle::{Oracle, PIPELINE};

/// How many writes pass between two lines to the console, because a line to the emulated serial
/// port costs about as much as a write.
const WRITES_PER_LINE: u64 = 4 * PIPELINE;
const PATIENCE: Duration = Duration::from_secs(60);

/// Takes two arguments: the address, and the first write of each earlier boot, separated by commas.
fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let address = words.first().map_or("127.0.0.1:6379", String::as_str);
    let starts = words.get(1).map_or("", String::as_str);
    if let Err(error) = run(address, starts) {
        println!("guest: FAILED {error}");
    }
}

fn run(address: &str, starts: &str) -> io::Result<()> {
    let starts: Vec<u64> = starts
        .split(',')
        .filter(|word| !word.is_empty())
        .map(|word| word.parse().map_err(|_| io::Error::other(format!("not a number: {word:?}"))))
        .collect::<io::Result<_>>()?;
    let mut oracle = connect(address)?;
    let found = oracle.verify(&starts)?;
    println!("guest: found {found}");
    let written = oracle.write(found, starts.len(), |acked| {
        if (acked - found).is_multiple_of(WRITES_PER_LINE) {
            println!("guest: acked {acked}");
        }
    });
    let acked = written.acked;
    if let Some(refusal) = written.refusal {
        return Err(io::Error::other(format!("write {acked}: {refusal:?}")));
    }
    println!("guest: acked {acked}");
    println!("guest: ended {acked}");
    Ok(())
}

/// Connects to the server, and tries again while the server is starting.
fn connect(address: &str) -> io::Result<Oracle> {
    let began = Instant::now();
    loop {
        match Oracle::try_connect(address) {
            Ok(oracle) => return Ok(oracle),
            Err(error) if began.elapsed() > PATIENCE => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}
