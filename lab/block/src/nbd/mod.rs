//! Serves a disk by the NBD protocol, fixed newstyle.
//!
//! `wire` has the protocol's numbers; `handshake` and `request` parse bytes and touch nothing else;
//! `reply` makes bytes; `connection` is one client's loop, with its `intake` of bytes and its
//! `waiting` replies; `spin` decides which threads may poll without sleeping; `listen` opens
//! sockets; `server` accepts and stops; `shared` and `stop` are what a server and its connections
//! share.
//!
//! Bounds of a connection: [`connection::REQUESTS_MAX`] requests and
//! [`connection::REPLY_BYTES_MAX`] bytes of replies under way, beyond which nothing more is
//! received; one complete payload of at most [`wire::PAYLOAD_MAX_BYTES`]. A write is applied only
//! when all of its payload has arrived, so a client that vanishes earlier changes nothing.

pub mod connection;
pub mod handshake;
mod intake;
pub mod listen;
pub mod reply;
pub mod request;
pub mod server;
mod shared;
mod spin;
mod stop;
mod waiting;
pub mod wire;

pub use connection::{Ended, Tally};
pub use listen::{Address, ListenError, Listener};
pub use server::{Report, ServeError, Server};
pub use shared::{Export, Settings};
pub use stop::Stop;
