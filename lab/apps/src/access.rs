//! The view that an application has of its data: named data read and written piece by piece, a pool
//! of small objects, and scratch memory that is gone after the run.
//!
//! Applications are written against these traits only, so all ways do the same work on the same
//! data. A way hands out its data as slices: files copy them into a buffer first, mappings and the
//! heap do not.
//!
//! Data that are put become visible as a whole, and as durable as the way promises, when `finish`
//! returns. A reader that has opened a name goes on reading the data it opened. (A file can be seen
//! before it is finished: programs that need more write another file and rename it.) Calls are
//! counted as the application makes them; the system calls that a way makes for them are counted
//! separately.

use std::cell::Cell;

use serde::Serialize;

use crate::error::Result;
use crate::scratch::Scratch;

/// One way to keep and reach data.
pub trait Access {
    /// The way's name on the command line and in tables.
    fn way(&self) -> &'static str;
    /// Opens named data at their first byte.
    ///
    /// # Errors
    /// The name does not exist, or the system refuses.
    fn get(&self, name: &str) -> Result<Box<dyn Input + '_>>;
    /// Begins named data, which replace those of the same name. `capacity_bytes` is the expected
    /// length; more may be written.
    ///
    /// # Errors
    /// The system or the heap refuses.
    fn put(&self, name: &str, capacity_bytes: usize) -> Result<Box<dyn Output + '_>>;
    /// Removes named data; `false` if there were none.
    ///
    /// # Errors
    /// The system or the heap refuses.
    fn remove(&self, name: &str) -> Result<bool>;
    /// All names, in no order.
    ///
    /// # Errors
    /// The system refuses.
    fn names(&self) -> Result<Vec<String>>;
    /// Begins an empty pool of objects, which replaces the one of the same name.
    ///
    /// # Errors
    /// The system or the heap refuses.
    fn pool(&self, name: &str) -> Result<Box<dyn Pool + '_>>;
    /// The memory for allocations that need not survive.
    fn scratch(&self) -> Scratch;
    /// Counts of calls.
    fn tally(&self) -> &Tally;
    /// Prepares the next measurement: waits until data have reached their device, and puts caches
    /// into the way's own state.
    ///
    /// # Errors
    /// The system refuses.
    fn settle(&self) -> Result<()>;
    /// Bytes that the data take, by place.
    ///
    /// # Errors
    /// The system refuses.
    fn usage(&self) -> Result<Usage>;
}

/// Named data that are being read.
pub trait Input {
    /// Length of the data.
    fn len_bytes(&self) -> usize;
    /// The next `bytes` bytes, fewer at the end; empty after the end.
    ///
    /// # Errors
    /// The system refuses.
    fn next(&mut self, bytes: usize) -> Result<&[u8]>;
    /// All bytes that were not read yet in one slice, read in calls of `call_bytes`.
    ///
    /// # Errors
    /// The system refuses.
    fn whole(&mut self, call_bytes: usize) -> Result<&[u8]>;
}

/// Named data that are being written.
pub trait Output {
    /// Writes the next piece.
    ///
    /// # Errors
    /// The system or the heap refuses.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
    /// Makes the data visible under their name.
    ///
    /// # Errors
    /// The system or the heap refuses.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Objects of any size that can be changed and freed.
///
/// A write is as durable as the way promises when `sync` returns; on the heap, when `write`
/// returns.
pub trait Pool {
    /// Allocates an object with undefined contents.
    ///
    /// # Errors
    /// The system or the heap refuses.
    fn alloc(&mut self, len_bytes: usize) -> Result<ObjectId>;
    /// Frees an object.
    ///
    /// # Errors
    /// The object does not exist, or the heap refuses.
    fn free(&mut self, id: ObjectId, len_bytes: usize) -> Result<()>;
    /// Reads bytes of an object, from `at`.
    ///
    /// # Errors
    /// The range is outside the object, or the system refuses.
    fn read(&mut self, id: ObjectId, at: usize, len_bytes: usize) -> Result<&[u8]>;
    /// Changes bytes of an object, from `at`.
    ///
    /// # Errors
    /// The range is outside the object, or the system refuses.
    fn write(&mut self, id: ObjectId, at: usize, bytes: &[u8]) -> Result<()>;
    /// Makes all writes so far as durable as the way promises.
    ///
    /// # Errors
    /// The system refuses.
    fn sync(&mut self) -> Result<()>;
}

/// Number of an object in a pool; below 2^48, and never 0.
pub type ObjectId = u64;

/// Bytes that data take, by place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Bytes of a heap's persistent objects.
    pub persistent_bytes: u64,
    /// Most bytes of capacity memory that were in use at once.
    pub capacity_peak_bytes: u64,
    /// Bytes of files, which are on the RAM disk or, while used, in the page cache.
    pub file_bytes: u64,
}

