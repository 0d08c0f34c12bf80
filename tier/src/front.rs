//! What a primary has of the idle devices behind it: its buffer and its cache (Sprint-AEP, sections
//! III-A to III-C).
//!
//! The buffer is one log for each idle device. An entry that was written again has its older copy
//! in the log until the sync, so the log's length counts and not the entries'. After a sync its
//! entries belong to the cache, without being copied.

use std::collections::{BTreeMap, HashMap};

use crate::ranges::Ranges;
use crate::tier::{DeviceId, Key};

/// Bytes of a primary for the idle devices behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes of the cache.
    pub cache_bytes: u64,
    /// Bytes of the buffer.
    pub buffer_bytes: u64,
}

/// One part in this many of the cache is fetched in one go at most.
const FETCH_PART: u64 = 20;
/// A sync begins when the buffer is full by this many percent.
const SYNC_PERCENT: u64 = 80;

/// An entry of an idle device that its primary has.
#[derive(Debug, Clone, Copy)]
struct Entry {
    len_bytes: u32,
    hotness: u32,
    /// The number of the write, if it is not on its device yet.
    dirty: Option<u64>,
}

/// An entry that is on its way from an idle device to the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetched {
    /// The entry.
    pub key: Key,
    /// Its length.
    pub len_bytes: u32,
    hotness: u32,
    /// Number of the fetch.
    fetch: u64,
}

/// The log of one idle device, and the metadata of its entries that are in buffer and cache.
#[derive(Debug, Default)]
struct Behind {
    tree: BTreeMap<Key, Entry>,
    log_bytes: u64,
    /// Hotness of entries that were evicted, which the device has not been told.
    evicted: Vec<(Key, u32)>,
    /// Entries on their way here, whose room in the cache is taken. One that is written meanwhile
    /// is not waited for any more: what comes is older.
    fetching: HashMap<Key, Fetched>,
}

/// Buffer and cache of a primary.
#[derive(Debug)]
pub(crate) struct Front {
    capacity: Capacity,
    behind: BTreeMap<DeviceId, Behind>,
    /// Clean entries. The keys' devices are those that [`Front::behind`] has.
    cold: Ranges<(DeviceId, Key)>,
    cache_bytes: u64,
    buffer_bytes: u64,
    writes: u64,
    fetches: u64,
}

/// What a sync writes to one device.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Entries with their lengths and the numbers of their writes.
    pub entries: Vec<(Key, u32, u64)>,
    /// Bytes of the log that are free afterwards.
    pub log_bytes: u64,
}

