//! A part in slices of time, for traces with more different times than one machine or one message
//! can hold.

use std::borrow::Cow;

use super::sweep::Sweep;
use super::{Body, Part, damaged};
use crate::skew::SkewError;

impl Part {
    /// Cuts it at these times since the start of the trace, which rise: the part without its
    /// instants, and those between two times, with the slice's number. Slices of the same number
    /// merge, and the parts that were cut do.
    ///
    /// # Errors
    /// A part that cannot be merged.
    pub fn cut(self, bounds_ns: &[u64]) -> Result<(Part, Vec<(u64, Part)>), SkewError> {
        let Body::Series(series) = &self.body else { return Err(SkewError::NotMergeable) };
        let pieces = series.cut(bounds_ns, &self.windows_ns).map_err(damaged)?;
        let slice = |(number, piece)| {
            let (windows_ns, body) = (self.windows_ns.clone(), Body::Slice(piece));
            (number, Part::without_counts(self.start_ns, windows_ns, body))
        };
        let slices = pieces.into_iter().map(slice).collect();
        Ok((Part { body: Body::Cut, ..self }, slices))
    }
}

/// Joins the slices of a part, one after another, to one that has figures. What lies behind the
/// longest window is forgotten.
pub struct Join {
    cut: Part,
    sweep: Sweep<'static>,
}

impl Join {
    /// Begins with a part that was cut.
    ///
    /// # Errors
    /// The part is whole.
    pub fn new(cut: Part) -> Result<Self, SkewError> {
        match cut.body {
            Body::Cut => Ok(Self { sweep: Sweep::new(&cut.windows_ns), cut }),
            _ => Err(SkewError::Uncut),
        }
    }

    /// Joins the next slice.
    ///
    /// # Errors
    /// The slice is of another part or time.
    pub fn push(&mut self, slice: Part) -> Result<(), SkewError> {
        self.cut.check_like(&slice)?;
        match slice.body {
            Body::Slice(series) => self.sweep.push(Cow::Owned(series)).map_err(damaged),
            _ => Err(SkewError::Uncut),
        }
    }

    /// The part, small, with figures: after the last slice.
    ///
    /// # Errors
    /// Slices that are missing.
    pub fn finish(self) -> Result<Part, SkewError> {
        let written = self.sweep.written();
        if written != self.cut.page_writes {
            return Err(SkewError::Slices { written, page_writes: self.cut.page_writes });
        }
        let worst = self.sweep.finish().map_err(damaged)?;
        Ok(Part { body: Body::Maxima(worst), ..self.cut })
    }
}
