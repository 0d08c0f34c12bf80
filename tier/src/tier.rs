//! The whole: which device a request goes to, and what follows from it.

use std::collections::BTreeMap;

use crate::front::{Batch, Capacity, Fetched, Front};
use crate::ranges::Ranges;

/// A key, as a number that its hash and its order follow from.
pub type Key = u64;

/// Number of a device, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u16);

/// The shape of a tier.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Number of devices.
    pub devices: u16,
    /// Number of primaries at the start: at least 1.
    pub primaries: u16,
    /// Most idle devices behind one primary: the paper's M, 3 there.
    pub behind_max: u16,
    /// Cache and buffer of each primary.
    pub capacity: Capacity,
    /// What is fetched in advance.
    pub prefetch: Prefetch,
}

/// What is fetched in advance when an idle device is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefetch {
    /// Nothing.
    Off,
    /// What was used, the hottest first (Sprint-AEP, section III-C).
    Used,
    /// The same, and as long as a cache has room also what was never used, so that a cache which
    /// has room for everything has everything.
    All,
}

/// A request of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The key.
    pub key: Key,
    /// The length of the value to write; `None`: a read.
    pub write_bytes: Option<u32>,
}

/// Where a request is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Served {
    /// In the local area of a primary.
    Local {
        /// The primary.
        device: DeviceId,
        /// Length of the value.
        len_bytes: u32,
    },
    /// In the buffer or cache of a primary.
    Front {
        /// The primary.
        primary: DeviceId,
        /// Length of the value.
        len_bytes: u32,
    },
    /// On an idle device. What is to be fetched to its primary as well is told to
    /// [`Tier::fetched`] when it is there.
    Idle {
        /// The device.
        device: DeviceId,
        /// Its primary.
        primary: DeviceId,
        /// Length of the value.
        len_bytes: u32,
        /// Entries to fetch.
        fetch: Vec<Fetched>,
    },
    /// There is no such entry. Its device was asked.
    Nowhere(DeviceId),
    /// The buffer of this primary is full: the request waits for a sync.
    Full(DeviceId),
}

/// The log of one device that is being synced.
#[derive(Debug)]
pub struct Synced {
    /// The idle device that is written to.
    pub device: DeviceId,
    /// The primary that is read from.
    pub primary: DeviceId,
    batch: Batch,
}

impl Synced {
    /// The entries to write, and their lengths, in the order of their keys.
    pub fn entries(&self) -> impl Iterator<Item = (Key, u32)> {
        self.batch.entries.iter().map(|(key, len_bytes, _)| (*key, *len_bytes))
    }
}

/// An entry on its device.
#[derive(Debug, Clone, Copy)]
struct Own {
    len_bytes: u32,
    /// As far as the device was told.
    hotness: u32,
}

/// A device, and what it has.
#[derive(Debug, Default)]
struct Device {
    tree: BTreeMap<Key, Own>,
    /// Of an idle device: its entries that its primary does not have.
    hot: Ranges<Key>,
    /// Of an idle device.
    primary: Option<DeviceId>,
    is_syncing: bool,
}

/// Devices, and the values that lie on them.
#[derive(Debug)]
pub struct Tier {
    settings: Settings,
    devices: Vec<Device>,
    /// By number; `None`: an idle device.
    fronts: Vec<Option<Front>>,
}

impl Tier {
    /// A tier without values.
    ///
    /// # Panics
    /// When there is no primary, or more of them than devices, or so few that one has more idle
    /// devices behind it than it may.
    pub fn new(settings: Settings) -> Self {
        let Settings { devices, primaries, behind_max, .. } = settings;
        assert!((1..=devices).contains(&primaries), "{settings:?}");
        assert!(devices - primaries <= behind_max * primaries, "too few primaries: {settings:?}");
        let mut tier = Self {
            settings,
            devices: (0..devices).map(|_| Device::default()).collect(),
            fronts: (0..devices).map(|_| None).collect(),
        };
        tier.set_primaries(primaries);
        tier
    }

    /// The device that a key belongs to: the index' first layer.
    pub fn home(&self, key: Key) -> DeviceId {
        // The finalizer of MurmurHash3: keys that follow each other go to all devices.
        let mut hash = key;
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^= hash >> 33;
        DeviceId((hash % self.devices.len() as u64) as u16)
    }

    /// The primary before a device; `None`: it is a primary itself.
    pub fn primary_of(&self, device: DeviceId) -> Option<DeviceId> {
        self.devices[usize::from(device.0)].primary
    }

    /// Number of primaries.
    pub fn primaries(&self) -> u16 {
        self.fronts.iter().flatten().count() as u16
    }