impl Front {
    pub(crate) fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            behind: BTreeMap::new(),
            cold: Ranges::default(),
            cache_bytes: 0,
            buffer_bytes: 0,
            writes: 0,
            fetches: 0,
        }
    }

    /// The devices behind this primary.
    pub(crate) fn devices(&self) -> impl Iterator<Item = DeviceId> {
        self.behind.keys().copied()
    }

    /// Stands before one more device.
    pub(crate) fn add(&mut self, device: DeviceId) {
        self.behind.entry(device).or_default();
    }

    /// Stands before a device no more, whose log must be empty. Returns the hotness of its entries.
    pub(crate) fn take_away(&mut self, device: DeviceId) -> Vec<(Key, u32)> {
        let Some(behind) = self.behind.remove(&device) else { return Vec::new() };
        assert_eq!(behind.log_bytes, 0, "the log of device {device:?} was not synced");
        let mut told = behind.evicted;
        for (key, entry) in behind.tree {
            self.cold.remove((device, key));
            self.cache_bytes -= u64::from(entry.len_bytes);
            told.push((key, entry.hotness));
        }
        for (key, fetched) in behind.fetching {
            self.cache_bytes -= u64::from(fetched.len_bytes);
            told.push((key, fetched.hotness));
        }
        told
    }

    /// Writes an entry to its device's log. False: the buffer is full, and nothing was done.
    pub(crate) fn write(&mut self, device: DeviceId, key: Key, len_bytes: u32) -> bool {
        if self.buffer_bytes + u64::from(len_bytes) > self.capacity.buffer_bytes {
            return false;
        }
        let Some(behind) = self.behind.get_mut(&device) else { return false };
        self.writes += 1;
        let entry = Entry { len_bytes, hotness: 0, dirty: Some(self.writes) };
        let before = behind.tree.insert(key, entry);
        let hotness = before.map_or(0, |before| before.hotness).saturating_add(1);
        if let Some(entry) = behind.tree.get_mut(&key) {
            entry.hotness = hotness;
        }
        if let Some(before) = before.filter(|before| before.dirty.is_none()) {
            self.cold.remove((device, key));
            self.cache_bytes -= u64::from(before.len_bytes);
        }
        if let Some(older) = behind.fetching.remove(&key) {
            self.cache_bytes -= u64::from(older.len_bytes);
        }
        behind.log_bytes += u64::from(len_bytes);
        self.buffer_bytes += u64::from(len_bytes);
        true
    }

    /// Whether the buffer is so full that its logs are to be synced.
    pub(crate) fn is_sync_due(&self) -> bool {
        self.buffer_bytes * 100 >= self.capacity.buffer_bytes * SYNC_PERCENT
    }

    /// The length of an entry that is here, which counts as used.
    pub(crate) fn read(&mut self, device: DeviceId, key: Key) -> Option<u32> {
        let entry = self.behind.get_mut(&device)?.tree.get_mut(&key)?;
        entry.hotness = entry.hotness.saturating_add(1);
        if entry.dirty.is_none() {
            self.cold.put((device, key), entry.hotness);
        }
        Some(entry.len_bytes)
    }

    /// Whether an entry is here, or on its way.
    pub(crate) fn has(&self, device: DeviceId, key: Key) -> bool {
        let has = |it: &Behind| it.tree.contains_key(&key) || it.fetching.contains_key(&key);
        self.behind.get(&device).is_some_and(has)
    }

    /// What a sync of a device's log has to write, each entry once.
    pub(crate) fn batch(&self, device: DeviceId) -> Batch {
        let Some(behind) = self.behind.get(&device) else {
            return Batch { entries: Vec::new(), log_bytes: 0 };
        };
        let dirty = |(key, entry): (&Key, &Entry)| Some((*key, entry.len_bytes, entry.dirty?));
        let entries = behind.tree.iter().filter_map(dirty).collect();
        Batch { entries, log_bytes: behind.log_bytes }
    }

    /// Notes that a device has what a sync was to write. Entries that were written again meanwhile
    /// stay dirty; the others belong to the cache.
    pub(crate) fn synced(&mut self, device: DeviceId, batch: &Batch) {
        let Some(behind) = self.behind.get_mut(&device) else { return };
        behind.log_bytes -= batch.log_bytes;
        self.buffer_bytes -= batch.log_bytes;
        for &(key, len_bytes, write) in &batch.entries {
            let Some(entry) = behind.tree.get_mut(&key) else { continue };
            if entry.dirty == Some(write) {
                entry.dirty = None;
                self.cache_bytes += u64::from(len_bytes);
                self.cold.put((device, key), entry.hotness);
            }
        }
        while self.cache_bytes > self.capacity.cache_bytes && self.evict_coldest() {}
    }

    /// Evicts the coldest clean entry. False: there is none.
    fn evict_coldest(&mut self) -> bool {
        let Some(((device, key), _)) = self.cold.coldest() else { return false };
        self.cold.remove((device, key));
        if let Some(behind) = self.behind.get_mut(&device)
            && let Some(entry) = behind.tree.remove(&key)
        {
            self.cache_bytes -= u64::from(entry.len_bytes);
            behind.evicted.push((key, entry.hotness));
        }
        true
    }

    /// Takes the hotness of evicted entries, which their device is now told.
    pub(crate) fn take_evicted(&mut self, device: DeviceId) -> Vec<(Key, u32)> {
        self.behind.get_mut(&device).map_or_else(Vec::new, |it| std::mem::take(&mut it.evicted))
    }

    /// Chooses what to fetch of a device whose entries outside of the front are in `hot`: from the
    /// hottest down to `range_min`, as long as there is room in the cache, or something colder to
    /// evict for it.
    pub(crate) fn fetch(
        &mut self,
        device: DeviceId,
        hot: &mut Ranges<Key>,
        range_min: usize,
        len_of: impl Fn(Key) -> u32,
    ) -> Vec<Fetched> {
        self.fetches += 1;
        let mut fetched = Vec::new();
        let mut left_bytes = self.capacity.cache_bytes / FETCH_PART;
        while let Some((key, range)) = hot.hottest() {
            let len_bytes = len_of(key);
            let len = u64::from(len_bytes);
            if range < range_min || len > left_bytes {
                break;
            }
            let needs_room = |front: &Self| front.cache_bytes + len > front.capacity.cache_bytes;
            let is_colder = |front: &Self| front.cold.coldest().is_some_and(|it| it.1 < range);
            while needs_room(self) && is_colder(self) {
                self.evict_coldest();
            }
            let Some(behind) = self.behind.get_mut(&device) else { break };
            if self.cache_bytes + len > self.capacity.cache_bytes {
                break;
            }
            let hotness = hot.remove(key).unwrap_or(0);
            let one = Fetched { key, len_bytes, hotness, fetch: self.fetches };
            left_bytes -= len;
            self.cache_bytes += len;
            behind.fetching.insert(key, one);
            fetched.push(one);
        }
        fetched
    }

    /// Notes that fetched entries are in the cache.
    pub(crate) fn fetched(&mut self, device: DeviceId, entries: &[Fetched]) {
        let Some(behind) = self.behind.get_mut(&device) else { return };
        for one in entries {
            if behind.fetching.get(&one.key) != Some(one) {
                continue;
            }
            behind.fetching.remove(&one.key);
            let Fetched { key, len_bytes, hotness, .. } = *one;
            behind.tree.insert(key, Entry { len_bytes, hotness, dirty: None });
            self.cold.put((device, key), hotness);
        }
    }

    /// Whether an entry was evicted and its device has not been told.
    #[cfg(test)]
    pub(crate) fn is_evicted(&self, device: DeviceId, key: Key) -> bool {
        let is_it = |behind: &Behind| behind.evicted.iter().any(|evicted| evicted.0 == key);
        !self.has(device, key) && self.behind.get(&device).is_some_and(is_it)
    }

    /// Panics unless all counts agree with the trees.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let entries = || self.behind.values().flat_map(|behind| behind.tree.values());
        let clean = entries().filter(|entry| entry.dirty.is_none());
        let clean_bytes: u64 = clean.map(|entry| u64::from(entry.len_bytes)).sum();
        let fetching = self.behind.values().flat_map(|behind| behind.fetching.values());
        let on_their_way: u64 = fetching.map(|one| u64::from(one.len_bytes)).sum();
        assert_eq!(self.cache_bytes, clean_bytes + on_their_way);
        assert_eq!(self.cold.len(), entries().filter(|entry| entry.dirty.is_none()).count());
        let logs: u64 = self.behind.values().map(|behind| behind.log_bytes).sum();
        assert_eq!(self.buffer_bytes, logs);
        let Capacity { cache_bytes, buffer_bytes } = self.capacity;
        assert!(self.cache_bytes <= cache_bytes && self.buffer_bytes <= buffer_bytes);
    }

    /// Bytes in the buffer's logs and in the cache.
    #[cfg(test)]
    pub(crate) fn used_bytes(&self) -> (u64, u64) {
        (self.buffer_bytes, self.cache_bytes)
    }
}
