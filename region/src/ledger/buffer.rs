//! A frame buffer in shared memory, and the room beside it for what its frame becomes when
//! compressed.

use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::sys::Mapping;

/// One frame buffer: control words, an extent table, and room for one frame.
pub struct FrameBuffer<'l> {
    pub(super) map: &'l Mapping,
    pub(super) words: &'l [AtomicU64],
    pub(super) table_at: u64,
    pub(super) table_capacity: usize,
    pub(super) bytes_at: u64,
    pub(super) packed_at: Option<u64>,
    pub(super) len_bytes: u64,
}

/// A frame that has been compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// Bytes to be written.
    pub stored_bytes: u64,
    /// Bytes it keeps in its segment.
    pub kept_bytes: u64,
}

impl<'l> FrameBuffer<'l> {
    /// [`BUFFER_FREE`], [`BUFFER_FILLING`] or [`BUFFER_SEALED`].
    pub fn state(&self) -> &'l AtomicU64 {
        &self.words[0]
    }
    /// Segment the frame goes to.
    pub fn segment(&self) -> &'l AtomicU64 {
        &self.words[1]
    }
    /// Where in the segment, bytes.
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
    /// Budget bytes that its durability gives back.
    pub fn charged_bytes(&self) -> &'l AtomicU64 {
        &self.words[5]
    }
    /// Frame flags.
    pub fn flags(&self) -> &'l AtomicU64 {
        &self.words[6]
    }
    /// Of a frame that has been compressed: all of it lies beside the buffer, as it is to be
    /// written. Until then, and after it is free, `None`.
    pub fn packed(&self) -> Option<Packed> {
        self.packed_at?;
        let word = self.words[7].load(Acquire);
        let packed = Packed { stored_bytes: word & 0xffff_ffff, kept_bytes: word >> 32 };
        (word != 0).then_some(packed)
    }
    /// Marks it, in one store, when every byte of it is there.
    pub fn set_packed(&self, packed: Option<Packed>) {
        assert!(packed.is_none() || self.packed_at.is_some(), "no room for compressed frames");
        if self.packed_at.is_some() {
            let word = packed.map_or(0, |packed| packed.kept_bytes << 32 | packed.stored_bytes);
            self.words[7].store(word, Release);
        }
    }
    /// The extent table.
    pub fn table(&self) -> &'l [AtomicU64] {
        self.map.words(self.table_at, self.table_capacity)
    }
    fn stored_at(&self) -> u64 {
        self.packed_at.filter(|_| self.packed().is_some()).unwrap_or(self.bytes_at)
    }
    /// Where the frame's bytes begin, for the device.
    pub fn device_bytes(&self) -> *const u8 {
        self.map.base().wrapping_add(self.stored_at() as usize)
    }
    /// The frame's bytes, as they were filled in.
    ///
    /// # Safety
    /// The caller is the only one to use this buffer's bytes: it holds the appender lock, or the
    /// buffer is sealed and owned by the cleaner.
    pub unsafe fn bytes_mut(&self, offset: u64, len: usize) -> &'l mut [u8] {
        // SAFETY: as the caller promises.
        unsafe { self.part_mut(self.bytes_at, offset, len) }
    }
    /// The room for what they become when compressed.
    ///
    /// # Safety
    /// As [`FrameBuffer::bytes_mut`].
    pub unsafe fn packed_mut(&self, offset: u64, len: usize) -> Option<&'l mut [u8]> {
        // SAFETY: as the caller promises.
        self.packed_at.map(|at| unsafe { self.part_mut(at, offset, len) })
    }
    /// The bytes to be written of a sealed frame.
    ///
    /// # Safety
    /// As [`FrameBuffer::bytes_mut`].
    pub unsafe fn stored_mut(&self, len: usize) -> &'l mut [u8] {
        // SAFETY: as the caller promises.
        unsafe { self.part_mut(self.stored_at(), 0, len) }
    }
    /// # Safety
    /// As [`FrameBuffer::bytes_mut`]; `at` is where this buffer begins, or the room beside it.
    unsafe fn part_mut(&self, at: u64, offset: u64, len: usize) -> &'l mut [u8] {
        assert!(offset + len as u64 <= self.len_bytes, "a frame outgrew its buffer");
        // SAFETY: in bounds of this buffer; exclusivity is the caller's promise.
        unsafe { self.map.bytes_mut(at + offset, len) }
    }
}
