//! The numbers of the NBD protocol (proto.md of the NetworkBlockDevice project), all big-endian on
//! the wire.

/// First word of a greeting.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second word of a greeting, and first of each option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First word of a reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of a chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Handshake flag, of the server and of the client: the fixed newstyle negotiation.
pub const FIXED_NEWSTYLE: u32 = 1 << 0;
/// Handshake flag: no padding after the reply to `EXPORT_NAME`.
pub const NO_ZEROES: u32 = 1 << 1;

/// Numbers of the handshake's options.
#[allow(missing_docs)] // here and below: the protocol's own names
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
}

/// Numbers of replies to options.
#[allow(missing_docs)]
pub mod option_reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const ERR_UNSUP: u32 = 1 << 31 | 1;
    pub const ERR_INVALID: u32 = 1 << 31 | 3;
    pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    pub const ERR_SHUTDOWN: u32 = 1 << 31 | 7;
}

/// Kinds of information about an export.
#[allow(missing_docs)]
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Flags of an export.
#[allow(missing_docs)]
pub mod transmission {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Numbers of requests.
#[allow(missing_docs)]
pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const WRITE_ZEROES: u16 = 6;
}

/// Flags of requests.
#[allow(missing_docs)]
pub mod command_flag {
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Kinds of chunks of structured replies.
#[allow(missing_docs)]
pub mod chunk {
    pub const FLAG_DONE: u16 = 1 << 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const ERROR: u16 = 1 << 15 | 1;
}

/// Smallest length and alignment of requests that is announced to clients.
pub const BLOCK_MIN_BYTES: u32 = 1;
/// Length of requests that is recommended to clients.
pub const BLOCK_PREFERRED_BYTES: u32 = 4096;
/// Most bytes that one request may read or write.
pub const PAYLOAD_MAX_BYTES: u32 = 32 << 20;
/// Bytes of a request before its payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply before its data.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of a chunk before its payload.
pub const CHUNK_BYTES: usize = 20;

/// Why a request was refused. The numbers are the protocol's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// The export is read-only.
    NotPermitted = 1,
    /// The medium failed.
    Io = 5,
    /// The request has a wrong length, flag, command or range.
    Invalid = 22,
    /// A write ends beyond the export.
    NoSpace = 28,
    /// Zeros would take as long as a write.
    NotSupported = 95,
    /// The server is stopping.
    Shutdown = 108,
}

impl ErrorCode {
    /// The code's number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }
}
