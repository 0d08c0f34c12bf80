//! System calls of the path.

mod sleep;

pub(super) use sleep::sleep_ns;
