//! Persistent objects that are allocated and freed together with the word that names them.
//!
//! [`crate::log::link`] has the log's part. A heap whose transactions are logged for undo, or whose
//! bookkeeping is conventional, has no such log: there a transaction does the same.

use crate::config::Logging;
use crate::core::Local;
use crate::engine::classes::UNIT_BYTES;
use crate::engine::{Found, Kind};
use crate::error::HeapError;
use crate::heap::{Heap, not_freed, refusal};
use crate::log::link::Link;
use crate::object::{check_request, give_back};
use crate::ptr::Offset;
use crate::sys::prefetch_for_write;

const WORD_BYTES: usize = 8;

/// What a call does besides changing the word.
#[derive(Clone, Copy)]
struct Wanted<'c> {
    /// Whether the object that the word names is freed.
    frees: bool,
    /// Bytes of the object that is allocated, and its contents if they are given.
    allocates: Option<(u64, Option<&'c [u8]>)>,
}

impl Heap {
    /// Takes persistent memory for an object of `bytes`, whose contents are arbitrary at first, and
    /// stores the object's offset in the word at `place`, whatever the word held before. Both are
    /// durable when this returns, by one line of the log and one fence; after a crash both are
    /// there or neither is, so the object never leaks.
    ///
    /// `place` is a multiple of eight, in a persistent object or compartment. As with plain memory,
    /// threads that change one word at once must exclude each other.
    ///
    /// # Errors
    /// The errors of [`Heap::persist_alloc`]; the word does not lie in one object; or this thread
    /// is in a transaction, where [`crate::Tx::alloc`] and [`crate::Tx::write`] do this.
    #[inline]
    pub fn alloc_into(&self, place: Offset, bytes: u64) -> Result<Offset, HeapError> {
        self.link_made(place, Wanted { frees: false, allocates: Some((bytes, None)) })
    }

    /// Takes persistent memory as [`Heap::alloc_into`] does, for an object with these contents,
    /// which are durable before the word names the object. That costs a second fence.
    ///
    /// # Errors
    /// The errors of [`Heap::alloc_into`].
    pub fn put_into(&self, place: Offset, contents: &[u8]) -> Result<Offset, HeapError> {
        let allocates = Some((contents.len() as u64, Some(contents)));
        self.link_made(place, Wanted { frees: false, allocates })
    }

    /// Frees the persistent object whose offset the word at `place` holds, and stores zero there.
    /// Both are durable when this returns; after a crash both are done or neither is. Returns the
    /// offset of the object; `None` if the word was zero, and nothing was done.
    ///
    /// # Errors
    /// The errors of [`Heap::persist_free`], or the word does not lie in one object.
    #[inline]
    pub fn free_from(&self, place: Offset) -> Result<Option<Offset>, HeapError> {
        self.check_place(place)?;
        let freed = Offset::new(self.core.memory.load(place.get()));
        if freed.is_some() {
            self.link(place, Wanted { frees: true, allocates: None })?;
        }
        Ok(freed)
    }

    /// Frees the object whose offset the word at `place` holds, if it holds one, takes memory for
    /// another of `bytes`, and stores that one's offset there: what [`Heap::free_from`] and
    /// [`Heap::alloc_into`] do, under one fence. After a crash the word names the old object or the
    /// new one, and only that one is allocated.
    ///
    /// # Errors
    /// The errors of [`Heap::alloc_into`] and [`Heap::free_from`].
    #[inline]
    pub fn replace_at(&self, place: Offset, bytes: u64) -> Result<Offset, HeapError> {
        self.link_made(place, Wanted { frees: true, allocates: Some((bytes, None)) })
    }

    /// Replaces an object as [`Heap::replace_at`] does, by one with these contents, which are
    /// durable before the word names the object. That costs a second fence.
    ///
    /// # Errors
    /// The errors of [`Heap::replace_at`].
    pub fn replace_with(&self, place: Offset, contents: &[u8]) -> Result<Offset, HeapError> {
        let allocates = Some((contents.len() as u64, Some(contents)));
        self.link_made(place, Wanted { frees: true, allocates })
    }

