//! Losses of a store whose values lie on several devices, at every durable operation of any of
//! them.
//!
//! A *life* draws steps from a seed: clients write and delete, values are moved, segments are
//! emptied, devices fail, are plugged in again, leave and come, the number of primaries changes,
//! checkpoints are made. Before each durable call of any
//! device (the image's or one of those with values) the whole machine is copied, and the copy is
//! lost in each of three ways:
//!
//! - killed: memory and devices stay, a new process goes on;
//! - warned: memory is flushed to the image, the other devices lose what they had not flushed;
//! - unwarned: all devices lose what they had not flushed.
//!
//! After the first two every key must have the value that clients were told of; after the third the
//! store must be in one state of those since the last commit, with every value readable. The oracle
//! is a map.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_media::faulty::{FaultPlan, FaultyDevice};
use perdura_media::{Clock, Device, LoneClock, SimDevice};
use perdura_region::{Config, Planted, Region};
use perdura_store::{Access, Expiry, Heap, Key, Store, StoreOptions, Unreadable};
use perdura_tier::devices::{DeviceState, Devices, Mover, Named, Policy, Primaries};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use crate::cut::kills::copy_of;

/// Devices with values that a life may have over time.
const DEVICES: usize = 4;
const REGION_BYTES: u64 = 3 << 20;
const BUDGET_BYTES: u64 = 512 << 10;
const KEYS: u32 = 48;

/// The oracle: what each key should have.
type Values = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a life has shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shown {
    /// Copies of the machine that were lost, each in three ways.
    pub copies: u64,
    /// Values moved out of memory, and from one place of a device to another.
    pub moved: u64,
    /// Values moved from one place of a device to another.
    pub moved_on: u64,
    /// Segments emptied.
    pub emptied: u64,
    /// Bytes of memory freed by emptying runs of slots.
    pub span_bytes: u64,
    /// Times that an idle device became a primary.
    pub activations: u64,
    /// Devices that failed and were plugged in again.
    pub failed: u64,
    /// Values that came back to memory because they were read.
    pub kept: u64,
}

/// Everything that a loss leaves something of.
struct Copy {
    image: SimDevice,
    values: Vec<SimDevice>,
    held: (OwnedFd, OwnedFd),
    call: u64,
}

/// The machine as its devices' watchers see it.
struct Machine {
    image: SimDevice,
    values: Vec<SimDevice>,
    /// Memory and ledger of the process that lives.
    held: Mutex<Option<(OwnedFd, OwnedFd)>>,
    copies: Mutex<Vec<Copy>>,
    calls: Mutex<u64>,
    /// What is to go wrong with each device that has values.
    plans: Vec<Arc<FaultPlan>>,
    /// A client's write that happens while the mover writes to a device.
    client: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Machine {
    /// A device that has values, as the process that lives sees it.
    fn named(&self, number: usize, clock: &Arc<LoneClock>) -> Named {
        let (device, plan) = (self.values[number].clone(), Arc::clone(&self.plans[number]));
        let clock: Arc<dyn Clock> = clock.clone();
        let device = Arc::new(FaultyDevice::new(device, plan, clock));
        Named { device, ..named(number, &self.values[number]) }
    }

    /// Copies the machine before a durable call of one of its devices.
    fn see(&self) {
        let held = self.held.lock();
        let Some((memory, ledger)) = &*held else { return };
        let mut calls = self.calls.lock();
        *calls += 1;
        let seed = *calls;
        let held = match (copy_of(memory), copy_of(ledger)) {
            (Ok(memory), Ok(ledger)) => (memory, ledger),
            (Err(error), _) | (_, Err(error)) => panic!("no copy of memory: {error}"),
        };
        let copy = |device: &SimDevice| device.copy_when_killed(seed);
        self.copies.lock().push(Copy {
            image: copy(&self.image),
            values: self.values.iter().map(copy).collect(),
            held,
            call: seed,
        });
    }
}

fn config(planted: Planted) -> Config {
    Config {
        segment_bytes: Some(64 << 10),
        reserved_bytes: Some(REGION_BYTES),
        lanes: Some(4),
        thread: false,
        checkpoint_every: None,
        planted,
        ..Config::new(REGION_BYTES, BUDGET_BYTES)
    }
}

/// Values move early, in small batches, and room is soon used again. Of every other seed, values
/// move in whole runs of slots.
fn policy(seed: u64) -> Policy {
    Policy {
        start_percent: 12,
        stop_percent: 8,
        span_percent: [0, 80][(seed % 2) as usize],
        segment_bytes: 16 << 10,
        is_parallel: false,
        ..Policy::default()
    }
}

fn named(number: usize, device: &SimDevice) -> Named {
    let device: Arc<dyn Device> = Arc::new(device.clone());
    Named { place: format!("device {number}"), device, limit_bytes: 4096 + (14 * (16 << 10)) }
}

/// A process with the store open.
struct Process {
    store: Arc<Store>,
    devices: Arc<Devices>,
    mover: Mover,
}

impl Process {
    /// Opens the store in a region with the devices that are there.
    fn open(
        region: Region,
        named: Vec<Named>,
        clock: &Arc<LoneClock>,
        policy: Policy,
        defer_rebuild: bool,
    ) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let heap = Heap::open(region).map_err(|e| text(&e))?;
        let devices = Devices::open(&heap, named, clock.clone(), policy, false);
        let devices = devices.map_err(|e| text(&e))?;
        let options = StoreOptions { defer_rebuild, ..StoreOptions::default() };
        let store = Store::open_with_far(heap, clock.clone(), options, devices.clone());
        let store = Arc::new(store.map_err(|e| text(&e))?);
        let mover = Mover::new(Arc::clone(&devices));
        Ok(Self { store, devices, mover })
    }

