//! The journal of writing files: which new files have taken the places of served ones. A run that
//! is killed in the middle leaves it to the next one, which knows them for its own.
//!
//! It is a file beside the region and not in it, for after a warning the region is closed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::catalog::Identity;
use crate::error::MappedError;

/// The journal's name in the directory of the region.
const NAME: &str = "written";

/// A new file that was to take the place of a served one.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    served: Identity,
    new: Identity,
    /// The bytes of the path that it had before.
    temporary: Vec<u8>,
}

/// The journal.
pub struct Journal {
    path: PathBuf,
    file: File,
    /// What earlier runs have noted.
    before: Vec<Line>,
}

impl Journal {
    /// Opens the journal in the directory of the region, and removes temporary files that an
    /// earlier run has left.
    pub fn open(dir: &Path) -> Result<Self, MappedError> {
        let path = dir.join(NAME);
        let failed = |source| MappedError::File { what: "open", path: path.clone(), source };
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read.map_err(failed)?,
        };
        // The last line may be half a one, of a file that has no name then.
        let lines = text.split(|byte| *byte == b'\n');
        let before: Vec<Line> =
            lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        for line in &before {
            let temporary = Path::new(OsStr::from_bytes(&line.temporary));
            let found = fs::symlink_metadata(temporary);
            if found.is_ok_and(|found| Identity::of(&found) == line.new) {
                fs::remove_file(temporary).map_err(failed)?;
            }
        }
        let file = File::options().append(true).create(true).open(&path).map_err(failed)?;
        // Its name, too, is to be there after a loss of power.
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)?;
        Ok(Self { file, before, path })
    }

    /// Notes, durably, that a new file takes the place of a served one next.
    pub fn note(&self, served: &Identity, new: &Identity, temporary: &Path) -> io::Result<()> {
        let temporary = temporary.as_os_str().as_bytes().to_vec();
        let line = Line { served: *served, new: *new, temporary };
        // A line of its own, whatever half a line is before it.
        let mut text = vec![b'\n'];
        text.extend(serde_json::to_vec(&line)?);
        text.push(b'\n');
        let noted = (&self.file).write_all(&text).and_then(|()| self.file.sync_data());
        let at = |error: io::Error| format!("{}: {error}", self.path.display());
        noted.map_err(|error| io::Error::new(error.kind(), at(error)))
    }

    /// Whether an earlier run made the file `found` to take the place of a served one.
    pub fn has_written(&self, served: &Identity, found: &Identity) -> bool {
        self.before.iter().any(|line| line.served == *served && line.new == *found)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_known_to_the_next_run_and_half_a_line_is_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let identity = |inode| Identity { device: 1, inode, made_ns: 2 };
        let temporary = dir.path().join(".perdura-abc");
        fs::write(&temporary, "left").unwrap();
        let left = Identity::of(&fs::metadata(&temporary).unwrap());
        let journal = Journal::open(dir.path()).unwrap();
        journal.note(&identity(1), &identity(2), Path::new("/gone")).unwrap();
        let mut file = File::options().append(true).open(dir.path().join(NAME)).unwrap();
        file.write_all(b"{\"served\": {").unwrap();
        journal.note(&identity(3), &left, &temporary).unwrap();
        assert!(!journal.has_written(&identity(1), &identity(2)), "of this run");
        let journal = Journal::open(dir.path()).unwrap();
        assert!(journal.has_written(&identity(1), &identity(2)));
        assert!(journal.has_written(&identity(3), &left) && !temporary.exists());
        assert!(!journal.has_written(&identity(1), &left));
    }

    #[test]
    fn each_run_knows_all_before_it_and_removes_no_file_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let identity = |inode| Identity { device: 1, inode, made_ns: 2 };
        let others = dir.path().join(".perdura-abc");
        fs::write(&others, "of others, under a name that was let go").unwrap();
        for run in 1..4 {
            let journal = Journal::open(dir.path()).unwrap();
            assert!((1..run).all(|one| journal.has_written(&identity(one), &identity(one + 10))));
            journal.note(&identity(run), &identity(run + 10), &others).unwrap();
        }
        assert!(Journal::open(dir.path()).is_ok() && others.exists());
    }
}
