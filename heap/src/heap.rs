//! The heap: opening, closing, and helpers that the methods of other files share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::claims::RootClaims;
use crate::config::{Bookkeeping, Config, LOG_BYTES_LEAST, LOG_BYTES_MOST};
use crate::conventional::Conventional;
use crate::core::{Core, Local, Spans};
use crate::damage::Findings;
use crate::engine::classes::SPAN_BYTES;
use crate::engine::{Engine, Kind, NoMemory, NotFreed};
use crate::error::HeapError;
use crate::layout::*;
use crate::log::fold::{Fold, fold, fold_if_due};
use crate::log::logged::Recovered;
use crate::log::logger::{Logger, Written};
use crate::log::logs::Logs;
use crate::log::recover::recover;
use crate::log::settle::settle;
use crate::memory::Memory;
use crate::ptr::Offset;
use crate::sys::{self, forks, threads};

/// Least number of buckets, which small heaps have.
const BUCKETS_LEAST: u64 = 64;
const BUCKET_BYTES: u64 = 2 << 20;
const THREADS_MAX: u64 = 4096;

/// A heap with two kinds of memory: persistent and capacity (pMem, "Dual-Use NVM").
///
/// Any thread may use a heap. Dropping one is like the end of the process: persistent memory is as
/// it was at that moment, and the next open recovers it. [`Heap::close`] leaves less to recover.
pub struct Heap {
    pub(crate) core: Arc<Core>,
    opened: Opened,
}

/// Whether a heap was made or found when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// The heap was made.
    Made,
    /// The heap was there, and was recovered.
    Recovered(Recovered),
}

/// Counts of the memory in use, and of the cost of logging since the heap was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeapStats {
    /// Bytes of the heap.
    pub len_bytes: u64,
    /// Bytes in spans that hold nothing.
    pub free_bytes: u64,
    /// Bytes in buckets of persistent memory, logs and tables included.
    pub persistent_bytes: u64,
    /// Bytes in buckets of capacity memory.
    pub capacity_bytes: u64,
    /// Bytes that transactions have written to word logs.
    pub word_log_bytes: u64,
    /// Bytes that transactions have written to object logs.
    pub object_log_bytes: u64,
    /// Bytes that committed transactions have changed.
    pub changed_bytes: u64,
    /// Lines that committed transactions have changed and that were written back after the commit.
    pub deferred_lines: u64,
    /// Lines of logs that were zeroed before they were used, together with those of chunk headers.
    pub prepared_lines: u64,
    /// Number of folds of the logs.
    pub folds: u64,
}

impl Heap {
    /// Opens the heap in `memory`, or makes one if the memory is all zeros. An operation that a
    /// crash has cut is made whole or undone. Capacity memory is empty.
    ///
    /// # Errors
    /// The memory holds something else, or a heap that this program, or these settings, cannot
    /// open.
    pub fn open(memory: Memory, config: Config) -> Result<Self, HeapError> {
        Self::open_with(memory, config, &Findings::strict())
    }

