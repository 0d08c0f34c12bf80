//! What an application sees of where its data lie: named data read and written piece by piece, a
//! pool of small objects, and a place for what is gone after the run.
//!
//! Applications are written against these traits only, so all ways do the same work on the same
//! data. A way hands out its data as slices: files copy them into a buffer first, mappings and the
//! heap do not.
//!
//! What is put is there as a whole, and as durable as the way promises, when `finish` returns; who
//! reads what has the name already, goes on reading that. (A file can be seen before: programs that
//! need more write another one and rename it.) Calls are counted as the application makes them,
//! whatever the way makes of them; the system calls that follow are counted beside.

use std::cell::Cell;

use serde::Serialize;

use crate::error::Result;
use crate::scratch::Scratch;

/// One way to reach data.
pub trait Access {
    /// Its name on the command line and in tables.
    fn way(&self) -> &'static str;
    /// Opens named data at their first byte.
    ///
    /// # Errors
    /// There are none of that name, or the system refuses.
    fn get(&self, name: &str) -> Result<Box<dyn Input + '_>>;
    /// Begins named data, in place of what has the name; they need not fit `capacity_bytes`, but
    /// should.
    ///
    /// # Errors
    /// The system or the heap refuses.
    fn put(&self, name: &str, capacity_bytes: usize) -> Result<Box<dyn Output + '_>>;
    /// Removes named data; `false`: there were none.
    ///
    /// # Errors
    /// The system or the heap refuses.
    fn remove(&self, name: &str) -> Result<bool>;
    /// The names there are, in no order.
    ///
    /// # Errors
    /// The system refuses.
    fn names(&self) -> Result<Vec<String>>;
    /// Begins an empty pool of objects, in place of what has the name.
    ///
    /// # Errors
    /// The system or the heap refuses.
    fn pool(&self, name: &str) -> Result<Box<dyn Pool + '_>>;
    /// Where allocations go that need not survive.
    fn scratch(&self) -> Scratch;
    /// The calls made.
    fn tally(&self) -> &Tally;
    /// Between measurements: what is on its way to a device arrives, caches are as the way says
    /// they are.
    ///
    /// # Errors
    /// The system refuses.
    fn settle(&self) -> Result<()>;
    /// What the data take, and where.
    ///
    /// # Errors
    /// The system refuses.
    fn usage(&self) -> Result<Usage>;
}

/// Named data being read.
pub trait Input {
    /// All of them.
    fn len_bytes(&self) -> usize;
    /// The next piece, of `bytes` but for the last; empty at the end.
    ///
    /// # Errors
    /// The system refuses.
    fn next(&mut self, bytes: usize) -> Result<&[u8]>;
    /// All that was not read yet in one slice, read in calls of `call_bytes`.
    ///
    /// # Errors
    /// The system refuses.
    fn whole(&mut self, call_bytes: usize) -> Result<&[u8]>;
}

/// Named data being written.
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
/// A write is as durable as the way promises when `sync` returns; by the heap, when `write`
/// returns.
pub trait Pool {
    /// Makes an object; what it holds is undefined.
    ///
    /// # Errors
    /// The system or the heap refuses.
    fn alloc(&mut self, len_bytes: usize) -> Result<ObjectId>;
    /// Frees one.
    ///
    /// # Errors
    /// There is none, or the heap refuses.
    fn free(&mut self, id: ObjectId, len_bytes: usize) -> Result<()>;
    /// Bytes of an object, from `at`.
    ///
    /// # Errors
    /// They do not lie in it, or the system refuses.
    fn read(&mut self, id: ObjectId, at: usize, len_bytes: usize) -> Result<&[u8]>;
    /// Changes bytes of an object, from `at`.
    ///
    /// # Errors
    /// They do not lie in it, or the system refuses.
    fn write(&mut self, id: ObjectId, at: usize, bytes: &[u8]) -> Result<()>;
    /// What was written so far is as durable as the way promises.
    ///
    /// # Errors
    /// The system refuses.
    fn sync(&mut self) -> Result<()>;
}

/// Names an object of a pool; below 2^48, and never 0.
pub type ObjectId = u64;

/// Bytes by where they lie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Persistent objects of a heap.
    pub persistent_bytes: u64,
    /// Most that capacity memory held at once.
    pub capacity_peak_bytes: u64,
    /// Files, on the RAM disk or in the page cache while they are used.
    pub file_bytes: u64,
}

/// Calls of an application, and system calls made for them.
#[derive(Debug, Default)]
pub struct Tally {
    cells: [Cell<u64>; KINDS],
}

const KINDS: usize = 10;

/// What a `Tally` counts.
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
    /// Pieces the application read.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Pieces it wrote.
    pub writes: u64,
    /// Their bytes.
    pub write_bytes: u64,
    /// System calls that read.
    pub system_reads: u64,
    /// System calls that write.
    pub system_writes: u64,
    /// Files opened, and so closed.
    pub opens: u64,
    /// Mappings made, and so unmapped.
    pub maps: u64,
    /// Waits for a device.
    pub syncs: u64,
    /// Files given another length.
    pub resizes: u64,
}

impl Calls {
    /// All system calls: an open is two (and asks the length), a mapping is two.
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

    /// The application read a piece.
    pub fn read(&self, bytes: usize) {
        self.add(Kind::Reads, 1);
        self.add(Kind::ReadBytes, bytes as u64);
    }

    /// It read all of this in calls of a length.
    pub fn read_in_calls(&self, bytes: usize, call_bytes: usize) {
        self.add(Kind::Reads, bytes.div_ceil(call_bytes.max(1)) as u64);
        self.add(Kind::ReadBytes, bytes as u64);
    }

    /// It wrote a piece.
    pub fn write(&self, bytes: usize) {
        self.add(Kind::Writes, 1);
        self.add(Kind::WriteBytes, bytes as u64);
    }

    /// A system call that reads.
    pub fn system_read(&self) {
        self.add(Kind::SystemReads, 1);
    }

    /// A system call that writes.
    pub fn system_write(&self) {
        self.add(Kind::SystemWrites, 1);
    }

    /// A file was opened.
    pub fn open(&self) {
        self.add(Kind::Opens, 1);
    }

    /// A mapping was made.
    pub fn map(&self) {
        self.add(Kind::Maps, 1);
    }

    /// A device was waited for.
    pub fn sync(&self) {
        self.add(Kind::Syncs, 1);
    }

    /// A file got another length.
    pub fn resize(&self) {
        self.add(Kind::Resizes, 1);
    }

    /// All figures, which start again at 0.
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
