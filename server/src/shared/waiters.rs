//! The clients that wait for data of keys (BLPOP and its like), on any loop.
//!
//! One lock orders all that happens to them: a client is added, served, given up or unblocked by
//! who holds it. So exactly one of these ends a wait, and clients are served in the order in which
//! they began to wait. A command that changes keys takes the lock only if somebody may wait for one
//! of them: the counts by hash are read without it.
//!
//! The lock comes before all locks of the store. Who runs inside a transaction must have taken it
//! before (EXEC with CLIENT UNBLOCK does).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perdura_store::{DATABASES, Kind};

use super::card::Card;
use crate::session::Queued;

/// A client that waits, and the command that it waits with.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// The place in the order in which clients began to wait.
    pub number: u64,
    pub client: Arc<Card>,
    pub db: u8,
    pub resp3: bool,
    pub command: Queued,
    /// The arguments that name the keys waited for.
    pub keys: Range<usize>,
    /// The kind that a key must have for the command to find something.
    pub kind: Kind,
    /// Whether the command is also run when a key has gone or has another kind: it answers with an
    /// error then.
    pub on_other: bool,
    pub has_deadline: bool,
    /// Nanoseconds that the first look at the keys took, which has found nothing.
    pub looked_ns: u64,
}

/// The answer to a client that has waited, on its way to the client's loop.
#[derive(Debug)]
pub(crate) struct Served {
    pub client: Arc<Card>,
    pub reply: Vec<u8>,
    /// Whether data has changed.
    pub wrote: bool,
}

/// The clients that wait for one key.
#[derive(Debug, Default)]
struct Queue {
    waiters: BTreeMap<u64, Arc<Waiter>>,
    /// How many of them also wait for the key to go.
    on_other: usize,
}

/// All clients that wait.
#[derive(Debug)]
pub(crate) struct Waiters {
    queues: Mutex<Queues>,
    counts: Counts,
}

/// The numbers that are read without the lock, and written with it.
#[derive(Debug)]
struct Counts {
    clients: AtomicUsize,
    with_deadline: AtomicUsize,
    keys: AtomicUsize,
    /// Keys with clients that wait for them to go.
    keys_on_other: AtomicUsize,
    /// The clients of the keys of each hash; one that waits for several keys counts for each.
    by_hash: Box<[AtomicU32]>,
}

/// The waiting clients by keys and by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    next: u64,
    clients: BTreeMap<u64, Arc<Waiter>>,
    /// By database.
    keys: [BTreeMap<Box<[u8]>, Queue>; DATABASES as usize],
}

impl Default for Waiters {
    fn default() -> Self {
        let counts = Counts {
            clients: AtomicUsize::new(0),
            with_deadline: AtomicUsize::new(0),
            keys: AtomicUsize::new(0),
            keys_on_other: AtomicUsize::new(0),
            by_hash: (0..HASHES).map(|_| AtomicU32::new(0)).collect(),
        };
        Self { queues: Mutex::default(), counts }
    }
}

/// Who waits, held so that nobody else changes it.
pub(crate) struct Held<'w> {
    queues: MutexGuard<'w, Queues>,
    counts: &'w Counts,
}

impl Waiters {
    /// Whether anybody waits.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.counts.clients.load(Acquire) > 0
    }

    /// Whether somebody may wait for a key. Sure to see a client that has looked at the key before
    /// the caller changed it, because both held the key's shard.
    pub fn may_be_for(&self, db: u8, key: &[u8]) -> bool {
        self.counts.by_hash[hash(db, key)].load(Acquire) > 0
    }

    /// Number of clients that wait, and of those that wait until a time.
    pub fn clients(&self) -> (usize, usize) {
        (self.counts.clients.load(Acquire), self.counts.with_deadline.load(Acquire))
    }

    /// Number of keys that are waited for, and of those whose end is waited for, too.
    pub fn keys(&self) -> (usize, usize) {
        (self.counts.keys.load(Acquire), self.counts.keys_on_other.load(Acquire))
    }

    /// Takes the lock.
    pub fn lock(&self) -> Held<'_> {
        // A panic of another loop ends the server; until then, what it has left is looked at only.
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        Held { queues, counts: &self.counts }
    }
}

impl Held<'_> {
    /// Adds a client behind all that wait already; its number is given here.
    pub fn add(&mut self, mut waiter: Waiter) {
        waiter.number = self.queues.next;
        self.queues.next += 1;
        let waiter = Arc::new(waiter);
        for key in waiter.names() {
            let queue = self.queues.keys[usize::from(waiter.db)].entry(key.into()).or_default();
            if queue.waiters.insert(waiter.number, Arc::clone(&waiter)).is_none() {
                if queue.waiters.len() == 1 {
                    self.counts.keys.fetch_add(1, Release);
                }
                self.counts.by_hash[hash(waiter.db, key)].fetch_add(1, Release);
                if waiter.on_other {
                    queue.on_other += 1;
                    if queue.on_other == 1 {
                        self.counts.keys_on_other.fetch_add(1, Release);
                    }
                }
            }
        }
        waiter.client.set_waits(true);
        self.counts.clients.fetch_add(1, Release);
        self.counts.with_deadline.fetch_add(usize::from(waiter.has_deadline), Release);
        self.queues.clients.insert(waiter.client.id, waiter);
    }

    /// Takes out the client with this number, if it waits. Who does so answers it.
    pub fn remove(&mut self, client: u64) -> Option<Arc<Waiter>> {
        let waiter = self.queues.clients.remove(&client)?;
        let keys = &mut self.queues.keys[usize::from(waiter.db)];
        for key in waiter.names() {
            let Some(queue) = keys.get_mut(key) else { continue };
            if queue.waiters.remove(&waiter.number).is_some() {
                self.counts.by_hash[hash(waiter.db, key)].fetch_sub(1, Release);
                if waiter.on_other {
                    queue.on_other -= 1;
                    if queue.on_other == 0 {
                        self.counts.keys_on_other.fetch_sub(1, Release);
                    }
                }
                if queue.waiters.is_empty() {
                    keys.remove(key);
                    self.counts.keys.fetch_sub(1, Release);
                }
            }
        }
        waiter.client.set_waits(false);
        self.counts.clients.fetch_sub(1, Release);
        self.counts.with_deadline.fetch_sub(usize::from(waiter.has_deadline), Release);
        Some(waiter)
    }

    /// The next client that waits for a key, in the order in which they began, from a number on.
    pub fn next_of(&self, db: u8, key: &[u8], from: u64) -> Option<Arc<Waiter>> {
        let queue = self.queues.keys[usize::from(db)].get(key)?;
        queue.waiters.range(from..).next().map(|(_, waiter)| Arc::clone(waiter))
    }

    /// Whether somebody waits for the end of a key.
    pub fn is_other_awaited(&self, db: u8, key: &[u8]) -> bool {
        self.queues.keys[usize::from(db)].get(key).is_some_and(|queue| queue.on_other > 0)
    }

    /// All keys that are waited for.
    pub fn all_keys(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let by_db = self.queues.keys.iter().zip(0..);
        by_db.flat_map(|(keys, db)| keys.keys().map(move |key| (db, &**key)))
    }
}

impl Waiter {
    /// The names of the keys that are waited for.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        let args = self.command.args();
        self.keys.clone().map(move |at| args.get(at))
    }
}

/// Number of the counts by hash.
const HASHES: usize = 1024;

fn hash(db: u8, key: &[u8]) -> usize {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325 ^ u64::from(db), fnv);
    (hash ^ (hash >> 32)) as usize % HASHES
}
