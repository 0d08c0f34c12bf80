//! Devices under a store on simulated devices, without threads.
#![allow(clippy::unwrap_used)] // a test's own failure

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use perdura_media::{Clock, Device, DeviceError, LoneClock, RealClock, SimDevice, WriteQueue};
use perdura_region::{Config, Region};
use perdura_store::{
    Access, FarAddress, FarStorage, FarValue, Heap, Key, Store, StoreError, StoreOptions,
    Unreadable,
};

use super::*;

mod batches;
mod roles;

const MIB: u64 = 1 << 20;

struct World {
    store: Arc<Store>,
    devices: Arc<Devices>,
    mover: Mover,
}

/// A device that can be unplugged.
struct Plug {
    device: SimDevice,
    is_out: AtomicBool,
}

impl Plug {
    fn check(&self, op: &'static str) -> Result<(), DeviceError> {
        if !self.is_out.load(Relaxed) {
            return Ok(());
        }
        let source = std::io::Error::from_raw_os_error(19); // ENODEV
        Err(DeviceError::Io { op, offset_bytes: 0, len_bytes: 0, source })
    }
}

impl Device for Plug {
    fn capacity_bytes(&self) -> u64 {
        self.device.capacity_bytes()
    }
    fn grow(&self, capacity_bytes: u64) -> Result<(), DeviceError> {
        self.check("grow")?;
        self.device.grow(capacity_bytes)
    }
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.check("read")?;
        self.device.read_at(offset_bytes, buf)
    }
    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.check("write")?;
        self.device.write_at(offset_bytes, buf)
    }
    fn write_durable_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.check("write")?;
        self.device.write_durable_at(offset_bytes, buf)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.check("flush")?;
        self.device.flush()
    }
    fn queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>, DeviceError> {
        self.device.queue(depth)
    }
    fn describe(&self) -> String {
        "plug".into()
    }
}

fn config(region_bytes: u64) -> Config {
    Config {
        segment_bytes: Some(256 << 10),
        lanes: Some(8),
        thread: false,
        checkpoint_every: None,
        ..Config::new(region_bytes, 4 * MIB)
    }
}

fn on(number: usize, device: Arc<dyn Device>, limit_bytes: u64) -> Named {
    Named { place: format!("device {number}"), device, limit_bytes }
}

fn policy() -> Policy {
    Policy { segment_bytes: MIB, ..Policy::default() }
}

fn heap_on(image: &SimDevice, region_bytes: u64) -> (Heap, Arc<LoneClock>) {
    // Each store begins at another time, from which its set of devices has its number.
    static STORES: AtomicU64 = AtomicU64::new(0);
    let begin_ms = 1_700_000_000_000 + STORES.fetch_add(1000, Relaxed);
    let clock = Arc::new(LoneClock::new(begin_ms));
    let region = Region::open(Arc::new(image.clone()), clock.clone(), config(region_bytes));
    (Heap::open(region.unwrap()).unwrap(), clock)
}

fn try_open(
    image: &SimDevice,
    region_bytes: u64,
    named: Vec<Named>,
    allows_missing: bool,
) -> Result<World, DevicesError> {
    let (heap, clock) = heap_on(image, region_bytes);
    let devices = Devices::open(&heap, named, clock.clone(), policy(), allows_missing)?;
    let options = StoreOptions::default();
    let store = Store::open_with_far(heap, clock, options, devices.clone()).unwrap();
    let mover = Mover::new(devices.clone());
    Ok(World { store: Arc::new(store), devices, mover })
}

fn open(image: &SimDevice, region_bytes: u64, named: Vec<Named>) -> World {
    try_open(image, region_bytes, named, false).unwrap()
}

fn named_sim(number: usize, device: &SimDevice) -> Named {
    on(number, Arc::new(device.clone()), u64::MAX)
}

fn three() -> Vec<SimDevice> {
    (0..3).map(|seed| SimDevice::new(0, seed)).collect()
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn value(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (number as usize * 31 + at) as u8).collect()
}

