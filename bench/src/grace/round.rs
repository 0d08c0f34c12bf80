//! One round: filled, loaded, warned, killed, cut, started again, counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::clients::{self, Habits, Stuck};
use super::disk::Disk;
use super::server::{Kind, Server};
use super::writes::{Found, VERSION_BYTES, Writes};
use super::{GraceError, Settings};

/// Clients that write.
const CLIENTS: u64 = 4;
/// Memory for each byte of values; the least memory.
const MEMORY_FACTOR: u64 = 2;
const MEMORY_MIN_BYTES: u64 = 64 << 20;
/// Room on the disk for each byte of memory, and for small ones.
const DISK_FACTOR: u64 = 7;
const DISK_MIN_BYTES: u64 = 1 << 30;
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The outcome of a round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Round {
    /// The server.
    pub server: Kind,
    /// Bytes of values.
    pub size_bytes: u64,
    /// What the round was decided by.
    pub seed: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Requests of each client under way at a time.
    pub depth: usize,
    /// Time from the beginning of the load to the fall of the disk's rate, seconds; `None`: it did
    /// not fall.
    pub slow_after_s: Option<f64>,
    /// Clients that were stuck at the warning.
    pub stuck: Vec<String>,
    /// Writes a second that were acknowledged before the warning.
    pub writes_per_s: f64,
    /// Time from the warning until the server had ended by itself, seconds; `None`: it was late and
    /// killed.
    pub to_safe_s: Option<f64>,
    /// Time from the start after the loss to the first answer, seconds.
    pub first_answer_s: f64,
    /// What the loss left.
    pub found: Found,
}

impl Round {
    /// Whether nothing was lost and the server was not late.
    pub fn is_kept(&self) -> bool {
        self.found.lost == 0 && self.found.wrong == 0 && self.to_safe_s.is_some()
    }
}

/// What a seed decides.
struct Plan {
    habits: Habits,
    stuck: Vec<Stuck>,
    /// When the disk's credit is used up, from the beginning of the load.
    slow_at: Option<Duration>,
}

impl Plan {
    fn of(seed: u64, settings: &Settings) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let value_bytes = *[100, 400, 1_000, 4_000].choose(&mut random).unwrap_or(&1_000);
        let depth = *[1, 4, 16, 64].choose(&mut random).unwrap_or(&16);
        let pause = Duration::from_micros(*[0, 0, 100, 1_000].choose(&mut random).unwrap_or(&0));
        let all = [Stuck::Pausing, Stuck::Blocked, Stuck::Unread];
        let stuck = all.into_iter().filter(|_| random.random_bool(0.4)).collect();
        let until_s = (settings.load + settings.grace / 2).as_secs_f64();
        let slow_at = random
            .random_bool(0.7)
            .then(|| Duration::from_secs_f64(until_s * random.random::<f64>()));
        let value_bytes = value_bytes.max(VERSION_BYTES);
        Self { habits: Habits { value_bytes, depth, pause }, stuck, slow_at }
    }
}

/// Runs a round on a disk of its own.
pub fn run(
    settings: &Settings,
    kind: Kind,
    size_bytes: u64,
    seed: u64,
    is_over: &AtomicBool,
) -> Result<Round, GraceError> {
    let plan = Plan::of(seed, settings);
    let memory_bytes = (size_bytes * MEMORY_FACTOR).max(MEMORY_MIN_BYTES);
    let mut disk = Disk::new(&settings.dir, memory_bytes * DISK_FACTOR + DISK_MIN_BYTES)?;
    let (data, log) = (disk.place().join("data"), disk.place().with_file_name("server.log"));
    let start = || {
        let (programs, grace) = (&settings.programs, settings.grace);
        Server::start(kind, programs, &data, &log, memory_bytes, grace)
    };
    let keys = (size_bytes / plan.habits.value_bytes as u64).max(CLIENTS);
    let mut writes: Vec<_> = (0..CLIENTS).map(|one| Writes::new(one, CLIENTS, keys)).collect();

    // Whoever promises a time must know what the disk does without credit.
    disk.throttle(settings.low_rate_bytes_per_s)?;
    let mut server = start()?;
    let first_key = writes[0].key(0);
    server.wait_for(|connection| clients::answers(connection, &first_key), is_over)?;
    disk.throttle(0)?;
    fill(&server, &mut writes, plan.habits.value_bytes, is_over)?;
    disk.throttle(settings.rate_bytes_per_s)?;

    let loaded = load(settings, &plan, &mut disk, &mut server, &mut writes, seed, is_over)?;
    disk.cut()?;
    drop(server);
    disk.mount()?;

    let mut server = start()?;
    let first = server.wait_for(|connection| clients::answers(connection, &first_key), is_over)?;
    let found = count(&server, &writes, plan.habits.value_bytes, is_over)?;
    if is_over.load(Ordering::Relaxed) {
        return Err(GraceError::Interrupted);
    }
    Ok(Round {
        server: kind,
        size_bytes,
        seed,
        value_bytes: plan.habits.value_bytes,
        depth: plan.habits.depth,
        slow_after_s: plan.slow_at.map(|at| at.as_secs_f64()),
        stuck: plan.stuck.iter().map(|how| format!("{how:?}").to_lowercase()).collect(),
        writes_per_s: loaded.writes_per_s,
        to_safe_s: loaded.to_safe.map(|time| time.as_secs_f64()),
        first_answer_s: first.as_secs_f64(),
        found,
    })
}

