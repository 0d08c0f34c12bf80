//! The devices of a store: opening them, adding one, taking one away, plugging one in again.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

use parking_lot::{Condvar, Mutex, RwLock};
use perdura_media::Clock;
use perdura_store::{FAR_ROOT_NAME, Heap, Store};

use super::assign::takes_batches;
use super::busy::Busy;
use super::device::{DeviceState, FarDevice, Named};
use super::error::DevicesError;
use super::format::Superblock;
use super::home::home_of;
use super::policy::{Level, Policy};
use super::readers::Readers;
use super::roles::Roles;

/// Name of the heap's root that has a bit for each device of the set.
const MEMBERS_ROOT_NAME: &str = "far devices";
/// Name of the heap's root that has the lowest number which no device ever had.
const NUMBERS_ROOT_NAME: &str = "far numbers";
/// Devices that a store can ever have: numbers are not used twice.
const DEVICES_MAX: u16 = 64;

/// The devices on which a store's values lie; the store's [`perdura_store::FarStorage`].
pub struct Devices {
    set: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) policy: Policy,
    members: RwLock<Vec<Arc<FarDevice>>>,
    pub(crate) readers: Readers,
    /// Held while a device comes or goes: members and the heap's roots change together.
    changing: Mutex<()>,
    /// Fewest uses of a value that is worth bringing back to memory.
    pub(crate) uses_to_return: AtomicU8,
    pub(crate) roles: Mutex<Roles>,
    /// Reads and writes of clients so far.
    pub(crate) client_reads: AtomicU64,
    pub(crate) client_writes: AtomicU64,
    /// Time in which a writer waited for memory.
    pub(crate) waiting: Busy,
    pub(crate) progress: Mutex<Progress>,
    /// Signalled when the mover has done something, or has found that it cannot.
    pub(crate) moved: Condvar,
    /// Signalled when the mover should look at once.
    pub(crate) wanted: Condvar,
}

/// What the mover has done, for those who wait for room in memory.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Whether a thread moves values.
    pub has_mover: bool,
    /// Whether somebody waits for room.
    pub is_wanted: bool,
    /// Whether the mover's thread is to end.
    pub is_over: bool,
    /// Values moved out of memory, and bytes of memory that this freed, since the opening.
    pub values: u64,
    pub bytes: u64,
    /// Times that somebody waited and nothing could be moved.
    pub failures: u64,
    /// Segments emptied, and values that were moved for it, since the opening.
    pub segments: u64,
    pub moved_on: u64,
    /// Why the last step ended early, if it did.
    pub last_error: Option<String>,
}

impl std::fmt::Debug for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Devices").field("set", &self.set).finish_non_exhaustive()
    }
}

impl Devices {
    /// Opens the devices of the store in `heap`. Devices that were never used become part of the
    /// set. With `allows_missing`, a device that has values may be left out; these cannot be read
    /// then.
    ///
    /// # Errors
    /// A device refuses, has something else, belongs to another store, or is missing.
    pub fn open(
        heap: &Heap,
        named: Vec<Named>,
        clock: Arc<dyn Clock>,
        policy: Policy,
        allows_missing: bool,
    ) -> Result<Arc<Self>, DevicesError> {
        let known: Vec<_> = named
            .into_iter()
            .map(|named| Ok((FarDevice::superblock(&named)?, named)))
            .collect::<Result<_, DevicesError>>()?;
        let set = match heap.root(FAR_ROOT_NAME) {
            Some(set) => set,
            None => {
                refuse_other_sets(&known, None)?;
                let set = new_set(&*clock);
                heap.set_root(FAR_ROOT_NAME, set)?;
                // Durable before a device names the set: after a loss of power between the two the
                // device would belong to a store that nobody knows.
                heap.region().checkpoint()?;
                set
            }
        };
        refuse_other_sets(&known, Some(set))?;
        let mut members: Vec<Arc<FarDevice>> = Vec::new();
        let (old, new): (Vec<_>, Vec<_>) =
            known.into_iter().partition(|(block, _)| block.is_some());
        for (superblock, named) in old {
            let Some(superblock) = superblock else { continue };
            if let Some(first) = members.iter().find(|one| one.number() == superblock.number) {
                let (first, second) = (first.place.clone(), named.place);
                return Err(DevicesError::Twice { first, second, number: superblock.number });
            }
            members.push(Arc::new(FarDevice::over(named, superblock, Arc::clone(&clock))));
        }
        let bits = heap.root(MEMBERS_ROOT_NAME).unwrap_or(0);
        let is_there = |number| members.iter().any(|member| member.number() == number);
        let missing = (0..DEVICES_MAX).find(|n| bits & 1 << n != 0 && !is_there(*n));
        if let Some(number) = missing.filter(|_| !allows_missing) {
            return Err(DevicesError::Missing { number });
        }
        let devices = Self {
            set,
            clock,
            policy,
            members: RwLock::new(members),
            readers: Readers::default(),
            changing: Mutex::default(),
            uses_to_return: AtomicU8::new(Level::default().uses_to_return()),
            roles: Mutex::default(),
            client_reads: AtomicU64::new(0),
            client_writes: AtomicU64::new(0),
            waiting: Busy::default(),
            progress: Mutex::default(),
            moved: Condvar::new(),
            wanted: Condvar::new(),
        };
        for (_, named) in new {
            devices.enter(heap, named)?;
        }
        let bits = devices.members().iter().fold(bits, |bits, one| bits | 1 << one.number());
        heap.set_root(MEMBERS_ROOT_NAME, bits)?;
        Ok(Arc::new(devices))
    }