impl World {
    /// Writes a value, with the mover's help where memory is used up.
    fn put(&mut self, number: u32, value: &[u8]) -> Result<(), StoreError> {
        for _ in 0..40 {
            match self.store.put(Key::new(&key(number)), value) {
                Err(StoreError::OutOfMemory { .. }) => {
                    let (moved, outcome) = self.mover.step(&self.store, true);
                    outcome.unwrap();
                    let has_moved = moved.bytes > 0 || moved.segments > 0;
                    assert!(has_moved, "{number}: nothing was moved");
                }
                done => return done,
            }
        }
        panic!("no memory after 40 steps: {:?}", self.devices.status());
    }

    fn get(&self, number: u32) -> Option<Vec<u8>> {
        self.store.get(Key::new(&key(number)))
    }

    /// Writes values until more than memory holds is written. Returns how many.
    fn fill(&mut self, count: u32) -> u32 {
        (0..count).for_each(|number| self.put(number, &value(number, 1000)).unwrap());
        count
    }

    /// Reads all values. Returns how many could not be read, each with an error that names the
    /// device.
    fn unreadable(&self, count: u32) -> u32 {
        let mut failed = 0;
        for number in 0..count {
            match Unreadable::catch(|| self.get(number)) {
                Ok(found) => assert_eq!(found, Some(value(number, 1000)), "{number}"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("device 1"), "{text}");
                    failed += 1;
                }
            }
        }
        failed
    }

    fn live_bytes(&self) -> u64 {
        self.devices.status().devices.iter().map(|device| device.live_bytes).sum()
    }

    fn steps(&mut self, count: u32) {
        (0..count).for_each(|_| self.mover.step(&self.store, false).1.unwrap());
    }
}

#[test]
fn data_several_times_as_large_as_memory_are_served_and_found_again() {
    let (image, devices) = (SimDevice::new(0, 1), three());
    let named = || devices.iter().enumerate().map(|(n, one)| named_sim(n, one)).collect();
    let mut world = open(&image, 16 * MIB, named());
    let count = world.fill(64_000);
    assert_eq!(world.unreadable(count), 0);
    let status = world.devices.status();
    let used: u64 = status.devices.iter().map(|device| device.used_bytes).sum();
    let live = world.live_bytes();
    assert!(live > 48 * MIB && used < live * 3 / 2, "{status:#?}");
    let written: u64 = status.devices.iter().map(|device| device.written_bytes).sum();
    assert!(written < 2 * u64::from(count) * 1000, "{written} bytes written");
    // Written again in another order, values leave garbage behind, and segments are emptied.
    for number in (0..count).rev().step_by(2) {
        world.put(number, &value(number, 1000)).unwrap();
    }
    world.steps(20);
    let status = world.devices.status();
    let (used, live) =
        (status.devices.iter().map(|d| d.used_bytes).sum::<u64>(), world.live_bytes());
    assert!(used < live * 2, "{status:#?}");
    assert!(status.devices.iter().all(|device| device.suspect_segments == 0), "{status:#?}");
    world.store.region().close(1).unwrap();
    drop(world);
    let world = open(&image, 16 * MIB, named());
    assert_eq!(world.live_bytes(), live);
    assert_eq!(world.unreadable(count), 0);
}

#[test]
fn a_flood_of_writes_waits_for_the_mover_and_is_never_refused() {
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let region_bytes = 32 * MIB;
    let config = Config { lanes: None, ..Config::new(region_bytes, region_bytes) };
    let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock.clone(), config);
    let heap = Heap::open(region.unwrap()).unwrap();
    let named = three().iter().enumerate().map(|(n, device)| named_sim(n, device)).collect();
    let devices = Devices::open(&heap, named, clock.clone(), policy(), false).unwrap();
    let options = StoreOptions::default();
    let store = Arc::new(Store::open_with_far(heap, clock, options, devices.clone()).unwrap());
    Mover::new(devices.clone()).start(Arc::downgrade(&store)).unwrap();
    let mut draw = 1_u64;
    for round in 0..250_000 {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let number = (draw >> 33) as u32 % 100_000;
        if let Err(error) = store.put(Key::new(&key(number)), &value(number, 1000)) {
            panic!("write {round}: {error}; {:#?}", devices.status());
        }
    }
}

