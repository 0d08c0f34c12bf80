//! The holder: a small process that keeps memory, ledger and image open after the writer is gone.
//!
//! It owns one region's descriptors and a socket in the region's directory. While a server is
//! linked it does nothing. If the link breaks without a goodbye it goes on holding, and a warning
//! (SIGTERM, SIGINT, SIGPWR, or a request on the socket) makes it flush alone, with the same code
//! the server would have run; so does a wait for a server that is over. A server that starts again
//! takes the descriptors over. A holder whose image was removed lets the memory go, because nothing
//! could be kept. Nothing here writes the region.

mod holders;
mod isolate;
mod link;
mod program;
mod serve;
mod supervisor;
mod times;
mod wire;

pub use holders::Holders;
pub use link::{Held, Link, LinkError, TakeOver, flush, take_over};
pub use program::HolderProgram;
pub use serve::{HolderError, HolderOptions, serve};
pub use supervisor::{Supervisor, Watch};
pub use times::Times;
pub use wire::SOCKET_NAME;