    /// Makes a device that was never used part of the set.
    fn enter(&self, heap: &Heap, named: Named) -> Result<u16, DevicesError> {
        let _one_at_a_time = self.changing.lock();
        let bits = heap.root(MEMBERS_ROOT_NAME).unwrap_or(0);
        // The number of a device that was taken away could still be in an old state's addresses. A
        // start that was cut off may have left a device whose number is not noted.
        let used = self.members().iter().map(|member| member.number() + 1).max().unwrap_or(0);
        let noted = heap.root(NUMBERS_ROOT_NAME).unwrap_or(0);
        let number = used.max(u16::try_from(noted).unwrap_or(u16::MAX));
        if number >= DEVICES_MAX {
            return Err(DevicesError::TooMany { max: DEVICES_MAX });
        }
        let segment_bytes = self.policy.segment_bytes;
        let superblock = Superblock { set: self.set, number, segment_bytes };
        let device = FarDevice::create(named, superblock, Arc::clone(&self.clock))?;
        heap.set_root(NUMBERS_ROOT_NAME, u64::from(number) + 1)?;
        heap.set_root(MEMBERS_ROOT_NAME, bits | 1 << number)?;
        self.members.write().push(Arc::new(device));
        Ok(number)
    }

    /// Adds a device, while the store is served. A device of the set that was missing or failed is
    /// used again, with all values that it has. Returns the device's number.
    ///
    /// # Errors
    /// The device refuses, has something else, or belongs to another store.
    pub fn add(&self, store: &Store, named: Named) -> Result<u16, DevicesError> {
        let number = self.enter_or_plug_in(store, named)?;
        self.assign_roles(&self.members());
        Ok(number)
    }

    fn enter_or_plug_in(&self, store: &Store, named: Named) -> Result<u16, DevicesError> {
        let superblock = FarDevice::superblock(&named)?;
        let Some(superblock) = superblock else { return self.enter(store.heap(), named) };
        let place = named.place.clone();
        if superblock.set != self.set {
            let (found, expected) = (superblock.set, self.set);
            return Err(DevicesError::OtherSet { place, found, expected });
        }
        let number = superblock.number;
        let Some(member) = self.member(number) else {
            // What it holds was not counted when memory was searched.
            return Err(DevicesError::NotCounted { place, number });
        };
        match member.state() {
            DeviceState::Failed(_) => {
                member.plug_in(named.device);
                tracing::info!(device = number, place, "device is plugged in again");
                Ok(number)
            }
            _ => Err(DevicesError::Twice { first: member.place.clone(), second: place, number }),
        }
    }

    /// Lets the file of a failed device go, which the device's directory may be given again for.
    pub fn let_go_failed(&self, place: &str) {
        for member in self.members().iter().filter(|member| member.place == place) {
            if matches!(member.state(), DeviceState::Failed(_)) {
                member.unplug();
            }
        }
    }

