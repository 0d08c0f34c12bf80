//! The only unsafe code of the path: a sleep, a ring, a mapping.

mod map;
mod ring;
mod sleep;

pub(super) use map::Map;
pub(super) use ring::{Polling, Ring};
pub(super) use sleep::sleep_ns;
