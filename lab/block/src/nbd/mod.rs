//! A disk served by the NBD protocol, fixed newstyle.
//!
//! `wire` has the protocol's numbers, `handshake` and `request` judge bytes and touch nothing else,
//! `reply` makes bytes, `connection` is one client's loop with its `intake` of bytes and its
//! `waiting` replies, `spin` says who may poll without sleeping, `listen` opens sockets, `server`
//! accepts and stops.
//!
//! Bounds of a connection: [`connection::REQUESTS_MAX`] requests and
//! [`connection::REPLY_BYTES_MAX`] bytes of replies under way, beyond which nothing more is
//! received; one payload, whole, of [`wire::PAYLOAD_MAX_BYTES`] at most. So a write is applied when
//! all of it is here, and a client that vanishes before leaves nothing of it.

pub mod connection;
pub mod handshake;
mod intake;
pub mod listen;
pub mod reply;
pub mod request;
pub mod server;
mod spin;
mod waiting;
pub mod wire;

pub use connection::{Ended, Tally};
pub use listen::{Address, ListenError, Listener};
pub use server::{Export, Report, ServeError, Server, Settings, Stop};
