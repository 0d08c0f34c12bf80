//! What the event loops share.
//!
//! Most of it is read by all loops and written seldom: the configuration, a pause, whether the
//! server ends. What a loop writes often is its own ([`Own`]), in cache lines that no other loop
//! writes: its counters, and the cards of its clients.

mod card;
mod inbox;
mod latency;
mod memory;
mod monitors;
mod notices;
mod scripts;
mod stats;
mod times;
mod topics;
mod tracking;
mod waiters;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use perdura_media::Clock;
use perdura_store::Store;

pub(crate) use card::{Card, NO_COMMAND, NO_SLOT, flag as card_flag};
pub(crate) use inbox::{Bell, Inbox};
pub(crate) use latency::{Event, Events};
pub(crate) use memory::{MemoryLimit, Room};
pub(crate) use monitors::Monitors;
pub(crate) use scripts::{AboutRunning, Functions, Running, ScriptCache};
pub(crate) use stats::{Counter, Stats};
pub(crate) use times::Times;
pub(crate) use topics::{Message, Topic, Topics};
pub(crate) use tracking::{Keys, Push, Tracker, Tracking};
pub(crate) use waiters::{Held, Served, Waiter, Waiters};

use crate::acl::{AclLog, Users};
use crate::config::ServerConfig;
use crate::export::Exporting;
use crate::lately::{Counts, Lately};
use crate::parameters::Notify;
use crate::saving::Saving;

/// The state of the server that belongs to no loop.
pub(crate) struct Shared<'a> {
    pub store: &'a Store,
    pub clock: &'a dyn Clock,
    pub saving: Saving,
    pub exporting: Exporting,
    pub pause: Pause,
    pub memory_limit: MemoryLimit,
    pub slowlog: Mutex<Slowlog>,
    latency: Mutex<Events>,
    pub topics: Arc<Topics>,
    pub waiters: Waiters,
    pub scripts: ScriptCache,
    pub functions: Functions,
    pub tracking: Arc<Tracking>,
    pub monitors: Monitors,
    /// The first failure of a group commit: writes are refused from then on.
    pub latched: OnceLock<String>,
    pub started_ns: u64,
    pub started_unix_ms: u64,
    pub tcp_port: u16,
    pub tls_port: u16,
    /// Number of the next client.
    pub next_client: AtomicU64,
    pub clients_max_seen: AtomicU64,
    /// The most memory that was in use whenever somebody looked, bytes.
    pub used_bytes_max: AtomicU64,
    /// One for each loop.
    pub loops: Box<[Own]>,
    config: Mutex<Arc<ServerConfig>>,
    users: Mutex<Arc<Users>>,
    acl_log: Mutex<AclLog>,
    /// Number of changes of the configuration and of the users.
    config_changes: AtomicU64,
    is_ending: AtomicBool,
    lately: Mutex<Lately>,
    /// The counters at the last CONFIG RESETSTAT.
    reset: Mutex<Option<Stats>>,
}

/// What one loop writes. The alignment keeps the loops' cache lines apart, two by two, because
/// processors load them in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Own {
    pub stats: Stats,
    /// Write commands carried out since start.
    pub changes: Counter,
    /// Bytes of keys, fields and values in the write commands carried out since start.
    pub user_bytes: Counter,
    pub inbox: Arc<Inbox>,
    pub bell: Arc<Bell>,
    /// The script that the loop runs.
    pub running: Running,
    /// Connections that the loop has or is about to be handed.
    pub connected: AtomicUsize,
    cards: Mutex<BTreeMap<u64, Arc<Card>>>,
    /// Errors that were answered, by their first words.
    errors: Mutex<BTreeMap<Box<[u8]>, u64>>,
}

impl Own {
    fn new(commands: usize) -> io::Result<Self> {
        Ok(Self {
            stats: Stats::new(commands),
            changes: Counter::default(),
            user_bytes: Counter::default(),
            inbox: Arc::default(),
            bell: Arc::new(Bell::new()?),
            running: Running::default(),
            connected: AtomicUsize::new(0),
            cards: Mutex::default(),
            errors: Mutex::default(),
        })
    }

    /// Counts an error by its first word. Words beyond many are not counted: scripts make their
    /// own.
    pub fn count_error(&self, word: &[u8]) {
        let mut errors = lock(&self.errors);
        if let Some(count) = errors.get_mut(word) {
            *count += 1;
        } else if errors.len() < ERROR_WORDS_MAX {
            errors.insert(word.into(), 1);
        }
    }

