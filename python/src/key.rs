//! The key of an encrypted image, as a program gives it. No error shows what was given.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use perdura::Key;
use pyo3::prelude::*;

use crate::errors::setting;
use crate::octets::Octets;

const KEY_BYTES: usize = 32;
/// Most bytes that are read of a file, which is more than any key has.
const READ_BYTES_MAX: u64 = 4096;

/// The key of these bytes.
pub fn of_bytes(value: &Bound<'_, PyAny>) -> PyResult<Key> {
    let octets = Octets::of("key", value)?;
    match <[u8; KEY_BYTES]>::try_from(&octets[..]) {
        Ok(bytes) => Ok(Key::new(bytes)),
        Err(_) => Err(setting(format_args!(
            "key: expected {KEY_BYTES} bytes, got {}; key_file= takes hexadecimal digits, too",
            octets.len()
        ))),
    }
}

/// The key in a file, as `perdura key generate` writes it: 32 bytes, or 64 hexadecimal digits.
pub fn of_file(value: &Bound<'_, PyAny>) -> PyResult<Key> {
    let path: PathBuf = value.extract()?;
    let refused = |why: String| setting(format_args!("key_file = {}: {why}", path.display()));
    let mut bytes = Vec::new();
    File::open(&path)
        .and_then(|file| file.take(READ_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| refused(error.to_string()))?;
    Key::parse(&bytes)
        .ok_or_else(|| refused("expected 32 bytes, or 64 hexadecimal digits".to_owned()))
}
