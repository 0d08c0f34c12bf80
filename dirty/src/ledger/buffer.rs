//! A frame buffer in shared memory, and the room beside it for the compressed frame.

use crate::sync::{AtomicU64, Ordering::*};
use crate::sys::Mapping;

/// How far a frame buffer has come, by the number that the ledger holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum BufferState {
    /// No frame needs the buffer, because its last one is durable.
    Free = 0,
    /// Extents are appended to the frame.
    Filling = 1,
    /// The frame is complete but for its checksums, or is being written.
    Sealed = 2,
}

impl BufferState {
    /// Every state.
    pub(crate) const ALL: [Self; 3] = [Self::Free, Self::Filling, Self::Sealed];

    /// The allowed transitions. A frame that a killed process was filling is written as it is by
    /// the process that takes over, and its buffer is freed without having been sealed.
    const ALLOWED: [(Self, Self); 4] = [
        (Self::Free, Self::Filling),
        (Self::Filling, Self::Sealed),
        (Self::Sealed, Self::Free),
        (Self::Filling, Self::Free),
    ];

    /// Whether a buffer may go from this state to `next`. A free buffer may be freed again.
    pub(crate) fn may_become(self, next: Self) -> bool {
        (self, next) == (Self::Free, Self::Free) || Self::ALLOWED.contains(&(self, next))
    }

    /// The state that a word stands for; `Err` has the word if it stands for none.
    pub(crate) fn of_word(word: u64) -> Result<Self, u64> {
        Self::ALL.into_iter().find(|state| *state as u64 == word).ok_or(word)
    }
}

/// A frame buffer: control words, an extent table, and room for one frame.
pub struct FrameBuffer<'l> {
    pub(super) map: &'l Mapping,
    pub(super) words: &'l [AtomicU64],
    pub(super) table_at: u64,
    pub(super) table_capacity: usize,
    pub(super) bytes_at: u64,
    pub(super) packed_at: u64,
    pub(super) len_bytes: u64,
}

/// The sizes of a compressed frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// Bytes to be written to the device.
    pub stored_bytes: u64,
    /// Bytes that the frame keeps in its segment.
    pub kept_bytes: u64,
}

impl<'l> FrameBuffer<'l> {
    /// The state of the buffer.
    ///
    /// # Panics
    /// The word stands for no state. Attaching checks the word, so a program damaged it since then.
    pub fn state(&self) -> BufferState {
        match BufferState::of_word(self.found_state()) {
            Ok(state) => state,
            Err(word) => panic!("a frame buffer of the unknown state {word}"),
        }
    }

    /// The word of the state, which may stand for none.
    pub(super) fn found_state(&self) -> u64 {
        self.words[0].load(Acquire)
    }

    /// Changes the state, after everything that the new state promises is in place.
    ///
    /// # Panics
    /// The transition is not allowed.
    pub fn set_state(&self, state: BufferState) {
        let before = self.state();
        assert!(before.may_become(state), "a frame buffer that is {before:?} becomes {state:?}");
        self.words[0].store(state as u64, Release);
    }

