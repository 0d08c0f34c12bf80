//! Finds the packages that differ from `main`, so that their tests can be run alone.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The names of the packages with files that differ from `main`, or from the last commit if there
/// is no `main`.
pub fn packages() -> Result<Vec<String>> {
    let mut files = git(&["diff", "--name-only", &base()?])?;
    files += &git(&["ls-files", "--others", "--exclude-standard"])?;
    let root = git(&["rev-parse", "--show-toplevel"])?;
    let metadata = output("cargo", &["metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata: no packages")?;
    let folders = packages.iter().filter_map(|package| {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        let folder = manifest.parent()?.strip_prefix(root.trim()).ok()?;
        Some((folder.to_str()?.to_owned(), package["name"].as_str()?.to_owned()))
    });
    Ok(owners(files.lines(), &folders.collect::<Vec<_>>()))
}

/// The commit from which this tree differs from `main`, or the last one if there is no `main`.
pub fn base() -> Result<String> {
    let found = git(&["merge-base", "HEAD", "main"]).or_else(|_| git(&["rev-parse", "HEAD"]))?;
    Ok(found.trim().to_owned())
}

/// The packages that own the files. A file belongs to the package whose folder is the innermost.
fn owners<'f>(files: impl Iterator<Item = &'f str>, folders: &[(String, String)]) -> Vec<String> {
    let owner = |file: &str| {
        let around = folders.iter().filter(|(folder, _)| Path::new(file).starts_with(folder));
        around.max_by_key(|(folder, _)| folder.len()).map(|(_, name)| name.clone())
    };
    files.filter_map(owner).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The output of git.
pub fn git(words: &[&str]) -> Result<String> {
    output("git", words)
}

fn output(program: &str, words: &[&str]) -> Result<String> {
    let done = Command::new(program).args(words).output().context(program.to_owned())?;
    let error = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{program} {}: {error}", words.join(" "));
    Ok(String::from_utf8(done.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_the_innermost_packages() {
        let folders = [("lab", "perdura-lab"), ("lab/block", "perdura-block"), ("cli", "perdura")];
        let folders = folders.map(|(folder, name)| (folder.to_owned(), name.to_owned()));
        let of = |files: &[&str]| owners(files.iter().copied(), &folders);
        assert_eq!(
            of(&["lab/block/src/lib.rs", "lab/src/lib.rs"]),
            ["perdura-block", "perdura-lab"]
        );
        assert_eq!(of(&["README.md", "labour/x.rs"]), [""; 0]);
    }
}
