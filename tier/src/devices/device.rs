//! One device: its handle, its segments, what it did, and whether it works.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::{Mutex, RwLock};
use perdura_media::{BLOCK_BYTES, BlockBuf, Clock, Device, DeviceError, ReadAt, WriteQueue};
use perdura_store::{FarAddress, FarError, FarValue};

use super::busy::Busy;
use super::error::DevicesError;
use super::format::{FIRST_SEGMENT_AT, Record, Superblock};
use super::segments::{Room, Segments, Sums};

/// A device to be used for values.
pub struct Named {
    /// What tells people which device it is: its directory.
    pub place: String,
    /// The device itself.
    pub device: Arc<dyn Device>,
    /// Most bytes that it may grow to.
    pub limit_bytes: u64,
}

/// Power of a device, by which its energy is modelled: nothing is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Watts {
    /// While no request is under way.
    pub idle: f64,
    /// While at least one is.
    pub busy: f64,
}

impl Watts {
    /// The energy for so much time, of which the device was busy for a part; joules.
    pub fn joules(&self, busy_ns: u64, all_ns: u64) -> f64 {
        let seconds = |ns: u64| ns as f64 / 1e9;
        self.idle * seconds(all_ns.saturating_sub(busy_ns)) + self.busy * seconds(busy_ns)
    }
}

/// In the place of a device whose file was let go.
struct Unplugged;

impl Unplugged {
    fn refuse<T>(op: &'static str) -> Result<T, DeviceError> {
        let source = std::io::Error::other("the device is unplugged");
        Err(DeviceError::Io { op, offset_bytes: 0, len_bytes: 0, source })
    }
}

impl Device for Unplugged {
    fn capacity_bytes(&self) -> u64 {
        0
    }
    fn grow(&self, _: u64) -> Result<(), DeviceError> {
        Self::refuse("grow")
    }
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), DeviceError> {
        Self::refuse("read")
    }
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
        Self::refuse("write")
    }
    fn write_durable_at(&self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
        Self::refuse("write")
    }
    fn flush(&self) -> Result<(), DeviceError> {
        Self::refuse("flush")
    }
    fn queue(&self, _: usize) -> Result<Box<dyn WriteQueue>, DeviceError> {
        Self::refuse("open a queue")
    }
    fn describe(&self) -> String {
        "unplugged".into()
    }
}

/// What a device does now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceState {
    /// Values are read and written.
    Online,
    /// Values are read, and moved to other devices: it is being taken away.
    Leaving,
    /// A write or flush has failed; values are still read, as far as that works.
    Failed(String),
}

/// Counts of a device since it was opened.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub failed_reads: AtomicU64,
    pub writes: AtomicU64,
    pub written_bytes: AtomicU64,
}

/// One device of the set.
pub(crate) struct FarDevice {
    pub superblock: Superblock,
    pub place: String,
    /// The handle; another after the device was plugged in again.
    device: RwLock<Arc<dyn Device>>,
    pub segments: Mutex<Segments>,
    failed: Mutex<Option<String>>,
    pub is_leaving: AtomicBool,
    /// Whether the last batch found no room.
    pub is_full: AtomicBool,
    /// Whether it takes no batches while a primary has room.
    pub is_idle: AtomicBool,
    /// Whether segments are being emptied although it is idle: it is awake until enough are.
    pub is_tidied: AtomicBool,
    pub counts: Counts,
    pub busy: Busy,
    /// When the device was opened, nanoseconds of the clock.
    pub opened_ns: u64,
    clock: Arc<dyn Clock>,
}

