//! Places of objects, as offsets from the heap's first byte, which are the same wherever the heap
//! is mapped.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The place of an object: bytes from the heap's first byte, never zero. An `Option<Offset>` has
/// eight bytes, of which zero is `None`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Offset(NonZeroU64);

impl Offset {
    /// The offset of so many bytes; `None` for zero.
    pub fn new(bytes: u64) -> Option<Self> {
        NonZeroU64::new(bytes).map(Self)
    }

    /// Bytes from the heap's first byte.
    pub fn get(self) -> u64 {
        self.0.get()
    }

    pub(crate) fn of(bytes: u64) -> Self {
        match NonZeroU64::new(bytes) {
            Some(bytes) => Self(bytes),
            None => unreachable!("the first span belongs to the heap itself"),
        }
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "heap offset {:#x}", self.0)
    }
}

impl fmt::Debug for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offset({:#x})", self.0)
    }
}

/// Types that may lie in persistent memory: plain bytes, any of which are a value, without pointers
/// into this process.
///
/// # Safety of what is stored
/// The type's number is part of the image, and follows from [`Persist::NAME`] and the size. Give a
/// type whose layout changes another name.
pub trait Persist: FromBytes + IntoBytes + Immutable + KnownLayout + Copy + 'static {
    /// The type's name on media.
    const NAME: &'static str;

    /// The type's number on media, made of name and size.
    fn type_id() -> u64 {
        // No type has the number zero.
        xxhash_rust::xxh3::xxh3_64_with_seed(Self::NAME.as_bytes(), size_of::<Self>() as u64) | 1
    }
}

/// The number of a type that is made of other types.
pub(crate) fn type_id_of(name: &str, parts: &[u64]) -> u64 {
    let mut id = xxhash_rust::xxh3::xxh3_64(name.as_bytes());
    for part in parts {
        id = xxhash_rust::xxh3::xxh3_64_with_seed(&part.to_le_bytes(), id);
    }
    id | 1
}

macro_rules! persist {
    ($($of:ty => $name:literal),* $(,)?) => {
        $(impl Persist for $of { const NAME: &'static str = $name; })*
    };
}

persist! {
    u8 => "u8", u16 => "u16", u32 => "u32", u64 => "u64", u128 => "u128",
    i8 => "i8", i16 => "i16", i32 => "i32",
    i64 => "i64", i128 => "i128", f32 => "f32", f64 => "f64",
}

impl<const N: usize> Persist for [u8; N] {
    const NAME: &'static str = "bytes";
}

impl<const N: usize> Persist for [u64; N] {
    const NAME: &'static str = "words";
}

/// A typed pointer into a heap, relative to the heap's first byte; zero is null. The pointer may
/// lie in persistent memory itself.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Ptr<T: 'static> {
    offset: u64,
    to: PhantomData<fn() -> T>,
}

impl<T> Ptr<T> {
    /// The null pointer.
    pub const NULL: Self = Self { offset: 0, to: PhantomData };

    /// A pointer to a value at `offset`. Reading through the pointer is checked against the heap's
    /// objects.
    pub fn new(offset: Offset) -> Self {
        Self { offset: offset.get(), to: PhantomData }
    }

    /// The place that the pointer leads to; `None` for null.
    pub fn offset(self) -> Option<Offset> {
        Offset::new(self.offset)
    }

    /// Whether the pointer is null.
    pub fn is_null(self) -> bool {
        self.offset == 0
    }

    /// A pointer to the same place with another type.
    pub fn cast<U>(self) -> Ptr<U> {
        Ptr { offset: self.offset, to: PhantomData }
    }

    /// A pointer to element `index` of an array that begins here.
    pub fn nth(self, index: u64) -> Self {
        Self { offset: self.offset + index * size_of::<T>() as u64, to: PhantomData }
    }
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.offset == other.offset
    }
}

impl<T> Eq for Ptr<T> {}

impl<T> fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ptr({:#x})", self.offset)
    }
}

impl<T: Persist> Persist for Ptr<T> {
    const NAME: &'static str = "ptr";

    fn type_id() -> u64 {
        type_id_of(Self::NAME, &[T::type_id()])
    }
}
