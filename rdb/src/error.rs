//! Why a dump cannot be read.

use std::io;

/// Why a dump cannot be read. Offsets are bytes from its beginning.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RdbError {
    /// The bytes could not be read.
    #[error("the dump cannot be read at byte {at}: {source}")]
    Io {
        /// Where.
        at: u64,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The bytes end too early.
    #[error("the dump ends at byte {at}, in the middle of {what}")]
    Truncated {
        /// Where it ends.
        at: u64,
        /// The part of the dump that was being read.
        what: &'static str,
    },
    /// The bytes do not begin as a dump does.
    #[error("no dump of Redis: it begins with {found:?} and not with \"REDIS\" and a version")]
    NotADump {
        /// The first bytes.
        found: String,
    },
    /// The version is too new.
    #[error("the dump has version {found}; versions 1 to {newest} can be read")]
    Version {
        /// The version of the dump.
        found: u16,
        /// The newest that can be read.
        newest: u16,
    },
    /// The checksum is not that of the bytes.
    #[error("the dump is damaged: its checksum is {found:016x}, its bytes sum up to {summed:016x}")]
    Checksum {
        /// The checksum in the dump.
        found: u64,
        /// The checksum of the bytes that were read.
        summed: u64,
    },
    /// Something has a form that no Redis writes.
    #[error("the dump is damaged before byte {at}: {what}")]
    Corrupt {
        /// What is wrong.
        what: &'static str,
        /// Where reading had come to.
        at: u64,
    },
    /// A value is of a type that is not known.
    #[error("a value of the unknown type {kind} at byte {at}")]
    UnknownType {
        /// The byte in front of the value.
        kind: u8,
        /// Where.
        at: u64,
    },
    /// A value belongs to a module.
    #[error("a value of the module type {name:?} at byte {at}: values of modules cannot be read")]
    Module {
        /// The name of the module's type.
        name: String,
        /// Where.
        at: u64,
    },
    /// A value takes more memory than is allowed.
    #[error("the value before byte {at} takes more than {max_bytes} bytes of memory")]
    TooLarge {
        /// Most bytes that a value may take.
        max_bytes: u64,
        /// Where reading had come to.
        at: u64,
    },
    /// What is wrong with the value of a key.
    #[error("key {key:?} of database {db}: {error}")]
    Key {
        /// The key.
        key: String,
        /// Its database.
        db: u64,
        /// What is wrong.
        error: Box<RdbError>,
    },
}
