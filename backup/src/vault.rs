//! Where backups lie: a folder of named objects, each put whole or not at all.

mod directory;
mod s3;
mod ssh;

use std::path::{Path, PathBuf};

use crate::urls::without_password;

pub use directory::Directory;
pub use s3::S3;
pub use ssh::{Ssh, receive};

use crate::error::BackupError;

/// Opens the vault at a URL: `file:///PATH` or a path, `s3://BUCKET/PREFIX`, `ssh://HOST/PATH`.
///
/// # Errors
/// It is no such URL, or lacks what it needs.
pub fn open(url: &str) -> Result<Box<dyn Vault>, BackupError> {
    // `s3:/BUCKET` would be a folder named `s3:`, on the disk whose loss is feared.
    let is_mistyped = |url: &str| url.split_once(":/").is_some_and(|(word, _)| !word.contains('/'));
    match url.split_once("://") {
        None if !is_mistyped(url) => Ok(Box::new(Directory::new(PathBuf::from(url)))),
        Some(("file", path)) if path.starts_with('/') => {
            Ok(Box::new(Directory::new(PathBuf::from(path))))
        }
        Some(("s3", place)) => Ok(Box::new(S3::from_environment(place)?)),
        Some(("ssh", place)) => Ok(Box::new(Ssh::new(place)?)),
        _ => Err(BackupError::Refused(format!(
            "{}: expected a path, file:///PATH, s3://BUCKET/PREFIX or ssh://USER@HOST/PATH",
            without_password(url)
        ))),
    }
}

/// An object in a vault.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its whole name.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
}

/// What lies in a folder of a vault.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The objects in it, by rising names.
    pub objects: Vec<Listed>,
    /// The names, without the folder's, of the folders in it.
    pub folders: Vec<String>,
}

/// A place for objects. Names are parts of a-z, A-Z, 0-9, `-` and `.`, with `/` between them.
pub trait Vault: Send + Sync {
    /// Puts an object: whole and durable on return; after an error or a loss, whole or not there.
    ///
    /// # Errors
    /// The vault fails; the object may be there all the same.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), VaultError>;

    /// Puts an object, if there is none by this name. Returns whether it did. Whoever asks at the
    /// same time, only one does.
    ///
    /// # Errors
    /// The vault fails; the object may be there all the same.
    fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool, VaultError>;

    /// Gets an object.
    ///
    /// # Errors
    /// The vault fails or has no such object.
    fn get(&self, name: &str) -> Result<Vec<u8>, VaultError>;

    /// Lists a folder; `""` is the vault itself. A folder that is not there is empty.
    ///
    /// # Errors
    /// The vault fails.
    fn list(&self, folder: &str) -> Result<Listing, VaultError>;

    /// Deletes an object, which may be gone already.
    ///
    /// # Errors
    /// The vault fails.
    fn delete(&self, name: &str) -> Result<(), VaultError>;

    /// Removes what killed programs have left of objects in a folder that they were putting. Nobody
    /// else may put any there.
    ///
    /// # Errors
    /// The vault fails.
    fn tidy(&self, _folder: &str) -> Result<(), VaultError> {
        Ok(())
    }

    /// The directory of this machine in which it lies, if it does.
    fn directory(&self) -> Option<&Path> {
        None
    }

    /// The place, for people.
    fn describe(&self) -> String;
}

/// Why a vault could not do as asked.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot {what} {name:?} in {vault}: {why}")]
pub struct VaultError {
    /// The operation: `put`, `get`, `list`, `delete` or `tidy`.
    pub what: &'static str,
    /// Name of the object or folder.
    pub name: String,
    /// Where the vault is.
    pub vault: String,
    /// The reason, as the vault gives it.
    pub why: String,
    /// Whether the vault says that there is no such object.
    pub is_missing: bool,
}

/// Whether a name is one that vaults take: it leads nowhere but into the vault.
pub(crate) fn is_name(name: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    };
    name.len() <= 200 && name.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_about_a_url_shows_the_password_in_it() {
        for url in [
            "ssh://u:geheim@h/p",
            "ssh://u:geheim@h:22/p",
            "ssh://u:ge/geheim@h/p",
            "ssh://u:geheim@h",
            "ssh:/u:geheim@h/p",
            "sftp://u:geheim@h/p",
            "https://:geheim@h/p",
            "s3://key:geheim@bucket/p",
            "file://u:geheim@h/p",
        ] {
            let error = open(url).err().expect(url).to_string();
            assert!(error.contains(":…@") && !error.contains("geheim"), "{url}: {error}");
        }
        let error = open("ssh://u:geheim@h:22/p").err().unwrap().to_string();
        assert!(error.contains("no password"), "{error}");
        for url in ["ssh://u@h:22/p", "ssh://h/a:b@c"] {
            assert_eq!(open(url).unwrap().describe(), url);
        }
    }
}
