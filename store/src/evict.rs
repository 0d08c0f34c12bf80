//! Eviction: keys that go so that others have room, where the memory is used up.
//!
//! As in Redis, the key that goes is the worst of a few that are drawn at random. An operation that
//! finds no memory is rolled back, some keys of its own shard go, and it runs again: values of one
//! size replace each other so. Where that does not help, because the values that go have other
//! sizes, a whole run of slots is emptied, the worst of a few, and its memory serves for any size.
//!
//! Where much memory is free in slots of other sizes, nothing has to go: what lies in a run with
//! many free slots moves to other runs, and the run's memory serves for any size.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

use perdura_region::BLOCK_BYTES;
use perdura_slots::{Lane, LaneId, Run};

use crate::api::{Access, DATABASES, Key};
use crate::entry::Entry;
use crate::error::StoreError;
use crate::events::EventClass;
use crate::record::{Header, hash_key};
use crate::run::Patience;
use crate::store::{Place, Store};
use crate::table;
use crate::tx::Tx;

/// Which keys may be evicted, and which of them go first (Redis' `maxmemory-policy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum EvictionPolicy {
    /// None: an operation that needs more memory than there is fails.
    #[default]
    None = 0,
    /// Of all keys those that were not used for longest.
    AllLeastRecent = 1,
    /// Of all keys those that are used least often.
    AllLeastFrequent = 2,
    /// Any key.
    AllRandom = 3,
    /// Of the keys with an expiry those that were not used for longest.
    ExpiringLeastRecent = 4,
    /// Of the keys with an expiry those that are used least often.
    ExpiringLeastFrequent = 5,
    /// Any key with an expiry.
    ExpiringRandom = 6,
    /// Of the keys with an expiry those that expire soonest.
    ExpiringSoonest = 7,
}

impl EvictionPolicy {
    /// All policies.
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::AllLeastRecent,
        Self::AllLeastFrequent,
        Self::AllRandom,
        Self::ExpiringLeastRecent,
        Self::ExpiringLeastFrequent,
        Self::ExpiringRandom,
        Self::ExpiringSoonest,
    ];

    /// The policy's name in Redis.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "noeviction",
            Self::AllLeastRecent => "allkeys-lru",
            Self::AllLeastFrequent => "allkeys-lfu",
            Self::AllRandom => "allkeys-random",
            Self::ExpiringLeastRecent => "volatile-lru",
            Self::ExpiringLeastFrequent => "volatile-lfu",
            Self::ExpiringRandom => "volatile-random",
            Self::ExpiringSoonest => "volatile-ttl",
        }
    }

    /// Whether uses of keys are counted, and not the time since the last one.
    pub fn counts_uses(self) -> bool {
        matches!(self, Self::AllLeastFrequent | Self::ExpiringLeastFrequent)
    }

    /// Whether only keys with an expiry may go.
    pub fn is_of_expiring(self) -> bool {
        self as u8 >= Self::ExpiringLeastRecent as u8
    }
}

/// How a store evicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eviction {
    /// Which keys go.
    pub policy: EvictionPolicy,
    /// Keys that are drawn for each that goes, 1 to 64: the more, the better the choice.
    pub samples: u8,
    /// How much more seldom the count of a key grows the larger it is (Redis' `lfu-log-factor`).
    pub count_log_factor: u32,
    /// Minutes without a use that take one off a key's count; 0: none do (Redis' `lfu-decay-time`).
    pub count_decay_minutes: u32,
}

impl Default for Eviction {
    fn default() -> Self {
        Self {
            policy: EvictionPolicy::None,
            samples: 5,
            count_log_factor: 10,
            count_decay_minutes: 1,
        }
    }
}

/// What a store has for eviction.
#[derive(Default)]
pub(crate) struct Evictor {
    policy: AtomicU8,
    samples: AtomicU8,
    count_log_factor: AtomicU32,
    count_decay_minutes: AtomicU32,
    evicted: AtomicU64,
    /// Rounds so far, and whether much memory was free in slots at one of the last.
    rounds: AtomicU32,
    is_scattered: AtomicBool,
}

/// A key that may go, and how good that is: the one with the most badness goes.
struct Victim {
    db: u8,
    key: Box<[u8]>,
    badness: u64,
}

/// Buckets of the index that are looked at under one hold of a shard.
const BUCKETS_PER_HOLD: u64 = 256;
/// Keys that go at a time: the operations that follow find their memory free.
const KEYS_PER_ROUND: u32 = 4;
/// Rounds of an operation that take keys of its own shard only.
const OWN_ROUNDS: u32 = 4;
/// Runs of slots of which the worst is emptied.
const RUNS_DRAWN: u32 = 8;
/// Runs of slots of which the emptiest ones are tried.
const SPARSE_RUNS_DRAWN: u32 = 32;
const SPARSE_RUNS_TRIED: usize = 4;
/// Rounds between two looks at how much memory is free in slots: a look takes every shard's lock.
const ROUNDS_PER_LOOK: u32 = 64;
/// Memory is scattered while more than one in so many bytes is free in slots.
const SCATTERED_RATIO: u64 = 8;

