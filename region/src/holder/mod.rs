//! The holder: a small process that keeps memory, ledger and image open after the writer is gone.
//!
//! A holder has the descriptors of one region, and a socket in the region's directory. It does
//! nothing while a server is linked. If the link breaks without a goodbye, the holder goes on
//! holding, and flushes alone, by the server's own code, when one of these happens:
//!
//! - a warning: SIGTERM, SIGINT, SIGPWR, or a request on the socket;
//! - the wait for another server is over.
//!
//! A server that starts again takes the descriptors over. A holder whose image was removed frees
//! the memory, because nothing could be kept. A holder never writes to the region's memory.

mod emergency;
mod error;
mod holders;
mod isolate;
mod link;
mod program;
mod serve;
mod socket;
mod supervisor;
mod times;
mod wire;

pub use error::{HolderError, LinkError};
pub use holders::Holders;
pub(crate) use link::{Held, TakeOver, take_over};
pub use link::{Link, flush};
pub use program::HolderProgram;
pub use serve::{HolderOptions, serve};
pub use socket::SOCKET_NAME;
pub use supervisor::Supervisor;
pub(crate) use times::Times;