/// Counts of an application's calls, and of system calls made for them.
#[derive(Debug, Default)]
pub struct Tally {
    cells: [Cell<u64>; KINDS],
}

const KINDS: usize = 10;

/// The figures that a `Tally` counts.
#[derive(Debug, Clone, Copy)]
#[repr(usize)]
enum Kind {
    Reads,
    ReadBytes,
    Writes,
    WriteBytes,
    SystemReads,
    SystemWrites,
    Opens,
    Maps,
    Syncs,
    Resizes,
}

/// The figures of a `Tally`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// Pieces that the application read.
    pub reads: u64,
    /// Bytes of these pieces.
    pub read_bytes: u64,
    /// Pieces that the application wrote.
    pub writes: u64,
    /// Bytes of these pieces.
    pub write_bytes: u64,
    /// System calls that read.
    pub system_reads: u64,
    /// System calls that write.
    pub system_writes: u64,
    /// Files opened; each is closed, too.
    pub opens: u64,
    /// Mappings made; each is unmapped, too.
    pub maps: u64,
    /// Waits for a device.
    pub syncs: u64,
    /// Changes of a file's length.
    pub resizes: u64,
}

impl Calls {
    /// Number of all system calls. An open counts two, with the close (the question for the file's
    /// length is not counted); a mapping counts two, with its end.
    pub fn system(&self) -> u64 {
        let pairs = self.opens + self.maps;
        self.system_reads + self.system_writes + self.syncs + self.resizes + 2 * pairs
    }
}

impl Tally {
    fn add(&self, kind: Kind, count: u64) {
        let cell = &self.cells[kind as usize];
        cell.set(cell.get() + count);
    }

    /// Counts a piece that the application read.
    pub fn read(&self, bytes: usize) {
        self.add(Kind::Reads, 1);
        self.add(Kind::ReadBytes, bytes as u64);
    }

    /// Counts a read of many bytes in calls of `call_bytes`.
    pub fn read_in_calls(&self, bytes: usize, call_bytes: usize) {
        self.add(Kind::Reads, bytes.div_ceil(call_bytes.max(1)) as u64);
        self.add(Kind::ReadBytes, bytes as u64);
    }

    /// Counts a piece that the application wrote.
    pub fn write(&self, bytes: usize) {
        self.add(Kind::Writes, 1);
        self.add(Kind::WriteBytes, bytes as u64);
    }

    /// Counts a system call that reads.
    pub fn system_read(&self) {
        self.add(Kind::SystemReads, 1);
    }

    /// Counts a system call that writes.
    pub fn system_write(&self) {
        self.add(Kind::SystemWrites, 1);
    }

    /// Counts the opening of a file.
    pub fn open(&self) {
        self.add(Kind::Opens, 1);
    }

    /// Counts a mapping.
    pub fn map(&self) {
        self.add(Kind::Maps, 1);
    }

    /// Counts a wait for a device.
    pub fn sync(&self) {
        self.add(Kind::Syncs, 1);
    }

    /// Counts a change of a file's length.
    pub fn resize(&self) {
        self.add(Kind::Resizes, 1);
    }

    /// Returns all figures and sets them to 0.
    pub fn take(&self) -> Calls {
        let take = |kind: Kind| self.cells[kind as usize].take();
        Calls {
            reads: take(Kind::Reads),
            read_bytes: take(Kind::ReadBytes),
            writes: take(Kind::Writes),
            write_bytes: take(Kind::WriteBytes),
            system_reads: take(Kind::SystemReads),
            system_writes: take(Kind::SystemWrites),
            opens: take(Kind::Opens),
            maps: take(Kind::Maps),
            syncs: take(Kind::Syncs),
            resizes: take(Kind::Resizes),
        }
    }
}
