//! A request's bytes, parsed by a pure function into an operation or an error.
//!
//! Bounds: a request is accepted only if its payload has at most [`PAYLOAD_MAX_BYTES`]. A request
//! is refused by its header alone; its payload (up to 4 GiB by the protocol) needs no room, for the
//! connection drops it as it arrives. Only a wrong magic number ends the connection, since the
//! beginning of the next request is unknown then.

use super::wire::command_flag::{DF, FAST_ZERO, FUA, NO_HOLE};
use super::wire::{ErrorCode, PAYLOAD_MAX_BYTES, REQUEST_BYTES, REQUEST_MAGIC, command};

/// The operation of an accepted request. Its range lies within the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sends bytes of the export.
    Read,
    /// Writes the payload.
    Write,
    /// Ends the connection after the requests under way have been answered.
    Disconnect,
    /// Answers once everything answered before is on the medium.
    Flush,
    /// Tells that the client no longer needs the bytes.
    Trim,
    /// Makes the bytes zeros.
    WriteZeroes {
        /// The client wants memory behind the zeros, so they are written.
        provisioned: bool,
    },
}

/// A request as the client sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client's number for the request, returned in the reply.
    pub cookie: u64,
    /// The operation, or why it is refused.
    pub asked: Result<Operation, Refusal>,
    /// The operation must be durable before it is answered.
    pub fua: bool,
    /// Offset of the range.
    pub offset_bytes: u64,
    /// Length of the range.
    pub len_bytes: u32,
    /// Bytes that follow the header, also if the request is refused.
    pub payload_bytes: u32,
    /// Whether the command is a read, whose refusal has the form of a read's answer.
    pub is_read: bool,
}

/// A reason to refuse a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The command is unknown, or was not offered by this server.
    #[error("unknown command {0}")]
    Command(u16),
    /// The command does not have one of these flags.
    #[error("flags {flags:#x} of command {command}")]
    Flags {
        /// Number of the command.
        command: u16,
        /// Flags of the request.
        flags: u16,
    },
    /// The length is 0, or a flush has a range.
    #[error("a length of {len_bytes} bytes at offset {offset_bytes} for command {command}")]
    Length {
        /// Number of the command.
        command: u16,
        /// Offset of the range.
        offset_bytes: u64,
        /// Length of the range.
        len_bytes: u32,
    },
    /// The request is longer than a request may be.
    #[error("{len_bytes} bytes in one request; at most {PAYLOAD_MAX_BYTES}")]
    Oversize {
        /// Length of the range.
        len_bytes: u32,
    },
    /// The range ends beyond the export.
    #[error("{len_bytes} bytes at offset {offset_bytes}: the export has {capacity_bytes} bytes")]
    Beyond {
        /// Whether the command writes: the protocol has another code for it then.
        writes: bool,
        /// Offset of the range.
        offset_bytes: u64,
        /// Length of the range.
        len_bytes: u32,
        /// The export's size.
        capacity_bytes: u64,
    },
    /// A command that writes was sent to a read-only export.
    #[error("the export is read-only")]
    ReadOnly,
    /// The client wants zeros only if they are fast; without a hole they take as long as a write.
    #[error("zeros without a hole take as long as a write")]
    NotFast,
}

impl Refusal {
    /// The protocol's code of the refusal.
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Command(_) | Self::Flags { .. } | Self::Length { .. } | Self::Oversize { .. } => {
                ErrorCode::Invalid
            }
            Self::Beyond { writes: true, .. } => ErrorCode::NoSpace,
            Self::Beyond { writes: false, .. } => ErrorCode::Invalid,
            Self::ReadOnly => ErrorCode::NotPermitted,
            Self::NotFast => ErrorCode::NotSupported,
        }
    }
}

/// A wrong magic number: the rest of the stream cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:#010x} where a request begins with {REQUEST_MAGIC:#010x}")]
pub struct NotARequest {
    /// The number found in its place.
    pub found: u32,
}

/// The properties of a connection that a request must fit.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Size of the export.
    pub capacity_bytes: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether the client has asked for structured replies.
    pub structured: bool,
}