    /// The cards of the loop's clients, by their numbers.
    pub fn cards(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Card>>> {
        // An insertion or a removal that has panicked leaves a map that is whole.
        self.cards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Shared<'a> {
    /// The shared state of so many loops, for `commands` commands.
    ///
    /// # Errors
    /// The system has no event file descriptor left, or the libraries of functions that the store
    /// keeps cannot be loaded.
    pub fn new(
        store: &'a Store,
        clock: &'a dyn Clock,
        config: &ServerConfig,
        users: Users,
        loops: usize,
        commands: usize,
    ) -> io::Result<Self> {
        let (started_ns, started_unix_ms) = (clock.now_ns(), clock.unix_ms());
        config.apply_to(store);
        let functions = Functions::default();
        let kept = crate::commands::kept_functions(store, clock, config.script_memory_max);
        let failed = |why| format!("the libraries of functions in the store: {why}");
        functions.set(kept.map_err(|why| io::Error::other(failed(why)))?);
        let all = (0..loops.max(1)).map(|_| Own::new(commands));
        let all: Box<[Own]> = all.collect::<io::Result<_>>()?;
        let mailboxes = || all.iter().map(|own| (Arc::clone(&own.inbox), Arc::clone(&own.bell)));
        let topics = Arc::new(Topics::new(mailboxes()));
        let tracking = Arc::new(Tracking::new(mailboxes()));
        notices::publish_events(store, &topics, config.notify);
        Ok(Self {
            store,
            clock,
            saving: Saving::new(started_unix_ms),
            exporting: Exporting::new(),
            pause: Pause::default(),
            memory_limit: MemoryLimit::default(),
            slowlog: Mutex::default(),
            latency: Mutex::default(),
            topics,
            waiters: Waiters::default(),
            scripts: ScriptCache::default(),
            functions,
            monitors: Monitors::default(),
            tracking,
            latched: OnceLock::new(),
            started_ns,
            started_unix_ms,
            tcp_port: 0,
            tls_port: 0,
            next_client: AtomicU64::new(1),
            clients_max_seen: AtomicU64::new(0),
            used_bytes_max: AtomicU64::new(0),
            loops: all,
            config: Mutex::new(Arc::new(config.clone())),
            users: Mutex::new(Arc::new(users)),
            acl_log: Mutex::default(),
            config_changes: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
            lately: Mutex::default(),
            reset: Mutex::default(),
        })
    }

    /// The configuration in force, held so that nobody else changes it meanwhile.
    pub fn config(&self) -> MutexGuard<'_, Arc<ServerConfig>> {
        // A change is one assignment.
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the configuration that `held` has.
    pub fn set_config(&self, held: &mut MutexGuard<'_, Arc<ServerConfig>>, config: ServerConfig) {
        **held = Arc::new(config);
        self.config_changes.fetch_add(1, Release);
    }

    /// The users in force, held so that nobody else changes them meanwhile.
    pub fn users(&self) -> MutexGuard<'_, Arc<Users>> {
        lock(&self.users)
    }

    /// Changes the users that `held` has.
    pub fn set_users(&self, held: &mut MutexGuard<'_, Arc<Users>>, mut users: Users) {
        users.version = held.version + 1;
        **held = Arc::new(users);
        self.config_changes.fetch_add(1, Release);
    }

    /// What users tried and may not do.
    pub fn acl_log(&self) -> MutexGuard<'_, AclLog> {
        lock(&self.acl_log)
    }

    /// Number of changes of the configuration and of the users so far.
    pub fn config_changes(&self) -> u64 {
        self.config_changes.load(Acquire)
    }

    /// Ends all loops: a client has said SHUTDOWN, or a loop has failed.
    pub fn end(&self) {
        self.is_ending.store(true, Release);
        self.ring_all();
    }