    /// All values, read one by one.
    fn values(&self) -> Result<Values, String> {
        let mut keys = Vec::new();
        let mut cursor = 0;
        loop {
            cursor = self.store.scan(0, cursor, 64, |key, _| keys.push(key.to_vec()));
            if cursor == 0 {
                break;
            }
        }
        let mut values = Values::new();
        for key in keys {
            let value = Unreadable::catch(|| self.store.get(Key::new(&key)));
            let name = String::from_utf8_lossy(&key).into_owned();
            let value = value.map_err(|error| format!("{name}: {error}"))?;
            values.insert(key, value.ok_or_else(|| format!("{name}: gone since the scan"))?);
        }
        Ok(values)
    }
}

/// Lives one life. Returns what it has shown, or which promise was broken.
///
/// # Errors
/// A state after a loss is not one of those allowed, or a value cannot be read.
pub fn life(seed: u64, steps: u64, planted: Planted) -> Result<Shown, String> {
    let mut random = Random::seed_from_u64(seed);
    let clock = Arc::new(LoneClock::new(1_700_000_000_000));
    let image = SimDevice::new(0, seed);
    let values: Vec<_> = (1..=DEVICES as u64).map(|n| SimDevice::new(0, seed ^ n)).collect();
    let (held, copies, calls) = (Mutex::new(None), Mutex::default(), Mutex::new(0));
    let client = Mutex::default();
    let plans = values.iter().map(|_| Arc::new(FaultPlan::new())).collect();
    let machine = Arc::new(Machine { image, values, held, copies, calls, plans, client });
    let mut present = vec![true, true, false, false];
    let opened = Region::open(Arc::new(machine.image.clone()), clock.clone(), config(planted));
    let region = opened.map_err(|error| error.to_string())?;
    let there = [0, 1].map(|number| machine.named(number, &clock));
    let mut process = Process::open(region, there.into(), &clock, policy(seed), false)?;
    let (memory, ledger) = process.store.region().fds();
    let held = (memory.try_clone_to_owned(), ledger.try_clone_to_owned());
    let (Ok(memory), Ok(ledger)) = held else { return Err("no descriptors".into()) };
    *machine.held.lock() = Some((memory, ledger));
    let has_client = machine.values.iter().map(|device| (device, true));
    for (device, has_client) in has_client.chain([(&machine.image, false)]) {
        // Weak, because the machine has the device, too.
        let machine = Arc::downgrade(&machine);
        device.watch(Arc::new(move |_| {
            let Some(machine) = machine.upgrade() else { return };
            machine.see();
            let client = if has_client { machine.client.lock().take() } else { None };
            if let Some(client) = client {
                client();
            }
        }));
    }
    let (mut oracle, mut shown) = (Values::new(), Shown::default());
    let mut committed = vec![oracle.clone()];
    let mut checkpoints = process.store.region().stats().checkpoints;
    for number in 0..steps {
        let before = oracle.clone();
        let present_before = present.clone();
        // Long enough for a trial of several steps.
        clock.sleep_ns(500_000_000);
        let what = step(
            &mut process,
            &machine,
            &clock,
            &mut present,
            &mut random,
            &mut oracle,
            &mut shown,
        )
        .map_err(|why| format!("seed {seed}, step {number}: {why}"))?;
        let in_memory = [before, oracle.clone()];
        for copy in std::mem::take(&mut *machine.copies.lock()) {
            shown.copies += 1;
            let call = copy.call;
            let allowed = [&committed[..], &in_memory].concat();
            let presents = [&present_before, &present];
            lose(copy, presents, &clock, planted, &in_memory, &allowed).map_err(|why| {
                format!(
                    "seed {seed}, step {number} ({what}), durable call {call}: {why}; replay: \
                     PERDURA_SEED={seed} cargo test -p perdura-sim --test far replay"
                )
            })?;
        }
        let now = process.store.region().stats().checkpoints;
        if now != checkpoints {
            // A commit in this step has made the state before or after its change durable.
            (checkpoints, committed) = (now, in_memory.to_vec());
        }
        committed.push(oracle.clone());
        committed.dedup();
    }
    let found = process.values().map_err(|why| format!("seed {seed}, at the end: {why}"))?;
    if found != oracle {
        return Err(format!("seed {seed}, at the end: {}", difference(&found, &oracle)));
    }
    shown.activations = process.devices.roles().activations;
    shown.kept = process.store.far_stats().kept;
    Ok(shown)
}

