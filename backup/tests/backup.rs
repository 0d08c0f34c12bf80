//! Whole histories: an image that changes while it is shipped, vaults that fail, kills at every
//! operation, planted bugs. Each point that is found must restore exactly the state of its commit.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use perdura_backup::vault::{Listed, Listing};
use perdura_backup::{
    BackupError, Deleted, Planted, PointName, Retention, Seal, Shipper, Source, Vault, VaultError,
    list, restore_to, verify,
};
use perdura_image::copying::newest_commit;
use perdura_image::inspect::{Believe, image_bytes};
use perdura_image::superblock::read_superblock;
use perdura_media::{Clock, SimClock, SimDevice};
use perdura_region::{BLOCK_BYTES, Config, Key, LaneId, Region};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

const BLOCKS: u64 = 16;

/// The key of all images here: frames that are not encrypted take a shorter way.
fn key() -> Key {
    Key::new([3; 32])
}

/// A region on a simulated device, and what each of its commits holds.
struct Machine {
    region: Region,
    device: Arc<SimDevice>,
    clock: Arc<SimClock>,
    random: Mutex<Xoshiro256PlusPlus>,
    states: Mutex<HashMap<u64, Vec<u8>>>,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let (device, clock) = (Arc::new(SimDevice::new(0, 1)), Arc::new(SimClock::new(1_000)));
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

    fn below(&self, end: u64) -> u64 {
        self.random.lock().next_u64() % end
    }