    /// Number of entries, each counted once.
    #[cfg(test)]
    fn len(&self) -> usize {
        let new = |front: &Front| {
            let dirty = |device: DeviceId| {
                let tree = &self.devices[usize::from(device.0)].tree;
                let batch = front.batch(device);
                batch.entries.iter().filter(|(key, ..)| !tree.contains_key(key)).count()
            };
            front.devices().map(dirty).sum::<usize>()
        };
        self.devices.iter().map(|device| device.tree.len()).sum::<usize>()
            + self.fronts.iter().flatten().map(new).sum::<usize>()
    }

    /// Puts a value on its device, past buffer and cache, as before the first request.
    pub fn load(&mut self, key: Key, len_bytes: u32) {
        let home = self.home(key);
        let device = self.device(home);
        device.tree.insert(key, Own { len_bytes, hotness: 0 });
        if device.primary.is_some() {
            device.hot.put(key, 0);
        }
    }

    /// Serves a request: the entry counts as used, and a write is in its place.
    pub fn serve(&mut self, request: Request) -> Served {
        let home = self.home(request.key);
        let Some(primary) = self.primary_of(home) else {
            return self.serve_locally(home, request);
        };
        let Request { key, write_bytes } = request;
        if let Some(len_bytes) = write_bytes {
            if !self.front(primary).write(home, key, len_bytes) {
                return Served::Full(primary);
            }
            self.device(home).hot.remove(key);
            return Served::Front { primary, len_bytes };
        }
        if let Some(len_bytes) = self.front(primary).read(home, key) {
            return Served::Front { primary, len_bytes };
        }
        // The idle device is used, so it is told what it does not know yet.
        for (key, hotness) in self.front(primary).take_evicted(home) {
            self.tell_hotness(primary, home, key, hotness);
        }
        let device = self.device(home);
        let Some(own) = device.tree.get_mut(&key) else { return Served::Nowhere(home) };
        own.hotness = own.hotness.saturating_add(1);
        let Own { len_bytes, hotness } = *own;
        // One that is on its way to the cache was read just now once more.
        if !self.front(primary).has(home, key) {
            self.device(home).hot.put(key, hotness);
        }
        let fetch = match self.settings.prefetch {
            Prefetch::Off => Vec::new(),
            Prefetch::Used => self.fetch(primary, home, 1),
            Prefetch::All => self.fetch(primary, home, 0),
        };
        Served::Idle { device: home, primary, len_bytes, fetch }
    }

    fn serve_locally(&mut self, home: DeviceId, request: Request) -> Served {
        let tree = &mut self.device(home).tree;
        let before = tree.get(&request.key).copied();
        let Some(len_bytes) = request.write_bytes.or(before.map(|own| own.len_bytes)) else {
            return Served::Nowhere(home);
        };
        let hotness = before.map_or(0, |own| own.hotness).saturating_add(1);
        tree.insert(request.key, Own { len_bytes, hotness });
        Served::Local { device: home, len_bytes }
    }

    fn fetch(&mut self, primary: DeviceId, device: DeviceId, range_min: usize) -> Vec<Fetched> {
        let Device { tree, hot, .. } = &mut self.devices[usize::from(device.0)];
        let len_of = |key: Key| tree.get(&key).map_or(0, |own| own.len_bytes);
        match &mut self.fronts[usize::from(primary.0)] {
            Some(front) => front.fetch(device, hot, range_min, len_of),
            None => Vec::new(),
        }
    }

    /// Notes that entries have been fetched from a device to a primary. Those that were written
    /// meanwhile, or whose device has another primary by now, are dropped.
    pub fn fetched(&mut self, device: DeviceId, primary: DeviceId, entries: &[Fetched]) {
        if let Some(front) = &mut self.fronts[usize::from(primary.0)] {
            front.fetched(device, entries);
        }
    }

    /// The syncs that are due on a primary, one for each of its devices that has a log and is not
    /// being synced already. [`Tier::synced`] is told of each when it is done.
    pub fn due_syncs(&mut self, primary: DeviceId) -> Vec<Synced> {
        match &self.fronts[usize::from(primary.0)] {
            Some(front) if front.is_sync_due() => self.syncs(primary),
            _ => Vec::new(),
        }
    }

    /// Syncs of all devices behind a primary, whether they are due or not.
    pub fn syncs(&mut self, primary: DeviceId) -> Vec<Synced> {
        let Some(front) = &self.fronts[usize::from(primary.0)] else { return Vec::new() };
        // A batch takes a walk of the whole tree, so not while the last one is being written.
        let is_syncing = |it: &DeviceId| self.devices[usize::from(it.0)].is_syncing;
        let free = front.devices().filter(|device| !is_syncing(device));
        let mut batches: Vec<_> = free.map(|it| (it, front.batch(it))).collect();
        batches.retain(|(_, batch)| batch.log_bytes > 0);
        let synced = |(device, batch): (DeviceId, _)| {
            self.devices[usize::from(device.0)].is_syncing = true;
            Synced { device, primary, batch }
        };
        batches.into_iter().map(synced).collect()
    }

