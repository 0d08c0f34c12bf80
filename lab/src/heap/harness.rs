//! A contestant that does nothing: its times are those of the loops alone.

use super::contestant::{Contestant, ContestantError};

/// Hands out one place and writes nothing.
pub struct Nobody;

impl Contestant for Nobody {
    #[inline]
    fn allocate(&self, bytes: usize) -> Result<u64, ContestantError> {
        Ok(bytes as u64)
    }

    #[inline]
    fn free(&self, place: u64) -> Result<(), ContestantError> {
        std::hint::black_box(place);
        Ok(())
    }

    #[inline]
    fn touch(&self, place: u64, _: usize, value: u64) {
        std::hint::black_box((place, value));
    }
}
