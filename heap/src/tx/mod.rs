//! Transactions, of whose changes to persistent memory all or none survive a crash.
//!
//! A transaction is a closure. The transaction commits when the closure returns `Ok`, and is undone
//! when it returns `Err` or panics, so a half-done change cannot stay. Small stores become word
//! records, large ones object records; both logs commit together (pMem, "Hybrid log design").
//!
//! Transactions do not lock: two threads that change the same object at once must exclude each
//! other, as with plain memory.

mod commit;
mod undo;
pub(crate) mod writes;

use std::cell::RefMut;

use crate::config::{Logging, Records};
use crate::core::Local;
use crate::engine::{Found, Kind};
use crate::error::HeapError;
use crate::heap::{Heap, not_freed};
use crate::log::fold::let_fold;
use crate::memory::STREAM_BYTES;
use crate::object::{check_request, give_back};
use crate::ptr::{Offset, Persist, Ptr};

pub use writes::LogAs;
use writes::{Savepoint, Writes};

/// Bytes that a change may take in the logs besides twice its own bytes.
const CHANGE_LOG_BYTES: u64 = 64;

/// Bytes of the longest change that goes to the word log if the application does not choose.
const WORDS_MAX: usize = 16;

/// A transaction in progress, made by [`Heap::transaction`].
pub struct Tx<'h> {
    heap: &'h Heap,
    local: &'h Local,
    logging: Logging,
    writes: RefMut<'h, Writes>,
    /// Sequence and next piece of an undo transaction's group. A redo transaction has no group
    /// before it commits.
    undoing: Option<(u64, u32)>,
    level: u32,
    /// Entries of roots that this transaction has claimed.
    pub(crate) claims: Vec<u64>,
    done: bool,
}

