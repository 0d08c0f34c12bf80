//! The copy of the tree.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::compile::PACKAGES;

/// Copies what git would commit. Returns the whole path of the copy.
pub fn copy(from: &Path, into: &Path) -> Result<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(from)
        .output()
        .context("git")?;
    ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    std::fs::create_dir_all(into.join("target"))?;
    let names = String::from_utf8(listed.stdout)?;
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        let (old, new) = (from.join(name), into.join(name));
        // A file that was removed and not committed yet is listed, too.
        if old.is_file() && !is_woven(name) {
            std::fs::create_dir_all(new.parent().context("a file in no folder")?)?;
            copy_if_other(&old, &new).with_context(|| new.display().to_string())?;
        }
    }
    Ok(into.canonicalize()?)
}

/// Whether weaving writes the file: then it is not copied, and cargo compiles it only if its woven
/// text has changed.
fn is_woven(name: &str) -> bool {
    let room = name.split('/').next().unwrap_or_default();
    let is_room = PACKAGES.iter().any(|package| package.ends_with(&format!("-{room}")));
    name == "Cargo.toml" || is_room && name == format!("{room}/Cargo.toml")
}

fn copy_if_other(old: &Path, new: &Path) -> Result<()> {
    let bytes = std::fs::read(old)?;
    if std::fs::read(new).is_ok_and(|now| now == bytes) {
        return Ok(());
    }
    Ok(std::fs::write(new, bytes)?)
}