#[test]
fn an_unplugged_device_fails_its_own_values_only_and_catches_up() {
    let plugs: Vec<_> = three()
        .into_iter()
        .map(|device| Arc::new(Plug { device, is_out: AtomicBool::new(false) }))
        .collect();
    let named = plugs.iter().enumerate();
    let named = named.map(|(n, plug)| on(n, plug.clone(), u64::MAX)).collect();
    let mut world = open(&SimDevice::new(0, 1), 16 * MIB, named);
    let count = world.fill(40_000);
    plugs[1].is_out.store(true, Relaxed);
    let lost = world.unreadable(count);
    assert!((5_000..20_000).contains(&lost), "{lost} of {count}");
    // Values go on leaving memory, to the devices that are left.
    let more = count + 20_000;
    for number in count..more {
        world.put(number, &value(number, 1000)).unwrap();
    }
    let status = world.devices.status();
    let failed = status.devices.iter().find(|device| device.number == 1).unwrap().clone();
    assert!(
        matches!(&failed.state, DeviceState::Failed(why) if why.contains("No such device")),
        "{status:?}"
    );
    assert_eq!(world.unreadable(more), lost);
    // A write needs nothing of the old value; what reads it fails and changes nothing.
    let far = (0..count).find(|n| Unreadable::catch(|| world.get(*n)).is_err()).unwrap();
    let name = key(far);
    let appended =
        world.store.run(Access::Key(Key::new(&name)), |tx| tx.append(Key::new(&name), b"x"));
    assert!(matches!(appended, Err(StoreError::Far(_))), "{appended:?}");
    world.put(far, &value(far, 1000)).unwrap();
    assert_eq!(world.unreadable(more), lost - 1);
    plugs[1].is_out.store(false, Relaxed);
    let again = on(1, plugs[1].clone(), u64::MAX);
    assert_eq!(world.devices.add(&world.store, again).unwrap(), 1);
    assert_eq!(world.unreadable(more), 0);
    for number in more..more + 20_000 {
        world.put(number, &value(number, 1000)).unwrap();
    }
    let status = world.devices.status();
    let back = status.devices.iter().find(|device| device.number == 1).unwrap();
    assert!(back.state == DeviceState::Online && back.written_bytes > failed.written_bytes);
}

#[test]
fn a_full_device_leaves_its_values_to_the_others_until_all_are_full() {
    let devices = three();
    let named = devices.iter().enumerate();
    let named =
        named.map(|(n, one)| on(n, Arc::new(one.clone()), [4, 4, 24][n] * MIB + 4096)).collect();
    let mut world = open(&SimDevice::new(0, 1), 16 * MIB, named);
    let mut written = 0;
    let refused = loop {
        match world.store.put(Key::new(&key(written)), &value(written, 1000)) {
            Ok(()) => written += 1,
            Err(StoreError::OutOfMemory { .. }) => {
                let (moved, outcome) = world.mover.step(&world.store, true);
                outcome.unwrap();
                if moved.bytes == 0 && moved.segments == 0 {
                    break written;
                }
            }
            Err(error) => panic!("{error}"),
        }
    };
    assert!(refused > 30_000, "{refused} values of 1 KB on 32 MiB and in 16 MiB of memory");
    assert!(world.devices.status().devices.iter().all(|device| device.is_full));
    assert_eq!(world.unreadable(written), 0);
    // Room that is given back is used again.
    for number in (0..written).step_by(2) {
        world.store.delete(Key::new(&key(number))).unwrap();
    }
    world.steps(60);
    for number in (0..written).step_by(4) {
        world.put(number, &value(number, 1000)).unwrap();
    }
    for number in 0..written {
        let is_there = number % 2 == 1 || number % 4 == 0;
        assert_eq!(world.get(number), is_there.then(|| value(number, 1000)), "{number}");
    }
}

