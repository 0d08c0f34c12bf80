//! Arrays in capacity memory, and the matrix product's call of its library.

use std::ops::Range;
use std::ptr::NonNull;

use super::probe::Probe;

/// What may lie in an array: any bytes are one.
pub trait Word: Copy + Send + sealed::AnyBytes + 'static {}
impl<T: Copy + Send + sealed::AnyBytes + 'static> Word for T {}

mod sealed {
    pub trait AnyBytes {}
    impl AnyBytes for f64 {}
    impl AnyBytes for u32 {}
    impl AnyBytes for [f64; 2] {}
    impl AnyBytes for [f64; 5] {}
}

/// An array in a heap's capacity memory; its holder's alone. Each access is shown to the probe, by
/// line.
pub struct Array<'r, T, P> {
    at: NonNull<T>,
    len: usize,
    probe: &'r P,
}

impl<'r, T: Word, P: Probe> Array<'r, T, P> {
    /// Takes what an allocator handed out.
    ///
    /// # Safety
    /// `len` words at `at`, aligned and of whatever bytes, are the caller's alone until `'r` ends.
    pub unsafe fn of(at: NonNull<u8>, len: usize, probe: &'r P) -> Self {
        Self { at: at.cast(), len, probe }
    }

    /// Words in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// One word.
    #[inline]
    pub fn get(&self, index: usize) -> T {
        self.row(index..index + 1)[0]
    }

    /// Changes one word.
    #[inline]
    pub fn set(&mut self, index: usize, value: T) {
        assert!(index < self.len);
        self.show(&(index..index + 1), true);
        // SAFETY: inside (just checked), and borrowed exclusively.
        unsafe { self.at.add(index).write(value) };
    }

    /// Words to be read.
    #[inline]
    pub fn row(&self, range: Range<usize>) -> &[T] {
        assert!(range.start <= range.end && range.end <= self.len);
        self.show(&range, false);
        // SAFETY: inside (just checked); whoever changes words borrows the array exclusively.
        unsafe { std::slice::from_raw_parts(self.at.add(range.start).as_ptr(), range.len()) }
    }

    /// Words to be read and changed.
    #[inline]
    pub fn row_mut(&mut self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        self.show(&range, true);
        // SAFETY: inside (just checked), and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(range.start).as_ptr(), range.len()) }
    }

    #[inline]
    fn show(&self, range: &Range<usize>, is_store: bool) {
        let at = self.at.as_ptr() as usize + range.start * size_of::<T>();
        self.probe.touch(at, range.len() * size_of::<T>(), is_store);
    }
}

/// A block of a matrix whose rows lie `stride` words apart.
#[derive(Clone, Copy)]
pub struct BlockPlace {
    /// Its first word.
    pub at: usize,
    /// Its rows.
    pub rows: usize,
    /// Its columns.
    pub columns: usize,
    /// From row to row.
    pub stride: usize,
}

impl BlockPlace {
    /// The words of its rows.
    fn rows(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.rows).map(move |row| {
            let from = self.at + row * self.stride;
            from..from + self.columns
        })
    }
}

impl<T: Word, P: Probe> Array<'_, T, P> {
    /// The first word of a block, all of whose rows are inside, and shown to the probe.
    fn block(&self, place: BlockPlace, is_store: bool) -> *mut T {
        for row in place.rows() {
            assert!(row.end <= self.len);
            self.show(&row, is_store);
        }
        self.at.as_ptr().wrapping_add(place.at)
    }
}

/// Adds the product of two blocks to a third, with the library's kernel.
pub fn add_product<P: Probe>(
    c: (&mut Array<'_, f64, P>, BlockPlace),
    a: (&Array<'_, f64, P>, BlockPlace),
    b: (&Array<'_, f64, P>, BlockPlace),
) {
    let place = c.1;
    assert!(place.rows == a.1.rows && place.columns == b.1.columns && a.1.columns == b.1.rows);
    assert!(place.stride >= place.columns);
    let (a_at, b_at) = (a.0.block(a.1, false), b.0.block(b.1, false));
    let c_at = c.0.block(place, true);
    // SAFETY: all rows lie inside their arrays (checked above); `c` is borrowed exclusively, so it
    // is no part of the others, and its stride is at least its columns, so its rows do not overlap.
    unsafe {
        matrixmultiply::dgemm(
            place.rows,
            a.1.columns,
            place.columns,
            1.0,
            a_at,
            a.1.stride as isize,
            1,
            b_at,
            b.1.stride as isize,
            1,
            1.0,
            c_at,
            place.stride as isize,
            1,
        );
    }
}
