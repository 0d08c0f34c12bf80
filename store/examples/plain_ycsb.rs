//! The embedded store beside a plain sharded map, by a driver that shares no code with `bench`.
//!
//! `bench ycsb` draws keys, makes values and times each operation on the way. This driver does as
//! little as it can: keys are drawn before the clock starts, all values are the same kilobyte, and
//! nothing but the number of operations is noted. So the ratio that it shows is the stores' own,
//! and is the less kind of the two.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::error::Error;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use perdura_media::RealClock;
use perdura_media::file::{Direct, Engine, FileDevice, OpenMode};
use perdura_region::{Config, Region};
use perdura_store::{Heap, Key, Store, StoreOptions};

const HELP: &str = "\
plain_ycsb DIR [OPTION VALUE]...

Runs the embedded store, with an image in a new folder below DIR, and prints operations a second.

  --mix a|c|update   half updates (a), reads (c), updates only (update)          [a]
  --keys zipf|uniform   Zipf 0.99 over the records, or each as likely            [zipf]
  --budget P,...     bytes that may be dirty, percent of keys and values         [11]
  --threads N        threads that work at the same time                          [1]
  --records N        records of 16 B + 1,024 B                                   [1000000]
  --rounds N         rounds; each measures every side once, in changing order    [7]
  --seconds S        length of one measurement, seconds                          [2]
  --checkpoint S     seconds between checkpoints, 0 for none                     [1]
  --map yes|no       whether a map of 256 locked shards is measured in turn      [yes]

Each budget is a side of its own on the same store; the first side is what the ratios refer to. The
map comes first. GLIBC_TUNABLES=glibc.malloc.hugetlb=1 gives the map the huge pages that the store
has. Build with --release.";

const VALUE_BYTES: usize = 1024;
const KEY_BYTES: usize = 16;
const SHARDS: usize = 256;
/// Keys drawn for each thread before the run, which then come again and again.
const DRAWN: usize = 8 << 20;

type AnyError = Box<dyn Error>;
type Name = [u8; KEY_BYTES];

fn main() -> Result<(), AnyError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let settings = match Settings::parse(&words) {
        Ok(settings) => settings,
        Err(wrong) => return Err(format!("{wrong}\n\n{HELP}").into()),
    };
    let store = PerduraSide::create(&settings)?;
    let map = settings.with_map.then(|| PlainMap::new(settings.records));
    let order = shuffled(settings.records, 1);
    for number in &order {
        let key = name(*number);
        store.write(&key, &[1; VALUE_BYTES])?;
        if let Some(map) = &map {
            map.write(&key, &[1; VALUE_BYTES])?;
        }
    }
    let draws: Vec<Vec<u32>> =
        (0..settings.threads).map(|thread| settings.draw(thread as u64 + 7)).collect();
    let mut sides: Vec<Measured> = Vec::new();
    sides.extend(map.is_some().then(|| Measured::new("map".into(), None)));
    let budgets = settings.budgets.iter();
    sides.extend(budgets.map(|p| Measured::new(format!("perdura, budget {p} %"), Some(*p))));
    for round in 0..=settings.rounds {
        let mut turn: Vec<usize> = (0..sides.len()).collect();
        if round % 2 == 1 {
            turn.reverse();
        }
        for index in turn {
            let one = match (&map, sides[index].budget) {
                (Some(map), None) => {
                    // Nothing is dirty then, so the cleaner takes no time from the map.
                    store.set_budget(&settings, 100.0)?;
                    settings.measure(map, &draws)?
                }
                (_, budget) => {
                    store.set_budget(&settings, budget.unwrap_or(100.0))?;
                    let before = Work::now(&store)?;
                    let mut one = settings.measure(&store, &draws)?;
                    one.work = Work::now(&store)?.since(&before).per(one.operations);
                    one
                }
            };
            if round > 0 {
                // The first round only warms up: caches, and the log's first pass.
                sides[index].rounds.push(one);
            }
        }
    }
    print(&settings, &sides);
    store.store.region().close(2)?;
    Ok(())
}

