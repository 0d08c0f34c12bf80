//! The payloads of DUMP: a value, the version of the format, a checksum of all before it.

use crate::VERSION_READ_MAX;
use crate::VERSION_WRITTEN;
use crate::crc64::crc64;
use crate::error::RdbError;
use crate::read::read_value;
use crate::value::Value;

/// Bytes of version and checksum.
const FOOT_BYTES: usize = 10;

/// Why a payload is refused.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// It is too short, of a newer version, or its checksum is wrong.
    #[error("its version or its checksum is wrong")]
    Foot,
    /// Its value is damaged or too large.
    #[error(transparent)]
    Value(#[from] RdbError),
}

/// Adds version and checksum to a value.
pub fn seal_payload(payload: &mut Vec<u8>) {
    payload.extend_from_slice(&VERSION_WRITTEN.to_le_bytes());
    let sum = crc64(0, payload);
    payload.extend_from_slice(&sum.to_le_bytes());
}

/// Reads the value of a payload, which may take `max_bytes` of memory.
///
/// # Errors
/// The payload is none.
pub fn open_payload(payload: &[u8], max_bytes: u64) -> Result<Value, PayloadError> {
    let value_bytes = payload.len().checked_sub(FOOT_BYTES).ok_or(PayloadError::Foot)?;
    let (summed, sum) = payload.split_at(value_bytes + 2);
    let (value, version) = summed.split_at(value_bytes);
    let version = u16::from_le_bytes([version[0], version[1]]);
    if version > VERSION_READ_MAX || sum != crc64(0, summed).to_le_bytes() {
        return Err(PayloadError::Foot);
    }
    Ok(read_value(value, max_bytes)?)
}