impl Heap {
    /// Runs `f` as a transaction. When this returns `Ok`, all changes are durable; if `f` returns
    /// `Err` or panics, nothing was changed.
    ///
    /// # Errors
    /// `f` returned an error; there is no room for the log; or this thread is in a transaction
    /// already, inside which [`Tx::nested`] begins another.
    #[inline]
    pub fn transaction<R, E: From<HeapError>>(
        &self,
        f: impl FnOnce(&mut Tx<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut f = Some(f);
        let mut outcome = None;
        let committed = self.run(&mut |tx| {
            let returned = outcome.insert(f.take().map(|f| f(tx)));
            matches!(returned, Some(Ok(_)))
        });
        match (committed, outcome) {
            (Err(error), _) => Err(E::from(error)),
            (Ok(()), Some(Some(outcome))) => outcome,
            (Ok(()), _) => unreachable!("a transaction that ran has an outcome"),
        }
    }

    /// Runs `f`, and commits if `f` returns true. Neither `f` nor its result is copied about on the
    /// stack: such a copy would wait for the fence before it, and the next transaction's work can
    /// be done meanwhile.
    fn run(&self, f: &mut dyn FnMut(&mut Tx<'_>) -> bool) -> Result<(), HeapError> {
        let mut failed = None;
        let mut has_committed = false;
        self.with_local(Kind::Persistent, |local| match Tx::begin(self, local) {
            Ok(mut tx) => {
                has_committed = f(&mut tx);
                if has_committed {
                    failed = tx.commit().err();
                }
            }
            Err(error) => failed = Some(error),
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        if has_committed {
            self.fold_if_due();
        }
        Ok(())
    }
}

impl<'h> Tx<'h> {
    fn begin(heap: &'h Heap, local: &'h Local) -> Result<Self, HeapError> {
        local.refuse_in_transaction("use Tx::nested inside it")?;
        let logging = heap.core.config.logging;
        if logging == Logging::Undo && heap.core.logs.is_due() {
            let_fold(&heap.core);
        }
        local.in_tx.set(true);
        let writes = local.writes.borrow_mut();
        Ok(Self {
            heap,
            local,
            logging,
            writes,
            undoing: None,
            level: 0,
            claims: Vec::new(),
            done: false,
        })
    }

    /// The heap that the transaction changes.
    pub fn heap(&self) -> &'h Heap {
        self.heap
    }

    /// The value that `ptr` points to, with this transaction's changes.
    ///
    /// # Errors
    /// `ptr` does not point into an object.
    pub fn read<T: Persist>(&self, ptr: Ptr<T>) -> Result<T, HeapError> {
        let mut value = T::new_zeroed();
        let offset = ptr.offset().ok_or_else(null)?;
        self.read_bytes(offset, value.as_mut_bytes())?;
        Ok(value)
    }

    /// Copies bytes out, with this transaction's changes.
    ///
    /// # Errors
    /// The bytes do not lie in one object.
    pub fn read_bytes(&self, offset: Offset, out: &mut [u8]) -> Result<(), HeapError> {
        self.heap.check_range(offset, out.len())?;
        self.heap.core.memory.read(offset.get(), out);
        if self.logging == Logging::Redo {
            self.writes.overlay(offset.get(), out);
        }
        Ok(())
    }

    /// Changes the value that `ptr` points to.
    ///
    /// # Errors
    /// The errors of [`Tx::write_bytes`].
    pub fn write<T: Persist>(&mut self, ptr: Ptr<T>, value: T) -> Result<(), HeapError> {
        let offset = ptr.offset().ok_or_else(null)?;
        self.write_bytes(offset, value.as_bytes())
    }

    /// Changes bytes, whose number decides which log they go to.
    ///
    /// # Errors
    /// The bytes do not lie in one object, or there is no room for the log.
    pub fn write_bytes(&mut self, offset: Offset, bytes: &[u8]) -> Result<(), HeapError> {
        let log = if bytes.len() <= WORDS_MAX { LogAs::Words } else { LogAs::Object };
        self.write_as(offset, bytes, log)
    }

    /// Changes bytes, for which the application chooses the log.
    ///
    /// # Errors
    /// The errors of [`Tx::write_bytes`].
    pub fn write_as(&mut self, offset: Offset, bytes: &[u8], log: LogAs) -> Result<(), HeapError> {
        let (start, len) = self.heap.check_range(offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        if self.writes.is_fresh(start, self.level) {
            // No reference leads to a fresh object before the commit, so its bytes need no log.
            let memory = &self.heap.core.memory;
            if bytes.len() >= STREAM_BYTES && memory.stream(offset.get(), bytes) {
                // Streamed lines need not be written back, but the commit must wait for them.
                self.writes.note_direct(offset.get(), 0);
            } else {
                memory.write(offset.get(), bytes);
                self.writes.note_direct(offset.get(), bytes.len() as u64);
            }
            return Ok(());
        }
        self.writes.log_from_now_on(start);
        match self.heap.core.config.records {
            Records::Hybrid => self.change(offset.get(), bytes, log),
            Records::Words => self.change(offset.get(), bytes, LogAs::Words),
            Records::Objects => self.change_whole(offset.get(), bytes, start, len),
        }
    }

    /// Takes memory for an object, whose contents are arbitrary at first. The memory is free again
    /// if the transaction is undone.
    ///
    /// # Errors
    /// The errors of [`Heap::persist_alloc`].
    pub fn alloc(&mut self, bytes: u64) -> Result<Offset, HeapError> {
        self.alloc_aligned(bytes, crate::engine::classes::UNIT_BYTES)
    }

    /// Takes memory as [`Tx::alloc`] does, at a multiple of `align`.
    ///
    /// # Errors
    /// The errors of [`Heap::persist_alloc_aligned`].
    pub fn alloc_aligned(&mut self, bytes: u64, align: u64) -> Result<Offset, HeapError> {
        check_request(&self.heap.core, bytes, align)?;
        let offset = self.heap.take_persistent(self.local, bytes, align)?;
        self.writes.fresh.push((offset, self.level));
        Ok(Offset::of(offset))
    }

    /// Takes memory for a value and fills it.
    ///
    /// # Errors
    /// The errors of [`Tx::alloc`].
    pub fn put<T: Persist>(&mut self, value: T) -> Result<Ptr<T>, HeapError> {
        let ptr = Ptr::new(self.alloc((size_of::<T>() as u64).max(1))?);
        self.write(ptr, value)?;
        Ok(ptr)
    }

    /// Frees an object when the transaction commits.
    ///
    /// # Errors
    /// There is no such object.
    pub fn free(&mut self, object: Offset) -> Result<(), HeapError> {
        let found = self
            .heap
            .core
            .engine
            .unuse(Kind::Persistent, object.get())
            .map_err(|error| not_freed(error, object.get(), Kind::Persistent))?;
        self.writes.freed.push((object.get(), found));
        Ok(())
    }

    /// Runs `f` as a transaction within this one. If `f` returns `Err`, or panics and the panic is
    /// caught, the changes of `f` are undone and all others stand. All changes commit with the
    /// outer transaction.
    ///
    /// # Errors
    /// `f` returned an error.
    pub fn nested<R, E: From<HeapError>>(
        &mut self,
        f: impl FnOnce(&mut Tx<'h>) -> Result<R, E>,
    ) -> Result<R, E> {
        let savepoint = self.writes.savepoint();
        self.level += 1;
        let mut inner = Inner { tx: self, savepoint, holds: false };
        let result = f(inner.tx)?;
        inner.holds = true;
        Ok(result)
    }

    /// Changes bytes of the heap's own tables, which lie in no object.
    pub(crate) fn write_table(&mut self, offset: u64, bytes: &[u8]) -> Result<(), HeapError> {
        self.change(offset, bytes, LogAs::Words)
    }

    /// Copies bytes out as [`Tx::read_bytes`] does, also from the heap's own tables, and without a
    /// check.
    pub(crate) fn read_table(&self, offset: u64, out: &mut [u8]) {
        self.heap.core.memory.read(offset, out);
        if self.logging == Logging::Redo {
            self.writes.overlay(offset, out);
        }
    }

    #[inline]
    fn change(&mut self, offset: u64, bytes: &[u8], log: LogAs) -> Result<(), HeapError> {
        self.check_log(bytes.len() as u64)?;
        match self.logging {
            Logging::Redo => {
                // The memory is loaded while the log is written.
                self.heap.core.memory.expect_write(offset, bytes.len() as u64);
                self.writes.push(offset, bytes, log);
                Ok(())
            }
            Logging::Undo => self.change_in_place(offset, bytes, log),
        }
    }

    /// Refuses `more_bytes` of changes if the log may not have as many: one half of the log's bytes
    /// is for this transaction, the other for transactions that are folded meanwhile.
    fn check_log(&self, more_bytes: u64) -> Result<(), HeapError> {
        let changes = self.writes.list.len() as u64 + 1;
        let bytes = (self.writes.bytes.len() as u64 + more_bytes) * 2 + changes * CHANGE_LOG_BYTES;
        let most_bytes = self.heap.core.config.log_bytes_max / 2;
        if bytes > most_bytes {
            return Err(HeapError::LogFull { bytes, most_bytes });
        }
        Ok(())
    }

    /// Logs the whole object for a change of a part of it, for logs that have object records only.
    fn change_whole(
        &mut self,
        offset: u64,
        bytes: &[u8],
        start: u64,
        len: u64,
    ) -> Result<(), HeapError> {
        let inside = (offset - start) as usize;
        // An inner transaction must be able to return to the object's bytes before it.
        if self.logging == Logging::Redo
            && self.level == 0
            && let Some(whole) = self.writes.find_mut(start, len as usize)
        {
            whole[inside..inside + bytes.len()].copy_from_slice(bytes);
            return Ok(());
        }
        self.check_log(len)?;
        let mut whole = vec![0; len as usize];
        self.read_table(start, &mut whole);
        whole[inside..inside + bytes.len()].copy_from_slice(bytes);
        self.change(start, &whole, LogAs::Object)
    }

    /// Undoes all changes since a savepoint.
    fn roll_back_to(&mut self, savepoint: Savepoint) {
        if self.logging == Logging::Undo {
            self.put_back(savepoint.writes);
        }
        self.writes.truncate(savepoint);
        while self.writes.freed.len() > savepoint.freed {
            if let Some((offset, found)) = self.writes.freed.pop() {
                self.heap.core.engine.reuse(offset, found);
            }
        }
        while self.writes.fresh.len() > savepoint.fresh {
            if let Some((offset, _)) = self.writes.fresh.pop() {
                self.discard(offset);
            }
        }
    }

    /// Frees an object that this transaction has allocated.
    fn discard(&self, offset: u64) {
        let core = &self.heap.core;
        // The object may be one that the transaction has freed, which was taken back before.
        if let Ok(found) = core.engine.unuse(Kind::Persistent, offset) {
            give_back(core, self.local, offset, found);
        }
    }

    /// Frees the memory of objects that the transaction has freed, after the commit.
    fn give_freed(&mut self) {
        for (offset, found) in std::mem::take(&mut self.writes.freed) {
            let found: Found = found;
            give_back(&self.heap.core, self.local, offset, found);
        }
    }
}

struct Inner<'t, 'h> {
    tx: &'t mut Tx<'h>,
    savepoint: Savepoint,
    holds: bool,
}

impl Drop for Inner<'_, '_> {
    fn drop(&mut self) {
        if !self.holds {
            self.tx.roll_back_to(self.savepoint);
        } else {
            // An object that was fresh inside is not fresh outside: an outer savepoint may lie
            // before its writes.
            self.tx.writes.lift(self.savepoint, self.tx.level - 1);
        }
        self.tx.level -= 1;
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.roll_back_to(Savepoint { writes: 0, bytes: 0, fresh: 0, direct: 0, freed: 0 });
            self.end_undo();
        }
        self.heap.core.root_claims.release(&self.claims);
        self.writes.clear();
        self.local.in_tx.set(false);
    }
}

fn null() -> HeapError {
    HeapError::Null
}

impl Heap {
    /// First byte and length of the object or compartment that holds a range.
    pub(crate) fn check_range(&self, offset: Offset, len: usize) -> Result<(u64, u64), HeapError> {
        let outside = || HeapError::OutOfObject { offset, len_bytes: len as u64 };
        self.object_around(offset.get(), len as u64)
            .or_else(|| self.core.compartments.around(offset.get(), len as u64))
            .ok_or_else(outside)
    }

    /// The value that `ptr` points to, as it was committed last.
    ///
    /// # Errors
    /// `ptr` does not point into an object.
    pub fn read<T: Persist>(&self, ptr: Ptr<T>) -> Result<T, HeapError> {
        let mut value = T::new_zeroed();
        self.read_bytes(ptr.offset().ok_or_else(null)?, value.as_mut_bytes())?;
        Ok(value)
    }

    /// Copies bytes out as they were committed last.
    ///
    /// # Errors
    /// The bytes do not lie in one object.
    pub fn read_bytes(&self, offset: Offset, out: &mut [u8]) -> Result<(), HeapError> {
        self.check_range(offset, out.len())?;
        self.core.memory.read(offset.get(), out);
        Ok(())
    }
}
