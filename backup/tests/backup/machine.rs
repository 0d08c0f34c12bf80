//! An image that changes, and a vault in memory that fails when it is told to.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_backup::vault::{Listed, Listing};
use perdura_backup::{
    BackupError, Owner, PointName, Seal, Source, Vault, VaultError, Writer, restore_to,
};
use perdura_image::copying::newest_commit;
use perdura_image::inspect::{Believe, image_bytes};
use perdura_image::superblock::read_superblock;
use perdura_media::{Clock, Device, SimClock, SimDevice};
use perdura_region::{BLOCK_BYTES, Config, Key, LaneId, Region};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

const BLOCKS: u64 = 16;

/// The key of all images here: frames that are not encrypted take a shorter way.
pub fn key() -> Key {
    Key::new([3; 32])
}

/// A region on a simulated device, and what each of its commits holds.
pub struct Machine {
    region: Region,
    pub device: Arc<SimDevice>,
    pub clock: Arc<SimClock>,
    random: Mutex<Xoshiro256PlusPlus>,
    states: Mutex<HashMap<u64, Vec<u8>>>,
}

impl Machine {
    pub fn new(seed: u64) -> Self {
        Self::on(Arc::new(SimDevice::new(0, 1)), seed)
    }

    /// The machine with the image on a device, if there is one.
    pub fn on(device: Arc<SimDevice>, seed: u64) -> Self {
        let clock = Arc::new(SimClock::new(1_000));
        let config = Config {
            segment_bytes: Some(64 << 10),
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            seed,
            log_percent: 125,
            key: Some(key()),
            ..Config::new(BLOCKS * BLOCK_BYTES, 4 * BLOCK_BYTES)
        };
        let region = Region::open(device.clone(), clock.clone(), config).unwrap();
        let random = Mutex::new(Xoshiro256PlusPlus::seed_from_u64(seed));
        let machine = Self { region, device, clock, random, states: Mutex::default() };
        machine.checkpoint();
        machine
    }

    /// Closes the image, and opens it again.
    pub fn opened_anew(self, seed: u64) -> Self {
        self.region.close(1).unwrap();
        let device = Arc::clone(&self.device);
        drop(self);
        Self::on(device, seed)
    }

    pub fn below(&self, end: u64) -> u64 {
        self.random.lock().next_u64() % end
    }

    /// Writes at random places. All commits are made by this test, so that it knows each of them.
    pub fn write(&self, times: u64) {
        for _ in 0..times {
            let len = 1 + self.below(3000);
            let offset = self.below(BLOCKS * BLOCK_BYTES / 3000 - 1) * 3000;
            let offset = offset - offset % 8;
            let block_end = (offset / BLOCK_BYTES + 1) * BLOCK_BYTES;
            let bytes = vec![self.below(256) as u8; len.min(block_end - offset) as usize];
            let mut credit = 0;
            loop {
                let mut lane = self.region.lock_with(LaneId(0), std::mem::take(&mut credit));
                let Err(need) = lane.write(offset, &bytes) else { break };
                drop(lane);
                credit = self.region.satisfy(need).unwrap();
                self.note();
            }
        }
    }

    pub fn checkpoint(&self) {
        self.clock.sleep_ns(10_000_000);
        self.region.checkpoint().unwrap();
        self.note();
    }

    /// Notes what the newest commit holds.
    fn note(&self) {
        let commit = self.commit();
        let mut states = self.states.lock();
        let new = || image_bytes(&*self.device, Believe::Committed, Some(&key())).unwrap();
        states.entry(commit).or_insert_with(new);
    }

    fn commit(&self) -> u64 {
        let head = read_superblock(&*self.device).unwrap().unwrap();
        newest_commit(&*self.device, &head.geometry, head.image_id, None).unwrap().number
    }

    /// Restores a point and compares it with the state that its commit had.
    pub fn compare(
        &self,
        vault: &dyn Vault,
        seal: &Seal,
        name: &PointName,
    ) -> Result<(), BackupError> {
        let copy = SimDevice::new(0, 1);
        restore_to(vault, seal, name, &copy, Some(&key()))?;
        self.compare_copy(&copy, name);
        Ok(())
    }