    /// Number of the segment to which the frame goes.
    pub fn segment(&self) -> &'l AtomicU64 {
        &self.words[1]
    }

    /// Offset of the frame in its segment, bytes.
    pub fn segment_offset(&self) -> &'l AtomicU64 {
        &self.words[2]
    }

    /// Sequence number of the frame.
    pub fn seq(&self) -> &'l AtomicU64 {
        &self.words[3]
    }

    /// Payload bytes (low 32 bits) and extents (high 32 bits), published together.
    pub fn fill(&self) -> &'l AtomicU64 {
        &self.words[4]
    }

    /// Bytes that return to the budget when the frame is durable.
    pub fn charged_bytes(&self) -> &'l AtomicU64 {
        &self.words[5]
    }

    /// Flags of the frame.
    pub fn flags(&self) -> &'l AtomicU64 {
        &self.words[6]
    }

    /// The sizes of the compressed frame, which lies complete beside the buffer. `None` unless the
    /// frame was compressed.
    pub fn packed(&self) -> Option<Packed> {
        let word = self.words[7].load(Acquire);
        let packed = Packed { stored_bytes: word & 0xffff_ffff, kept_bytes: word >> 32 };
        (word != 0).then_some(packed)
    }

    /// Marks the frame in one store: as compressed, after every byte of the compressed frame is
    /// there, or as not compressed.
    pub fn set_packed(&self, packed: Option<Packed>) {
        let word = packed.map_or(0, |packed| packed.kept_bytes << 32 | packed.stored_bytes);
        self.words[7].store(word, Release);
    }

    /// The extent table of the frame.
    pub fn table(&self) -> &'l [AtomicU64] {
        self.map.words(self.table_at, self.table_capacity)
    }
    fn stored_at(&self) -> u64 {
        if self.packed().is_some() { self.packed_at } else { self.bytes_at }
    }

    /// Address of the frame's `len` bytes as they are to be written to the device.
    ///
    /// # Panics
    /// The buffer is shorter. Whoever flushes for another process reads the length of a frame from
    /// memory that this one may still change, and must not write out what lies behind the buffer.
    pub fn device_bytes(&self, len: u64) -> *const u8 {
        assert!(len <= self.len_bytes, "a frame outgrew its buffer");
        self.map.base().wrapping_add(self.stored_at() as usize)
    }

    /// Bytes of the frame before compression.
    ///
    /// # Safety
    /// The caller is the only one to use this buffer's bytes: it holds the appender lock, or the
    /// buffer is sealed and owned by the cleaner.
    pub unsafe fn bytes_mut(&self, offset: u64, len: usize) -> &'l mut [u8] {
        // SAFETY: as the caller promises.
        unsafe { self.part_mut(self.bytes_at, offset, len) }
    }

    /// Bytes of the room for the compressed frame.
    ///
    /// # Safety
    /// The caller promises the same as for [`FrameBuffer::bytes_mut`].
    pub unsafe fn packed_mut(&self, offset: u64, len: usize) -> &'l mut [u8] {
        // SAFETY: as the caller promises.
        unsafe { self.part_mut(self.packed_at, offset, len) }
    }

    /// Bytes of a sealed frame as they are to be written.
    ///
    /// # Safety
    /// The caller promises the same as for [`FrameBuffer::bytes_mut`].
    pub unsafe fn stored_mut(&self, len: usize) -> &'l mut [u8] {
        // SAFETY: as the caller promises.
        unsafe { self.part_mut(self.stored_at(), 0, len) }
    }

    /// # Safety
    /// The caller promises the same as for [`FrameBuffer::bytes_mut`]; `at` is the beginning of
    /// this buffer or of the room beside it.
    unsafe fn part_mut(&self, at: u64, offset: u64, len: usize) -> &'l mut [u8] {
        assert!(offset + len as u64 <= self.len_bytes, "a frame outgrew its buffer");
        // SAFETY: in bounds of this buffer; exclusivity is the caller's promise.
        unsafe { self.map.bytes_mut(at + offset, len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ledger;
    use crate::geometry::{GRAIN_SHIFT_TRAP, Geometry};

    #[test]
    fn a_buffer_is_sealed_only_after_it_was_filled_and_filled_only_when_it_is_free() {
        use BufferState::*;
        assert!(!Free.may_become(Sealed) && !Sealed.may_become(Filling));
        assert!(!Filling.may_become(Filling) && Sealed.may_become(Free));
        assert_eq!(BufferState::of_word(3), Err(3));
    }

    #[test]
    fn nothing_behind_a_buffer_is_written_whatever_its_ledger_says() {
        use std::panic::{AssertUnwindSafe, catch_unwind};

        let geometry = Geometry::new(1 << 20, GRAIN_SHIFT_TRAP, None, 2).unwrap();
        let ledger = Ledger::create(geometry, 7, 1 << 20).unwrap();
        let buffer = ledger.buffer(0);
        for packed in [None, Some(Packed { stored_bytes: 1 << 30, kept_bytes: 4096 })] {
            buffer.set_packed(packed);
            let passes = |len| {
                // SAFETY: the only buffer in use.
                let stored = || _ = unsafe { buffer.stored_mut(len as usize) };
                let address = || _ = buffer.device_bytes(len);
                [catch_unwind(AssertUnwindSafe(stored)), catch_unwind(AssertUnwindSafe(address))]
                    .map(|outcome| outcome.is_ok())
            };
            assert_eq!(passes(buffer.len_bytes), [true; 2]);
            assert_eq!(passes(buffer.len_bytes + 1), [false; 2]);
        }
    }
}
