//! The Redis serialization protocol: requests in ([`Parser`]), replies out ([`Reply`]).
//!
//! Both halves are pure functions over bytes: no socket, no clock, no allocation that a peer can
//! command by declaring a length.

mod inline;
mod parse;
mod write;

pub use parse::{Args, Frame, Limits, Parser, ProtocolError, Span, Step};
pub use write::Reply;

/// Splits a line into words, which blanks separate and quotes hold together, as an inline command
/// is split; `None` where a quote is not closed.
pub(crate) fn split_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut bytes, mut places) = (Vec::new(), Vec::new());
    inline::split(line, &mut bytes, |start, len| places.push((start, len))).ok()?;
    Some(places.into_iter().map(|(start, len)| bytes[start..start + len].to_vec()).collect())
}
