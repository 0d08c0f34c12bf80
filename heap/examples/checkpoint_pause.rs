//! How long an application waits for a checkpoint, with and without pre-copy, beside one that
//! copies all of its memory.
//!
//! `cargo run --release -p perdura-heap --example checkpoint_pause -- [MiB of memory] [pages
//! written between]`

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perdura_heap::checkpoint::Checkpointer;
use perdura_heap::{Config, Durability, Heap, Memory};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const ROUNDS: usize = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let mib = words.next().transpose()?.unwrap_or(256);
    let writes = words.next().transpose()?.unwrap_or(8_000);
    let dir = tempfile::tempdir_in("/dev/shm")?;
    let memory = Memory::file(&dir.path().join("heap"), (mib * 5) << 20, Durability::Flushed)?;
    println!(
        "{} MiB of memory, {writes} pages written between checkpoints; {}",
        mib,
        memory.describe()
    );
    let heap = Arc::new(Heap::open(memory, Config::default())?);
    let checkpointer = Checkpointer::open(heap, "state")?;
    let area = checkpointer.register("memory", mib << 20)?;
    let mut random = Random::seed_from_u64(1);
    // SAFETY: inside the area, which this thread alone writes to.
    unsafe { area.base.write_bytes(7, area.len_bytes as usize) };
    let first = checkpointer.checkpoint()?;
    println!(
        "tracking: {:?}; the first copies {} pages in {:?}",
        checkpointer.tracking(),
        first.pages,
        first.pause
    );
    let mut write = |count: u64| {
        for _ in 0..count {
            let at = random.random_range(0..area.len_bytes as usize);
            // SAFETY: as above.
            unsafe { area.base.add(at).write(random.random()) };
        }
    };
    for (name, with_precopy) in [("without pre-copy", false), ("with pre-copy", true)] {
        let mut pauses = Vec::new();
        let (mut pages, mut before) = (0, 0);
        let mut working = Duration::ZERO;
        for _ in 0..ROUNDS {
            let began = Instant::now();
            // Pre-copied with a tenth of the writes still to come, as by a background round shortly
            // before.
            write(writes - writes / 10);
            working += began.elapsed();
            if with_precopy {
                checkpointer.precopy()?;
            }
            let began = Instant::now();
            write(writes / 10);
            working += began.elapsed();
            let done = checkpointer.checkpoint()?;
            pauses.push(done.pause);
            (pages, before) = (pages + done.pages, before + done.precopied_pages);
        }
        pauses.sort();
        println!(
            "{name}: pause median {:?}, most {:?}; {} KiB copied in the pause, {} KiB before it, \
             each time; writing took {:?}",
            pauses[ROUNDS / 2],
            pauses[ROUNDS - 1],
            pages * 4 / ROUNDS as u64,
            before * 4 / ROUNDS as u64,
            working / ROUNDS as u32
        );
    }
    checkpointer.compare_pages();
    write(writes);
    let done = checkpointer.checkpoint()?;
    println!("by comparing: {} pages in {:?}", done.pages, done.pause);
    let began = Instant::now();
    checkpointer.restore()?;
    println!("restored in {:?}", began.elapsed());
    Ok(())
}