    /// Compares the copy of a point with the state that its commit had.
    pub fn compare_copy(&self, copy: &dyn Device, name: &PointName) {
        let found = image_bytes(copy, Believe::Committed, Some(&key())).unwrap();
        let states = self.states.lock();
        let expected = states.get(&name.commit).expect("a commit that was never made");
        assert!(found == *expected, "{} restores another state", name.as_str());
    }
}

pub type Hook<'m> = Box<dyn Fn() + Send + Sync + 'm>;

/// A vault in memory, which a test may let fail.
#[derive(Default)]
pub struct Memory {
    pub objects: Mutex<HashMap<String, Vec<u8>>>,
    /// Operations that change something and are still done; then the process is killed.
    pub left: Mutex<Option<u64>>,
    /// Operations that were asked for.
    pub operations: Mutex<u64>,
}

impl Memory {
    fn failed(&self, what: &'static str, name: &str, is_missing: bool) -> VaultError {
        let (name, why) = (name.to_owned(), "planted".to_owned());
        VaultError { what, name, vault: self.describe(), why, is_missing }
    }

    fn step(&self, what: &'static str, name: &str) -> Result<(), VaultError> {
        *self.operations.lock() += 1;
        match &mut *self.left.lock() {
            Some(0) => Err(self.failed(what, name, false)),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        change(self.objects.lock().get_mut(name).unwrap());
    }

    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.objects.lock().keys().cloned().collect();
        names.sort_unstable();
        names
    }
}

impl Vault for Memory {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), VaultError> {
        self.step("put", name)?;
        let before = self.objects.lock().insert(name.to_owned(), bytes.to_vec());
        assert!(before.is_none(), "{name} was put twice");
        Ok(())
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool, VaultError> {
        self.step("put", name)?;
        let mut objects = self.objects.lock();
        let is_new = !objects.contains_key(name);
        if is_new {
            objects.insert(name.to_owned(), bytes.to_vec());
        }
        Ok(is_new)
    }

    fn get(&self, name: &str) -> Result<Vec<u8>, VaultError> {
        let found = self.objects.lock().get(name).cloned();
        found.ok_or_else(|| self.failed("get", name, true))
    }

    fn list(&self, folder: &str) -> Result<Listing, VaultError> {
        let mut listing = Listing::default();
        for (name, bytes) in self.objects.lock().iter() {
            let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
            let Some(rest) = name.strip_prefix(&prefix) else { continue };
            match rest.split_once('/') {
                Some((inner, _)) => listing.folders.push(inner.to_owned()),
                None => {
                    let bytes = bytes.len() as u64;
                    listing.objects.push(Listed { name: name.clone(), bytes });
                }
            }
        }
        listing.objects.sort_unstable();
        listing.folders.sort_unstable();
        listing.folders.dedup();
        Ok(listing)
    }

    fn delete(&self, name: &str) -> Result<(), VaultError> {
        self.step("delete", name)?;
        self.objects.lock().remove(name);
        Ok(())
    }

    fn describe(&self) -> String {
        "memory".into()
    }
}

/// A vault that lets the image change at every put.
pub struct Changing<'m> {
    pub memory: &'m Memory,
    pub at_put: Hook<'m>,
}

impl Vault for Changing<'_> {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), VaultError> {
        (self.at_put)();
        self.memory.put(name, bytes)
    }
    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool, VaultError> {
        (self.at_put)();
        self.memory.put_new(name, bytes)
    }
    fn get(&self, name: &str) -> Result<Vec<u8>, VaultError> {
        self.memory.get(name)
    }
    fn list(&self, folder: &str) -> Result<Listing, VaultError> {
        self.memory.list(folder)
    }
    fn delete(&self, name: &str) -> Result<(), VaultError> {
        self.memory.delete(name)
    }
    fn describe(&self) -> String {
        self.memory.describe()
    }
}

/// Claims the image for a program that asks nobody.
pub fn claim<'v>(vault: &'v dyn Vault, source: &Source<'_>) -> Result<Writer<'v>, BackupError> {
    let mut owner = Owner::new(Path::new("/nowhere"), true);
    Writer::claim(vault, source.image_id(), &mut owner, 1)
}
