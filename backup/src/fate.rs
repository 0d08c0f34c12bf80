//! A vault that is lost together with its image is no backup.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::vault::Vault;

/// Where a vault lies that is lost together with the image at `image`, and what to do; `None` if
/// nothing shows that it would be.
pub fn shared_fate(vault: &dyn Vault, image: &Path) -> Option<String> {
    let (vault, image) = (found(vault.directory()?)?, image.canonicalize().ok()?);
    let dir = image.parent()?;
    let is_inside = vault.starts_with(dir);
    let device = |path: &Path| path.metadata().map(|metadata| metadata.dev()).ok();
    let where_it_lies = match (is_inside, device(&vault)? == device(&image)?) {
        (true, _) => "inside the directory of",
        (false, true) => "on the same device as",
        (false, false) => return None,
    };
    Some(format!(
        "the vault {} lies {where_it_lies} the image {}: what takes the one takes the other. Ship \
         to another drive, another machine (ssh://USER@HOST/PATH) or a bucket (s3://BUCKET/PREFIX)",
        vault.display(),
        image.display()
    ))
}

/// The longest beginning of a path that exists, with its links followed.
fn found(path: &Path) -> Option<PathBuf> {
    let here = |path: &Path| match path.as_os_str().is_empty() {
        true => Path::new(".").canonicalize().ok(),
        false => path.canonicalize().ok(),
    };
    path.ancestors().find_map(here)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault;

    #[test]
    fn a_vault_beside_or_inside_is_told_of_with_both_paths_and_one_elsewhere_is_not() {
        let folder = tempfile::TempDir::new().unwrap();
        let place = folder.path().canonicalize().unwrap();
        let (dir, image) = (place.join("data"), place.join("data/image.perdura"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(&image, b"").unwrap();
        let told = |url: &str| shared_fate(&*vault::open(url).unwrap(), &image);
        let text = |path: &Path| told(path.to_str().unwrap()).unwrap();
        let link = place.join("link");
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        // Whether the vault is there already makes no difference.
        for inside in [dir.clone(), dir.join("not/yet"), link] {
            let text = text(&inside);
            assert!(text.contains(" inside the directory of the image "), "{text}");
        }
        let beside = place.join("data-backup");
        for _ in 0..2 {
            let text = text(&beside);
            assert!(text.contains(" on the same device as the image "), "{text}");
            assert!(text.contains(&*place.to_string_lossy()), "{text}");
            assert!(text.contains(&*image.to_string_lossy()) && text.contains("ssh://"), "{text}");
            let _made = std::fs::create_dir(&beside);
        }
        assert!(told(&format!("file://{}", beside.display())).is_some());
        assert_eq!(told("ssh://host/srv/backup"), None);
        // A file system that is always another one.
        assert_eq!(told("/proc"), None);
    }
}