    /// Notes that a device has all that a sync was to write.
    pub fn synced(&mut self, synced: &Synced) {
        let Synced { device, primary, batch } = synced;
        let state = self.device(*device);
        state.is_syncing = false;
        for &(key, len_bytes, _) in &batch.entries {
            let hotness = state.tree.get(&key).map_or(0, |own| own.hotness);
            state.tree.insert(key, Own { len_bytes, hotness });
        }
        self.front(*primary).synced(*device, batch);
        // An idle device that is written to is told what it does not know yet.
        for (key, hotness) in self.front(*primary).take_evicted(*device) {
            self.tell_hotness(*primary, *device, key, hotness);
        }
    }

    /// The syncs after which the number of primaries can be changed to this: of all devices whose
    /// primary would be another.
    pub fn syncs_before(&mut self, primaries: u16) -> Vec<Synced> {
        let moves: Vec<_> = self.moves(primaries);
        let all = (0..self.settings.devices).map(DeviceId);
        let mut syncs: Vec<_> = all.flat_map(|primary| self.syncs(primary)).collect();
        syncs.retain(|synced| {
            let is_needed = moves.contains(&synced.device);
            if !is_needed {
                self.devices[usize::from(synced.device.0)].is_syncing = false;
            }
            is_needed
        });
        syncs
    }

    /// Changes the number of primaries: the first devices are primaries.
    ///
    /// # Panics
    /// When a log of a device whose primary changes is not empty.
    pub fn set_primaries(&mut self, primaries: u16) {
        let Settings { devices, behind_max, capacity, .. } = self.settings;
        assert!((1..=devices).contains(&primaries), "{primaries} primaries of {devices} devices");
        assert!(devices - primaries <= behind_max * primaries, "too few: {primaries}");
        for device in self.moves(primaries) {
            if let Some(primary) = self.device(device).primary.take() {
                for (key, hotness) in self.front(primary).take_away(device) {
                    if let Some(own) = self.device(device).tree.get_mut(&key) {
                        own.hotness = own.hotness.max(hotness);
                    }
                }
            }
            self.device(device).hot = Ranges::default();
        }
        for number in 0..devices {
            let front = &mut self.fronts[usize::from(number)];
            match number < primaries {
                true => _ = front.get_or_insert_with(|| Front::new(capacity)),
                false => *front = None,
            }
        }
        for device in (primaries..devices).map(DeviceId) {
            if self.primary_of(device).is_none() {
                let primary = Self::primary_for(device, primaries);
                let state = self.device(device);
                state.primary = Some(primary);
                let known: Vec<_> =
                    state.tree.iter().map(|(key, own)| (*key, own.hotness)).collect();
                known.into_iter().for_each(|(key, hotness)| state.hot.put(key, hotness));
                self.front(primary).add(device);
            }
        }
    }

    /// The devices that have another primary, or become or are no longer one, with so many
    /// primaries.
    fn moves(&self, primaries: u16) -> Vec<DeviceId> {
        let all = (0..self.settings.devices).map(DeviceId);
        let changes = |device: &DeviceId| {
            let is_primary = self.fronts[usize::from(device.0)].is_some();
            let wanted = (device.0 >= primaries).then(|| Self::primary_for(*device, primaries));
            self.primary_of(*device) != wanted || is_primary != wanted.is_none()
        };
        all.filter(changes).collect()
    }

    /// The primary of an idle device: they take turns.
    fn primary_for(device: DeviceId, primaries: u16) -> DeviceId {
        DeviceId((device.0 - primaries) % primaries)
    }

    fn tell_hotness(&mut self, primary: DeviceId, device: DeviceId, key: Key, hotness: u32) {
        let is_in_front = self.front(primary).has(device, key);
        let state = self.device(device);
        if let Some(own) = state.tree.get_mut(&key) {
            own.hotness = own.hotness.max(hotness);
            if !is_in_front {
                let hotness = own.hotness;
                state.hot.put(key, hotness);
            }
        }
    }

    /// Bytes in the buffer and in the cache of a primary.
    #[cfg(test)]
    fn used_bytes(&self, primary: DeviceId) -> (u64, u64) {
        self.fronts[usize::from(primary.0)].as_ref().map_or((0, 0), Front::used_bytes)
    }

    fn device(&mut self, device: DeviceId) -> &mut Device {
        &mut self.devices[usize::from(device.0)]
    }

    fn front(&mut self, primary: DeviceId) -> &mut Front {
        let front = self.fronts[usize::from(primary.0)].as_mut();
        front.unwrap_or_else(|| panic!("{primary:?} is no primary"))
    }
}

#[cfg(test)]
mod tests;