/// Lets one thread for each client do something, and returns what they return.
fn each<T: Send>(
    writes: &mut [Writes],
    act: impl Fn(usize, &mut Writes) -> Result<T, crate::target::TargetError> + Sync,
) -> Result<Vec<T>, GraceError> {
    let act = &act;
    std::thread::scope(|scope| {
        let threads: Vec<_> = writes
            .iter_mut()
            .enumerate()
            .map(|(number, own)| scope.spawn(move || act(number, own)))
            .collect();
        let ended = threads.into_iter().map(|thread| match thread.join() {
            Ok(outcome) => outcome.map_err(GraceError::from),
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect()
    })
}

fn fill(
    server: &Server,
    writes: &mut [Writes],
    value_bytes: usize,
    is_over: &AtomicBool,
) -> Result<(), GraceError> {
    each(writes, |_, own| clients::fill(&server.address, own, value_bytes, is_over)).map(drop)
}

fn count(
    server: &Server,
    writes: &[Writes],
    value_bytes: usize,
    is_over: &AtomicBool,
) -> Result<Found, GraceError> {
    let mut writes = writes.to_vec();
    let found =
        each(&mut writes, |_, own| clients::count(&server.address, own, value_bytes, is_over))?;
    Ok(found.iter().fold(Found::default(), |all, one| Found {
        keys: all.keys + one.keys,
        lost: all.lost + one.lost,
        wrong: all.wrong + one.wrong,
    }))
}

/// What happened under load.
struct Loaded {
    writes_per_s: f64,
    /// `None`: the server was late.
    to_safe: Option<Duration>,
}

/// Writes until the server's end, which comes by itself within the grace, or by a kill.
fn load(
    settings: &Settings,
    plan: &Plan,
    disk: &mut Disk,
    server: &mut Server,
    writes: &mut [Writes],
    seed: u64,
    is_over: &AtomicBool,
) -> Result<Loaded, GraceError> {
    let acknowledged = AtomicU64::new(0);
    let address = server.address.clone();
    std::thread::scope(|scope| {
        for (number, own) in writes.iter_mut().enumerate() {
            let (address, acknowledged) = (&address, &acknowledged);
            let own_seed = seed ^ ((number as u64 + 1) << 32);
            scope.spawn(move || {
                clients::write(address, own, &plan.habits, own_seed, acknowledged);
            });
        }
        let outcome = watch(settings, plan, disk, server, &acknowledged, is_over);
        // The clients end when their connections break.
        server.kill();
        outcome
    })
}

fn watch(
    settings: &Settings,
    plan: &Plan,
    disk: &mut Disk,
    server: &mut Server,
    acknowledged: &AtomicU64,
    is_over: &AtomicBool,
) -> Result<Loaded, GraceError> {
    let began = Instant::now();
    let mut slow_at = plan.slow_at;
    let mut look = |disk: &mut Disk| {
        if let Some(at) = slow_at
            && began.elapsed() >= at
        {
            slow_at = None;
            disk.throttle(settings.low_rate_bytes_per_s)?;
        }
        std::thread::sleep(LOOK_EVERY);
        match is_over.load(Ordering::Relaxed) {
            true => Err(GraceError::Interrupted),
            false => Ok(()),
        }
    };
    while began.elapsed() < settings.load {
        look(disk)?;
    }
    let writes = acknowledged.load(Ordering::Relaxed);
    let writes_per_s = writes as f64 / began.elapsed().as_secs_f64();
    // A pause comes last: it stops the others.
    let mut order = plan.stuck.clone();
    order.sort_by_key(|how| *how == Stuck::Pausing);
    let mut stuck = Vec::new();
    for how in order {
        stuck.push(clients::get_stuck(&server.address, how)?);
    }
    server.warn();
    let warned = Instant::now();
    while server.is_running() && warned.elapsed() < settings.grace {
        look(disk)?;
    }
    let to_safe = server.has_succeeded().then(|| warned.elapsed());
    Ok(Loaded { writes_per_s, to_safe })
}
