//! What the parts of an open heap share: its memory, its engine, its logs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use crate::compartment::Compartment;
use crate::config::Config;
use crate::conventional::Conventional;
use crate::engine::classes::SPAN_BYTES;
use crate::engine::{Backing, Engine, Kind, NoMemory, Run, ThreadCache};
use crate::error::HeapError;
use crate::layout::{Layout, Record, SpanWord};
use crate::log::Logs;
use crate::log::logger::Logger;
use crate::memory::Memory;
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
    pub config: Config,
}

impl Core {
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

    /// The stamp of a record outside transactions: later than all groups that were given a sequence.
    #[inline]
    pub fn stamp(&self) -> u32 {
        use std::sync::atomic::Ordering::Acquire;
        (self.logs.clock.load(Acquire) & crate::layout::STAMP_MASK) as u32
    }

    /// Spans that objects must leave: chunks for every logger, and a snapshot beside the one that counts.
    pub fn keep_for_logs(&self) {
        let snapshot = self.layout.spans.div_ceil(100) + 1;
        self.engine.keep_free(snapshot + 3 * self.logs.count() + 2);
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
    fn enter_bucket(&self, kind: Kind, offset: u64, len: u64) -> Result<(), Errno> {
        self.memory.enter_bucket(kind, offset, len, self.contiguous, self.numa_node)
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
            // Durable sooner or later: a run without objects is found free anyway, and whoever takes its place
            // makes the next word durable first.
            let at = self.layout.table_word(start);
            self.memory.store_word(at, SpanWord::Free.encode());
            self.memory.flush(at, 8);
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
