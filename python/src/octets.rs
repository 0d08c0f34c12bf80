//! Bytes that Python hands over, which stay as they are while other threads run.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A key or a value: a `bytes`, which cannot change, or a copy of another bytes-like object.
pub enum Octets<'py> {
    Bytes(Bound<'py, PyBytes>),
    Copy(Vec<u8>),
}

impl<'py> Octets<'py> {
    /// The bytes of a key.
    pub fn key(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::of("key", object)
    }

    /// The bytes of an object, which is a `what` in the words of an error.
    pub fn of(what: &str, object: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.clone()));
        }
        // Only the interpreter knows how arrays of all shapes are laid out.
        let buffer = PyBuffer::<u8>::get(object);
        match buffer.and_then(|buffer| buffer.to_vec(object.py())) {
            Ok(copy) => Ok(Self::Copy(copy)),
            Err(_) => Err(PyTypeError::new_err(format!(
                "a {what} must be bytes, not {}: encode it, or use perdura.Encoded",
                object.get_type().name()?
            ))),
        }
    }
}

impl std::ops::Deref for Octets<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(),
            Self::Copy(copy) => copy,
        }
    }
}
