//! A file that one recorder at a time writes. Two would destroy each other's trace unnoticed.
//!
//! The file is locked (`flock`) from before its first change until it is closed, so a recorder that
//! is killed leaves no lock behind. A pipe or a device holds nothing that could be destroyed, and
//! is not locked.

use std::fs::File;
use std::path::Path;

use anyhow::{Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// A file that this process alone writes, and that is empty.
#[derive(Debug)]
pub struct Claimed {
    /// The file, locked.
    pub file: File,
    /// Whether this call made the file.
    pub is_new: bool,
}

/// Makes the file, or empties it once it is locked.
pub fn claim(path: &Path) -> Result<Claimed> {
    let is_new = !path.exists();
    let file = File::options().write(true).create(true).truncate(false).open(path)?;
    if file.metadata()?.is_file() {
        lock(&file)?;
        file.set_len(0)?;
    }
    Ok(Claimed { file, is_new })
}

/// Refuses a file that another recorder has, for a recording that claims the file later. Nothing in
/// the file changes.
pub fn refuse_claimed(path: &Path) -> Result<()> {
    if path.is_file() { lock(&File::options().write(true).open(path)?) } else { Ok(()) }
}

fn lock(file: &File) -> Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            bail!(
                "another `perdura plan record` is writing this file; give another, or end that one \
                 first"
            )
        }
        // Some file systems have no locks; a recording there is better than none.
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_is_one_claimants_until_that_is_done_and_nothing_in_it_changes_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let mut first = claim(&path).unwrap();
        assert!(first.is_new);
        first.file.write_all(b"kept").unwrap();
        for refused in [claim(&path).map(drop), refuse_claimed(&path)] {
            let said = refused.unwrap_err().to_string();
            assert!(said.contains("another `perdura plan record` is writing this file"), "{said}");
        }
        drop(first);
        refuse_claimed(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
        assert!(!claim(&path).unwrap().is_new);
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn what_is_no_regular_file_is_nobodys() {
        let null = Path::new("/dev/null");
        let (_first, second) = (claim(null).unwrap(), claim(null).unwrap());
        assert!(!second.is_new);
        refuse_claimed(null).unwrap();
    }
}
