//! The unsafe code of this room: the ring of the event loop, and what is lent to scripts.

mod lend;
mod uring;

pub(crate) use lend::Lent;
pub(crate) use uring::{Completion, Filled, Ring, Several, TOKEN_BITS};
