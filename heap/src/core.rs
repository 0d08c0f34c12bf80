//! What the parts of an open heap share: its memory, its engine, its logs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use crate::compartment::Compartment;
use crate::config::Config;
use crate::conventional::Conventional;
use crate::engine::classes::SPAN_BYTES;
use crate::engine::{Backing, Engine, Kind, NoMemory, Run, ThreadCache};
use crate::error::HeapError;
use crate::layout::{CHUNK_BYTES, Layout, Record, SpanWord};
use crate::log::logger::Logger;
use crate::log::{Logs, logs_keep, objects_keep};
use crate::memory::Memory;
use crate::roots::RootClaims;
use crate::sys::forks;
use crate::tx::Writes;

/// An open heap.
pub(crate) struct Core {
    /// Told apart from all other heaps this process ever had.
    pub id: u64,
    pub memory: Arc<Memory>,
    pub layout: Layout,
    pub engine: Engine,
    pub logs: Logs,
    /// Where the allocator's metadata is persistent itself: the comparison mode.
    pub conventional: Option<Conventional>,
    pub compartments: Mutex<BTreeMap<u64, Compartment>>,
    pub root_claims: RootClaims,
    pub config: Config,
    /// The process that it belongs to: what [`forks::forks`] says there.
    pub process: AtomicU32,
}

impl Core {
    /// Whether this process was forked from the one that the heap belongs to.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.process.load(Relaxed) != forks::forks()
    }

    /// From now on the heap belongs to this process.
    pub fn adopt(&self) {
        self.process.store(forks::forks(), Relaxed);
    }

    /// Records that an object begins to exist; durable when this returns.
    #[inline]
    pub fn record_alloc(&self, logger: &Logger, offset: u64) -> Result<(), NoMemory> {
        if let Some(conventional) = &self.conventional {
            conventional.note(self, offset, true);
            return Ok(());
        }
        let record = Record::Alloc { unit: offset / 16, stamp: self.stamp() };
        logger.record(self, record, true)
    }

    /// Records that one ceases to; durable with the thread's next durable operation.
    #[inline]
    pub fn record_free(&self, logger: &Logger, offset: u64) -> Result<(), NoMemory> {
        if let Some(conventional) = &self.conventional {
            conventional.note(self, offset, false);
            return Ok(());
        }
        let record = Record::Free { unit: offset / 16, stamp: self.stamp() };
        logger.record(self, record, false)
    }

    /// The stamp of a record outside transactions: later than all groups that were given a
    /// sequence.
    #[inline]
    pub fn stamp(&self) -> u32 {
        (self.logs.clock.load(Acquire) & crate::layout::STAMP_MASK) as u32
    }

    /// Spans that objects must leave: chunks for every logger, and a snapshot beside the one that
    /// counts.
    pub fn keep_for_logs(&self) {
        self.engine.keep_free(objects_keep(self, self.logs.count()));
    }

    /// Notes that a log took a chunk, and whether it closed one.
    pub fn note_chunk(&self, has_closed: bool) {
        if has_closed {
            self.logs.closed_bytes.fetch_add(CHUNK_BYTES, Relaxed);
        }
        self.logs.note_clock();
        let keep = logs_keep(self) + self.logs.count();
        // What is not closed would be taken again at once.
        if self.logs.closed_bytes.load(Relaxed) > 0 && self.engine.free_for_persistent() <= keep {
            self.logs.is_pressed.store(true, Relaxed);
        }
    }
}

/// What the engine stands on: the heap's memory and its span table.
pub(crate) struct Spans {
    pub memory: Arc<Memory>,
    pub layout: Layout,
    pub contiguous: bool,
    pub numa_node: Option<u32>,
}

impl Backing for Spans {
    fn enter_bucket(&self, kind: Kind, offset: u64, len: u64, at_once: bool) -> Result<(), Errno> {
        self.memory.enter_bucket(kind, offset, len, self.contiguous && at_once, self.numa_node)
    }

    fn leave_bucket(&self, offset: u64, len: u64) {
        self.memory.leave_bucket(offset, len);
    }

    fn enter_run(&self, kind: Kind, start: u64, run: Run) {
        // What capacity memory holds is gone after a restart, and so is who had which of it.
        if kind == Kind::Persistent {
            let word = match run {
                Run::Slots { class } => SpanWord::Slots { class: u16::from(class) },
                Run::Large { spans } => SpanWord::Large { spans },
            };
            self.memory.persist_word(self.layout.table_word(start), word.encode());
        }
    }

    fn leave_run(&self, kind: Kind, start: u64) {
        if kind == Kind::Persistent {
            // A word that came back would hide those of the runs that take its place.
            self.memory.persist_word(self.layout.table_word(start), SpanWord::Free.encode());
        }
    }
}

/// Gives spans of logs or snapshots back: their words first, so that none is read as a log again.
pub(crate) fn free_chunks(core: &Core, chunks: &[u64]) {
    for chunk in chunks {
        let at = core.layout.table_word(chunk / SPAN_BYTES);
        core.memory.store_word(at, SpanWord::Free.encode());
        core.memory.flush(at, 8);
    }
    core.memory.fence();
    for chunk in chunks {
        core.engine.put_spans(chunk / SPAN_BYTES, 1);
    }
}

/// What a thread has of a heap: slots to itself, and a logger once it needs one.
pub(crate) struct Local {
    pub cache: ThreadCache,
    pub logger: std::cell::OnceCell<Arc<Logger>>,
    /// Buffers of transactions, kept for their capacity.
    pub writes: std::cell::RefCell<Writes>,
    pub in_tx: std::cell::Cell<bool>,
}

impl Local {
    /// For what would go round the transaction that this thread is in.
    #[inline]
    pub fn refuse_in_transaction(&self, instead: &'static str) -> Result<(), HeapError> {
        if self.in_tx.get() { Err(HeapError::InTransaction { instead }) } else { Ok(()) }
    }
}