#[test]
fn a_device_is_added_and_another_taken_away_while_values_are_served() {
    let (image, devices) = (SimDevice::new(0, 1), three());
    let first = vec![named_sim(0, &devices[0])];
    let mut world = open(&image, 16 * MIB, first);
    let count = world.fill(30_000);
    assert!(matches!(world.devices.remove(0), Err(DevicesError::Last { number: 0 })));
    assert!(matches!(world.devices.remove(7), Err(DevicesError::Unknown { number: 7 })));
    assert_eq!(world.devices.add(&world.store, named_sim(1, &devices[1])).unwrap(), 1);
    let twice = world.devices.add(&world.store, named_sim(1, &devices[1]));
    assert!(matches!(twice, Err(DevicesError::Twice { number: 1, .. })), "{twice:?}");
    world.devices.remove(0).unwrap();
    for _ in 0..200 {
        world.steps(1);
        assert_eq!(world.get(17), Some(value(17, 1000)));
    }
    let numbers: Vec<_> = world.devices.status().devices.iter().map(|one| one.number).collect();
    assert_eq!(numbers, [1], "device 0 is gone");
    assert_eq!(world.unreadable(count), 0);
    // Its number is not used again, and it can become a new device.
    assert_eq!(world.devices.add(&world.store, named_sim(0, &devices[0])).unwrap(), 2);
    world.store.region().close(1).unwrap();
    drop(world);
    let both = vec![named_sim(0, &devices[0]), named_sim(1, &devices[1])];
    assert_eq!(open(&image, 16 * MIB, both).unreadable(count), 0);
}

#[test]
fn devices_that_do_not_belong_together_are_refused_by_name() {
    let (image, devices) = (SimDevice::new(0, 1), three());
    let two = || vec![named_sim(0, &devices[0]), named_sim(1, &devices[1])];
    let mut world = open(&image, 16 * MIB, two());
    let count = world.fill(30_000);
    world.store.region().close(1).unwrap();
    drop(world);
    let refused = |named| match try_open(&image, 16 * MIB, named, false) {
        Ok(_) => panic!("the devices are accepted"),
        Err(error) => error,
    };
    let error = refused(vec![named_sim(0, &devices[0])]);
    assert!(matches!(error, DevicesError::Missing { number: 1 }), "{error}");
    let error = refused(vec![named_sim(0, &devices[0]), named_sim(2, &devices[0])]);
    assert!(matches!(error, DevicesError::Twice { number: 0, .. }), "{error}");
    let (other, foreign) = (SimDevice::new(0, 9), SimDevice::new(4096, 10));
    drop(open(&SimDevice::new(0, 8), 16 * MIB, vec![named_sim(5, &other)]));
    let error = refused([two(), vec![named_sim(5, &other)]].into_iter().flatten().collect());
    assert!(matches!(error, DevicesError::OtherSet { .. }), "{error}");
    foreign.write_at(0, &filled_block()).unwrap();
    let error = refused([two(), vec![named_sim(6, &foreign)]].into_iter().flatten().collect());
    assert!(matches!(error, DevicesError::Foreign { .. }), "{error}");
    // A device of another store is refused by a store that has none yet, too.
    let fresh = try_open(&SimDevice::new(0, 7), 16 * MIB, vec![named_sim(5, &other)], false);
    assert!(matches!(fresh, Err(DevicesError::OtherSet { .. })));
    // With leave, the store opens without one; only its values are missing.
    let left = try_open(&image, 16 * MIB, vec![named_sim(0, &devices[0])], true).unwrap();
    let lost = left.unreadable(count);
    assert!((1_000..20_000).contains(&lost), "{lost}");
    let late = left.devices.add(&left.store, named_sim(1, &devices[1]));
    assert!(matches!(late, Err(DevicesError::NotCounted { number: 1, .. })), "{late:?}");
    // Given up, it is not asked for any more, and its values stay lost.
    let refused = left.devices.give_up(&left.store, 0);
    assert!(matches!(refused, Err(DevicesError::Works { number: 0 })), "{refused:?}");
    let refused = left.devices.give_up(&left.store, 9);
    assert!(matches!(refused, Err(DevicesError::Unknown { number: 9 })), "{refused:?}");
    left.devices.give_up(&left.store, 1).unwrap();
    left.store.region().close(1).unwrap();
    drop(left);
    let without = open(&image, 16 * MIB, vec![named_sim(0, &devices[0])]);
    assert_eq!(without.unreadable(count), lost);
    // A new device gets a number that none ever had.
    assert_eq!(without.devices.add(&without.store, named_sim(2, &devices[2])).unwrap(), 2);
}