fn print(settings: &Settings, sides: &[Measured]) {
    println!(
        "{} {}, {} threads, {} records of {KEY_BYTES} B + {VALUE_BYTES} B, {} rounds of {} s, \
         checkpoints each {} s (0: none)",
        settings.mix,
        settings.keys,
        settings.threads,
        settings.records,
        settings.rounds,
        settings.seconds,
        settings.checkpoint_s,
    );
    for side in sides {
        let rate = spread(side.rounds.iter().map(|one| one.ops_per_s / 1e3).collect());
        let cpu = spread(side.rounds.iter().map(|one| one.cpu_ns_per_op).collect());
        let pairs = side.rounds.iter().zip(&sides[0].rounds);
        let ratio = spread(pairs.map(|(one, first)| one.ops_per_s / first.ops_per_s).collect());
        println!(
            "{:24} {:7.0} k/s ({:.0} to {:.0}); {:5.0} ns of processor time an operation; \
             ratio {:.2} ({:.2} to {:.2})",
            side.name, rate[1], rate[0], rate[2], cpu[1], ratio[1], ratio[0], ratio[2]
        );
        if side.budget.is_some() {
            let of = |n: usize| spread(side.rounds.iter().map(|one| one.work.0[n]).collect())[1];
            println!(
                "{:24} an operation: {:.0} B cleaned, {:.0} drained, {:.0} captured, {:.0} \
                 compacted, {:.0} written; {:.0} ns of the cleaner's thread; {:.0} ns of waiting",
                "",
                of(0),
                of(1),
                of(2),
                of(3),
                of(4),
                of(5),
                of(6),
            );
        }
    }
    println!("medians (least to most); the processor time is the whole process's");
}

/// What the words of the command line say.
struct Settings {
    dir: PathBuf,
    mix: String,
    keys: String,
    budgets: Vec<f64>,
    threads: usize,
    records: u32,
    rounds: usize,
    seconds: f64,
    checkpoint_s: f64,
    with_map: bool,
}

impl Settings {
    fn parse(words: &[String]) -> Result<Self, String> {
        let (Some(dir), true) = (words.first(), words.len() % 2 == 1) else {
            return Err("expected a folder and pairs of options and values".into());
        };
        let mut settings = Self {
            dir: dir.into(),
            mix: "a".into(),
            keys: "zipf".into(),
            budgets: vec![11.0],
            threads: 1,
            records: 1_000_000,
            rounds: 7,
            seconds: 2.0,
            checkpoint_s: 1.0,
            with_map: true,
        };
        for pair in words[1..].chunks_exact(2) {
            let value = pair[1].as_str();
            match pair[0].as_str() {
                "--mix" => settings.mix = one_of(value, &["a", "c", "update"])?,
                "--keys" => settings.keys = one_of(value, &["zipf", "uniform"])?,
                "--budget" => {
                    settings.budgets =
                        value.split(',').map(number).collect::<Result<_, String>>()?;
                }
                "--threads" => settings.threads = number(value)?,
                "--records" => settings.records = number(value)?,
                "--rounds" => settings.rounds = number(value)?,
                "--seconds" => settings.seconds = number(value)?,
                "--checkpoint" => settings.checkpoint_s = number(value)?,
                "--map" => settings.with_map = one_of(value, &["yes", "no"])? == "yes",
                other => return Err(format!("there is no option {other}")),
            }
        }
        let is_possible = settings.threads > 0 && settings.records > 1 && settings.rounds > 0;
        if !is_possible || settings.seconds <= 0.0 || settings.checkpoint_s < 0.0 {
            return Err("threads, rounds and seconds begin at 1, records at 2".into());
        }
        Ok(settings)
    }

    fn data_bytes(&self) -> u64 {
        u64::from(self.records) * (KEY_BYTES + VALUE_BYTES) as u64
    }

    /// The numbers of the records that a thread uses, in order.
    fn draw(&self, seed: u64) -> Vec<u32> {
        let mut random = Random(seed);
        if self.keys == "uniform" {
            return (0..DRAWN).map(|_| random.below(self.records)).collect();
        }
        let law = Zipf::new(self.records);
        (0..DRAWN).map(|_| law.draw(random.unit())).collect()
    }

    /// Lets all threads work for the length of a measurement.
    fn measure(&self, side: &impl Side, draws: &[Vec<u32>]) -> Result<One, AnyError> {
        let updates_of_256 = match self.mix.as_str() {
            "a" => 128,
            "c" => 0,
            _ => 256,
        };
        let stop = AtomicBool::new(false);
        let (began, cpu_before) = (Instant::now(), cpu_ns()?);
        let done: Result<Vec<u64>, String> = std::thread::scope(|scope| {
            let mut workers = Vec::new();
            for drawn in draws {
                let stop = &stop;
                workers.push(scope.spawn(move || work(side, drawn, updates_of_256, stop)));
            }
            std::thread::sleep(Duration::from_secs_f64(self.seconds));
            stop.store(true, Relaxed);
            let join = |worker: std::thread::ScopedJoinHandle<'_, Result<u64, String>>| {
                worker.join().unwrap_or_else(|_| Err("a thread panicked".into()))
            };
            workers.into_iter().map(join).collect()
        });
        let (took_s, cpu) = (began.elapsed().as_secs_f64(), cpu_ns()? - cpu_before);
        let operations = done?.iter().sum::<u64>().max(1) as f64;
        let (ops_per_s, cpu_ns_per_op) = (operations / took_s, cpu as f64 / operations);
        Ok(One { ops_per_s, cpu_ns_per_op, operations, work: Work::default() })
    }
}