impl Store {
    /// Says how keys are evicted from now on.
    pub fn set_eviction(&self, eviction: Eviction) {
        let Eviction { policy, samples, count_log_factor, count_decay_minutes } = eviction;
        self.recency.count_uses(policy.counts_uses(), count_log_factor, count_decay_minutes);
        let evictor = &self.evictor;
        evictor.samples.store(samples.clamp(1, 64), Relaxed);
        evictor.count_log_factor.store(count_log_factor, Relaxed);
        evictor.count_decay_minutes.store(count_decay_minutes, Relaxed);
        evictor.policy.store(policy as u8, Relaxed);
    }

    /// How keys are evicted.
    pub fn eviction(&self) -> Eviction {
        let evictor = &self.evictor;
        let policy = usize::from(evictor.policy.load(Relaxed));
        Eviction {
            policy: EvictionPolicy::ALL[policy],
            samples: evictor.samples.load(Relaxed),
            count_log_factor: evictor.count_log_factor.load(Relaxed),
            count_decay_minutes: evictor.count_decay_minutes.load(Relaxed),
        }
    }

    /// Keys that were evicted since the store was opened.
    pub fn evicted_keys(&self) -> u64 {
        self.evictor.evicted.load(Relaxed)
    }

    /// Bytes of memory that are in use, slot by slot. Free slots are counted under each shard's
    /// lock in turn.
    pub fn used_bytes(&self) -> u64 {
        let stats = self.heap.stats();
        let free_bytes = stats.free_bytes + self.heap.free_slot_bytes();
        stats.region_bytes.saturating_sub(free_bytes)
    }

    /// Evicts up to `keys` keys of all shards. Returns how many have gone: none if no key may go.
    ///
    /// # Errors
    /// The errors of [`Store::run`].
    pub fn evict_some(&self, keys: u32) -> Result<u32, StoreError> {
        let shards = u64::from(self.heap.shards());
        let mut gone = 0;
        for _ in 0..keys {
            let first = self.draw() % shards;
            let mut lanes = (first..first + shards).map(|at| LaneId((at % shards) as u16));
            let Some(victim) = lanes.find_map(|lane| self.victim_in(lane)) else { break };
            // One that another thread has removed in between has gone, too.
            self.evict_key(victim.db, &victim.key)?;
            gone += 1;
        }
        Ok(gone)
    }

    /// Makes room for an operation that has found none in a shard, for the `round`th time. Returns
    /// whether it is worth trying again.
    pub(crate) fn evict_for(&self, lane: LaneId, round: u32) -> Result<bool, StoreError> {
        if self.eviction().policy == EvictionPolicy::None {
            return Ok(false);
        }
        if self.is_scattered() && self.move_out_of_sparse_run()? {
            return Ok(true);
        }
        if round < OWN_ROUNDS {
            let mut gone = 0;
            for _ in 0..KEYS_PER_ROUND {
                let Some(victim) = self.victim_in(lane) else { break };
                gone += u32::from(self.evict_key(victim.db, &victim.key)?);
            }
            if gone > 0 {
                return Ok(true);
            }
        }
        if self.empty_worst_run()? {
            return Ok(true);
        }
        // Large values go piece by piece.
        let gone = self.evict_some(KEYS_PER_ROUND << round.min(8))?;
        Ok(self.reclaim() > 0 || gone > 0)
    }

    fn evict_key(&self, db: u8, bytes: &[u8]) -> Result<bool, StoreError> {
        let key = Key { db, bytes };
        let gone = self.run_with(Access::Key(key), Patience::ForBudget, |tx| {
            let place = tx.place(key);
            tx.find(&place, key).map_or(Ok(false), |found| {
                if tx.is_live(&place, &found) {
                    tx.tell(EventClass::EVICTED, "evicted", key);
                }
                tx.remove(&place, key, found)?;
                Ok(true)
            })
        })?;
        self.evictor.evicted.fetch_add(u64::from(gone), Relaxed);
        Ok(gone)
    }