fn filled_block() -> perdura_media::BlockBuf {
    let mut block = perdura_media::BlockBuf::zeroed(4096);
    block.fill(7);
    block
}

#[test]
fn only_the_record_that_an_address_means_is_its_value() {
    let (image, devices) = (SimDevice::new(0, 1), three());
    let mut world = open(&image, 16 * MIB, vec![named_sim(0, &devices[0])]);
    world.fill(30_000);
    let number = (0..30_000).find(|n| world.store.far_address(Key::new(&key(*n))).is_some());
    let name = key(number.unwrap());
    let at = world.store.far_address(Key::new(&name)).unwrap();
    let read = |db, key: &[u8], at| {
        let wanted = FarValue { db, key: key.into(), at };
        world.devices.read(std::slice::from_ref(&wanted)).pop().unwrap()
    };
    assert_eq!(read(0, &name, at).unwrap(), value(number.unwrap(), 1000).into());
    assert!(read(1, &name, at).is_err(), "another database");
    assert!(read(0, b"other", at).is_err(), "another key");
    assert!(read(0, &name, FarAddress { kind: 1, ..at }).is_err(), "another kind");
    assert!(
        read(0, &name, FarAddress { checksum: at.checksum ^ 1, ..at }).is_err(),
        "an older one"
    );
    assert!(read(0, &name, FarAddress { value_bytes: 999, ..at }).is_err(), "another length");
    assert!(read(0, &name, FarAddress { device: 5, ..at }).is_err(), "no such device");
    devices[0].flip_bit(at.offset + 500, 3);
    let damaged = read(0, &name, at).unwrap_err();
    assert!(damaged.why.contains("damaged") && damaged.place == "device 0", "{damaged}");
}

#[test]
fn deleting_all_keys_leaves_no_segment_behind() {
    let devices = three();
    let named = devices.iter().enumerate().map(|(n, one)| named_sim(n, one)).collect();
    let mut world = open(&SimDevice::new(0, 1), 16 * MIB, named);
    world.fill(30_000);
    // The tables are cut off at once, and freed piece by piece.
    world.store.run(Access::Everything, |tx| tx.clear(0)).unwrap();
    world.steps(3);
    while world.store.free_some(1_000) > 0 {}
    world.steps(60);
    let status = world.devices.status();
    assert!(status.devices.iter().all(|one| one.suspect_segments == 0), "{status:#?}");
    assert_eq!(world.live_bytes(), 0, "{status:#?}");
}

#[test]
fn values_of_several_devices_are_read_together_each_in_its_place() {
    let devices = three();
    let named = devices.iter().enumerate().map(|(n, one)| named_sim(n, one)).collect();
    let mut world = open(&SimDevice::new(0, 1), 16 * MIB, named);
    world.fill(30_000);
    let far: Vec<_> = (0..30_000)
        .filter_map(|number| Some((number, world.store.far_value(Key::new(&key(number)))?)))
        .take(500)
        .collect();
    let on = |device| far.iter().filter(|(_, value)| value.at.device == device).count();
    assert!((0..3).all(|device| on(device) > 50));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for some in far.chunks(50) {
                    let wanted: Vec<_> = some.iter().map(|(_, value)| value.clone()).collect();
                    let read = world.devices.read(&wanted);
                    for ((number, _), found) in some.iter().zip(read) {
                        assert_eq!(found.unwrap(), value(*number, 1000).into(), "{number}");
                    }
                }
            });
        }
    });
}
