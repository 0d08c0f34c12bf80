//! The looks by which a recording saw its writes: each finds the pages that were written since the
//! look before.
//!
//! All writes to a page between two looks are one write, at the time of the later look. So such a
//! trace says nothing about times shorter than the time between looks, and its readers have to know
//! that time.

use serde::Serialize;

/// The looks at memory that a recording was made by: its pages are known at these times only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Looks {
    /// The time between looks that was asked for, nanoseconds; not 0.
    pub every_ns: u64,
    /// The longest there was between two of them, nanoseconds; 0 as long as there was one only.
    pub longest_ns: u64,
}

impl Looks {
    /// The time within which nothing is known, nanoseconds.
    pub fn interval_ns(self) -> u64 {
        self.every_ns.max(self.longest_ns)
    }
}