    /// The worst of a few keys of a shard that may go; `None` if the shard has none.
    fn victim_in(&self, id: LaneId) -> Option<Victim> {
        let Eviction { policy, samples, .. } = self.eviction();
        let counts = self.key_counts.of(id);
        let number = |db: u8| match counts.get(db) {
            count if policy.is_of_expiring() => count.with_expiry,
            count => count.keys,
        };
        let total: u64 = (0..DATABASES).map(number).sum();
        let mut drawn = self.draw() % total.max(1);
        let own = (0..DATABASES).find(|db| match drawn.checked_sub(number(*db)) {
            Some(left) => {
                drawn = left;
                false
            }
            None => true,
        });
        let own = own.filter(|_| counts.is_known())?;
        // Keys may have gone since they were counted.
        let others = (0..DATABASES).filter(|db| *db != own && number(*db) > 0);
        std::iter::once(own).chain(others).find_map(|db| self.victim_of(id, db, policy, samples))
    }

    fn victim_of(&self, id: LaneId, db: u8, policy: EvictionPolicy, samples: u8) -> Option<Victim> {
        let (mut seen, mut worst) = (0, None::<Victim>);
        let (mut looked, mut from) = (0, None);
        loop {
            let lane = self.heap.lock(id);
            let root = self.root_of(id, db);
            let buckets = table::buckets(&lane, root);
            if looked >= buckets {
                return worst;
            }
            let first = *from.get_or_insert_with(|| self.draw() % buckets);
            for _ in 0..BUCKETS_PER_HOLD.min(buckets - looked) {
                table::for_each(&lane, root, (first + looked) % buckets, |found| {
                    if policy.is_of_expiring() && !found.expires() {
                        return;
                    }
                    let entry = Entry::new(&lane, found.record());
                    if policy.is_of_expiring() && entry.expire_at_ms.is_none() {
                        // Its fields expire, and not the key.
                        return;
                    }
                    seen += 1;
                    let badness = self.badness(&entry, policy);
                    if worst.as_ref().is_none_or(|worst| worst.badness < badness) {
                        worst = Some(Victim { db, key: entry.key().into(), badness });
                    }
                });
                looked += 1;
                if seen >= u32::from(samples) {
                    return worst;
                }
            }
        }
    }

    fn badness(&self, entry: &Entry<'_>, policy: EvictionPolicy) -> u64 {
        let hash = || hash_key(entry.header.db, entry.key());
        match policy {
            EvictionPolicy::None => 0,
            EvictionPolicy::AllLeastRecent | EvictionPolicy::ExpiringLeastRecent => {
                u64::from(self.recency.idle_s(hash()))
            }
            EvictionPolicy::AllLeastFrequent | EvictionPolicy::ExpiringLeastFrequent => {
                u64::from(u8::MAX - self.recency.count(hash()))
            }
            EvictionPolicy::AllRandom | EvictionPolicy::ExpiringRandom => self.draw(),
            EvictionPolicy::ExpiringSoonest => u64::MAX - entry.expire_at_ms.unwrap_or(u64::MAX),
        }
    }

    /// Evicts all keys of a run of slots, the worst of a few, so that its memory is free for
    /// anything. Returns whether there was one.
    fn empty_worst_run(&self) -> Result<bool, StoreError> {
        let policy = self.eviction().policy;
        let mut worst: Option<(u64, Run)> = None;
        for _ in 0..RUNS_DRAWN {
            let from = self.draw() % self.region().len_bytes();
            let Some(run) = self.heap.run_from(from).filter(|run| run.used > 0) else { continue };
            let lane = self.heap.lock(run.lane);
            let Some(records) = self.all_movable(&lane, &run) else { continue };
            let entries = records.iter().map(|at| Entry::new(&lane, *at));
            let (mut sum, mut may_go) = (0u128, true);
            for entry in entries {
                may_go &= !policy.is_of_expiring() || entry.expire_at_ms.is_some();
                sum += u128::from(self.badness(&entry, policy));
            }
            let badness = (sum / records.len().max(1) as u128) as u64;
            if may_go && worst.as_ref().is_none_or(|(worst, _)| *worst < badness) {
                worst = Some((badness, run));
            }
        }
        let Some((_, run)) = worst else { return Ok(false) };
        let mut lane = self.heap.lock(run.lane);
        let Some(records) = self.all_movable(&lane, &run).filter(|_| lane.freeze_run(&run)) else {
            return Ok(false);
        };
        let keys: Vec<_> = records.iter().map(|at| key_at(&lane, *at)).collect();
        drop(lane);
        let gone = keys.iter().try_for_each(|(db, key)| self.evict_key(*db, key).map(drop));
        let is_empty = self.heap.lock(run.lane).thaw_run(&run);
        gone.map(|()| is_empty)
    }

    /// Whether much memory is free in slots, where values of other sizes find no room.
    fn is_scattered(&self) -> bool {
        let evictor = &self.evictor;
        if evictor.rounds.fetch_add(1, Relaxed).is_multiple_of(ROUNDS_PER_LOOK) {
            let free_bytes = self.heap.free_slot_bytes();
            let is_scattered = free_bytes > self.region().len_bytes() / SCATTERED_RATIO;
            evictor.is_scattered.store(is_scattered, Relaxed);
        }
        evictor.is_scattered.load(Relaxed)
    }

