//! A device that is a directory: a file of values in it.

use std::path::Path;
use std::sync::Arc;

use perdura_media::{Direct, Engine, FileDevice, OpenMode};

use super::device::Named;
use super::error::DevicesError;

/// Name of the file with values in a device's directory.
pub const VALUES_NAME: &str = "values.perdura";

impl Named {
    /// The device in a directory, which must exist. Its file is made if it is missing, and locked:
    /// another server cannot open it.
    ///
    /// # Errors
    /// The file cannot be opened or made, or another process has it.
    pub fn in_directory(dir: &Path, limit_bytes: u64) -> Result<Self, DevicesError> {
        let (path, place) = (dir.join(VALUES_NAME), dir.display().to_string());
        let refused = |source| DevicesError::Device { place: place.clone(), source };
        let mode = match path.exists() {
            true => OpenMode::Existing,
            false => OpenMode::Create { capacity_bytes: 0 },
        };
        let device = FileDevice::open(&path, mode, Engine::Auto, Direct::Auto).map_err(refused)?;
        if !device.try_lock().map_err(refused)? {
            return Err(DevicesError::Locked { place });
        }
        Ok(Self { place, device: Arc::new(device), limit_bytes })
    }
}