/// Works until told to stop. Returns the number of operations.
fn work(
    side: &impl Side,
    drawn: &[u32],
    updates_of_256: u64,
    stop: &AtomicBool,
) -> Result<u64, String> {
    let mut random = Random(drawn.first().copied().unwrap_or(0).into());
    // Each measurement begins elsewhere, or all rounds would do the same operations.
    let start = cpu_ns().unwrap_or(0) as usize % drawn.len();
    let mut buffer = [0; VALUE_BYTES];
    let (value, mut done) = ([2; VALUE_BYTES], 0);
    for number in drawn[start..].iter().chain(drawn.iter().cycle()) {
        let key = name(*number);
        if random.next() & 255 < updates_of_256 {
            side.write(&key, &value).map_err(|error| error.to_string())?;
        } else if !side.read(&key, &mut buffer) {
            return Err(format!("record {number} is not there"));
        }
        black_box(&buffer);
        done += 1;
        if done % 64 == 0 && stop.load(Relaxed) {
            break;
        }
    }
    Ok(done)
}

/// A store under test.
trait Side: Sync {
    fn write(&self, key: &Name, value: &[u8; VALUE_BYTES]) -> Result<(), AnyError>;
    /// Copies the value of a key. Returns whether there is one.
    fn read(&self, key: &Name, value: &mut [u8; VALUE_BYTES]) -> bool;
}

/// The store, its image, and the folder of the image.
struct PerduraSide {
    store: Store,
    _dir: tempfile::TempDir,
}

impl PerduraSide {
    fn create(settings: &Settings) -> Result<Self, AnyError> {
        std::fs::create_dir_all(&settings.dir)?;
        let dir = tempfile::tempdir_in(&settings.dir)?;
        let every = Duration::from_secs_f64(settings.checkpoint_s);
        let config = Config {
            checkpoint_every: (!every.is_zero()).then_some(every),
            ..Config::new(settings.data_bytes() / 2 * 3, settings.data_bytes())
        };
        let region = Region::open(Arc::new(image(dir.path())?), Arc::new(RealClock), config)?;
        let options = StoreOptions::default();
        let store = Store::open(Heap::open(region)?, Arc::new(RealClock), options)?;
        Ok(Self { store, _dir: dir })
    }

    /// Sets the budget, and makes what is dirty fit before the clock starts.
    fn set_budget(&self, settings: &Settings, percent: f64) -> Result<(), AnyError> {
        let region = self.store.region();
        region.set_budget((settings.data_bytes() as f64 * percent / 100.0) as u64)?;
        Ok(region.checkpoint()?)
    }
}

fn image(dir: &Path) -> Result<FileDevice, AnyError> {
    let mode = OpenMode::Create { capacity_bytes: 1 << 20 };
    Ok(FileDevice::open(&dir.join("image"), mode, Engine::Auto, Direct::Auto)?)
}

impl Side for PerduraSide {
    fn write(&self, key: &Name, value: &[u8; VALUE_BYTES]) -> Result<(), AnyError> {
        Ok(self.store.put(Key::new(key), value)?)
    }

    fn read(&self, key: &Name, value: &mut [u8; VALUE_BYTES]) -> bool {
        self.store.read(Key::new(key), |entry| {
            let found = entry.as_ref().and_then(|entry| entry.string()?.first_chunk());
            found.map(|found| *value = *found).is_some()
        })
    }
}

type Shard = Mutex<HashMap<Name, Box<[u8; VALUE_BYTES]>, BuildHasherDefault<Mix>>>;

/// A map of locked shards, which overwrites values in place and keeps nothing.
struct PlainMap(Vec<Shard>);

impl PlainMap {
    fn new(records: u32) -> Self {
        let room = records as usize / SHARDS * 5 / 4;
        let shard = || HashMap::with_capacity_and_hasher(room, BuildHasherDefault::default());
        Self((0..SHARDS).map(|_| Mutex::new(shard())).collect())
    }

    fn shard(&self, key: &Name) -> &Shard {
        let mut mix = Mix::default();
        mix.write(key);
        &self.0[mix.finish() as usize >> 20 & (SHARDS - 1)]
    }
}

impl Side for PlainMap {
    fn write(&self, key: &Name, value: &[u8; VALUE_BYTES]) -> Result<(), AnyError> {
        let mut shard = self.shard(key).lock();
        match shard.get_mut(key) {
            Some(place) => **place = *value,
            None => drop(shard.insert(*key, Box::new(*value))),
        }
        Ok(())
    }

