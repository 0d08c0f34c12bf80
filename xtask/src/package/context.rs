//! The context of a container image: the recipe beside a program that is already built.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::place;
use super::stage::{PROGRAM, Stage, copy};

/// Writes the folder, and returns its path.
pub fn write(stage: &Stage) -> Result<PathBuf> {
    let folder = place()?.join("container");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    copy(&stage.program(), &folder.join(PROGRAM))?;
    copy(Path::new("packaging/Containerfile"), &folder.join("Containerfile"))?;
    Ok(folder)
}
