//! A battery-backed DRAM before all devices (not in the paper): buffer and cache in one, so that
//! devices work in compact bursts and sleep between them.
//!
//! - A write is durable when it is here, because of the battery. It stays *dirty* until its device
//!   has it. An entry that is written again is changed in place, so a hot one reaches its device
//!   rarely, unlike in a log, which has each write until the sync.
//! - Dirty and clean entries share the room. Only clean ones are evicted, the coldest first.
//! - When the dirty ones reach 90 % of what may be dirty, the coldest of them go to their devices
//!   in one burst, in the order of their keys. They stay here, clean, without being copied.
//! - What was read from a device is kept if there is room, or something colder to evict for it.
//!   What was written meanwhile is not replaced by what comes from the device.
//!
//! Hotness is metadata, which the trees have of every entry: that of entries which are not here is
//! known, and does not count as room.

use std::collections::HashMap;

use crate::ranges::{Ranges, range_of};
use crate::tier::Key;

/// A burst begins when the dirty bytes reach this part of those that may be dirty, percent.
const BURST_PERCENT: u64 = 90;
/// A burst leaves this part of the bytes that may be dirty, percent. The more it leaves, the more
/// is written again before it leaves; the less, the longer bursts and the sleep between them are.
const LEFT_PERCENT: u64 = 85;

/// Room of the DRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DramCapacity {
    /// Bytes of all values.
    pub bytes: u64,
    /// Bytes of values that may be dirty: what the battery can save.
    pub dirty_max_bytes: u64,
}

/// A value that a burst writes to its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destage {
    /// The entry.
    pub key: Key,
    /// Its length.
    pub len_bytes: u32,
    /// The number of the write.
    write: u64,
}

/// A read that was not served here. [`Dram::arrived`] is told when its device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// The entry.
    pub key: Key,
    number: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    len_bytes: u32,
    hotness: u32,
    /// The number of the write, if its device does not have it yet.
    dirty: Option<u64>,
}

/// The DRAM before all devices.
#[derive(Debug)]
pub struct Dram {
    capacity: DramCapacity,
    entries: HashMap<Key, Entry>,
    clean: Ranges<Key>,
    /// Dirty entries that no burst has taken, and those that were written again since.
    dirty: Ranges<Key>,
    /// Hotness of entries that are not here.
    elsewhere: HashMap<Key, u32>,
    /// The last read of each entry that is on its way here.
    coming: HashMap<Key, u64>,
    used_bytes: u64,
    dirty_bytes: u64,
    /// Values of the burst that their devices do not have yet.
    under_way: usize,
    writes: u64,
    misses: u64,
}

impl Dram {
    /// An empty DRAM.
    ///
    /// # Panics
    /// When more may be dirty than there is room for.
    pub fn new(capacity: DramCapacity) -> Self {
        assert!(capacity.dirty_max_bytes <= capacity.bytes, "{capacity:?}");
        Self {
            capacity,
            entries: HashMap::new(),
            clean: Ranges::default(),
            dirty: Ranges::default(),
            elsewhere: HashMap::new(),
            coming: HashMap::new(),
            used_bytes: 0,
            dirty_bytes: 0,
            under_way: 0,
            writes: 0,
            misses: 0,
        }
    }

    /// Writes an entry, which counts as used. False: too much would be dirty until a burst has
    /// written some, and nothing was done. That is for ever if the value alone is longer than what
    /// may be dirty.
    pub fn write(&mut self, key: Key, len_bytes: u32) -> bool {
        let before = self.entries.get(&key).copied();
        let len_of = |entry: &Entry| u64::from(entry.len_bytes);
        let freed_bytes = before.as_ref().map_or(0, len_of);
        let cleaned_bytes = before.filter(|it| it.dirty.is_some()).as_ref().map_or(0, len_of);
        let dirty_bytes = self.dirty_bytes - cleaned_bytes + u64::from(len_bytes);
        if dirty_bytes > self.capacity.dirty_max_bytes {
            return false;
        }
        // It is out of the list, so that it is not evicted for itself.
        self.clean.remove(key);
        let has_room = self.make_room(u64::from(len_bytes).saturating_sub(freed_bytes), |_| true);
        assert!(has_room, "what may be dirty has room when all that is clean is evicted");
        self.writes += 1;
        let known = self.elsewhere.remove(&key).unwrap_or(0);
        let hotness = before.map_or(known, |it| it.hotness).saturating_add(1);
        self.entries.insert(key, Entry { len_bytes, hotness, dirty: Some(self.writes) });
        self.dirty.put(key, hotness);
        self.coming.remove(&key);
        self.used_bytes = self.used_bytes - freed_bytes + u64::from(len_bytes);
        self.dirty_bytes = dirty_bytes;
        true
    }

