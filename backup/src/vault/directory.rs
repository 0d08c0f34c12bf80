//! A vault in a directory of this machine.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::{Listed, Listing, Vault, VaultError, is_name};

/// Begin of the names of files that are being written.
const UNFINISHED: &str = ".unfinished-";

/// A directory whose files are objects. Only its owner may read them.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
}

impl Directory {
    /// The vault in a directory, which is made by the first put.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    fn failed(&self, what: &'static str, name: &str, error: &std::io::Error) -> VaultError {
        VaultError {
            what,
            name: name.to_owned(),
            vault: self.describe(),
            why: error.to_string(),
            is_missing: error.kind() == ErrorKind::NotFound,
        }
    }

    /// Writes an object aside, syncs it, and gives it its name.
    fn put_as(
        &self,
        name: &str,
        bytes: &[u8],
        rename: impl Fn(&Path, &Path) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let path = self.path(name)?;
        let folder = path.parent().unwrap_or(&self.root);
        make_folder(folder)?;
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        // A name that nobody else has, on another machine either: two must not write to one file.
        let random = rand::random::<u64>();
        let beside = folder.join(format!("{UNFINISHED}{random:016x}-{file_name}"));
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        let named = written.and_then(|()| rename(&beside, &path));
        // Names are not used again, so on a full disk each try would leave another part.
        named.inspect_err(|_| drop(fs::remove_file(&beside)))?;
        File::open(folder)?.sync_all()
    }

    fn path(&self, name: &str) -> std::io::Result<PathBuf> {
        match is_name(name) {
            true => Ok(self.root.join(name)),
            false => Err(std::io::Error::new(ErrorKind::InvalidInput, "no name of an object")),
        }
    }
}

impl Vault for Directory {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), VaultError> {
        let put = self.put_as(name, bytes, |beside, path| fs::rename(beside, path));
        put.map_err(|error| self.failed("put", name, &error))
    }

    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool, VaultError> {
        match self.put_as(name, bytes, rename_new) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(self.failed("put", name, &error)),
        }
    }

    fn get(&self, name: &str) -> Result<Vec<u8>, VaultError> {
        let found = self.path(name).and_then(fs::read);
        found.map_err(|error| self.failed("get", name, &error))
    }

    fn list(&self, folder: &str) -> Result<Listing, VaultError> {
        let list = || -> std::io::Result<Listing> {
            let path = match folder {
                "" => self.root.clone(),
                _ => self.path(folder)?,
            };
            let mut listing = Listing::default();
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                if !is_name(&name) {
                    continue;
                }
                if entry.file_type()?.is_dir() {
                    listing.folders.push(name);
                } else {
                    let bytes = match entry.metadata() {
                        Ok(metadata) => metadata.len(),
                        // Deleted meanwhile.
                        Err(_) => continue,
                    };
                    let name = match folder {
                        "" => name,
                        _ => format!("{folder}/{name}"),
                    };
                    listing.objects.push(Listed { name, bytes });
                }
            }
            listing.objects.sort_unstable();
            listing.folders.sort_unstable();
            Ok(listing)
        };
        match list() {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Listing::default()),
            listed => listed.map_err(|error| self.failed("list", folder, &error)),
        }
    }

    fn delete(&self, name: &str) -> Result<(), VaultError> {
        match self.path(name).and_then(fs::remove_file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(self.failed("delete", name, &error))
            }
            _ => Ok(()),
        }
    }

    fn tidy(&self, folder: &str) -> Result<(), VaultError> {
        let remove_parts = || -> std::io::Result<()> {
            for entry in fs::read_dir(self.path(folder)?)? {
                let entry = entry?;
                if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                    fs::remove_file(entry.path())?;
                }
            }
            Ok(())
        };
        match remove_parts() {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(self.failed("tidy", folder, &error))
            }
            _ => Ok(()),
        }
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.root)
    }

    fn describe(&self) -> String {
        self.root.display().to_string()
    }
}

/// Gives a file its name, if no file has it.
fn rename_new(beside: &Path, path: &Path) -> std::io::Result<()> {
    let renamed = match renameat_with(CWD, beside, CWD, path, RenameFlags::NOREPLACE) {
        // File systems of other machines often have only links.
        Err(Errno::INVAL | Errno::NOSYS) => fs::hard_link(beside, path),
        renamed => renamed.map_err(Into::into),
    };
    match fs::remove_file(beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => renamed,
    }
}

/// Makes a folder and those that it lies in, each with a durable name.
fn make_folder(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    make_folder(parent)?;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_as_new_replaces_nothing() {
        let folder = tempfile::TempDir::new().unwrap();
        let vault = Directory::new(folder.path().join("vault"));
        assert!(vault.put_new("a/1", b"first").unwrap());
        assert!(!vault.put_new("a/1", b"second").unwrap());
        assert_eq!(vault.get("a/1").unwrap(), b"first");
        assert_eq!(fs::read_dir(folder.path().join("vault/a")).unwrap().count(), 1);
        vault.put("a/1", b"third").unwrap();
        assert_eq!(vault.get("a/1").unwrap(), b"third");
    }
}