    /// Opens a heap as [`Heap::open`] does; damage goes to `findings`.
    pub(crate) fn open_with(
        mut memory: Memory,
        config: Config,
        findings: &Findings,
    ) -> Result<Self, HeapError> {
        check_size("a heap", memory.len_bytes(), HEAP_BYTES_MIN, HEAP_BYTES_MAX)?;
        let len_bytes = memory.len_bytes() / SPAN_BYTES * SPAN_BYTES;
        check_size("log_bytes_max", config.log_bytes_max, LOG_BYTES_LEAST, LOG_BYTES_MOST)?;
        if let Some(node) = config.numa_node {
            memory.check_node(node)?;
        }
        memory.set_tap(config.tap.clone());
        let is_new = superblock(&memory, &config)?;
        let spans = if is_new { len_bytes / SPAN_BYTES } else { memory.load(AT_SPANS) };
        let bucket_spans = bucket_spans(&config, spans)?;
        let conventional = config.bookkeeping == Bookkeeping::Conventional;
        let layout = Layout { spans, conventional };
        let memory = Arc::new(memory);
        let backing = Spans {
            memory: Arc::clone(&memory),
            layout,
            contiguous: config.contiguous,
            numa_node: config.numa_node,
        };
        static HEAPS_MADE: AtomicU64 = AtomicU64::new(1);
        let refused = |errno: rustix::io::Errno| HeapError::Refused {
            kind: "the allocator's own",
            source: errno.into(),
        };
        forks::watch().map_err(refused)?;
        let engine =
            Engine::new(layout.first_span(), layout.spans, bucket_spans, Box::new(backing));
        if config.contiguous {
            // The tables are persistent memory, too. If the system refuses, their pages come one by
            // one.
            let _ = memory.gather(0, layout.first_span() * SPAN_BYTES);
        }
        let core = Arc::new(Core {
            id: HEAPS_MADE.fetch_add(1, Relaxed),
            conventional: conventional.then(Conventional::default),
            logs: Logs::new(layout.spans).map_err(refused)?,
            engine: engine.map_err(refused)?,
            memory,
            layout,
            compartments: Default::default(),
            root_claims: RootClaims::default(),
            config,
            process: forks::forks().into(),
        });
        core.keep_for_logs();
        let opened = if is_new {
            format(&core);
            Opened::Made
        } else {
            Opened::Recovered(recover(&core, findings)?)
        };
        let boot = core.config.boot_id.unwrap_or_else(sys::boot_id);
        for (index, word) in boot.into_iter().enumerate() {
            core.memory.store_word(AT_BOOT + index as u64 * 8, word);
        }
        core.memory.flush(AT_BOOT, 16);
        core.memory.fence();
        for range in core.engine.unowned() {
            // The contents of capacity memory are gone, and are given up on the medium as well.
            core.memory
                .leave_bucket(range.start * SPAN_BYTES, (range.end - range.start) * SPAN_BYTES);
        }
        threads::enter(core.id, Arc::downgrade(&core));
        Ok(Self { core, opened })
    }

    /// Whether the heap was made or found when it was opened.
    pub fn opened(&self) -> Opened {
        self.opened
    }

    /// Whether this process was forked from the one that opened the heap and goes on with it. Such
    /// a child must leave the heap alone: it would change its parent's memory, and the parent would
    /// not know.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.core.is_forked()
    }

    /// The memory that the heap lies in.
    pub fn memory(&self) -> &Memory {
        &self.core.memory
    }

    /// Closes the heap so that the next open has little to recover. Other threads must have ended
    /// their operations.
    ///
    /// # Errors
    /// An undo transaction is open, or there is no room for the log. The heap is then as whole as
    /// after a crash.
    pub fn close(self) -> Result<(), HeapError> {
        self.compact()
    }

    /// Folds the logs now. Heaps also do this by themselves as the logs grow.
    ///
    /// # Errors
    /// The errors of [`Heap::close`].
    pub fn compact(&self) -> Result<(), HeapError> {
        match fold(&self.core).map_err(|error| refusal(error, Kind::Persistent))? {
            Fold::Done => Ok(()),
            Fold::Busy => Err(HeapError::Busy),
        }
    }

    /// Makes a range durable that was changed by plain stores, or through a pointer of
    /// [`Heap::pointer`]. Changes that transactions made to the range before will not be put in
    /// place over it.
    pub fn persist(&self, offset: Offset, len_bytes: u64) {
        settle(&self.core);
        self.core.memory.flush(offset.get(), len_bytes);
        self.fence();
    }

    /// Makes everything durable that this thread has recorded and written back, in particular its
    /// frees.
    pub fn fence(&self) {
        let drained = threads::with(self.core.id, |local| {
            local.logger.get().map(|logger| logger.drain(&self.core)).is_some()
        });
        if drained != Ok(true) {
            self.core.memory.fence();
        }
    }

    /// The address of an object, to read it and, with [`Heap::persist`], to change it. The address
    /// is valid as long as the heap is open and the object lives.
    ///
    /// # Panics
    /// If the offset leaves the heap.
    pub fn pointer(&self, offset: Offset) -> *mut u8 {
        self.core.memory.at(offset.get(), 1)
    }

    /// The offset of an address; `None` if the address lies outside of this heap.
    pub fn offset_of(&self, address: *const u8) -> Option<Offset> {
        self.core.memory.offset_of(address).and_then(Offset::new)
    }

    /// Counts the memory in use and the cost of logging.
    pub fn stats(&self) -> HeapStats {
        let (free, owned) = self.core.engine.count_spans();
        let mut written = Written::default();
        for logger in self.core.logs.all() {
            let some = logger.visit().written;
            written.word_log_bytes += some.word_log_bytes;
            written.object_log_bytes += some.object_log_bytes;
            written.changed_bytes += some.changed_bytes;
            written.prepared_lines += some.prepared_lines;
        }
        HeapStats {
            len_bytes: self.core.layout.spans * SPAN_BYTES,
            free_bytes: free * SPAN_BYTES,
            persistent_bytes: owned[Kind::Persistent as usize].0 * SPAN_BYTES,
            capacity_bytes: owned[Kind::Capacity as usize].0 * SPAN_BYTES,
            word_log_bytes: written.word_log_bytes,
            object_log_bytes: written.object_log_bytes,
            changed_bytes: written.changed_bytes,
            deferred_lines: self.core.logs.settled_lines.load(Relaxed),
            prepared_lines: written.prepared_lines,
            folds: self.core.logs.folds.load(Relaxed),
        }
    }

    /// Runs `f` with this thread's part of the heap. A value that `f` returns should fit registers:
    /// a larger one is copied by words wider than those it was stored by, and such a copy waits for
    /// all stores before it, and for a fence among them.
    #[inline]
    pub(crate) fn with_local<R>(
        &self,
        kind: Kind,
        f: impl FnOnce(&Local) -> R,
    ) -> Result<R, HeapError> {
        threads::with(self.core.id, f).map_err(|errno| refusal(NoMemory::Refused(errno), kind))
    }

    /// Refuses a call that would bypass the transaction which this thread is in.
    pub(crate) fn refuse_in_transaction(&self, instead: &'static str) -> Result<(), HeapError> {
        self.with_local(Kind::Persistent, |local| local.refuse_in_transaction(instead))?
    }

    /// The logger of this thread, which is acquired when it is first needed.
    #[inline]
    pub(crate) fn logger<'l>(&self, local: &'l Local) -> Result<&'l Logger, HeapError> {
        if let Some(logger) = local.logger.get() {
            return Ok(logger);
        }
        let none = HeapError::Threads { threads_max: THREADS_MAX };
        let logger = self.core.logs.acquire().ok_or(none)?;
        self.core.keep_for_logs();
        Ok(local.logger.get_or_init(|| logger))
    }

    /// Folds the logs if that is due; called after something was logged and is durable.
    #[inline]
    pub(crate) fn fold_if_due(&self) {
        if self.core.logs.is_due() {
            fold_if_due(&self.core);
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        threads::forget(self.core.id);
    }
}

