//! A request's bytes, pure: what it asks, or which error it earns.
//!
//! Bounds: a request is accepted only if its payload has at most [`PAYLOAD_MAX_BYTES`]; what is
//! refused is refused by its header alone, and its payload (up to 4 GiB by the protocol) needs no
//! room: the connection drops it as it comes. Only a wrong first word ends the connection, since
//! nobody knows where the next request would begin.

use super::wire::command_flag::{DF, FAST_ZERO, FUA, NO_HOLE};
use super::wire::{ErrorCode, PAYLOAD_MAX_BYTES, REQUEST_BYTES, REQUEST_MAGIC, command};

/// What an accepted request does. Ranges lie within the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Send the bytes.
    Read,
    /// Take the payload's bytes.
    Write,
    /// Go: after what is under way has been answered.
    Disconnect,
    /// What was answered is to be on the medium.
    Flush,
    /// The bytes are no longer needed.
    Trim,
    /// The bytes are to be zeros; `provisioned`: by writing them.
    WriteZeroes {
        /// The client wants no hole.
        provisioned: bool,
    },
}

/// A request as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client's name for it, sent back as it is.
    pub cookie: u64,
    /// What to do, or why not.
    pub asked: Result<Operation, Refusal>,
    /// Durable before it is answered.
    pub fua: bool,
    /// Where.
    pub offset_bytes: u64,
    /// How much.
    pub len_bytes: u32,
    /// Bytes that follow the header, also where the request is refused.
    pub payload_bytes: u32,
    /// A refused read's answer is a read's answer.
    pub is_read: bool,
}

/// Why a request is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not a command, or one this server did not offer.
    #[error("unknown command {0}")]
    Command(u16),
    /// A flag that this command does not have.
    #[error("flags {flags:#x} of command {command}")]
    Flags {
        /// The command.
        command: u16,
        /// The flags of the request.
        flags: u16,
    },
    /// A length of 0, or a flush with a range.
    #[error("a length of {len_bytes} bytes at offset {offset_bytes} for command {command}")]
    Length {
        /// The command.
        command: u16,
        /// Where.
        offset_bytes: u64,
        /// How much.
        len_bytes: u32,
    },
    /// More than a request may carry.
    #[error("{len_bytes} bytes in one request; at most {PAYLOAD_MAX_BYTES}")]
    Oversize {
        /// How much.
        len_bytes: u32,
    },
    /// The range ends beyond the export.
    #[error("{len_bytes} bytes at offset {offset_bytes}: the export has {capacity_bytes} bytes")]
    Beyond {
        /// Whether it would have written.
        writes: bool,
        /// Where.
        offset_bytes: u64,
        /// How much.
        len_bytes: u32,
        /// The export's size.
        capacity_bytes: u64,
    },
    /// A write to a read-only export.
    #[error("the export is read-only")]
    ReadOnly,
    /// Fast zeros without a hole: they take as long as a write.
    #[error("zeros without a hole take as long as a write")]
    NotFast,
}

impl Refusal {
    /// The protocol's code for it.
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

/// A first word that no request has: the stream cannot be followed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:#010x} where a request begins with {REQUEST_MAGIC:#010x}")]
pub struct NotARequest {
    /// What was there.
    pub found: u32,
}

/// What a request is held against.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The export's size.
    pub capacity_bytes: u64,
    /// Writes are refused.
    pub read_only: bool,
    /// The client has asked for structured replies.
    pub structured: bool,
}

/// The request at the beginning of `bytes`; `None`: it is not whole yet. Its payload begins
/// [`REQUEST_BYTES`] later.
///
/// # Errors
/// What is there does not begin as a request does.
pub fn parse(bytes: &[u8], terms: &Terms) -> Result<Option<Request>, NotARequest> {
    let Some(header) = bytes.first_chunk::<REQUEST_BYTES>() else {
        // Garbage is told as early as it can be: nobody waits for the rest of it.
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
        // Nobody hears of what is wrong with it.
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
        // A trim frees space: beyond the end it is a mistake like a read there, not a lack of room.
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
