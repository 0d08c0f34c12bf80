//! A disk for tests: memory with scripted times and failures.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::RwLock;
use perdura_media::{Clock, DeviceError, Due, RealClock};

use crate::disk::{Disk, within};

/// Memory with a time for each operation, and a switch for failures.
pub struct Scripted {
    bytes: RwLock<Vec<u8>>,
    read_only: bool,
    read_ns: AtomicU64,
    write_ns: AtomicU64,
    failing: AtomicBool,
    flushes: AtomicU64,
}

impl Scripted {
    /// A disk of zeros whose operations take no time.
    #[must_use]
    pub fn new(capacity_bytes: usize) -> Self {
        Self {
            bytes: RwLock::new(vec![0; capacity_bytes]),
            read_only: false,
            read_ns: AtomicU64::new(0),
            write_ns: AtomicU64::new(0),
            failing: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
        }
    }

    /// A disk of zeros that refuses writes.
    #[must_use]
    pub fn read_only(capacity_bytes: usize) -> Self {
        Self { read_only: true, ..Self::new(capacity_bytes) }
    }

    /// Sets how long each later read takes, and each later write, discard or flush. Operations
    /// overlap without limit.
    pub fn take_ns(&self, read_ns: u64, write_ns: u64) {
        self.read_ns.store(read_ns, Relaxed);
        self.write_ns.store(write_ns, Relaxed);
    }

    /// Sets whether later operations fail.
    pub fn fail(&self, failing: bool) {
        self.failing.store(failing, Relaxed);
    }

    /// Number of flushes so far.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Relaxed)
    }

    /// A copy of all bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }

    fn admit(&self, op: &'static str, offset_bytes: u64, len: u64) -> Result<(), DeviceError> {
        within(self.capacity_bytes(), offset_bytes, len)?;
        if self.failing.load(Relaxed) || (self.read_only && op != "read") {
            let source = std::io::Error::from(std::io::ErrorKind::Other);
            return Err(DeviceError::Io { op, offset_bytes, len_bytes: len, source });
        }
        Ok(())
    }
}

/// The instant in so many nanoseconds.
fn after(ns: u64) -> Due {
    Due::at_ps((RealClock.now_ns() + ns) * PS_PER_NS)
}

const PS_PER_NS: u64 = 1000;

impl Disk for Scripted {
    fn capacity_bytes(&self) -> u64 {
        self.bytes.read().len() as u64
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn describe(&self) -> String {
        "scripted memory, for tests".to_owned()
    }

    fn read(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<Due, DeviceError> {
        self.admit("read", offset_bytes, buf.len() as u64)?;
        let at = offset_bytes as usize;
        buf.copy_from_slice(&self.bytes.read()[at..at + buf.len()]);
        Ok(after(self.read_ns.load(Relaxed)))
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<Due, DeviceError> {
        self.admit("write", offset_bytes, bytes.len() as u64)?;
        let at = offset_bytes as usize;
        self.bytes.write()[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(after(self.write_ns.load(Relaxed)))
    }

    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<Due, DeviceError> {
        self.admit("discard", offset_bytes, len_bytes)?;
        let at = offset_bytes as usize;
        self.bytes.write()[at..at + len_bytes as usize].fill(0);
        Ok(after(self.write_ns.load(Relaxed)))
    }

    fn flush(&self) -> Result<Due, DeviceError> {
        self.admit("flush", 0, 0)?;
        self.flushes.fetch_add(1, Relaxed);
        Ok(after(self.write_ns.load(Relaxed)))
    }

    fn now(&self) -> Due {
        after(0)
    }

    fn wait(&self, due: Due) {
        while !self.is_due(due) {
            RealClock.sleep_ns(self.until_due_ns(due));
        }
    }
}