/// Parses the request at the beginning of `bytes`; `None` while it is incomplete. Its payload
/// begins [`REQUEST_BYTES`] later.
///
/// # Errors
/// The bytes do not begin with the protocol's magic number.
pub fn parse(bytes: &[u8], terms: &Terms) -> Result<Option<Request>, NotARequest> {
    let Some(header) = bytes.first_chunk::<REQUEST_BYTES>() else {
        // A wrong first byte is reported at once, without waiting for the rest.
        let known = bytes.len().min(4);
        if bytes[..known] != REQUEST_MAGIC.to_be_bytes()[..known] {
            let mut word = [0; 4];
            word[..known].copy_from_slice(&bytes[..known]);
            return Err(NotARequest { found: u32::from_be_bytes(word) });
        }
        return Ok(None);
    };
    let found = u32::from_be_bytes(field(header, 0));
    if found != REQUEST_MAGIC {
        return Err(NotARequest { found });
    }
    let flags = u16::from_be_bytes(field(header, 4));
    let number = u16::from_be_bytes(field(header, 6));
    let offset_bytes = u64::from_be_bytes(field(header, 16));
    let len_bytes = u32::from_be_bytes(field(header, 24));
    Ok(Some(Request {
        cookie: u64::from_be_bytes(field(header, 8)),
        asked: judge(number, flags, offset_bytes, len_bytes, terms),
        fua: flags & FUA != 0,
        offset_bytes,
        len_bytes,
        payload_bytes: if number == command::WRITE { len_bytes } else { 0 },
        is_read: number == command::READ,
    }))
}

fn field<const LEN: usize>(header: &[u8; REQUEST_BYTES], at: usize) -> [u8; LEN] {
    let mut found = [0; LEN];
    found.copy_from_slice(&header[at..at + LEN]);
    found
}

fn judge(
    number: u16,
    flags: u16,
    offset_bytes: u64,
    len_bytes: u32,
    terms: &Terms,
) -> Result<Operation, Refusal> {
    let (operation, extra_flags) = match number {
        command::READ => (Operation::Read, if terms.structured { DF } else { 0 }),
        command::WRITE => (Operation::Write, 0),
        // A disconnect has no reply, so its other fields are not checked.
        command::DISC => return Ok(Operation::Disconnect),
        command::FLUSH => (Operation::Flush, 0),
        command::TRIM => (Operation::Trim, 0),
        command::WRITE_ZEROES => {
            (Operation::WriteZeroes { provisioned: flags & NO_HOLE != 0 }, NO_HOLE | FAST_ZERO)
        }
        unknown => return Err(Refusal::Command(unknown)),
    };
    if flags & !(FUA | extra_flags) != 0 {
        return Err(Refusal::Flags { command: number, flags });
    }
    let empty = offset_bytes == 0 && len_bytes == 0;
    if operation == Operation::Flush {
        let refused = Refusal::Length { command: number, offset_bytes, len_bytes };
        return if empty { Ok(operation) } else { Err(refused) };
    }
    let writes = operation != Operation::Read;
    if writes && terms.read_only {
        return Err(Refusal::ReadOnly);
    }
    if len_bytes == 0 {
        return Err(Refusal::Length { command: number, offset_bytes, len_bytes });
    }
    let carries = matches!(operation, Operation::Read | Operation::Write);
    if carries && len_bytes > PAYLOAD_MAX_BYTES {
        return Err(Refusal::Oversize { len_bytes });
    }
    let end = offset_bytes.checked_add(u64::from(len_bytes));
    let capacity_bytes = terms.capacity_bytes;
    if end.is_none_or(|end| end > capacity_bytes) {
        // A trim frees space: beyond the end it is an invalid range like a read's, not a lack of
        // room.
        let writes = writes && operation != Operation::Trim;
        return Err(Refusal::Beyond { writes, offset_bytes, len_bytes, capacity_bytes });
    }
    if operation == (Operation::WriteZeroes { provisioned: true }) && flags & FAST_ZERO != 0 {
        return Err(Refusal::NotFast);
    }
    Ok(operation)
}

#[cfg(test)]
#[path = "request/tests.rs"]
mod tests;
