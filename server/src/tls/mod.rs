//! TLS: the settings and files it needs, and the layer of one connection.
//!
//! The event queues move bytes and know nothing of TLS. A connection that has a [`Link`] gets what
//! it receives opened before it is parsed, and what it may send sealed before it is sent.
//!
//! Bounds: a handshake may take [`HANDSHAKE_NS`] and 64 KiB of input. Input that is kept is less
//! than a record. Output is sealed in pieces of [`PIECE_BYTES`] as the peer takes them, so a long
//! reply is in memory once. An idle connection has no buffer. Each connection makes a whole
//! handshake: no session is resumed, so that a client certificate is checked each time.

mod files;
mod link;
mod validity;

pub use files::{AuthClients, TlsError, TlsSettings};
pub(crate) use link::{HANDSHAKE_NS, Link, PIECE_BYTES};
