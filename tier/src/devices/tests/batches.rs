//! What a batch leaves on its device, and a device that has no more space.

use super::*;
use crate::devices::batch::Batch;
use crate::devices::device::FarDevice;
use crate::devices::format::{Record, Superblock};

/// A device whose file system has room for so many bytes.
struct Small {
    device: SimDevice,
    room_bytes: u64,
}

impl Device for Small {
    fn capacity_bytes(&self) -> u64 {
        self.device.capacity_bytes()
    }
    fn grow(&self, capacity_bytes: u64) -> Result<(), DeviceError> {
        if capacity_bytes > self.room_bytes {
            let (offset_bytes, len_bytes) = (self.room_bytes, capacity_bytes - self.room_bytes);
            return Err(DeviceError::NoSpace { op: "grow", offset_bytes, len_bytes });
        }
        self.device.grow(capacity_bytes)
    }
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read_at(offset_bytes, buf)
    }
    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.device.write_at(offset_bytes, buf)
    }
    fn write_durable_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.device.write_durable_at(offset_bytes, buf)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }
    fn queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>, DeviceError> {
        self.device.queue(depth)
    }
    fn describe(&self) -> String {
        "small".into()
    }
}

#[test]
fn behind_the_last_record_of_a_batch_there_is_nothing_of_an_older_one() {
    let clock: Arc<dyn Clock> = Arc::new(LoneClock::new(1));
    let sim = SimDevice::new(0, 1);
    let superblock = Superblock { set: 7, number: 0, segment_bytes: MIB };
    let device = FarDevice::create(named_sim(0, &sim), superblock, clock).unwrap();
    let mut batch = Batch::new(MIB);
    let mut write = |byte: u8, bytes: usize| {
        let value = vec![byte; bytes];
        batch.clear();
        batch.push(Record { db: 0, kind: 0, key: b"key", value: &value }, None, 0);
        assert!(batch.write(&device, true).unwrap());
        batch.written().next().unwrap().at
    };
    write(0xff, 8000);
    let at = write(1, 100);
    let mut block = perdura_media::BlockBuf::zeroed(4096);
    sim.read_at(at.offset, &mut block).unwrap();
    assert_eq!(block[16 + 3], 1, "the record is there");
    assert!(block[at.record_bytes as usize..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_file_system_without_space_makes_the_device_full_and_not_failed() {
    let devices = three();
    let small = Small { device: devices[0].clone(), room_bytes: 6 * MIB };
    let named = vec![on(0, Arc::new(small), u64::MAX), named_sim(1, &devices[1])];
    let mut world = open(&SimDevice::new(0, 1), 16 * MIB, named);
    let count = world.fill(30_000);
    let status = world.devices.status();
    let first = status.devices.iter().find(|one| one.number == 0).unwrap();
    assert!(first.is_full && first.state == DeviceState::Online, "{first:?}");
    assert!(first.written_bytes > 3 * MIB);
    let members = world.devices.members();
    assert!((0..200).all(|number| {
        let home = crate::devices::members::target(&members, 0, &key(number)).unwrap();
        members[home].number() == 1
    }));
    assert_eq!(world.unreadable(count), 0);
}

#[test]
fn the_first_batch_that_finds_no_space_marks_the_device_full() {
    let clock: Arc<dyn Clock> = Arc::new(LoneClock::new(1));
    let small = Small { device: SimDevice::new(0, 1), room_bytes: 4096 };
    let superblock = Superblock { set: 7, number: 0, segment_bytes: MIB };
    let device = FarDevice::create(on(0, Arc::new(small), u64::MAX), superblock, clock).unwrap();
    assert!(matches!(device.reserve(4096, false), Ok(None)));
    assert!(device.is_full.load(Relaxed));
}

#[test]
fn a_file_system_without_space_is_written_again_once_values_are_deleted() {
    // Every second value is deleted, which empties no segment by itself; all are.
    for step in [2, 1] {
        let small = Small { device: SimDevice::new(0, 1), room_bytes: 9 * MIB };
        let named = vec![on(0, Arc::new(small), u64::MAX)];
        let mut world = open(&SimDevice::new(0, 1), 16 * MIB, named);
        let mut written = 0;
        let mut fill = |world: &mut World| loop {
            match world.store.put(Key::new(&key(written)), &value(written, 1000)) {
                Ok(()) => written += 1,
                Err(_) => {
                    let (moved, outcome) = world.mover.step(&world.store, true);
                    outcome.unwrap();
                    if moved.bytes == 0 && moved.segments == 0 {
                        break written;
                    }
                }
            }
        };
        let first = fill(&mut world);
        assert!(world.devices.status().devices[0].is_full);
        for number in (0..first).step_by(step) {
            world.store.delete(Key::new(&key(number))).unwrap();
        }
        world.steps(60);
        let second = fill(&mut world) - first;
        let deleted = first / step as u32;
        assert!(second > deleted * 3 / 4, "{first} values, {deleted} deleted, {second} more");
        for number in 0..first + second {
            let is_there = number >= first || !(number as usize).is_multiple_of(step);
            assert_eq!(world.get(number), is_there.then(|| value(number, 1000)), "{number}");
        }
    }
}

#[test]
fn a_device_that_is_mostly_live_comes_to_rest() {
    let named = vec![on(0, Arc::new(SimDevice::new(0, 1)), 14 * MIB)];
    let mut world = open(&SimDevice::new(0, 1), 16 * MIB, named);
    let mut count = 0;
    loop {
        match world.store.put(Key::new(&key(count)), &value(count, 1000)) {
            Ok(()) => count += 1,
            Err(_) => {
                let (moved, outcome) = world.mover.step(&world.store, true);
                outcome.unwrap();
                if moved.bytes == 0 && moved.segments == 0 {
                    break;
                }
            }
        }
    }
    for number in (0..count).filter(|number| number % 10 < 3) {
        world.store.delete(Key::new(&key(number))).unwrap();
    }
    let mut rest = |steps| {
        for _ in 0..steps {
            // As if batches that do not fit came all the time.
            world.devices.member(0).unwrap().is_full.store(true, Relaxed);
            world.steps(1);
        }
        world.devices.status().devices[0].written_bytes
    };
    let before = rest(60);
    assert_eq!(rest(100), before);
}
