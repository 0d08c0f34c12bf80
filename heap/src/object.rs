//! Persistent objects outside of transactions.

use crate::config::Config;
use crate::core::{Core, Local};
use crate::engine::classes::{SPAN_BYTES, UNIT_BYTES};
use crate::engine::{Found, Kind, NoMemory};
use crate::error::HeapError;
use crate::heap::{Heap, check_size, not_freed, refusal};
use crate::log::settle::settle;
use crate::ptr::Offset;
use crate::sys::{MAPPING_ALIGN_MAX, prefetch_for_write};

/// Largest alignment of an object in bytes. The alignment of the heap's memory is a bound, too.
pub const ALIGN_MAX: u64 = MAPPING_ALIGN_MAX as u64;

impl Heap {
    /// Takes persistent memory for an object of `bytes`, whose contents are arbitrary at first. The
    /// allocation is durable when this returns, but no reference leads to the object yet: link it
    /// in a transaction, or name it by a root. An object to which no reference leads when the
    /// process dies is a leak ([`Heap::leaks`]). In a transaction use [`crate::Tx::alloc`], which
    /// leaks nothing.
    ///
    /// # Errors
    /// `bytes` is zero or more than the heap has, or no memory is free.
    #[inline]
    pub fn persist_alloc(&self, bytes: u64) -> Result<Offset, HeapError> {
        self.persist_alloc_aligned(bytes, UNIT_BYTES)
    }

    /// Takes persistent memory as [`Heap::persist_alloc`] does, at a multiple of `align`, a power
    /// of two.
    ///
    /// # Errors
    /// The errors of [`Heap::persist_alloc`], or the alignment is not supported.
    #[inline]
    pub fn persist_alloc_aligned(&self, bytes: u64, align: u64) -> Result<Offset, HeapError> {
        check_request(&self.core, bytes, align)?;
        let mut refused = None;
        let taken = self.with_local(Kind::Persistent, |local| {
            let taken = self.take_recorded(local, bytes, align);
            taken.map_err(|error| refused = Some(error)).ok()
        })?;
        if let Some(error) = refused {
            return Err(error);
        }
        self.fold_if_due();
        match taken {
            Some(object) => Ok(object),
            None => unreachable!("an allocation that was not refused has an object"),
        }
    }

    #[inline]
    fn take_recorded(&self, local: &Local, bytes: u64, align: u64) -> Result<Offset, HeapError> {
        let logger = self.logger(local)?;
        let offset = self.take_persistent(local, bytes, align)?;
        if let Err(error) = self.core.record_alloc(logger, offset) {
            self.undo_alloc(local, offset);
            return Err(refusal(error, Kind::Persistent));
        }
        Ok(Offset::of(offset))
    }

    /// Frees a persistent object. The free is durable with this thread's next durable operation,
    /// and at the latest before another thread can get the memory. A loss of power before that
    /// leaves the object allocated (a leak), never in part.
    ///
    /// # Errors
    /// There is no such object; there is no room for the record; or this thread is in a
    /// transaction, which may have made or changed it: [`crate::Tx::free`].
    #[inline]
    pub fn persist_free(&self, object: Offset) -> Result<(), HeapError> {
        let mut refused = None;
        self.with_local(Kind::Persistent, |local| {
            refused = self.free_recorded(local, object.get()).err();
        })?;
        if let Some(error) = refused {
            return Err(error);
        }
        self.fold_if_due();
        Ok(())
    }

    #[inline]
    fn free_recorded(&self, local: &Local, offset: u64) -> Result<(), HeapError> {
        local.refuse_in_transaction("use Tx::free")?;
        let logger = self.logger(local)?;
        let core = &*self.core;
        // The memory is likely to be taken and filled again soon.
        prefetch_for_write(core.memory.base().wrapping_add(offset as usize));
        let record = || core.record_free(logger, offset);
        let drain = || logger.drain(core);
        if core.conventional.is_some() {
            // With conventional bookkeeping no record tells writes to this object from writes to
            // the object that takes its place, so all groups are settled before.
            settle(&self.core);
        }
        match core.engine.free(&local.cache, Kind::Persistent, offset, record, drain) {
            Ok(freed) => freed.map_err(|error| refusal(error, Kind::Persistent)),
            Err(error) => Err(not_freed(error, offset, Kind::Persistent)),
        }
    }