    /// Begins to take a device away: its values move to the other devices while the store is
    /// served. [`Devices::status`] no longer lists it once that is done.
    ///
    /// # Errors
    /// There is no such device, it has failed, or no other one takes values.
    pub fn remove(&self, number: u16) -> Result<(), DevicesError> {
        let member = self.member(number).ok_or(DevicesError::Unknown { number })?;
        if matches!(member.state(), DeviceState::Failed(_)) {
            return Err(DevicesError::HasFailed { number });
        }
        let others = |one: &Arc<FarDevice>| one.number() != number && one.takes_values();
        if !self.members().iter().any(others) {
            return Err(DevicesError::Last { number });
        }
        member.is_leaving.store(true, Relaxed);
        self.wanted.notify_all();
        Ok(())
    }

    /// Gives up a device that has failed or is missing, with all values that lie there: a start no
    /// longer asks for it. Keys whose values lay there stay, and cannot be read.
    ///
    /// # Errors
    /// The device works, or the store refuses.
    pub fn give_up(&self, store: &Store, number: u16) -> Result<(), DevicesError> {
        let _one_at_a_time = self.changing.lock();
        let bits = store.heap().root(MEMBERS_ROOT_NAME).unwrap_or(0);
        let member = self.member(number);
        match member.as_ref().map(|member| member.state()) {
            Some(DeviceState::Online | DeviceState::Leaving) => {
                return Err(DevicesError::Works { number });
            }
            None if number >= DEVICES_MAX || bits & 1 << number == 0 => {
                return Err(DevicesError::Unknown { number });
            }
            Some(DeviceState::Failed(_)) | None => {}
        }
        store.heap().set_root(MEMBERS_ROOT_NAME, bits & !(1 << number))?;
        store.region().checkpoint()?;
        self.members.write().retain(|one| one.number() != number);
        tracing::warn!(device = number, "device was given up with its values");
        Ok(())
    }

    /// Forgets a device on which no value lies any more.
    pub(crate) fn forget(&self, store: &Store, number: u16) -> Result<(), DevicesError> {
        let _one_at_a_time = self.changing.lock();
        let bits = store.heap().root(MEMBERS_ROOT_NAME).unwrap_or(0);
        store.heap().set_root(MEMBERS_ROOT_NAME, bits & !(1 << number))?;
        // Before the device is made blank: a state that names it must not find another one.
        store.region().checkpoint()?;
        let Some(member) = self.member(number) else { return Ok(()) };
        self.members.write().retain(|one| one.number() != number);
        let place = member.place.clone();
        member.forget_set().map_err(|source| DevicesError::Device { place, source })?;
        tracing::info!(device = number, place = member.place, "device was taken away");
        Ok(())
    }

    /// All devices of the set.
    pub(crate) fn members(&self) -> Vec<Arc<FarDevice>> {
        self.members.read().clone()
    }

    pub(crate) fn member(&self, number: u16) -> Option<Arc<FarDevice>> {
        self.members.read().iter().find(|one| one.number() == number).cloned()
    }
}

/// The index, among `members`, of the device that a key's value is written to: its home among the
/// primaries, or the next best if that takes none. Roles are advice: where no primary takes values
/// any device that does is as good, so that nobody waits for a change of roles.
pub(crate) fn target(members: &[Arc<FarDevice>], db: u8, key: &[u8]) -> Option<usize> {
    let home = |is_ready: fn(&FarDevice) -> bool| {
        let ready = members.iter().enumerate().filter(|(_, member)| is_ready(member));
        home_of(db, key, ready.map(|(index, member)| (member.number(), index)))
    };
    home(takes_batches)
        .or_else(|| home(|member| member.takes_values() && !member.is_full.load(Relaxed)))
}

fn refuse_other_sets(
    known: &[(Option<Superblock>, Named)],
    expected: Option<u64>,
) -> Result<(), DevicesError> {
    for (superblock, named) in known {
        if let Some(superblock) = superblock
            && Some(superblock.set) != expected
        {
            let place = named.place.clone();
            let expected = expected.unwrap_or(0);
            return Err(DevicesError::OtherSet { place, found: superblock.set, expected });
        }
    }
    Ok(())
}

/// A number that no other store's set is likely to have.
fn new_set(clock: &dyn Clock) -> u64 {
    let seed = (clock.unix_ms() << 20) ^ clock.now_ns() ^ u64::from(std::process::id());
    xxhash_rust::xxh3::xxh3_64(&seed.to_le_bytes()).max(1)
}
