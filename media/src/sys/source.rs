//! The bytes of a write in flight, as the raw range that the caller promised to leave unchanged.

use std::marker::PhantomData;

/// A readable range that outlives its write.
///
/// The promise is made once, at [`Source::promised`] or by a borrow, so that everything a queue
/// does with the range afterwards needs no further argument. `'static` stands for the promise: a
/// write that outlives the call takes nothing else.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    ptr: *const u8,
    len_bytes: usize,
    borrow: PhantomData<&'a [u8]>,
}

impl Source<'static> {
    /// # Safety
    /// `ptr..ptr+len_bytes` stays valid and unchanged until the write it belongs to has been
    /// reaped, or its queue dropped: the contract of `WriteQueue::submit`.
    pub(crate) unsafe fn promised(ptr: *const u8, len_bytes: usize) -> Self {
        Self { ptr, len_bytes, borrow: PhantomData }
    }
}

impl<'a> Source<'a> {
    /// A source for a write that ends before the borrow does.
    pub(crate) fn borrowed(bytes: &'a [u8]) -> Self {
        Self { ptr: bytes.as_ptr(), len_bytes: bytes.len(), borrow: PhantomData }
    }

    pub(crate) fn ptr(self) -> *const u8 {
        self.ptr
    }

    pub(crate) fn len_bytes(self) -> usize {
        self.len_bytes
    }

    /// The rest after the first `done_bytes`.
    pub(crate) fn after(self, done_bytes: usize) -> Self {
        assert!(done_bytes <= self.len_bytes, "more written than asked for");
        // SAFETY: at most one past the end of the promised or borrowed range.
        let ptr = unsafe { self.ptr.add(done_bytes) };
        Self { ptr, len_bytes: self.len_bytes - done_bytes, borrow: PhantomData }
    }

    /// The first `len_bytes`.
    pub(crate) fn first(self, len_bytes: usize) -> Self {
        assert!(len_bytes <= self.len_bytes, "more written than asked for");
        Self { len_bytes, ..self }
    }

    pub(crate) fn to_vec(self) -> Vec<u8> {
        self.bytes().to_vec()
    }

    /// Whether the promise of unchanged bytes was kept, judged by a copy made at submission.
    pub(crate) fn still_equals(self, copy: &[u8]) -> bool {
        self.bytes() == copy
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: valid and unchanged by the promise or the borrow; the slice does not leave this
        // file.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len_bytes) }
    }
}

// SAFETY: the range is only read, and promise and borrow bind every thread, not the
// submitting one only.
unsafe impl Send for Source<'_> {}
