//! Compartments: large areas that an application manages itself (pMem's `nvmmap`), apart from all
//! objects.

use std::sync::PoisonError;

use crate::engine::Kind;
use crate::engine::classes::SPAN_BYTES;
use crate::error::HeapError;
use crate::heap::{Heap, check_size, refusal};
use crate::layout::SpanWord;
use crate::log::settle::settle;
use crate::ptr::Offset;

/// A large area of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compartment {
    /// Of which kind.
    pub kind: Kind,
    /// Its first byte; a multiple of 64 KiB.
    pub offset: Offset,
    /// Its length, bytes; a multiple of 64 KiB.
    pub len_bytes: u64,
}

impl Heap {
    /// Takes an area of at least `bytes`, all zeros. A persistent one is there again after a
    /// restart ([`Heap::compartments`]; name it by a root of type `u8` to know which it is), with
    /// what transactions and [`Heap::persist`] made durable; one of capacity memory is gone.
    ///
    /// # Errors
    /// Zero bytes, more than the heap, or none free.
    pub fn compartment(&self, kind: Kind, bytes: u64) -> Result<Compartment, HeapError> {
        check_size("a compartment", bytes, 1, self.core.layout.spans * SPAN_BYTES)?;
        let core = &self.core;
        let spans = bytes.div_ceil(SPAN_BYTES);
        let taken = core.engine.take_compartment(kind, spans);
        let start = taken.map_err(|error| refusal(error, kind))?;
        let (offset, len_bytes) = (start * SPAN_BYTES, spans * SPAN_BYTES);
        match kind {
            Kind::Persistent => {
                // No transaction's write to what was here may be put in place over it.
                settle(core);
                core.memory.zero(offset, len_bytes);
                let word = SpanWord::Compartment { spans: spans as u32 };
                core.memory.persist_word(core.layout.table_word(start), word.encode());
            }
            Kind::Capacity => core.memory.empty(offset, len_bytes),
        }
        let compartment = Compartment { kind, offset: Offset::of(offset), len_bytes };
        self.core.enter_compartment(compartment);
        Ok(compartment)
    }

    /// Gives an area back. Nobody may use it any more.
    ///
    /// # Errors
    /// There is no such compartment, or this thread is in a transaction, which may have changed it.
    pub fn remove_compartment(&self, compartment: Compartment) -> Result<(), HeapError> {
        self.refuse_in_transaction("end it first")?;
        let offset = compartment.offset;
        let removed = {
            let mut all = self.core.compartments.lock().unwrap_or_else(PoisonError::into_inner);
            match all.get(&offset.get()) {
                Some(found) if *found == compartment => all.remove(&offset.get()),
                _ => None,
            }
        };
        removed.ok_or(HeapError::NoObject { offset })?;
        let (start, spans) = (offset.get() / SPAN_BYTES, compartment.len_bytes / SPAN_BYTES);
        if compartment.kind == Kind::Persistent {
            // No transaction's write to it may be put in place over what comes after it.
            settle(&self.core);
            let word = self.core.layout.table_word(start);
            self.core.memory.persist_word(word, SpanWord::Free.encode());
        }
        self.core.engine.put_spans(start, spans);
        Ok(())
    }

    /// All there are, by offset.
    pub fn compartments(&self) -> Vec<Compartment> {
        let all = self.core.compartments.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().copied().collect()
    }

    /// The persistent compartment that holds a range.
    pub(crate) fn compartment_around(&self, offset: u64, len: u64) -> Option<(u64, u64)> {
        let all = self.core.compartments.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, found) = all.range(..=offset).next_back()?;
        let is_inside =
            found.kind == Kind::Persistent && len <= found.len_bytes.saturating_sub(offset - start);
        is_inside.then_some((*start, found.len_bytes))
    }
}

impl crate::core::Core {
    /// Notes a compartment, made or found.
    pub(crate) fn enter_compartment(&self, compartment: Compartment) {
        let mut all = self.compartments.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(compartment.offset.get(), compartment);
    }
}
