//! The Redis serialization protocol: requests in ([`Parser`]), replies out ([`Reply`]).
//!
//! Both halves are pure functions over bytes: no socket, no clock, no allocation that a peer can
//! command by declaring a length.

mod inline;
mod parse;
mod write;

pub use parse::{Args, Frame, Limits, Parser, ProtocolError, Span, Step};
pub use write::Reply;
