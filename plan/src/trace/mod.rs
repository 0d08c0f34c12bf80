//! Traces: who wrote what, when. Readers of the formats in which such traces are published.

mod record;

pub use record::{Op, PAGE_BYTES, Record};
