//! The state of an open heap that its parts share: memory, engine, logs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};

use rustix::io::Errno;

use crate::claims::RootClaims;
use crate::compartments::Compartments;
use crate::config::Config;
use crate::conventional::Conventional;
use crate::engine::classes::SPAN_BYTES;
use crate::engine::{Backing, Engine, Kind, Run, ThreadCache};
use crate::error::HeapError;
use crate::layout::{CHUNK_BYTES, Layout, STAMP_MASK, SpanWord, snapshot_chunks_most};
use crate::log::logger::Logger;
use crate::log::logs::Logs;
use crate::memory::Memory;
use crate::sys::forks;
use crate::tx::writes::Writes;

/// The state of an open heap.
pub(crate) struct Core {
    /// A number that no other heap of this process has or had.
    pub id: u64,
    pub memory: Arc<Memory>,
    pub layout: Layout,
    pub engine: Engine,
    pub logs: Logs,
    /// The allocator's metadata in persistent memory, if the heap was made for the comparison with
    /// conventional bookkeeping.
    pub conventional: Option<Conventional>,
    pub compartments: Compartments,
    pub root_claims: RootClaims,
    pub config: Config,
    /// The process that the heap belongs to, as [`forks::forks`] numbers it.
    pub process: AtomicU32,
}

impl Core {
    /// Whether this process was forked from the one that the heap belongs to.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.process.load(Relaxed) != forks::forks()
    }

    /// Makes the heap belong to this process.
    pub fn adopt(&self) {
        self.process.store(forks::forks(), Relaxed);
    }

    /// The stamp of a record outside of transactions, which is later than every group that was
    /// given a sequence.
    #[inline]
    pub fn stamp(&self) -> u32 {
        (self.logs.clock.load(Acquire) & STAMP_MASK) as u32
    }

    /// Tells the engine how many spans objects must leave for logs and snapshots.
    pub fn keep_for_logs(&self) {
        self.engine.keep_free(self.objects_keep());
    }

    /// Spans that logs leave for a snapshot, however large it becomes: without a snapshot nothing
    /// could be folded, and the heap could not be opened.
    pub fn logs_keep(&self) -> u64 {
        snapshot_chunks_most(self.layout.spans)
    }

    /// Spans that objects leave: those for a snapshot, and those for the logs of all threads.
    pub fn objects_keep(&self) -> u64 {
        self.logs_keep() + 3 * self.logs.count() + 2
    }

    /// Notes that a log took a chunk, and that it closed another if `has_closed`.
    pub fn note_chunk(&self, has_closed: bool) {
        if has_closed {
            self.logs.closed_bytes.fetch_add(CHUNK_BYTES, Relaxed);
        }
        self.logs.note_clock();
        let keep = self.logs_keep() + self.logs.count();
        // A fold gives back closed chunks only: the logs would take others again at once.
        if self.logs.closed_bytes.load(Relaxed) > 0 && self.engine.free_for_persistent() <= keep {
            self.logs.is_pressed.store(true, Relaxed);
        }
    }
}

/// The memory and the span table of a heap, as the engine uses them.
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
        // Capacity memory is empty after a restart, so its runs have no words in the table.
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
            // A word that a power loss brought back would hide the words of later runs in its
            // place.
            self.memory.persist_word(self.layout.table_word(start), SpanWord::Free.encode());
        }
    }
}

/// Gives spans of logs or snapshots back. Their words are cleared first, so that no span is read as
/// a log again.
pub(crate) fn free_chunks(core: &Core, chunks: &[u64]) {
    if chunks.is_empty() {
        return;
    }
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

/// A thread's part of a heap: slots that no other thread uses, and a logger once the thread needs
/// one.
pub(crate) struct Local {
    pub cache: ThreadCache,
    pub logger: std::cell::OnceCell<Arc<Logger>>,
    /// Buffers of the thread's transactions, kept for their capacity.
    pub writes: std::cell::RefCell<Writes>,
    pub in_tx: std::cell::Cell<bool>,
}

impl Local {
    /// Refuses a call that would bypass the transaction which this thread is in.
    #[inline]
    pub fn refuse_in_transaction(&self, instead: &'static str) -> Result<(), HeapError> {
        if self.in_tx.get() { Err(HeapError::InTransaction { instead }) } else { Ok(()) }
    }
}