/// Makes one step, and changes the oracle as it should change the store.
fn step(
    process: &mut Process,
    machine: &Machine,
    clock: &Arc<LoneClock>,
    present: &mut [bool],
    random: &mut Random,
    oracle: &mut Values,
    shown: &mut Shown,
) -> Result<String, String> {
    let key = format!("key {}", random.random_range(0..KEYS)).into_bytes();
    let refused = |error: &dyn std::fmt::Display| format!("refused: {error}");
    let store = &process.store;
    match random.random_range(0..110) {
        0..40 => {
            let len = random.random_range(32..6000);
            let value = vec![random.random(); len];
            store.put(Key::new(&key), &value).map_err(|e| refused(&e))?;
            oracle.insert(key, value);
            Ok("a write".into())
        }
        40..46 => {
            store.delete(Key::new(&key)).map_err(|e| refused(&e))?;
            oracle.remove(&key);
            Ok("a deletion".into())
        }
        46..52 => {
            let tail = vec![random.random(); random.random_range(1..400)];
            let key = Key::new(&key);
            store.run(Access::Key(key), |tx| tx.append(key, &tail)).map_err(|e| refused(&e))?;
            oracle.entry(key.bytes.to_vec()).or_default().extend(&tail);
            Ok("an append".into())
        }
        52..56 => {
            let to = format!("key {}", random.random_range(0..KEYS)).into_bytes();
            let keys = [Key::new(&key), Key::new(&to)];
            let renamed = store.run(Access::Keys(&keys), |tx| tx.rename(keys[0], keys[1]));
            renamed.map_err(|e| refused(&e))?;
            if key != to
                && let Some(value) = oracle.remove(&key)
            {
                oracle.insert(to, value);
            }
            Ok("a rename".into())
        }
        56..60 => {
            let found = Unreadable::catch(|| store.get(Key::new(&key))).map_err(|e| refused(&e))?;
            if found.as_ref() != oracle.get(&key) {
                return Err("a read found another value".into());
            }
            Ok("a read".into())
        }
        60..62 => {
            // A far value with a new expiry has a new record with the same address.
            let key = Key::new(&key);
            let set = store.run(Access::Key(key), |tx| tx.set_expiry(key, Some(u64::MAX >> 1)));
            set.map_err(|e| refused(&e))?;
            Ok("an expiry far away".into())
        }
        62..88 => {
            // A value that was copied to a batch may change before the batch is durable.
            let (client, value) = (Arc::clone(store), vec![random.random(); 500]);
            let (name, new) = (key.clone(), value.clone());
            *machine.client.lock() = Some(Box::new(move || {
                if let Err(error) = client.put(Key::new(&name), &new) {
                    panic!("a client's write is refused: {error}");
                }
            }));
            let moved = process.mover.step(&process.store, false);
            if machine.client.lock().take().is_none() {
                oracle.insert(key, value);
            }
            let (moved, outcome) = moved;
            outcome.map_err(|e| refused(&e))?;
            shown.moved += moved.values;
            shown.moved_on += moved.moved_on;
            shown.emptied += moved.segments;
            shown.span_bytes += moved.span_bytes;
            if process.devices.status().devices.iter().any(|one| one.suspect_segments > 0) {
                return Err("a segment's count and its records disagree".into());
            }
            Ok(format!("{moved:?}"))
        }
        88..92 => {
            process.store.region().checkpoint().map_err(|e| refused(&e))?;
            Ok("a checkpoint".into())
        }
        92..94 => {
            let key = Key::new(&key);
            let value = oracle.get(key.bytes).cloned();
            if let Some(value) = value {
                let put = |tx: &mut perdura_store::Tx<'_>| tx.put(key, &value, Expiry::None);
                process.store.run(Access::Key(key), put).map_err(|e| refused(&e))?;
            }
            Ok("a write of the same".into())
        }
        94..97 => {
            let Some(new) = present.iter().position(|is_there| !is_there) else {
                return Ok("nothing to add".into());
            };
            let added = process.devices.add(&process.store, machine.named(new, clock));
            let number = added.map_err(|e| refused(&e))?;
            present[new] = true;
            Ok(format!("device {number} added"))
        }
        97..102 => {
            let wish = [Primaries::All, Primaries::Number(1), Primaries::Number(2)];
            let wish = wish[random.random_range(0..3)];
            // With fewer devices that work it is refused, and nothing changes.
            let set = process.devices.set_primaries(wish);
            Ok(format!("primaries: {wish}, {set:?}"))
        }
        102..104 => {
            // A batch is refused, or a flush behind it: whichever device gets it.
            for (plan, _) in machine.plans.iter().zip(&*present).filter(|(_, is_there)| **is_there)
            {
                match random.random_range(0..4) {
                    0 => plan.fail_write(1),
                    1 => plan.fail_flush(1),
                    _ => {}
                }
            }
            Ok("devices are about to fail".into())
        }
        104..107 => {
            machine.plans.iter().for_each(|plan| plan.heal());
            for one in process.devices.status().devices {
                let place = one.place.strip_prefix("device ").and_then(|it| it.parse().ok());
                if let (DeviceState::Failed(_), Some(index)) = (one.state, place) {
                    let again = machine.named(index, clock);
                    process.devices.add(&process.store, again).map_err(|e| refused(&e))?;
                    shown.failed += 1;
                }
            }
            Ok("devices that failed are plugged in again".into())
        }
        _ => {
            let status = process.devices.status().devices;
            if status.len() > 2 {
                let number = status[random.random_range(0..status.len())].number;
                // The last one that takes values stays.
                let _ = process.devices.remove(number);
                return Ok(format!("device {number} leaves"));
            }
            Ok("no device to take away".into())
        }
    }
}

