//! Who may put restore points of an image in a vault: one program at a time.
//!
//! ```text
//! image-IMAGE/writers/GENERATION    who has it; text, for people too
//! ```
//! A program claims the image with a record under the next number, put only if there is none, and
//! deletes the older records before it ships anything. It may go on as long as its own record is
//! there, and deletes it when it ends. So the one that was before notices at its next point.
//!
//! A record whose writer has ended without deleting it is replaced only by the same directory's
//! next program, or by one that was told to. [`Owner`] knows its directory by a file, whose lock
//! says whether the program still runs.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::error::BackupError;
use crate::names;
use crate::time::rfc3339;
use crate::vault::Vault;

const FIRST_LINE: &str = "perdura writer 1";
/// Begin of the names of files that show which claims are a directory's.
const FILE_PREFIX: &str = "backup-writer-";
/// Claims that are tried while others come first.
const TRIES_MAX: u32 = 10;

/// A program that may become a writer.
#[derive(Debug)]
pub struct Owner {
    dir: PathBuf,
    is_taking_over: bool,
    identity: Option<Identity>,
}

/// The name of an owner in its records, and the file that is locked while it runs.
#[derive(Debug)]
struct Identity {
    id: u64,
    /// `None`: the directory takes no files.
    file: Option<(PathBuf, File)>,
}

impl Owner {
    /// A program that ships the image in a directory. `is_taking_over`: it need not ask whose the
    /// last claim was.
    pub fn new(dir: &Path, is_taking_over: bool) -> Self {
        Self { dir: dir.to_owned(), is_taking_over, identity: None }
    }

    /// Whether a record is this owner's, or that of an earlier program of the same directory.
    fn is_mine(&mut self, id: u64) -> bool {
        if let Some(identity) = &self.identity {
            return identity.id == id;
        }
        let path = self.path(id);
        let Ok(file) = OpenOptions::new().write(true).open(&path) else { return false };
        let is_free = file.try_lock().is_ok();
        if is_free {
            self.identity = Some(Identity { id, file: Some((path, file)) });
        }
        is_free
    }

    fn id(&mut self) -> u64 {
        if let Some(identity) = &self.identity {
            return identity.id;
        }
        let id = rand::random();
        let path = self.path(id);
        let file = match self.make_file(&path) {
            Ok(file) => Some((path, file)),
            Err(error) => {
                tracing::warn!(
                    path = path.display().to_string(),
                    %error,
                    "no file shows whose this backup is: if it is killed, the next one must be \
                     told to take over"
                );
                None
            }
        };
        self.identity = Some(Identity { id, file });
        id
    }

    fn path(&self, id: u64) -> PathBuf {
        self.dir.join(format!("{FILE_PREFIX}{id:016x}"))
    }

    /// Makes a locked file with a durable name, which belongs to the directory's owner.
    fn make_file(&self, path: &Path) -> std::io::Result<File> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.try_lock()?;
        let dir = File::open(&self.dir)?;
        let (of_file, of_dir) = (file.metadata()?, dir.metadata()?);
        if (of_file.uid(), of_file.gid()) != (of_dir.uid(), of_dir.gid()) {
            fchown(&file, Some(of_dir.uid()), Some(of_dir.gid()))?;
        }
        dir.sync_all()?;
        Ok(file)
    }

    /// Forgets a claim that was given up.
    fn forget(&mut self) {
        if let Some(Identity { file: Some((path, _)), .. }) = self.identity.take()
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::warn!(path = path.display().to_string(), %error, "a file was not removed");
        }
    }
}

/// The claim of a program, to put restore points of one image in one vault.
pub struct Writer<'v> {
    vault: &'v dyn Vault,
    image_id: u64,
    /// Name and text of its record.
    name: String,
    record: String,
}

impl<'v> Writer<'v> {
    /// Claims an image in a vault.
    ///
    /// # Errors
    /// Another program has claimed the image, or the vault fails.
    pub fn claim(
        vault: &'v dyn Vault,
        image_id: u64,
        owner: &mut Owner,
        now_unix_ms: u64,
    ) -> Result<Self, BackupError> {
        let folder = names::writers_folder(image_id);
        for _ in 0..TRIES_MAX {
            let listed = vault.list(&folder)?.objects;
            let before: Vec<(u64, &str)> = listed
                .iter()
                .filter_map(|one| Some((names::of_writer(&one.name)?, one.name.as_str())))
                .collect();
            let last = before.last().copied();
            if let Some((_, name)) = last {
                match vault.get(name) {
                    Ok(record) => may_replace(vault, image_id, &record, owner)?,
                    // It was given up since.
                    Err(error) if error.is_missing => continue,
                    Err(error) => return Err(error.into()),
                }
            }
            let name = names::writer(image_id, last.map_or(1, |(generation, _)| generation + 1));
            let record = record_of(owner.id(), now_unix_ms);
            let writer = Self { vault, image_id, name, record };
            // An answer may be lost; then the record that is there already is this one.
            if !vault.put_new(&writer.name, writer.record.as_bytes())? && !writer.is_valid()? {
                continue;
            }
            for (_, name) in before {
                vault.delete(name)?;
            }
            // It asked once; from now on it is the one that can be replaced.
            owner.is_taking_over = false;
            return Ok(writer);
        }
        Err(BackupError::Refused(format!(
            "{}: other programs claimed image {image_id:016x} {TRIES_MAX} times meanwhile",
            vault.describe()
        )))
    }

    /// Checks that no other program has claimed the image since.
    ///
    /// # Errors
    /// Another program has claimed the image since, or the vault fails.
    pub fn check(&self) -> Result<(), BackupError> {
        if self.is_valid()? {
            return Ok(());
        }
        Err(BackupError::TakenOver { image_id: self.image_id, vault: self.vault.describe() })
    }

    fn is_valid(&self) -> Result<bool, BackupError> {
        match self.vault.get(&self.name) {
            Ok(found) => Ok(found == self.record.as_bytes()),
            Err(error) if error.is_missing => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the image up, so that any program may claim it.
    ///
    /// # Errors
    /// The vault fails.
    pub fn release(self, owner: &mut Owner) -> Result<(), BackupError> {
        if self.is_valid()? {
            self.vault.delete(&self.name)?;
        }
        owner.forget();
        Ok(())
    }
}

fn record_of(owner: u64, now_unix_ms: u64) -> String {
    let since = rfc3339(now_unix_ms);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{FIRST_LINE}\nowner {owner:016x}\nsince {since}\nhost {host}\n")
}

/// Whether an owner may replace a record.
fn may_replace(
    vault: &dyn Vault,
    image_id: u64,
    record: &[u8],
    owner: &mut Owner,
) -> Result<(), BackupError> {
    let text = String::from_utf8_lossy(record);
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        // Whatever another program has written, it is shown as text.
        value.unwrap_or("?").escape_debug().to_string()
    };
    let is_known = text.lines().next() == Some(FIRST_LINE);
    let id = u64::from_str_radix(&field("owner"), 16).ok().filter(|_| is_known);
    if id.is_some_and(|id| owner.is_mine(id)) || owner.is_taking_over {
        return Ok(());
    }
    let (since, host, vault) = (field("since"), field("host"), vault.describe());
    Err(BackupError::Held { image_id, vault, since, host })
}
