//! Compartments: large areas that an application manages itself (pMem's `nvmmap`), apart from all
//! objects.

use crate::compartments::Compartment;
use crate::engine::Kind;
use crate::engine::classes::SPAN_BYTES;
use crate::error::HeapError;
use crate::heap::{Heap, check_size, refusal};
use crate::layout::SpanWord;
use crate::log::settle::settle;
use crate::ptr::Offset;

impl Heap {
    /// Takes an area of at least `bytes`, all zeros. A persistent area is there again after a
    /// restart ([`Heap::compartments`]), with the contents that transactions and [`Heap::persist`]
    /// made durable; a root of type `u8` can name it. An area of capacity memory is gone after a
    /// restart.
    ///
    /// # Errors
    /// `bytes` is zero or more than the heap has, or no memory is free.
    pub fn compartment(&self, kind: Kind, bytes: u64) -> Result<Compartment, HeapError> {
        check_size("a compartment", bytes, 1, self.core.layout.spans * SPAN_BYTES)?;
        let core = &self.core;
        let spans = bytes.div_ceil(SPAN_BYTES);
        let taken = core.engine.take_compartment(kind, spans);
        let start = taken.map_err(|error| refusal(error, kind))?;
        let (offset, len_bytes) = (start * SPAN_BYTES, spans * SPAN_BYTES);
        match kind {
            Kind::Persistent => {
                // A transaction's write to the memory that was here must not be put in place over
                // the area.
                settle(core);
                core.memory.zero(offset, len_bytes);
                let word = SpanWord::Compartment { spans: spans as u32 };
                core.memory.persist_word(core.layout.table_word(start), word.encode());
            }
            Kind::Capacity => core.memory.empty(offset, len_bytes),
        }
        let compartment = Compartment { kind, offset: Offset::of(offset), len_bytes };
        core.compartments.enter(compartment);
        Ok(compartment)
    }

    /// Gives an area back. No thread may use it any more.
    ///
    /// # Errors
    /// There is no such compartment, or this thread is in a transaction, which may have changed it.
    pub fn remove_compartment(&self, compartment: Compartment) -> Result<(), HeapError> {
        self.refuse_in_transaction("end it first")?;
        let offset = compartment.offset;
        if !self.core.compartments.remove(compartment) {
            return Err(HeapError::NoObject { offset });
        }
        let (start, spans) = (offset.get() / SPAN_BYTES, compartment.len_bytes / SPAN_BYTES);
        if compartment.kind == Kind::Persistent {
            // A transaction's write to the area must not be put in place over the memory that comes
            // after it.
            settle(&self.core);
            let word = self.core.layout.table_word(start);
            self.core.memory.persist_word(word, SpanWord::Free.encode());
        }
        self.core.engine.put_spans(start, spans);
        Ok(())
    }

    /// All compartments of the heap, by offset.
    pub fn compartments(&self) -> Vec<Compartment> {
        self.core.compartments.all()
    }
}
