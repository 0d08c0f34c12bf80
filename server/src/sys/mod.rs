//! The unsafe code of this room: the ring of the event loop.

mod uring;

pub(crate) use uring::{Completion, Filled, Ring, Several, TOKEN_BITS};