    /// Whether the loops are to end.
    #[inline]
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Acquire)
    }

    /// Wakes all loops.
    pub fn ring_all(&self) {
        self.loops.iter().for_each(|own| own.bell.ring());
    }

    /// All loops' counters together, since the last CONFIG RESETSTAT.
    pub fn stats(&self) -> Stats {
        let total = self.stats_since_start();
        match &*lock(&self.reset) {
            Some(before) => total.since(before),
            None => total,
        }
    }

    fn stats_since_start(&self) -> Stats {
        let commands = self.loops[0].stats.by_command.len();
        Stats::sum(commands, self.loops.iter().map(|own| &own.stats))
    }

    /// Sets the counters back (CONFIG RESETSTAT).
    pub fn reset_stats(&self) {
        *lock(&self.reset) = Some(self.stats_since_start());
        self.loops.iter().for_each(|own| lock(&own.errors).clear());
        self.clients_max_seen.store(self.connected() as u64, Relaxed);
    }

    /// Write commands carried out since start, by all loops.
    pub fn changes(&self) -> u64 {
        self.loops.iter().map(|own| own.changes.get()).sum()
    }

    /// Bytes of keys, fields and values in the write commands carried out since start.
    pub fn user_bytes(&self) -> u64 {
        self.loops.iter().map(|own| own.user_bytes.get()).sum()
    }

    /// Publishes these events of keys from now on.
    pub fn publish_events(&self, notify: Notify) {
        notices::publish_events(self.store, &self.topics, notify);
    }

    /// Notes the counts of this moment, about ten times a second.
    pub fn sample(&self, now_ns: u64) {
        let sum = |of: fn(&Stats) -> &Counter| {
            self.loops.iter().map(|own| of(&own.stats).get()).sum::<u64>()
        };
        let counts = Counts {
            commands: sum(|stats| &stats.commands),
            input_bytes: sum(|stats| &stats.net_input_bytes),
            output_bytes: sum(|stats| &stats.net_output_bytes),
            turns: sum(|stats| &stats.turns),
            busy_ns: sum(|stats| &stats.busy_ns),
        };
        lock(&self.lately).sample(now_ns, counts);
    }

    /// The mean rates of the last moments.
    pub fn lately(&self) -> Counts {
        lock(&self.lately).per_second()
    }

    /// Number of connections.
    pub fn connected(&self) -> usize {
        self.loops.iter().map(|own| own.connected.load(Relaxed)).sum()
    }

    /// Calls `f` with the card of each client, loop by loop.
    pub fn each_client(&self, mut f: impl FnMut(&Arc<Card>)) {
        for own in &self.loops {
            own.cards().values().for_each(&mut f);
        }
    }

    /// The card of the client with this number.
    pub fn card(&self, id: u64) -> Option<Arc<Card>> {
        self.loops.iter().find_map(|own| own.cards().get(&id).cloned())
    }

    /// Kills the clients for which `f` holds, and returns how many they are.
    pub fn kill(&self, f: impl Fn(&Card) -> bool) -> i64 {
        let mut killed = 0;
        self.each_client(|card| {
            if f(card) && card.kill() {
                self.loops[card.of_loop].inbox.kill();
                killed += 1;
            }
        });
        if killed > 0 {
            self.ring_all();
        }
        killed
    }

    /// What took long.
    pub fn latency(&self) -> MutexGuard<'_, Events> {
        lock(&self.latency)
    }

    /// The errors that all loops have answered with, by their first words.
    pub fn errors(&self) -> BTreeMap<Box<[u8]>, u64> {
        let mut all = BTreeMap::new();
        for own in &self.loops {
            for (word, count) in &*lock(&own.errors) {
                *all.entry(word.clone()).or_default() += count;
            }
        }
        all
    }

    /// The slowest commands.
    pub fn slowlog(&self) -> MutexGuard<'_, Slowlog> {
        lock(&self.slowlog)
    }
}

/// Locks one of the tables, also after a panic of another thread: each change of them is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// First words of errors that a loop counts.
const ERROR_WORDS_MAX: usize = 128;

/// The slowest commands of late, newest first.
#[derive(Debug, Default)]
pub(crate) struct Slowlog {
    pub entries: VecDeque<SlowEntry>,
    pub next_id: u64,
}

/// A slow command, as SLOWLOG GET reports it.
#[derive(Debug)]
pub(crate) struct SlowEntry {
    pub id: u64,
    pub unix_s: u64,
    pub time_us: u64,
    pub args: Vec<Vec<u8>>,
    pub client: String,
    pub client_name: Vec<u8>,
}

/// The pause that CLIENT PAUSE has asked for: in one word, so that it changes at once.
#[derive(Debug, Default)]
pub(crate) struct Pause(AtomicU64);

/// Bit of [`Pause`] that says that only writes wait. The others are the end of the pause,
/// monotonic nanoseconds.
const WRITES_ONLY: u64 = 1 << 63;

impl Pause {
    /// Pauses until then. A longer or stricter pause that is still running is kept.
    pub fn begin(&self, until_ns: u64, writes_only: bool, now_ns: u64) {
        let until_ns = until_ns.min(WRITES_ONLY - 1);
        let change = |word: u64| {
            let before_ns = word & !WRITES_ONLY;
            let is_strict = before_ns > now_ns && word & WRITES_ONLY == 0;
            let flag = if writes_only && !is_strict { WRITES_ONLY } else { 0 };
            Some(before_ns.max(until_ns) | flag)
        };
        // The function always gives a word.
        let _ = self.0.fetch_update(Release, Acquire, change);
    }

    /// Ends the pause.
    pub fn end(&self) {
        self.0.store(0, Release);
    }

    /// Until when commands wait, monotonic nanoseconds, and whether only writes do.
    #[inline]
    pub fn now(&self) -> (u64, bool) {
        let word = self.0.load(Acquire);
        (word & !WRITES_ONLY, word & WRITES_ONLY != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_and_a_stricter_pause_is_kept() {
        let pause = Pause::default();
        assert_eq!(pause.now(), (0, false));
        pause.begin(100, true, 10);
        assert_eq!(pause.now(), (100, true));
        pause.begin(50, false, 10);
        assert_eq!(pause.now(), (100, false));
        pause.begin(200, true, 20);
        assert_eq!(pause.now(), (200, false), "a strict pause was still running");
        pause.begin(300, true, 200);
        assert_eq!(pause.now(), (300, true), "the strict pause was over");
        pause.begin(u64::MAX, true, 200);
        assert_eq!(pause.now(), (u64::MAX >> 1, true));
        pause.end();
        assert_eq!(pause.now(), (0, false));
    }
}
