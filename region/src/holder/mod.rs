//! Those who keep memory, ledger and image open after the writer is gone, as the writer sees them.
//!
//! A *holder* is a small process that has the descriptors of one region, and a socket in the
//! region's directory. A *guard* has those of many regions, and one socket. Both do nothing while a
//! server is linked. If the link breaks without a goodbye, they go on holding, and flush alone at a
//! warning, at a request, or when the wait for another server is over. A server that starts again
//! takes the descriptors over. The room `guard` has both processes; they speak [`wire`] with what
//! is here.

mod error;
mod holders;
mod link;
mod program;
pub mod socket;
mod starter;
mod supervisor;
mod times;
mod voice;
pub mod wire;

pub use error::LinkError;
pub use holders::Holders;
pub(crate) use link::{Held, TakeOver, take_over};
pub use link::{Link, drill, flush, look};
pub use program::HolderProgram;
pub use socket::SOCKET_NAME;
pub use starter::start_holders;
pub use supervisor::{HeldBy, Listener, Supervisor};
pub use times::Times;
pub use voice::Voice;