    /// Reads an entry, which counts as used: its length, or that its device must be asked.
    pub fn read(&mut self, key: Key) -> Result<u32, Missed> {
        let Some(entry) = self.entries.get_mut(&key) else {
            let hotness = self.elsewhere.entry(key).or_default();
            *hotness = hotness.saturating_add(1);
            self.misses += 1;
            self.coming.insert(key, self.misses);
            return Err(Missed { key, number: self.misses });
        };
        entry.hotness = entry.hotness.saturating_add(1);
        let Entry { len_bytes, hotness, dirty } = *entry;
        if dirty.is_none() {
            self.clean.put(key, hotness);
        } else if self.dirty.remove(key).is_some() {
            // Not one that the burst has: it is on its way out.
            self.dirty.put(key, hotness);
        }
        Ok(len_bytes)
    }

    /// Notes what a device had of an entry that was missed; `None`: there is no such entry. True:
    /// the value is kept here.
    pub fn arrived(&mut self, missed: Missed, len_bytes: Option<u32>) -> bool {
        let Missed { key, number } = missed;
        if self.coming.get(&key) != Some(&number) {
            return false;
        }
        self.coming.remove(&key);
        let Some(len_bytes) = len_bytes else {
            self.elsewhere.remove(&key);
            return false;
        };
        let hotness = self.elsewhere.get(&key).copied().unwrap_or(0);
        let range = range_of(hotness);
        if !self.make_room(u64::from(len_bytes), |coldest| coldest < range) {
            return false;
        }
        self.elsewhere.remove(&key);
        self.entries.insert(key, Entry { len_bytes, hotness, dirty: None });
        self.clean.put(key, hotness);
        self.used_bytes += u64::from(len_bytes);
        true
    }

    /// The burst that is due, in the order of its keys. It is empty while another is under way.
    /// [`Dram::destaged`] is told of each value that its device has.
    pub fn burst(&mut self) -> Vec<Destage> {
        let DramCapacity { dirty_max_bytes, .. } = self.capacity;
        if self.under_way > 0 || self.dirty_bytes * 100 < dirty_max_bytes * BURST_PERCENT {
            return Vec::new();
        }
        let mut burst = Vec::new();
        let mut left_bytes = self.dirty_bytes;
        while left_bytes * 100 > dirty_max_bytes * LEFT_PERCENT {
            let Some((key, _)) = self.dirty.coldest() else { break };
            self.dirty.remove(key);
            if let Some(Entry { len_bytes, dirty: Some(write), .. }) = self.entries.get(&key) {
                left_bytes -= u64::from(*len_bytes);
                burst.push(Destage { key, len_bytes: *len_bytes, write: *write });
            }
        }
        burst.sort_unstable_by_key(|one| one.key);
        self.under_way = burst.len();
        burst
    }

    /// Notes that a device has a value of the burst. One that was written again meanwhile stays
    /// dirty.
    pub fn destaged(&mut self, one: Destage) {
        self.under_way -= 1;
        let Some(entry) = self.entries.get_mut(&one.key) else { return };
        if entry.dirty == Some(one.write) {
            entry.dirty = None;
            let hotness = entry.hotness;
            self.dirty_bytes -= u64::from(one.len_bytes);
            self.clean.put(one.key, hotness);
        }
    }

    /// Evicts clean entries, the coldest first and as long as `may` allows their ranges, until
    /// there is room. False: there is not enough.
    fn make_room(&mut self, len_bytes: u64, may: impl Fn(usize) -> bool) -> bool {
        while self.used_bytes + len_bytes > self.capacity.bytes {
            let Some((key, range)) = self.clean.coldest() else { return false };
            if !may(range) {
                return false;
            }
            self.clean.remove(key);
            if let Some(entry) = self.entries.remove(&key) {
                self.used_bytes -= u64::from(entry.len_bytes);
                self.elsewhere.insert(key, entry.hotness);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