impl FarDevice {
    /// Makes a device part of a set.
    pub fn create(
        named: Named,
        superblock: Superblock,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, DevicesError> {
        let failed = |source| DevicesError::Device { place: named.place.clone(), source };
        named.device.grow(BLOCK_BYTES).map_err(failed)?;
        named.device.write_at(0, &superblock.encode()).map_err(failed)?;
        named.device.flush().map_err(failed)?;
        Ok(Self::over(named, superblock, clock))
    }

    /// What the device's first block says; `None` if the device was never part of a set.
    pub fn superblock(named: &Named) -> Result<Option<Superblock>, DevicesError> {
        if named.device.capacity_bytes() < BLOCK_BYTES {
            return Ok(None);
        }
        let mut block = BlockBuf::zeroed(BLOCK_BYTES as usize);
        let read = named.device.read_at(0, &mut block);
        read.map_err(|source| DevicesError::Device { place: named.place.clone(), source })?;
        match Superblock::decode(&block) {
            Some(superblock) => Ok(Some(superblock)),
            None if block.iter().all(|byte| *byte == 0) => Ok(None),
            None => Err(DevicesError::Foreign { place: named.place.clone() }),
        }
    }

    /// A device that is part of the set already.
    pub fn over(named: Named, superblock: Superblock, clock: Arc<dyn Clock>) -> Self {
        let capacity_bytes = named.device.capacity_bytes();
        let segments = Segments::new(superblock.segment_bytes, capacity_bytes, named.limit_bytes);
        Self {
            superblock,
            place: named.place,
            device: RwLock::new(named.device),
            segments: Mutex::new(segments),
            failed: Mutex::new(None),
            is_leaving: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            is_idle: AtomicBool::new(false),
            is_tidied: AtomicBool::new(false),
            counts: Counts::default(),
            busy: Busy::since(clock.now_ns()),
            opened_ns: clock.now_ns(),
            clock,
        }
    }

    pub fn number(&self) -> u16 {
        self.superblock.number
    }

    fn handle(&self) -> Arc<dyn Device> {
        Arc::clone(&self.device.read())
    }

    /// Goes on with another handle of the same device, which was plugged in again.
    pub fn plug_in(&self, device: Arc<dyn Device>) {
        *self.device.write() = device;
        *self.failed.lock() = None;
        self.is_full.store(false, Relaxed);
    }

    /// Lets the file of a failed device go.
    pub fn unplug(&self) {
        *self.device.write() = Arc::new(Unplugged);
    }

    pub fn state(&self) -> DeviceState {
        match &*self.failed.lock() {
            Some(why) => DeviceState::Failed(why.clone()),
            None if self.is_leaving.load(Relaxed) => DeviceState::Leaving,
            None => DeviceState::Online,
        }
    }

    /// Whether values may be written to the device.
    pub fn takes_values(&self) -> bool {
        self.state() == DeviceState::Online
    }

    pub fn sums(&self) -> Sums {
        self.segments.lock().sums()
    }

    /// Notes that a write or a flush failed: no more are tried until the device is plugged in
    /// again.
    pub fn fail(&self, error: &DeviceError) {
        let mut failed = self.failed.lock();
        if failed.is_none() {
            tracing::error!(device = self.number(), place = self.place, %error, "device failed");
            *failed = Some(error.to_string());
        }
    }

    /// Runs `f` with the device, and counts the time.
    fn timed<R>(&self, f: impl FnOnce(&dyn Device) -> R) -> R {
        self.busy.begin(self.clock.now_ns());
        let result = f(&*self.handle());
        self.busy.end(self.clock.now_ns());
        result
    }

    /// Reads values that lie here, all at a time.
    pub fn read(&self, wanted: &[FarValue]) -> Vec<Result<Box<[u8]>, FarError>> {
        let blocks = |value: &FarValue| {
            let from = value.at.offset - value.at.offset % BLOCK_BYTES;
            let end = value.at.offset + u64::from(value.at.record_bytes);
            (from, BlockBuf::zeroed((end.next_multiple_of(BLOCK_BYTES) - from) as usize))
        };
        let mut bufs: Vec<_> = wanted.iter().map(blocks).collect();
        let mut reads: Vec<_> =
            bufs.iter_mut().map(|(from, buf)| ReadAt::new(*from, &mut *buf)).collect();
        self.timed(|device| device.read_many(&mut reads));
        let results: Vec<_> = reads.into_iter().map(|read| read.result).collect();
        let bytes = bufs.iter().map(|(_, buf)| buf.len() as u64).sum::<u64>();
        self.counts.reads.fetch_add(wanted.len() as u64, Relaxed);
        self.counts.read_bytes.fetch_add(bytes, Relaxed);
        let values = wanted.iter().zip(results).zip(&bufs);
        let values = values.map(|((value, result), (from, buf))| {
            let why = match result {
                Err(error) => error.to_string(),
                Ok(()) => match self.value_in(value, *from, buf) {
                    Some(bytes) => return Ok(bytes.into()),
                    None => format!("the record at offset {} is damaged", value.at.offset),
                },
            };
            self.counts.failed_reads.fetch_add(1, Relaxed);
            Err(FarError { device: self.number(), place: self.place.clone(), why })
        });
        values.collect()
    }

    /// The value in blocks that were read from `from` on, if its record is the one that the address
    /// means.
    fn value_in<'b>(&self, value: &FarValue, from: u64, blocks: &'b [u8]) -> Option<&'b [u8]> {
        let FarAddress { offset, record_bytes, checksum, kind, .. } = value.at;
        let start = (offset - from) as usize;
        let bytes = blocks.get(start..start + record_bytes as usize)?;
        let (record, found) = Record::read(bytes, self.superblock.set, offset)?;
        let is_it = found == checksum
            && (record.db, record.kind, record.key) == (value.db, kind, &*value.key)
            && record.value.len() == value.at.value_bytes as usize;
        is_it.then_some(record.value)
    }

    /// Takes room for a batch of so many bytes, whole blocks: the batch's offset. `None` if the
    /// device has none. `empties` says that the batch is of values of another segment.
    pub fn reserve(&self, bytes: u64, empties: bool) -> Result<Option<u64>, DeviceError> {
        loop {
            let room = self.segments.lock().reserve(bytes, empties);
            match room {
                Room::At(offset) => {
                    self.is_full.fetch_and(empties, Relaxed);
                    return Ok(Some(offset));
                }
                Room::Full => break,
                Room::Grow(size_bytes) => match self.timed(|device| device.grow(size_bytes)) {
                    Ok(()) => self.segments.lock().grown(size_bytes),
                    Err(DeviceError::NoSpace { .. }) => {
                        // The file system is the limit, and what it has left is for emptying.
                        self.segments.lock().stop_growing();
                        break;
                    }
                    Err(error) => return Err(error),
                },
            }
        }
        if !self.is_full.swap(true, Relaxed) {
            tracing::warn!(device = self.number(), place = self.place, "device is full");
        }
        Ok(None)
    }

    /// Writes a batch, and makes it durable unless `flushes` is false (which only a planted bug
    /// asks for).
    pub fn write(&self, offset: u64, bytes: &[u8], flushes: bool) -> Result<(), DeviceError> {
        self.counts.writes.fetch_add(1, Relaxed);
        self.counts.written_bytes.fetch_add(bytes.len() as u64, Relaxed);
        self.timed(|device| {
            device.write_at(offset, bytes)?;
            if flushes { device.flush() } else { Ok(()) }
        })
    }

    /// Reads a whole segment.
    pub fn read_segment(&self, offset: u64) -> Result<BlockBuf, DeviceError> {
        let mut segment = BlockBuf::zeroed(self.superblock.segment_bytes as usize);
        self.counts.read_bytes.fetch_add(segment.len() as u64, Relaxed);
        self.timed(|device| device.read_at(offset, &mut segment))?;
        Ok(segment)
    }

    /// Writes a superblock that belongs to no set: the device was taken away.
    pub fn forget_set(&self) -> Result<(), DeviceError> {
        let zeros = BlockBuf::zeroed(FIRST_SEGMENT_AT as usize);
        self.write(0, &zeros, true)
    }
}
