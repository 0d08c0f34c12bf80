//! The restore points of a vault: listed, and chosen by time.

use crate::error::BackupError;
use crate::names;
use crate::object::Seal;
use crate::point;
use crate::time;
use crate::vault::Vault;

/// A restore point, by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PointName {
    /// All writes that were acknowledged before are in it, milliseconds since 1970.
    pub unix_ms: u64,
    /// Number of its commit.
    pub commit: u64,
    /// Identity of its image.
    pub image_id: u64,
    name: String,
}

/// The sizes of what a restore point holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointSizes {
    /// Bytes of the region, which is the memory.
    pub region_bytes: u64,
    /// Bytes of frames that the point names in packs.
    pub bytes: u64,
    /// Pieces that these bytes lie in.
    pub pieces: u64,
}

impl PointName {
    /// The point that an object's name is of.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let (unix_ms, commit) = names::of_point(name)?;
        let image_id = names::image_of(name.split('/').next()?)?;
        Some(Self { unix_ms, commit, image_id, name: name.to_owned() })
    }

    /// The name of the point's object.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The time of the point for people, by RFC 3339.
    pub fn time(&self) -> String {
        time::rfc3339(self.unix_ms)
    }

    /// Reads the point and says what it restores.
    ///
    /// # Errors
    /// The vault fails, or the point is damaged.
    pub fn sizes(&self, vault: &dyn Vault, seal: &Seal) -> Result<PointSizes, BackupError> {
        let point = point::get(vault, seal, &self.name)?;
        let pieces = point.pieces().count() as u64;
        Ok(PointSizes { region_bytes: point.commit.region_bytes, bytes: point.bytes(), pieces })
    }
}

/// The points of an image by rising times, or of all images of a vault.
///
/// # Errors
/// The vault fails.
pub fn list(vault: &dyn Vault, image_id: Option<u64>) -> Result<Vec<PointName>, BackupError> {
    let images = match image_id {
        Some(image_id) => vec![image_id],
        None => {
            let folders = vault.list("")?.folders;
            folders.iter().filter_map(|folder| names::image_of(folder)).collect()
        }
    };
    let mut points = Vec::new();
    for image_id in images {
        let listed = vault.list(&names::points_folder(image_id))?.objects;
        points.extend(listed.iter().filter_map(|listed| PointName::of(&listed.name)));
    }
    points.sort_unstable();
    Ok(points)
}

/// The newest point at a time or before it; of several images the one must be named.
///
/// # Errors
/// The vault fails, there is no such point, or there are several images.
pub fn choose(
    vault: &dyn Vault,
    image_id: Option<u64>,
    at_unix_ms: Option<u64>,
) -> Result<PointName, BackupError> {
    let points = list(vault, image_id)?;
    let mut images: Vec<u64> = points.iter().map(|point| point.image_id).collect();
    images.sort_unstable();
    images.dedup();
    if images.len() > 1 {
        let newest = |image: &u64| {
            let of_it = points.iter().rfind(|point| point.image_id == *image);
            format!("{image:016x}, up to {}", of_it.map(PointName::time).unwrap_or_default())
        };
        let images: Vec<String> = images.iter().map(newest).collect();
        return Err(BackupError::Refused(format!(
            "there are backups of several images: name one with --image ({})",
            images.join("; ")
        )));
    }
    let (vault, first) = (vault.describe(), points.first().map(PointName::time));
    let at_most = at_unix_ms.unwrap_or(u64::MAX);
    let chosen = points.into_iter().rfind(|point| point.unix_ms <= at_most);
    chosen.ok_or_else(|| {
        BackupError::Refused(match (first, at_unix_ms) {
            (Some(first), Some(at)) => {
                let at = time::rfc3339(at);
                format!("{vault} has no restore point at {at} or before; the first is {first}")
            }
            _ => format!("{vault} has no restore point"),
        })
    })
}