    #[inline]
    fn link_made(&self, place: Offset, wanted: Wanted<'_>) -> Result<Offset, HeapError> {
        self.check_place(place)?;
        match self.link(place, wanted)? {
            Some(made) => Ok(made),
            None => unreachable!("a call that allocates and was not refused has an object"),
        }
    }

    /// Checks that a word may hold an object's offset.
    #[inline]
    fn check_place(&self, place: Offset) -> Result<(), HeapError> {
        if !place.get().is_multiple_of(WORD_BYTES as u64) {
            return Err(HeapError::Place { offset: place });
        }
        self.check_range(place, WORD_BYTES).map(drop)
    }

    #[inline]
    fn link(&self, place: Offset, wanted: Wanted<'_>) -> Result<Option<Offset>, HeapError> {
        if let Some((bytes, _)) = wanted.allocates {
            check_request(&self.core, bytes, UNIT_BYTES)?;
        }
        if self.core.config.logging == Logging::Undo || self.core.conventional.is_some() {
            return self.link_by_transaction(place, wanted);
        }
        let mut refused = None;
        let made = self.with_local(Kind::Persistent, |local| {
            let linked = self.link_recorded(local, place.get(), wanted);
            linked.map_err(|error| refused = Some(error)).ok().flatten()
        })?;
        if let Some(error) = refused {
            return Err(error);
        }
        self.fold_if_due();
        Ok(made)
    }

