//! The latch of a device: set by the first failed flush, never released.

use std::sync::OnceLock;

use crate::device::DeviceError;

#[derive(Debug, Default)]
pub(crate) struct Latch {
    first: OnceLock<String>,
}

impl Latch {
    /// Refuses once a flush has failed.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        match self.first.get() {
            None => Ok(()),
            Some(first) => Err(DeviceError::Latched { first: first.clone() }),
        }
    }

    /// Remembers the first failure and passes `error` on; later ones change nothing.
    pub(crate) fn set(&self, error: DeviceError) -> DeviceError {
        self.first.get_or_init(|| error.to_string());
        error
    }
}
