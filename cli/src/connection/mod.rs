//! Connections to servers, with TLS or without: addresses, options and the stream of bytes.

mod address;
mod options;
mod stream;
mod tls;

pub use address::Address;
pub use options::TlsOptions;
pub use stream::Stream;