    #[inline]
    fn link_recorded(
        &self,
        local: &Local,
        place: u64,
        wanted: Wanted<'_>,
    ) -> Result<Option<Offset>, HeapError> {
        local.refuse_in_transaction("use Tx::alloc, Tx::write and Tx::free")?;
        let logger = self.logger(local)?;
        let core = &*self.core;
        let old = if wanted.frees { Offset::new(core.memory.load(place)) } else { None };
        if old.is_none() && wanted.allocates.is_none() {
            // Another thread has cleared the word, which it must not do: nothing is left to free.
            return Ok(None);
        }
        if let Some(old) = old {
            // The memory is likely to be taken and filled again soon.
            prefetch_for_write(core.memory.base().wrapping_add(old.get() as usize));
        }
        let made = match wanted.allocates {
            Some((bytes, _)) => Some(self.take_persistent(local, bytes, UNIT_BYTES)?),
            None => None,
        };
        if let (Some(made), Some((_, Some(contents)))) = (made, wanted.allocates) {
            core.memory.fill(made, contents);
            core.memory.fence();
        }
        let done = self.free_and_link(local, place, old, |freed| {
            let link = Link { place, freed, made };
            logger.link(core, &link).map_err(|error| refusal(error, Kind::Persistent))
        });
        match (done, made) {
            (Ok(()), made) => Ok(made.map(Offset::of)),
            (Err(error), Some(made)) => {
                self.undo_alloc(local, made);
                Err(error)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Marks the old object as free, runs `link`, and gives the object's memory back. If anything
    /// is refused, the object is still used.
    #[inline]
    fn free_and_link(
        &self,
        local: &Local,
        place: u64,
        old: Option<Offset>,
        link: impl FnOnce(Option<u64>) -> Result<(), HeapError>,
    ) -> Result<(), HeapError> {
        let Some(old) = old.map(Offset::get) else { return link(None) };
        let engine = &self.core.engine;
        let found: Found = engine
            .unuse(Kind::Persistent, old)
            .map_err(|error| not_freed(error, old, Kind::Persistent))?;
        if let Err(error) = self.refuse_within(place, old, found).and_then(|()| link(Some(old))) {
            engine.reuse(old, found);
            return Err(error);
        }
        give_back(&self.core, local, old, found);
        Ok(())
    }

    /// Refuses to free the object that holds the word itself.
    #[inline]
    fn refuse_within(&self, place: u64, old: u64, found: Found) -> Result<(), HeapError> {
        if place.wrapping_sub(old) < found.bytes() {
            return Err(HeapError::Place { offset: Offset::of(place) });
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn link_by_transaction(
        &self,
        place: Offset,
        wanted: Wanted<'_>,
    ) -> Result<Option<Offset>, HeapError> {
        let old = Offset::new(self.core.memory.load(place.get())).filter(|_| wanted.frees);
        if let Some(old) = old {
            let found = self.core.engine.find(old.get());
            let found = found.map_err(|error| not_freed(error, old.get(), Kind::Persistent))?;
            self.refuse_within(place.get(), old.get(), found)?;
        }
        self.transaction(|tx| {
            let made = match wanted.allocates {
                Some((bytes, contents)) => {
                    let made = tx.alloc(bytes)?;
                    contents.map_or(Ok(()), |contents| tx.write_bytes(made, contents))?;
                    Some(made)
                }
                None => None,
            };
            tx.write_bytes(place, &made.map_or(0, Offset::get).to_le_bytes())?;
            old.map_or(Ok(()), |old| tx.free(old))?;
            Ok(made)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Bookkeeping, Config};
    use crate::memory::{Durability, Memory};

    fn heap(logging: Logging, bookkeeping: Bookkeeping) -> Result<Heap, HeapError> {
        let mut config = Config::default();
        (config.logging, config.bookkeeping) = (logging, bookkeeping);
        Heap::open(Memory::anonymous(8 << 20, Durability::Flushed)?, config)
    }

    #[test]
    fn a_word_names_what_is_allocated_with_it() -> Result<(), HeapError> {
        for (logging, bookkeeping) in [
            (Logging::Redo, Bookkeeping::Logged),
            (Logging::Undo, Bookkeeping::Logged),
            (Logging::Redo, Bookkeeping::Conventional),
        ] {
            let heap = heap(logging, bookkeeping)?;
            let place = heap.persist_alloc(8 * 20_000)?;
            let word = |at: u64| Offset::of(place.get() + 8 * at);
            let value = |at: u64| Offset::new(heap.core.memory.load(word(at).get()));
            for at in [0, 1, 19_999] {
                let made = heap.alloc_into(word(at), 100)?;
                assert_eq!(value(at), Some(made));
                let other = heap.replace_with(word(at), &[7; 5_000])?;
                assert_eq!(value(at), Some(other));
                assert!(!heap.is_object(made) && heap.is_object(other));
                let mut bytes = [0; 5_000];
                heap.read_bytes(other, &mut bytes)?;
                assert_eq!(bytes, [7; 5_000]);
                let large = heap.replace_at(word(at), 200_000)?;
                assert!(!heap.is_object(other) && heap.is_object(large));
                assert_eq!(heap.free_from(word(at))?, Some(large));
                assert_eq!(value(at), None);
                assert!(!heap.is_object(large));
                assert_eq!(heap.free_from(word(at))?, None);
                let put = heap.put_into(word(at), b"contents")?;
                assert_eq!(value(at), Some(put));
            }
            assert_eq!(heap.leaks()?.objects, 4);
        }
        Ok(())
    }

    #[test]
    fn a_refused_call_changes_nothing() -> Result<(), HeapError> {
        for logging in [Logging::Redo, Logging::Undo] {
            let heap = heap(logging, Bookkeeping::Logged)?;
            let place = heap.persist_alloc(64)?;
            let at = |more: u64| Offset::of(place.get() + more);
            let objects = || heap.leaks().map(|leaks| leaks.objects);
            heap.core.memory.store_word(place.get(), place.get());
            heap.core.memory.store_word(place.get() + 8, 48);
            let refused = [
                heap.alloc_into(at(4), 8),
                heap.alloc_into(at(64), 8),
                heap.alloc_into(Offset::of(4096), 8),
                heap.alloc_into(at(16), 0),
                heap.alloc_into(at(16), 1 << 40),
                heap.replace_at(place, 8),
                heap.replace_at(at(8), 8),
            ];
            for (number, refused) in refused.into_iter().enumerate() {
                assert!(refused.is_err(), "call {number}");
            }
            assert!(heap.free_from(place).is_err() && heap.free_from(at(8)).is_err());
            let inside: Result<(), HeapError> = heap.transaction(|_| {
                assert!(matches!(heap.alloc_into(at(16), 8), Err(HeapError::InTransaction { .. })));
                Ok(())
            });
            inside?;
            assert_eq!(objects()?, 1);
            assert_eq!(heap.core.memory.load(place.get()), place.get());
        }
        Ok(())
    }
}
