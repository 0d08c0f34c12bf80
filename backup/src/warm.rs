//! A warm copy: an image that follows the restore points of another one.
//!
//! Between two points the copy is an image, which a server can open. While a point is applied, its
//! file has another name, so that nobody takes it for one; a copy that was killed then is made
//! anew.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use perdura_image::Key;
use perdura_image::copying::Copy;
use perdura_media::FileDevice;
use perdura_media::file::{Direct, Engine, OpenMode, parent};

use crate::error::BackupError;
use crate::fetch::fetch;
use crate::object::Seal;
use crate::point::{self, Piece, Point};
use crate::points::PointName;
use crate::restore::{ToImage, restore, unfinished};
use crate::vault::Vault;

/// A copy of an image, as of a restore point.
pub struct WarmCopy {
    path: PathBuf,
    /// Open and locked as long as this lives.
    device: FileDevice,
    /// The user's key, if the image is encrypted.
    key: Option<Key>,
    point: Point,
}

impl WarmCopy {
    /// Makes the copy of a point where no image is, as [`restore`] does.
    ///
    /// # Errors
    /// The errors of [`restore`].
    pub fn new(
        vault: &dyn Vault,
        seal: &Seal,
        name: &PointName,
        path: &Path,
        key: Option<&Key>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, BackupError> {
        restore(vault, seal, name, path, key, progress)?;
        let device = FileDevice::open(path, OpenMode::Existing, Engine::Pwrite, Direct::Auto)
            .map_err(perdura_image::OpenError::from)?;
        if !device.try_lock().map_err(perdura_image::OpenError::from)? {
            return Err(BackupError::Refused(format!("{} is in use", path.display())));
        }
        let point = point::get(vault, seal, name.as_str())?;
        Ok(Self { path: path.to_owned(), device, key: key.cloned(), point })
    }

    /// Time and number of the commit of which the copy is.
    pub fn newest(&self) -> (u64, u64) {
        (self.point.commit.unix_ms, self.point.commit.number)
    }

    /// Whether the copy is an image now; false after a call of [`WarmCopy::apply`] that failed in
    /// the middle.
    pub fn is_whole(&self) -> bool {
        self.path.exists()
    }

    /// Applies a newer point of the same image: the pieces that the copy does not have. After an
    /// error the copy is no image, until a call succeeds.
    ///
    /// # Errors
    /// The vault, the point or the file fails.
    pub fn apply(
        &mut self,
        vault: &dyn Vault,
        seal: &Seal,
        name: &PointName,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), BackupError> {
        let point = point::get(vault, seal, name.as_str())?;
        if (point.image_id, point.geometry) != (self.point.image_id, self.point.geometry) {
            let why = "it is a point of another image than the copy's";
            return Err(BackupError::object(name.as_str(), why));
        }
        let key = point.image_key(self.key.as_ref())?;
        let aside = unfinished(&self.path);
        self.rename(&self.path, &aside)?;
        // After a failure nobody knows what the copy has, and all is fetched.
        let before = std::mem::take(&mut self.point.shipped);
        let has: HashMap<u32, &[Piece]> =
            before.iter().map(|shipped| (shipped.part.segment, &shipped.pieces[..])).collect();
        // What both points have at the beginning of a segment, the copy has.
        let common: HashMap<u32, usize> = point
            .shipped
            .iter()
            .map(|shipped| {
                let before = has.get(&shipped.part.segment).copied().unwrap_or_default();
                let both = shipped.pieces.iter().zip(before);
                (shipped.part.segment, both.take_while(|(one, other)| one == other).count())
            })
            .collect();
        let is_wanted = |segment: u32, number: usize| number >= common[&segment];
        let mut copy = Copy::go_on(&self.device, &point.head(), key)?;
        fetch(vault, seal, &point, is_wanted, &mut ToImage { copy: &mut copy, progress })?;
        copy.finish(&point.commit)?;
        self.point = point;
        self.rename(&aside, &self.path)
    }

    /// Renames the copy durably; it may have that name already, after a failure.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), BackupError> {
        let failed = |source| BackupError::File { path: from.to_owned(), source };
        match fs::rename(from, to) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && to.exists() => {}
            renamed => renamed.map_err(failed)?,
        }
        let folder = parent(&self.path);
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
    }
}