/// The name of a kind of memory in messages.
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Persistent => "persistent",
        Kind::Capacity => "capacity",
    }
}

/// The error of a request for memory that the engine refuses.
pub(crate) fn refusal(error: NoMemory, kind: Kind) -> HeapError {
    let kind = kind_name(kind);
    match error {
        NoMemory::Exhausted { needed_bytes, free_bytes } => {
            HeapError::OutOfMemory { kind, needed_bytes, free_bytes }
        }
        NoMemory::Refused(errno) => HeapError::Refused { kind, source: errno.into() },
    }
}

/// The error of a request to free that the engine refuses.
pub(crate) fn not_freed(error: NotFreed, offset: u64, expected: Kind) -> HeapError {
    let offset = Offset::of(offset);
    match error {
        NotFreed::NoObject => HeapError::NoObject { offset },
        NotFreed::Twice => HeapError::FreedTwice { offset },
        NotFreed::OtherKind => {
            let other = if expected == Kind::Capacity { Kind::Persistent } else { Kind::Capacity };
            let (found, expected) = (kind_name(other), kind_name(expected));
            HeapError::OtherKind { offset, found, expected }
        }
    }
}

pub(crate) fn check_size(
    what: &'static str,
    bytes: u64,
    least_bytes: u64,
    most_bytes: u64,
) -> Result<(), HeapError> {
    if (least_bytes..=most_bytes).contains(&bytes) {
        return Ok(());
    }
    Err(HeapError::Size { what, bytes, least_bytes, most_bytes })
}

fn bucket_spans(config: &Config, spans: u64) -> Result<u64, HeapError> {
    match config.bucket_bytes {
        Some(bytes) => {
            check_size("a bucket", bytes, SPAN_BYTES, 1 << 30)?;
            Ok(bytes / SPAN_BYTES)
        }
        None => Ok((spans / BUCKETS_LEAST).clamp(1, BUCKET_BYTES / SPAN_BYTES)),
    }
}