/// Loses a copy of the machine in each way, and checks what comes back.
fn lose(
    copy: Copy,
    presents: [&Vec<bool>; 2],
    clock: &Arc<LoneClock>,
    planted: Planted,
    in_memory: &[Values],
    allowed: &[Values],
) -> Result<(), String> {
    // In tests the bug is in the program that lost power, and in the one that starts.
    let after_loss = |values: &[SimDevice], seed: u64| -> Vec<SimDevice> {
        values.iter().map(|device| device.copy_when_killed(seed).power_cycle(seed)).collect()
    };
    let attach = |held: (OwnedFd, OwnedFd), image: &SimDevice| {
        let image = Arc::new(image.copy_when_killed(copy.call));
        Region::attach(held.0, held.1, image, clock.clone(), config(planted))
            .map_err(|error| error.to_string())
    };
    let duplicate = || match (copy_of(&copy.held.0), copy_of(&copy.held.1)) {
        (Ok(memory), Ok(ledger)) => Ok((memory, ledger)),
        (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
    };
    let mut random = Random::seed_from_u64(copy.call);
    let mut check = |region: Region, values: &[SimDevice], allowed: &[Values], how: &str| {
        let checked = check(region, values, presents, clock, allowed, &mut random);
        checked.map_err(|why| format!("{how}: {why}"))
    };

    let values: Vec<_> = copy.values.iter().map(|one| one.copy_when_killed(copy.call)).collect();
    check(attach(duplicate()?, &copy.image)?, &values, in_memory, "killed")?;

    let region = attach(duplicate()?, &copy.image)?;
    region.close(1).map_err(|error| format!("warned: flush: {error}"))?;
    let values = after_loss(&copy.values, copy.call);
    check(attach(duplicate()?, &copy.image)?, &values, in_memory, "warned")?;

    let image = after_loss(std::slice::from_ref(&copy.image), copy.call);
    let region = Region::open(Arc::new(image[0].clone()), clock.clone(), config(planted));
    let region = region.map_err(|error| format!("unwarned: {error}"))?;
    check(region, &after_loss(&copy.values, copy.call), allowed, "unwarned")
}

/// Opens the store and compares it with the states that are allowed; goes on a little, so that room
/// is written again that was free by mistake.
fn check(
    region: Region,
    values: &[SimDevice],
    presents: [&Vec<bool>; 2],
    clock: &Arc<LoneClock>,
    allowed: &[Values],
    random: &mut Random,
) -> Result<(), String> {
    // A device that was added in the step under way may be known to the store already, or not.
    let [before, after] = presents;
    let both: Vec<_> = before.iter().zip(after).map(|(a, b)| *a || *b).collect();
    let there = values.iter().enumerate().filter(|(number, _)| both[*number]);
    let there = there.map(|(number, device)| named(number, device)).collect();
    let mut process = Process::open(region, there, clock, policy(0), true)?;
    // Roles are not kept over a start: any will do.
    let wish = [Primaries::All, Primaries::Number(1), Primaries::Auto][random.random_range(0..3)];
    process.devices.set_primaries(wish).map_err(|error| error.to_string())?;
    let found = process.values()?;
    if !allowed.contains(&found) {
        let newest = allowed.last().map(|newest| difference(&found, newest));
        let newest = newest.unwrap_or_default();
        return Err(format!("none of {} allowed states; {newest}", allowed.len()));
    }
    go_on(&mut process, found, random)
}

/// Writes, moves and searches for free memory in a store that was just opened, in any order.
fn go_on(process: &mut Process, mut expected: Values, random: &mut Random) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| format!("going on: {error}");
    for _ in 0..24 {
        let key = format!("key {}", random.random_range(0..KEYS)).into_bytes();
        match random.random_range(0..4) {
            0 => {
                let value = vec![random.random(); random.random_range(64..4000)];
                process.store.put(Key::new(&key), &value).map_err(|e| text(&e))?;
                expected.insert(key, value);
            }
            1 => {
                process.store.delete(Key::new(&key)).map_err(|e| text(&e))?;
                expected.remove(&key);
            }
            2 => drop(process.store.rebuild_next().map_err(|e| text(&e))?),
            _ => process.mover.step(&process.store, false).1.map_err(|e| text(&e))?,
        }
    }
    while process.store.rebuild_next().map_err(|e| text(&e))? {}
    for _ in 0..6 {
        process.mover.step(&process.store, true).1.map_err(|e| text(&e))?;
    }
    if process.devices.status().devices.iter().any(|one| one.suspect_segments > 0) {
        return Err("going on: a segment's count and its records disagree".into());
    }
    let found = process.values()?;
    match found == expected {
        true => Ok(()),
        false => Err(format!("going on: {}", difference(&found, &expected))),
    }
}

/// The first key in which two states differ, in words.
fn difference(found: &Values, expected: &Values) -> String {
    let keys = found.keys().chain(expected.keys());
    let differs = |key: &&Vec<u8>| found.get(*key) != expected.get(*key);
    let len = |values: &Values, key: &[u8]| match values.get(key) {
        Some(value) => format!("{} bytes of {:?}", value.len(), value.first()),
        None => "nothing".into(),
    };
    keys.clone().find(differs).map_or("equal".into(), |key| {
        let name = String::from_utf8_lossy(key).into_owned();
        format!("{name} has {}, expected {}", len(found, key), len(expected, key))
    })
}
