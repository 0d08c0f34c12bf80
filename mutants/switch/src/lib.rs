//! Which mutant is on, in a program that has all of them compiled in.
//!
//! `MUTANT=n` turns mutant n on. `MUTANT_REACHED=file` appends to the file the number of each
//! mutant whose place is reached, once a process; then none is on.

use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// More mutants than there may be. Numbers from here on are not mutants.
const MOST: u32 = 65_536;
const RECORDING: u32 = MOST;
const UNREAD: u32 = MOST + 1;
const NONE: u32 = MOST - 1;

static ACTIVE: AtomicU32 = AtomicU32::new(UNREAD);
static REACHED: [AtomicBool; MOST as usize] = [const { AtomicBool::new(false) }; MOST as usize];
static RECORD: OnceLock<File> = OnceLock::new();

/// Whether mutant `number` is on.
#[inline]
pub fn on(number: u32) -> bool {
    let active = ACTIVE.load(Relaxed);
    if active < MOST { active == number } else { ask(number) }
}

#[cold]
fn ask(number: u32) -> bool {
    if ACTIVE.load(Relaxed) == UNREAD {
        read();
        return on(number);
    }
    if let Some(mut record) = RECORD.get()
        && !REACHED[number as usize].swap(true, Relaxed)
    {
        record.write_all(&number.to_le_bytes()).expect("the record of reached mutants");
    }
    false
}

/// Reads the environment, once or several times with the same result.
fn read() {
    let active = match (std::env::var("MUTANT"), std::env::var_os("MUTANT_REACHED")) {
        (Ok(number), _) => number.parse().expect("MUTANT is a number"),
        (_, Some(path)) => {
            let mut options = File::options();
            let record = options.append(true).create(true).open(path).expect("MUTANT_REACHED");
            // Another thread may have opened it, too.
            let _ = RECORD.set(record);
            RECORDING
        }
        _ => NONE,
    };
    ACTIVE.store(active, Relaxed);
}