/// Checks the superblock. Returns whether the memory has no heap yet.
fn superblock(memory: &Memory, config: &Config) -> Result<bool, HeapError> {
    match memory.load(AT_MAGIC) {
        0 if is_unused(memory) => return Ok(true),
        0 => return Err(HeapError::Corrupt { what: "superblock", offset: AT_MAGIC, value: 0 }),
        MAGIC => {}
        found => return Err(HeapError::NotAHeap { found }),
    }
    let version = memory.load(AT_VERSION);
    if version != VERSION {
        return Err(HeapError::Version { found: version, supported: VERSION });
    }
    if memory.load(AT_CHECKSUM) != checksum(memory) {
        let value = memory.load(AT_CHECKSUM);
        return Err(HeapError::Corrupt { what: "superblock", offset: AT_CHECKSUM, value });
    }
    let spans = memory.load(AT_SPANS);
    let made_bytes = spans.saturating_mul(SPAN_BYTES);
    check_size("the heap in this memory", made_bytes, HEAP_BYTES_MIN, HEAP_BYTES_MAX)?;
    if made_bytes > memory.len_bytes() {
        return Err(HeapError::Shorter { made_bytes, found_bytes: memory.len_bytes() });
    }
    let made = match memory.load(AT_FLAGS) {
        0 => Bookkeeping::Logged,
        FLAG_CONVENTIONAL => Bookkeeping::Conventional,
        value => return Err(HeapError::Corrupt { what: "superblock", offset: AT_FLAGS, value }),
    };
    if made != config.bookkeeping {
        let (made, asked) = (made.name(), config.bookkeeping.name());
        return Err(HeapError::Fixed { setting: "bookkeeping", made, asked });
    }
    Ok(false)
}

/// Whether memory without a magic number, which is stored last, holds nothing but zeros and the
/// beginning of a heap whose making was cut off.
pub(crate) fn is_unused(memory: &Memory) -> bool {
    if memory.is_fresh() {
        return true;
    }
    let end = AT_TABLE + memory.len_bytes() / SPAN_BYTES * 8;
    let is_made = |at: u64, value: u64| match at {
        AT_VERSION => value == VERSION,
        AT_SPANS..=AT_CHECKSUM => memory.load(AT_VERSION) == VERSION,
        AT_GENERATION | AT_CLOCK | AT_SETTLED => value == sealed(0),
        _ => false,
    };
    (0..end).step_by(8).all(|at| matches!(memory.load(at), 0) || is_made(at, memory.load(at)))
}

impl Memory {
    /// Whether there is no heap, but something where the blocks of one would be: data of somebody
    /// who uses this memory without a heap. Where no heap is, this reads all of the memory.
    pub fn has_data_without_heap(&self) -> bool {
        const STEP_BYTES: u64 = 64 << 10;
        let behind_table = AT_TABLE + self.len_bytes() / SPAN_BYTES * 8;
        let mut bytes = vec![0; STEP_BYTES as usize];
        let mut has_data = |from: u64| {
            let bytes = &mut bytes[..STEP_BYTES.min(self.len_bytes() - from) as usize];
            self.read(from, bytes);
            bytes.iter().any(|byte| *byte != 0)
        };
        let mut steps = (behind_table..self.len_bytes()).step_by(STEP_BYTES as usize);
        self.load(AT_MAGIC) == 0 && steps.any(&mut has_data)
    }
}

pub(crate) fn checksum(memory: &Memory) -> u64 {
    let mut words = [0_u8; (AT_CHECKSUM - AT_MAGIC) as usize];
    memory.read(AT_MAGIC, &mut words);
    // The sum covers the magic number, which is stored after it.
    words[..8].copy_from_slice(&MAGIC.to_le_bytes());
    xxhash_rust::xxh3::xxh3_64(&words)
}

fn format(core: &Core) {
    let memory = &core.memory;
    if !memory.is_fresh() || core.config.tap.is_some() {
        // A process that died while it made the heap may have left tables.
        memory.zero(0, core.layout.first_span() * SPAN_BYTES);
    }
    memory.store_word(AT_VERSION, VERSION);
    memory.store_word(AT_SPANS, core.layout.spans);
    memory.store_word(AT_FLAGS, u64::from(core.layout.conventional) * FLAG_CONVENTIONAL);
    memory.store_word(AT_CHECKSUM, checksum(memory));
    memory.store_word(AT_GENERATION, sealed(0));
    memory.store_word(AT_CLOCK, sealed(0));
    memory.store_word(AT_SETTLED, sealed(0));
    memory.flush(0, 4096);
    memory.fence();
    memory.persist_word(AT_MAGIC, MAGIC);
}