    fn read(&self, key: &Name, value: &mut [u8; VALUE_BYTES]) -> bool {
        let shard = self.shard(key).lock();
        shard.get(key).map(|found| *value = **found).is_some()
    }
}

/// A fast hash, so that the map is not slow for its hash's sake.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            let mixed = (self.0.rotate_left(23) ^ u64::from_le_bytes(padded)) as u128;
            let product = mixed * 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
            self.0 = (product >> 64) as u64 ^ product as u64;
        }
    }
}

/// The name of a record.
fn name(number: u32) -> Name {
    let mut key = *b"user000000000000";
    let mut rest = number;
    for digit in key.iter_mut().rev().take(10) {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Zipf's law with exponent 0.99 over ranks from 0, drawn by inverting a bound of its sum (Gray et
/// al., SIGMOD 1994). Records are loaded in random order, so hot ones lie scattered.
struct Zipf {
    count: f64,
    sum: f64,
    eta: f64,
}

const EXPONENT: f64 = 0.99;

impl Zipf {
    fn new(count: u32) -> Self {
        let sum: f64 = (1..=count).map(|rank| f64::from(rank).powf(-EXPONENT)).sum();
        let first_two = 1.0 + 0.5_f64.powf(EXPONENT);
        let count = f64::from(count);
        let eta = (1.0 - (2.0 / count).powf(1.0 - EXPONENT)) / (1.0 - first_two / sum);
        Self { count, sum, eta }
    }

    fn draw(&self, unit: f64) -> u32 {
        let scaled = unit * self.sum;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(EXPONENT) {
            return 1;
        }
        let power = (self.eta * unit - self.eta + 1.0).powf(1.0 / (1.0 - EXPONENT));
        ((self.count * power) as u32).min(self.count as u32 - 1)
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, end: u32) -> u32 {
        ((self.next() >> 32) * u64::from(end) / (1 << 32)) as u32
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn shuffled(count: u32, seed: u64) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    let mut random = Random(seed);
    for end in (1..count).rev() {
        numbers.swap(end as usize, random.below(end + 1) as usize);
    }
    numbers
}

/// One side and its measurements.
struct Measured {
    name: String,
    /// Budget in percent of the data; `None` for the map.
    budget: Option<f64>,
    rounds: Vec<One>,
}

impl Measured {
    fn new(name: String, budget: Option<f64>) -> Self {
        Self { name, budget, rounds: Vec::new() }
    }
}

struct One {
    ops_per_s: f64,
    cpu_ns_per_op: f64,
    operations: f64,
    /// What the region did for each operation.
    work: Work,
}

/// Bytes that the region cleaned, drained, captured, compacted and wrote, nanoseconds of processor
/// time of its thread, and nanoseconds for which writers waited.
#[derive(Clone, Copy, Default)]
struct Work([f64; 7]);

impl Work {
    fn now(side: &PerduraSide) -> Result<Self, AnyError> {
        let stats = side.store.region().stats();
        let counts = [
            stats.cleaned_bytes,
            stats.drained_bytes,
            stats.captured_bytes,
            stats.compacted_bytes,
            stats.device_bytes,
            cleaner_cpu_ns()?,
            stats.stall_ns,
        ];
        Ok(Self(counts.map(|count| count as f64)))
    }

    fn since(self, before: &Self) -> Self {
        let mut after = self;
        after.0.iter_mut().zip(before.0).for_each(|(count, before)| *count -= before);
        after
    }

    fn per(self, operations: f64) -> Self {
        Self(self.0.map(|count| count / operations))
    }
}

/// Least, median and most.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    [values[0], values[values.len() / 2], values[values.len() - 1]]
}

/// Processor time of the region's thread, nanoseconds.
fn cleaner_cpu_ns() -> Result<u64, AnyError> {
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if std::fs::read_to_string(task.join("comm"))?.trim_end() == "perdura-cleaner" {
            let times = std::fs::read_to_string(task.join("schedstat"))?;
            let ran = times.split(' ').next().ok_or("no time in schedstat")?;
            return Ok(ran.parse()?);
        }
    }
    Err("the region has no thread".into())
}

/// Processor time of this process, in nanoseconds, in steps of 10 ms.
fn cpu_ns() -> Result<u64, AnyError> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = behind.split_whitespace().collect();
    let [user, system] = [fields[11].parse::<u64>()?, fields[12].parse::<u64>()?];
    Ok((user + system) * 10_000_000)
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word:?} is not such a number"))
}

fn one_of(word: &str, words: &[&str]) -> Result<String, String> {
    match words.contains(&word) {
        true => Ok(word.into()),
        false => Err(format!("{word:?} is not one of {}", words.join(", "))),
    }
}