    /// Writes at random places. All commits are made by this test, so that it knows each of them.
    fn write(&self, times: u64) {
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

    fn checkpoint(&self) {
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
    fn compare(&self, vault: &dyn Vault, seal: &Seal, name: &PointName) -> Result<(), BackupError> {
        let copy = SimDevice::new(0, 1);
        restore_to(vault, seal, name, &copy, Some(&key()))?;
        let found = image_bytes(&copy, Believe::Committed, Some(&key())).unwrap();
        let states = self.states.lock();
        let expected = states.get(&name.commit).expect("a commit that was never made");
        assert!(found == *expected, "{} restores another state", name.as_str());
        Ok(())
    }
}

type Hook<'m> = Box<dyn Fn() + Send + Sync + 'm>;

/// A vault in memory, which a test may let fail.
#[derive(Default)]
struct Memory {
    objects: Mutex<HashMap<String, Vec<u8>>>,
    /// Operations that change something and are still done; then the process is killed.
    left: Mutex<Option<u64>>,
    /// Operations that were asked for.
    operations: Mutex<u64>,
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

    fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        change(self.objects.lock().get_mut(name).unwrap());
    }

    fn names(&self) -> Vec<String> {
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
struct Changing<'m> {
    memory: &'m Memory,
    at_put: Hook<'m>,
}

impl Vault for Changing<'_> {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), VaultError> {
        (self.at_put)();
        self.memory.put(name, bytes)
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

/// Ships a changing image, begins anew in between, and deletes what is old. An error is the kill.
fn history(machine: &Machine, vault: &dyn Vault, planted: Planted) -> Result<Deleted, BackupError> {
    let source = Source::new(&*machine.device, Some(&key()))?;
    let mut deleted = Deleted::default();
    let image_id = source.image_id();
    for run in 0..3 {
        let mut shipper = Shipper::new(vault, Seal::default(), &source, planted)?;
        shipper.set_pack_bytes(256 << 10);
        let mut retention = Retention::new(Duration::from_secs(7200), planted);
        for _ in 0..4 {
            machine.write(300);
            machine.checkpoint();
            shipper.pass(&source, &*machine.clock)?;
            retention.note(&shipper);
            // From time to time so long passes that points are too old.
            machine.clock.sleep_ns(1_500_000_000_000 * (1 + run));
            let now = machine.clock.unix_ms();
            let more = retention.tidy(vault, &Seal::default(), image_id, &shipper, now)?;
            deleted.points += more.points;
            deleted.packs += more.packs;
        }
    }
    Ok(deleted)
}

#[test]
fn every_point_restores_the_state_of_its_commit_and_is_sent_but_once() {
    let (machine, memory) = (Machine::new(1), Memory::default());
    let source = Source::new(&*machine.device, Some(&key())).unwrap();
    let seal = Seal::with_key(Key::new([7; 32]));
    let mut shipper = Shipper::new(&memory, seal.clone(), &source, Planted::None).unwrap();
    machine.write(400);
    machine.checkpoint();
    let first = shipper.pass(&source, &*machine.clock).unwrap().unwrap();
    machine.write(1);
    machine.checkpoint();
    let second = shipper.pass(&source, &*machine.clock).unwrap().unwrap();
    assert!(second.bytes * 10 < first.bytes, "{second:?} after {first:?}");
    assert_eq!(shipper.pass(&source, &*machine.clock).unwrap(), None, "nothing has changed");
    // A shipper that begins anew knows what is there.
    let mut shipper = Shipper::new(&memory, seal.clone(), &source, Planted::None).unwrap();
    assert_eq!(shipper.pass(&source, &*machine.clock).unwrap(), None);
    machine.write(1);
    machine.checkpoint();
    let third = shipper.pass(&source, &*machine.clock).unwrap().unwrap();
    assert!(third.bytes * 10 < first.bytes, "{third:?} after {first:?}");
    let points = list(&memory, None).unwrap();
    assert_eq!(points.len(), 3);
    for name in &points {
        machine.compare(&memory, &seal, name).unwrap();
        verify(&memory, &seal, name, &mut |_, _| {}).unwrap();
    }
}

#[test]
fn segments_are_used_anew_in_the_middle_of_a_pass_and_it_ends_at_a_newer_commit() {
    let mut rounds = 0;
    for seed in 0..5 {
        let (machine, memory) = (Machine::new(seed), Memory::default());
        machine.write(300);
        machine.checkpoint();
        // Less and less changes at each put, or the pass could not end.
        let writes = Mutex::new(900);
        let at_put = || {
            let mut writes = writes.lock();
            machine.write(*writes);
            machine.checkpoint();
            machine.write(*writes);
            machine.checkpoint();
            *writes = *writes * 2 / 3;
        };
        let vault = Changing { memory: &memory, at_put: Box::new(at_put) };
        let source = Source::new(&*machine.device, Some(&key())).unwrap();
        let mut shipper = Shipper::new(&vault, Seal::default(), &source, Planted::None).unwrap();
        shipper.set_pack_bytes(64 << 10);
        for _ in 0..3 {
            *writes.lock() = 900;
            machine.write(10);
            machine.checkpoint();
            let pass = shipper.pass(&source, &*machine.clock).unwrap();
            rounds += pass.map_or(0, |pass| pass.rounds - 1);
        }
        for name in list(&memory, None).unwrap() {
            machine.compare(&memory, &Seal::default(), &name).unwrap();
        }
    }
    assert!(rounds > 3, "only {rounds} passes met a segment that was used anew");
}

#[test]
fn killed_at_any_operation_every_point_is_whole_and_the_next_run_goes_on() {
    let all = {
        let (machine, memory) = (Machine::new(3), Memory::default());
        history(&machine, &memory, Planted::None).unwrap();
        memory.operations.into_inner()
    };
    assert!(all > 24, "{all}");
    for kill in 0..all {
        let (machine, memory) = (Machine::new(3), Memory::default());
        *memory.left.lock() = Some(kill);
        history(&machine, &memory, Planted::None).unwrap_err();
        *memory.left.lock() = None;
        for name in list(&memory, None).unwrap() {
            machine.compare(&memory, &Seal::default(), &name).unwrap();
        }
        if kill % 5 == 0 {
            history(&machine, &memory, Planted::None).unwrap();
            for name in list(&memory, None).unwrap() {
                machine.compare(&memory, &Seal::default(), &name).unwrap();
            }
        }
    }
}

#[test]
fn retention_deletes_points_and_packs_and_none_that_is_needed() {
    let (machine, memory) = (Machine::new(5), Memory::default());
    let deleted = history(&machine, &memory, Planted::None).unwrap();
    let points = list(&memory, None).unwrap();
    assert_eq!(points.len() as u64 + deleted.points, 12);
    assert!(deleted.points > 3 && deleted.packs > 3, "{deleted:?}");
    for name in points {
        machine.compare(&memory, &Seal::default(), &name).unwrap();
    }
}

#[test]
fn planted_bugs_are_caught() {
    // The point before its packs: a kill in between leaves a point that cannot be restored.
    let caught = (0..30).any(|kill| {
        let (machine, memory) = (Machine::new(3), Memory::default());
        *memory.left.lock() = Some(kill);
        let _killed = history(&machine, &memory, Planted::PointFirst);
        let points = list(&memory, None).unwrap();
        points.iter().any(|name| machine.compare(&memory, &Seal::default(), name).is_err())
    });
    assert!(caught, "a point before its packs is not caught");
    let (machine, memory) = (Machine::new(5), Memory::default());
    let ended = history(&machine, &memory, Planted::DeleteNeeded);
    let points = list(&memory, None).unwrap();
    let caught = ended.is_err()
        || points.iter().any(|name| machine.compare(&memory, &Seal::default(), name).is_err());
    assert!(caught, "a retention that deletes what is needed is not caught");
    let caught = (0..60).any(|seed| {
        let (machine, memory) = (Machine::new(seed), Memory::default());
        machine.write(600);
        machine.checkpoint();
        let at_put = || {
            machine.write(900);
            machine.checkpoint();
        };
        let vault = Changing { memory: &memory, at_put: Box::new(at_put) };
        let source = Source::new(&*machine.device, Some(&key())).unwrap();
        let planted = Planted::TakeAnyFrame;
        let mut shipper = Shipper::new(&vault, Seal::default(), &source, planted).unwrap();
        shipper.set_pack_bytes(16 << 10);
        let _ended = shipper.pass(&source, &*machine.clock);
        let points = list(&memory, None).unwrap();
        points.iter().any(|name| machine.compare(&memory, &Seal::default(), name).is_err())
    });
    assert!(caught, "frames of another commit are not caught");
}

#[test]
fn damaged_objects_are_named_and_never_restored() {
    let (machine, memory) = (Machine::new(9), Memory::default());
    let source = Source::new(&*machine.device, Some(&key())).unwrap();
    let mut shipper = Shipper::new(&memory, Seal::default(), &source, Planted::None).unwrap();
    for _ in 0..3 {
        machine.write(100);
        machine.checkpoint();
        shipper.pass(&source, &*machine.clock).unwrap();
    }
    let points = list(&memory, None).unwrap();
    let newest = points.last().unwrap();
    for name in memory.names() {
        let whole = memory.get(&name).unwrap();
        for fault in 0..12 {
            memory.change(&name, |bytes| match fault {
                0 => bytes.truncate(bytes.len() / 2),
                1 => bytes.clear(),
                2 => bytes.truncate(bytes.len() - 1),
                _ => {
                    let at = machine.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << machine.below(8);
                }
            });
            match machine.compare(&memory, &Seal::default(), newest) {
                // This point does not need the object.
                Ok(()) => {}
                Err(BackupError::Object { name: named, .. }) => assert_eq!(named, name),
                Err(other) => panic!("{name}: {other}"),
            }
            memory.change(&name, |bytes| bytes.clone_from(&whole));
        }
        // As if it were deleted, or found late.
        let gone = memory.objects.lock().remove(&name).unwrap();
        match machine.compare(&memory, &Seal::default(), newest) {
            Ok(()) => {}
            Err(error) => assert!(error.to_string().contains(&name), "{error}"),
        }
        memory.objects.lock().insert(name, gone);
    }
    // Two objects that are exchanged are both whole, and both wrong.
    let packs: Vec<_> = memory.names().into_iter().filter(|name| name.contains("packs")).collect();
    let [one, two] = [&packs[0], &packs[1]].map(|name| memory.get(name).unwrap());
    memory.change(&packs[0], |bytes| *bytes = two);
    memory.change(&packs[1], |bytes| *bytes = one);
    verify(&memory, &Seal::default(), newest, &mut |_, _| {}).unwrap_err();
}
