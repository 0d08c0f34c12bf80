//! Arrays in capacity memory, and the call of the library that multiplies matrices.

use std::ops::Range;
use std::ptr::NonNull;

use super::probe::Probe;

/// A type for array elements: any bytes are a valid value.
pub trait Word: Copy + Send + sealed::AnyBytes + 'static {}
impl<T: Copy + Send + sealed::AnyBytes + 'static> Word for T {}

mod sealed {
    pub trait AnyBytes {}
    impl AnyBytes for f64 {}
    impl AnyBytes for u32 {}
    impl AnyBytes for [f64; 2] {}
    impl AnyBytes for [f64; 5] {}
}

/// An array in a heap's capacity memory, owned by its holder alone. Each access is shown to the
/// probe.
pub struct Array<'r, T, P> {
    at: NonNull<T>,
    len: usize,
    probe: &'r P,
}

impl<'r, T: Word, P: Probe> Array<'r, T, P> {
    /// Takes memory from an allocator.
    ///
    /// # Safety
    /// `len` words at `at`, aligned and with any contents, belong to the caller alone until `'r`
    /// ends.
    pub unsafe fn of(at: NonNull<u8>, len: usize, probe: &'r P) -> Self {
        Self { at: at.cast(), len, probe }
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Reads one word.
    #[inline]
    pub fn get(&self, index: usize) -> T {
        self.row(index..index + 1)[0]
    }

    /// Writes one word.
    #[inline]
    pub fn set(&mut self, index: usize, value: T) {
        assert!(index < self.len);
        self.show(&(index..index + 1), true);
        // SAFETY: the index was just checked, and the array is borrowed exclusively.
        unsafe { self.at.add(index).write(value) };
    }

    /// Words to read.
    #[inline]
    pub fn row(&self, range: Range<usize>) -> &[T] {
        assert!(range.start <= range.end && range.end <= self.len);
        self.show(&range, false);
        // SAFETY: the range was just checked; changing words needs an exclusive borrow of the
        // array.
        unsafe { std::slice::from_raw_parts(self.at.add(range.start).as_ptr(), range.len()) }
    }

    /// Words to read and change.
    #[inline]
    pub fn row_mut(&mut self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        self.show(&range, true);
        // SAFETY: the range was just checked, and the array is borrowed exclusively.
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
    /// Index of the block's first word.
    pub at: usize,
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Words from one row to the next.
    pub stride: usize,
}

impl BlockPlace {
    /// Index ranges of the block's rows.
    fn rows(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.rows).map(move |row| {
            let from = self.at + row * self.stride;
            from..from + self.columns
        })
    }
}

impl<T: Word, P: Probe> Array<'_, T, P> {
    /// Pointer to the first word of a block. All rows are checked to be inside, and shown to the
    /// probe.
    fn block(&self, place: BlockPlace, is_store: bool) -> *mut T {
        for row in place.rows() {
            assert!(row.end <= self.len);
            self.show(&row, is_store);
        }
        self.at.as_ptr().wrapping_add(place.at)
    }
}

/// Adds the product of two blocks to a third one, by the library.
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
    // SAFETY: all rows were checked to lie inside their arrays; `c` is borrowed exclusively, so the
    // others do not overlap it, and its stride is at least its columns, so its rows do not overlap.
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