    /// Gives an object another size. An object that does not fit its slot is copied to a new one,
    /// durably, and the old one is freed. The caller must link the new offset; a loss of power in
    /// between leaves both objects.
    ///
    /// # Errors
    /// The errors of [`Heap::persist_alloc`]. The object then stays as it was.
    pub fn persist_realloc(&self, object: Offset, bytes: u64) -> Result<Offset, HeapError> {
        self.refuse_in_transaction("use Tx::alloc and Tx::free")?;
        let usable_bytes = self.usable_bytes(object)?;
        check_request(&self.core, bytes, UNIT_BYTES)?;
        if bytes <= usable_bytes && bytes > usable_bytes / 2 {
            return Ok(object);
        }
        let moved = self.persist_alloc(bytes)?;
        let len = usable_bytes.min(bytes);
        let mut at = 0;
        let mut buffer = [0; 4096];
        while at < len {
            let piece = &mut buffer[..(len - at).min(4096) as usize];
            self.core.memory.read(object.get() + at, piece);
            self.core.memory.fill(moved.get() + at, piece);
            at += piece.len() as u64;
        }
        self.core.memory.fence();
        if let Err(error) = self.persist_free(object) {
            // Another thread has freed the object, or the log has no room: one of the two objects
            // must go.
            let _ = self.persist_free(moved);
            return Err(error);
        }
        Ok(moved)
    }

    /// Bytes that an object of either kind may use, which are those asked for, rounded up.
    ///
    /// # Errors
    /// There is no such object.
    pub fn usable_bytes(&self, object: Offset) -> Result<u64, HeapError> {
        let found = self.core.engine.find(object.get());
        found
            .map(|found| found.bytes())
            .map_err(|error| not_freed(error, object.get(), Kind::Persistent))
    }

    /// Whether a persistent object begins at `offset`.
    pub fn is_object(&self, offset: Offset) -> bool {
        self.core.engine.find(offset.get()).is_ok_and(|found| found.kind() == Kind::Persistent)
    }

    /// Takes memory for which no record of an allocation exists yet.
    #[inline]
    pub(crate) fn take_persistent(
        &self,
        local: &Local,
        bytes: u64,
        align: u64,
    ) -> Result<u64, HeapError> {
        let engine = &self.core.engine;
        engine
            .alloc(&local.cache, Kind::Persistent, bytes, align)
            .or_else(|error| {
                // The log may hold spans that a fold gives back.
                self.compact().map_err(|_| error)?;
                engine.alloc(&local.cache, Kind::Persistent, bytes, align)
            })
            .map_err(|error| refusal(error, Kind::Persistent))
    }

    /// Takes back an allocation that could not be recorded.
    pub(crate) fn undo_alloc(&self, local: &Local, offset: u64) {
        if let Ok(found) = self.core.engine.unuse(Kind::Persistent, offset) {
            self.core.engine.give(&local.cache, offset, found, || {});
        }
    }

    /// The first byte and length of the object that holds a range.
    pub(crate) fn object_around(&self, offset: u64, len: u64) -> Option<(u64, u64)> {
        let (start, bytes) = self.core.engine.object_around(offset)?;
        (len <= start + bytes - offset).then_some((start, bytes))
    }

    /// The settings that the heap was opened with.
    pub fn config(&self) -> &Config {
        &self.core.config
    }
}

pub(crate) fn check_request(core: &Core, bytes: u64, align: u64) -> Result<(), HeapError> {
    if bytes == 0 || bytes > core.layout.spans * SPAN_BYTES {
        check_size("an object", bytes, 1, core.layout.spans * SPAN_BYTES)?;
    }
    if align > UNIT_BYTES || !align.is_power_of_two() {
        // An aligned offset gives an aligned address only as far as the memory itself is aligned.
        let base = core.memory.base().addr() as u64;
        let most = ALIGN_MAX.min(base & base.wrapping_neg());
        if !align.is_power_of_two() || align > most {
            return Err(HeapError::Alignment { align, most });
        }
    }
    Ok(())
}

/// Gives an object's memory back that [`crate::engine::Engine::unuse`] has returned.
pub(crate) fn give_back(core: &Core, local: &Local, offset: u64, found: Found) {
    core.engine.give(&local.cache, offset, found, || {
        if let Some(logger) = local.logger.get() {
            logger.drain(core);
        }
    });
}

impl From<NoMemory> for HeapError {
    fn from(error: NoMemory) -> Self {
        refusal(error, Kind::Persistent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Durability, Memory};

    #[test]
    fn a_length_that_wraps_is_outside() -> Result<(), HeapError> {
        let memory = Memory::anonymous(4 << 20, Durability::Flushed)?;
        let heap = Heap::open(memory, Config::default())?;
        let area = heap.compartment(Kind::Persistent, 4096)?;
        for offset in [heap.persist_alloc(64)?, area.offset] {
            let inside = Offset::of(offset.get() + 8);
            assert!(heap.check_range(inside, 56).is_ok());
            for len in [usize::MAX, usize::MAX - offset.get() as usize] {
                assert!(heap.check_range(inside, len).is_err(), "{len} bytes");
            }
        }
        Ok(())
    }
}
