//! What an allocation costs beside libpmemobj, and beside the allocator that the program runs with,
//! measured without any of the laboratory's code.
//!
//! Many objects of 16 to 1,024 B live; a pair frees one of them, drawn at random, allocates another
//! of a random size, and stores its first word. *Persistent* pairs keep each object's address in a
//! word, or in libpmemobj an identifier, of persistent memory: after a loss of power every object
//! is named, and none leaks. *Capacity* pairs are beside `malloc` and `free`: jemalloc's with
//! `LD_PRELOAD=libjemalloc.so.2`. The two take turns; each round has an equal share of the time.
//!
//! `cargo run --release -p perdura-heap --example plain_pairs -- [persistent|capacity|own]
//! [threads] [objects] [rounds] [ms of a round]`; `own` is `replace_at` alone, to be profiled.

use std::error::Error;
use std::ops::Range;
use std::sync::Barrier;
use std::time::{Duration, Instant};

mod capacity;
mod own;
mod pmemobj;

const HEAP_BYTES: u64 = 2 << 30;
const PAIRS_AT_ONCE: u64 = 64;

/// A way to replace the object number `index`, if there is one, by another of `bytes`.
trait Pairs: Sync {
    fn replace(&self, index: usize, bytes: usize);
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| words.get(at).map_or(Ok(default), |w| w.parse());
    let (threads, objects) = (number(1, 1)?, number(2, 1_000_000)?);
    let (rounds, round) = (number(3, 9)?, Duration::from_millis(number(4, 100)? as u64));
    let what = words.first().map_or("persistent", String::as_str);
    println!("{what} pairs: {threads} threads, {objects} objects, {rounds} rounds of {round:?}");
    let dir = tempfile::tempdir_in("/dev/shm")?;
    let mut ways: Vec<(&str, Box<dyn Pairs>)> = Vec::new();
    if what == "capacity" {
        ways.push(("cap_free, cap_alloc", Box::new(capacity::Capacity::open(objects)?)));
        ways.push(("free, malloc", Box::new(capacity::Malloc::new(objects))));
    } else {
        ways.push(("replace_at", Box::new(own::Words::open(dir.path(), objects)?)));
    }
    if what == "persistent" {
        let in_two = own::InTwo(own::Words::open(dir.path(), objects)?);
        ways.push(("free_from, alloc_into", Box::new(in_two)));
        match pmemobj::Pmemobj::open(dir.path(), objects)? {
            Some(pool) => ways.push(("pmemobj_free, pmemobj_alloc", Box::new(pool))),
            None => println!("libpmemobj.so.1 is not installed: nothing to compare with"),
        }
        if let Some(pool) = pmemobj::Pmemobj::open(dir.path(), objects)? {
            ways.push(("pmemobj_publish", Box::new(pmemobj::Published(pool))));
        }
    }
    for (_, way) in &ways {
        in_threads(threads, |thread| {
            let mut random = Random::new(thread);
            let mine = share(objects, threads, thread);
            mine.clone().for_each(|index| way.replace(index, random.bytes()));
            // As many pairs again, so that the heap is as large as it becomes.
            for _ in mine.clone() {
                way.replace(random.one_of(&mine), random.bytes());
            }
        });
    }
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
    for number in 0..rounds {
        for turn in 0..ways.len() {
            let which = (turn + number) % ways.len();
            times[which].push(pairs(&*ways[which].1, threads, objects, number, round));
        }
    }
    let base = median(&times[0]);
    for ((name, _), times) in ways.iter().zip(&times) {
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        let most = times.iter().copied().fold(0.0, f64::max);
        let middle = median(times);
        let ratio = middle / base;
        println!("{name:28} {middle:7.0} ns a pair ({least:.0} to {most:.0}); {ratio:.2}");
    }
    Ok(())
}

/// Nanoseconds of a pair, with all threads at work at once.
fn pairs(way: &dyn Pairs, threads: usize, objects: usize, number: usize, round: Duration) -> f64 {
    let all = in_threads(threads, |thread| {
        let mut random = Random::new(thread + (number + 1) * 1_000);
        let mine = share(objects, threads, thread);
        let (began, mut done) = (Instant::now(), 0);
        while began.elapsed() < round {
            for _ in 0..PAIRS_AT_ONCE {
                let index = random.one_of(&mine);
                way.replace(index, random.bytes());
            }
            done += PAIRS_AT_ONCE;
        }
        began.elapsed().as_nanos() as f64 / done as f64
    });
    all.iter().sum::<f64>() / all.len() as f64
}

fn in_threads<R: Send>(threads: usize, run: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let start = Barrier::new(threads);
    let work = |thread| {
        start.wait();
        run(thread)
    };
    let work = &work;
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, R>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        all.into_iter().map(join).collect()
    })
}

fn share(objects: usize, threads: usize, thread: usize) -> Range<usize> {
    objects * thread / threads..objects * (thread + 1) / threads
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Marsaglia's xorshift, so that drawing costs next to nothing.
struct Random(u64);

impl Random {
    fn new(seed: usize) -> Self {
        Self((seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32) * end) >> 32
    }

    fn one_of(&mut self, share: &Range<usize>) -> usize {
        share.start + self.below(share.len() as u64) as usize
    }

    fn bytes(&mut self) -> usize {
        16 + self.below(1009) as usize
    }
}

/// Ends the program: a failed call would be measured as a fast one.
fn failed(what: &str, why: &dyn std::fmt::Display) -> ! {
    eprintln!("plain_pairs: {what}: {why}");
    std::process::exit(1)
}

fn touch(at: *mut u8, value: usize) {
    // SAFETY: an object of at least 16 B that this thread has just got, aligned to 16.
    unsafe { at.cast::<usize>().write(value) };
}
