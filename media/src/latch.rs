//! The latch of a device: set by the first failed flush, never released.

use std::sync::OnceLock;

use crate::device::DeviceError;

#[derive(Debug, Default)]
pub(crate) struct Latch {
    first: OnceLock<String>,
}

impl Latch {
    /// Returns the first failure as an error, if a flush has failed.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        match self.first.get() {
            None => Ok(()),
            Some(first) => Err(DeviceError::Latched { first: first.clone() }),
        }
    }

    /// Remembers the first failure and returns `error`; later failures change nothing.
    pub(crate) fn set(&self, error: DeviceError) -> DeviceError {
        self.first.get_or_init(|| error.to_string());
        error
    }
}
