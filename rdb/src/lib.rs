//! The format of Redis' dumps: files, replication snapshots, and the payloads of DUMP.
//!
//! Values and files of versions 1 to 12 (Redis 8) are read; and version 10 is written, which Redis
//! 7.0 and every later one read, but for hashes of which fields expire: these are in the form of
//! version 12, as Redis 7.4 and later read it. Nothing of what is read is trusted: a length is
//! compared with what there is before memory is taken for it, packed values are checked entry by
//! entry, and a value is given up once it takes more memory than the caller allows.

mod crc64;
mod double;
mod error;
mod lzf;
mod payload;
mod read;
mod strings;
mod value;
mod write;

pub use crc64::crc64;
pub use double::parse_double;
pub use error::RdbError;
pub use lzf::decompress;
pub use payload::{PayloadError, open_payload, seal_payload};
pub use read::{Item, KeyItem, Reader};
pub use strings::Strings;
pub use value::{Consumer, Group, Pending, Stream, StreamEntry, StreamId, Value};
pub use write::{Encoder, Writer};

/// Newest version that is read.
pub const VERSION_READ_MAX: u16 = 12;
/// Version that is written.
pub const VERSION_WRITTEN: u16 = 10;