    /// Moves all values of a run with many free slots to other slots, so that its memory is free
    /// for anything. Returns whether there was one.
    pub(crate) fn move_out_of_sparse_run(&self) -> Result<bool, StoreError> {
        let drawn = (0..SPARSE_RUNS_DRAWN).filter_map(|_| {
            let from = self.draw() % self.region().len_bytes();
            self.heap.run_from(from)
        });
        let used_bytes = |run: &Run| u64::from(run.used) * run.slot_bytes;
        // A shorter run shares its block with others, so memory that is free for any shard would
        // not come of it, but its values would take some of the reserve.
        let is_sparse = |run: &Run| used_bytes(run) * 4 <= run.len_bytes * 3;
        let is_block = |run: &Run| run.used > 0 && run.len_bytes >= BLOCK_BYTES;
        let mut sparse: Vec<Run> = drawn.filter(|run| is_block(run) && is_sparse(run)).collect();
        sparse.sort_unstable_by_key(|run| used_bytes(run) * 1024 / run.len_bytes);
        for run in sparse.iter().take(SPARSE_RUNS_TRIED) {
            let mut lane = self.heap.lock(run.lane);
            let records = self.all_movable(&lane, run).filter(|_| lane.freeze_run(run));
            let Some(records) = records else { continue };
            let keys: Vec<_> = records.iter().map(|at| key_at(&lane, *at)).collect();
            drop(lane);
            let moved = keys
                .iter()
                .try_for_each(|(db, bytes)| self.change_slot(Key { db: *db, bytes }, run));
            let is_empty = self.heap.lock(run.lane).thaw_run(run);
            match moved {
                // Other runs of this size are full.
                Err(StoreError::OutOfMemory { .. }) => {}
                Err(error) => return Err(error),
                Ok(()) if is_empty => return Ok(true),
                Ok(()) => {}
            }
        }
        Ok(false)
    }

    /// The records in a run's slots, if these hold whole values of keys and nothing else.
    fn all_movable(&self, lane: &Lane<'_>, run: &Run) -> Option<Vec<u64>> {
        if !lane.has_run(run) || run.slot_bytes < Header::SHORT_BYTES {
            return None;
        }
        let records: Vec<u64> =
            run.slots().filter(|slot| self.is_movable_at(lane, run, *slot)).collect();
        (records.len() as u32 == lane.used_slots(run)).then_some(records)
    }

    /// Takes the time at which keys are used from now on. A program that evicts keys, or shows for
    /// how long they were idle, calls this about once a second.
    pub fn keep_time(&self) {
        self.recency.set_time(self.clock.unix_ms());
    }

    /// Notes that a key is used.
    #[inline]
    pub(crate) fn note_use(&self, place: &Place) {
        self.recency.note(place.hash);
        if let Some(far) = &self.far {
            far.uses.note(place.hash);
        }
    }
}

/// The uses of a key, where another store says them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UseHint {
    /// Seconds for which the key was not used.
    IdleSeconds(u64),
    /// How often it was used lately, on Redis' logarithmic scale.
    Count(u8),
}

/// The key whose record lies at `at`, with its database.
fn key_at(lane: &Lane<'_>, at: u64) -> (u8, Box<[u8]>) {
    let entry = Entry::new(lane, at);
    (entry.header.db, entry.key().into())
}

impl Tx<'_> {
    /// Says when, or how often, a key was used. It counts as written before the transaction ends,
    /// even if that is rolled back: it is a hint.
    pub fn set_uses(&self, key: Key<'_>, uses: UseHint) {
        let (idle_s, count) = match uses {
            UseHint::IdleSeconds(idle_s) => (idle_s.min(u64::from(u32::MAX)) as u32, 0),
            UseHint::Count(count) => (0, count),
        };
        self.store.recency.set(self.place(key).hash, idle_s, count);
    }

    /// Notes that a key is used, without reading it. Returns whether there is such a key.
    pub fn note_use(&self, key: Key<'_>) -> bool {
        let is_there = self.has(key);
        if is_there {
            self.store.note_use(&self.place(key));
        }
        is_there
    }

    /// Seconds for which a key was not used, if there is such a key.
    pub fn idle_s(&self, key: Key<'_>) -> Option<u32> {
        self.has(key).then(|| self.store.recency.idle_s(self.place(key).hash))
    }

    /// How often a key was used lately, on Redis' logarithmic scale, if there is such a key.
    pub fn use_count(&self, key: Key<'_>) -> Option<u8> {
        self.has(key).then(|| self.store.recency.count(self.place(key).hash))
    }
}
