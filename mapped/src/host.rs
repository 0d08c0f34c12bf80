//! The host: the region with all served files, and their writing as ordinary files.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use perdura_region::{BLOCK_BYTES, Config, Region, TrackingKind, TrapKind, TrappedMemory};

use crate::attributes;
use crate::board::Board;
use crate::catalog::{CATALOG_BYTES, Catalog, Entry, Identity};
use crate::error::{MappedError, OPEN};
use crate::journal::Journal;
use crate::wire::EXTENTS_MAX;

/// The directory with the region, in the directory whose files are served.
pub const REGION_NAME: &str = ".perdura";
/// The end of the name of a file whose own name another file has by now.
const RECOVERED: &str = ".perdura-recovered";
/// Bytes that are copied at a time: a small part of any budget.
const COPY_BYTES: usize = 64 << 10;
/// What a file is given at a time at most: more than any memory, so it is refused.
const MORE_MAX: u64 = 1 << 62;

/// The settings of a region for a host. Its memory is `bytes` for all files.
pub fn region_config(bytes: u64) -> Config {
    Config {
        tracking: TrackingKind::Trap(TrapKind::Guests),
        ..Config::new(bytes.max(4 * CATALOG_BYTES), 0)
    }
}

/// The files below a directory that programs map.
pub struct Host {
    region: Region,
    dir: PathBuf,
    board: Board,
    files: Mutex<Files>,
}

#[derive(Debug)]
struct Files {
    catalog: Catalog,
    /// Beside each entry of the catalog: the file, if this host serves it and it was not removed.
    served: Vec<Option<Served>>,
}

#[derive(Debug)]
struct Served {
    file: File,
    identity: Identity,
}

/// Where the file of an entry is at the end.
enum Place {
    /// The file has this name and no other: a new file takes its place.
    Named(PathBuf),
    /// The file has several names, or one that was not found: it is written itself.
    Itself(File),
    /// The file was removed.
    Nowhere,
}

impl Host {
    /// A host of the files below `dir`, with a region that is new, or has what an earlier host
    /// left.
    ///
    /// # Errors
    /// The region is of another kind.
    pub fn new(region: Region, dir: PathBuf) -> Result<Self, MappedError> {
        let memory = region.trapped().ok_or(MappedError::NoCatalog)?;
        let catalog = Catalog::read(&memory)?;
        let served = catalog.files.iter().map(|_| None).collect();
        let files = Mutex::new(Files { catalog, served });
        Ok(Self { board: Board::new()?, files, region, dir })
    }

    /// The region.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// How many files the region has.
    pub fn len(&self) -> usize {
        self.lock().catalog.files.len()
    }

    /// Whether the region has no file.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory and the board, for a program.
    pub(crate) fn for_guests(&self) -> [BorrowedFd<'_>; 2] {
        [self.region.fds().0, self.board.fd()]
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> Result<TrappedMemory<'_>, MappedError> {
        self.region.trapped().ok_or(MappedError::NoCatalog)
    }

    /// Serves a file from now on: copies it to memory, unless it is there already. Returns its
    /// number.
    pub(crate) fn serve(&self, fd: OwnedFd) -> Result<u64, MappedError> {
        let path = path_of(&fd);
        let failed = |what| {
            let path = path.clone();
            move |source| MappedError::File { what, path, source }
        };
        // The program's descriptor may not be good for reading and writing.
        let file = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let file = file.map_err(failed(OPEN))?;
        let found = file.metadata().map_err(failed("look at"))?;
        let below = path.strip_prefix(&self.dir).ok().filter(|_| found.is_file());
        let below = below.ok_or(MappedError::Strange("a file that is not below the directory"))?;
        // Another run may serve it, with memory of its own.
        let mut folders = path.ancestors().skip(1).take_while(|folder| *folder != self.dir);
        if let Some(nested) = folders.find(|folder| folder.join(REGION_NAME).exists()) {
            return Err(MappedError::Nested { path: nested.to_owned() });
        }
        let identity = Identity::of(&found);
        let mut files = self.lock();
        let is_it =
            |served: &Option<Served>| served.as_ref().is_some_and(|it| it.identity == identity);
        if let Some(number) = files.served.iter().position(is_it) {
            return Ok(number as u64);
        }
        let number = files.served.len();
        // A file without a name is nobody's after the end.
        let path = match is_at(&file, &path) {
            true => below.as_os_str().as_bytes().to_vec(),
            false => Vec::new(),
        };
        // On the board first. A program that writes to the file meanwhile sees that afterwards, and
        // writes again, to the memory; what was written before is read here.
        self.board.add(number, identity.inode, found.len())?;
        let found = file.metadata().map_err(failed("look at"));
        files.catalog.files.push(Entry { path, identity, len: 0, pieces: Vec::new() });
        files.served.push(Some(Served { file, identity }));
        let loaded = found.and_then(|found| self.load(&mut files, number, found.len()));
        if let Err(error) = loaded {
            // What memory it got stays unused.
            files.catalog.files.pop();
            files.served.pop();
            self.board.take_back(number)?;
            return Err(error);
        }
        Ok(number as u64)
    }

    /// Gives a file pieces of memory for its first `len` bytes.
    fn reach(&self, files: &mut Files, number: usize, len: u64) -> Result<(), MappedError> {
        let entry = &files.catalog.files[number];
        let had: u64 = entry.pieces.iter().map(|(_, len)| len).sum();
        let Some(more) = len.checked_sub(had).filter(|more| *more > 0) else { return Ok(()) };
        if entry.pieces.len() >= EXTENTS_MAX {
            return Err(MappedError::TooMany {
                what: "times that a file grows",
                most: EXTENTS_MAX,
            });
        }
        // A file that grows again and again gets more each time.
        let more = more.max(had / 4).min(MORE_MAX).next_multiple_of(BLOCK_BYTES);
        let from = files.catalog.free_from;
        let to = from + more;
        if to > self.region.len_bytes() {
            let grown = self.region.grow(to.max(self.region.len_bytes().saturating_mul(2)));
            let grown = grown.or_else(|_| self.region.grow(to));
            grown.map_err(|source| MappedError::NoMemory { len_bytes: more, source })?;
        }
        files.catalog.free_from = to;
        files.catalog.files[number].pieces.push((from, more));
        Ok(())
    }

    /// Copies the first `len` bytes of a file to memory.
    fn load(&self, files: &mut Files, number: usize, len: u64) -> Result<(), MappedError> {
        let memory = self.memory()?;
        self.reach(files, number, len)?;
        let pieces = files.catalog.files[number].pieces.clone();
        let failed = |source| MappedError::System { what: "read a file", source };
        if let Some(served) = &mut files.served[number] {
            served.file.rewind().map_err(failed)?;
            let places = pieces
                .into_iter()
                .flat_map(|(offset, len)| (offset..offset + len).step_by(COPY_BYTES));
            let mut bytes = vec![0; COPY_BYTES];
            for at in places {
                let got = read_up_to(&mut served.file, &mut bytes).map_err(failed)?;
                // Memory that was never used is zero.
                if bytes[..got].iter().any(|byte| *byte != 0) {
                    let prepared = memory.prepare_write(at..at + got as u64)?;
                    memory.write(at, &bytes[..got]);
                    drop(prepared);
                }
                if got < COPY_BYTES {
                    break;
                }
            }
        }
        files.catalog.files[number].len = len;
        self.board.set_len(number, len)?;
        files.catalog.write(&memory)
    }

    /// The pieces of memory of a file's first `len` bytes.
    pub(crate) fn pieces(&self, number: u64, len: u64) -> Result<Vec<(u64, u64)>, MappedError> {
        let mut files = self.lock();
        let number = known(&files, number)?;
        let before = files.catalog.files[number].pieces.len();
        self.reach(&mut files, number, len)?;
        if files.catalog.files[number].pieces.len() > before {
            files.catalog.write(&self.memory()?)?;
        }
        Ok(files.catalog.files[number].pieces.clone())
    }

    /// Notes the length of a file. What was cut off reads as zeros if the file becomes longer
    /// again.
    pub(crate) fn set_len(&self, number: u64, len: u64) -> Result<(), MappedError> {
        let mut files = self.lock();
        let number = known(&files, number)?;
        self.change_len(&mut files, number, len)
    }

    /// Notes the length that a file has.
    pub(crate) fn look_at_len(&self, (device, inode): (u64, u64)) -> Result<(), MappedError> {
        let mut files = self.lock();
        let is_it = |served: &Option<Served>| {
            let identity = served.as_ref().map(|served| served.identity);
            identity.is_some_and(|it| (it.device, it.inode) == (device, inode))
        };
        let Some(number) = files.served.iter().position(is_it) else { return Ok(()) };
        let found = files.served[number].as_ref().map(|served| served.file.metadata());
        let failed = |source| MappedError::System { what: "look at a file", source };
        let Some(found) = found.transpose().map_err(failed)? else { return Ok(()) };
        self.change_len(&mut files, number, found.len())
    }

    fn change_len(&self, files: &mut Files, number: usize, len: u64) -> Result<(), MappedError> {
        let memory = self.memory()?;
        self.reach(files, number, len)?;
        let before = files.catalog.files[number].len;
        if len < before {
            self.zero(&files.catalog.files[number], len, before)?;
        }
        files.catalog.files[number].len = len;
        if let Err(error) = files.catalog.write(&memory) {
            // Whoever asks again must not be told that it is written.
            files.catalog.files[number].len = before;
            return Err(error);
        }
        self.board.set_len(number, len)
    }

    fn zero(&self, entry: &Entry, from: u64, to: u64) -> Result<(), MappedError> {
        let memory = self.memory()?;
        let zeros = vec![0; COPY_BYTES];
        let mut begins = 0;
        for (offset, len) in &entry.pieces {
            let (first, last) = (from.max(begins), to.min(begins + len));
            let mut at = first;
            while at < last {
                let part = (last - at).min(COPY_BYTES as u64);
                let place = offset + at - begins;
                let prepared = memory.prepare_write(place..place + part)?;
                memory.write(place, &zeros[..part as usize]);
                drop(prepared);
                at += part;
            }
            begins += len;
        }
        Ok(())
    }

    /// Learns the names that files have now.
    pub(crate) fn find_names(&self) -> Result<(), MappedError> {
        let mut files = self.lock();
        self.refresh_names(&mut files);
        files.catalog.write(&self.memory()?)
    }

    fn refresh_names(&self, files: &mut Files) {
        let Files { catalog, served } = files;
        for (entry, served) in catalog.files.iter_mut().zip(served) {
            let Some(Served { file, identity }) = served else { continue };
            let path = path_of(file);
            let is_there = is_at(file, &path);
            let is_removed = file.metadata().is_ok_and(|found| found.nlink() == 0);
            // Another name than the kernel knows of is looked for.
            let path = if is_there { Some(path) } else { find(&self.dir, identity) };
            match path {
                _ if is_removed => entry.path.clear(),
                // A file that was renamed out of the directory has its whole path.
                Some(path) => {
                    let path = path.strip_prefix(&self.dir).unwrap_or(&path);
                    entry.path = path.as_os_str().as_bytes().to_vec();
                }
                // It has a name somewhere else, which nobody knows: it keeps its last one.
                None => {}
            }
        }
    }

    /// Writes all files again as ordinary ones, each whole or not at all. `progress` is told the
    /// bytes done and the bytes in all.
    ///
    /// # Errors
    /// The first file that cannot be written. All that can are; nothing in memory is lost.
    pub fn write_files(&self, progress: &dyn Fn(u64, u64)) -> Result<(), MappedError> {
        let mut files = self.lock();
        self.refresh_names(&mut files);
        let journal = Journal::open(&self.dir.join(REGION_NAME))?;
        let total = files.catalog.files.iter().map(|entry| entry.len).sum();
        let (mut done, mut outcome) = (0, Ok(()));
        for (entry, served) in files.catalog.files.iter().zip(&files.served) {
            let path = self.dir.join(OsStr::from_bytes(&entry.path));
            let place = match served {
                Some(served) => place_of(&served.file, path.clone()),
                None => self.place_again(entry, &path, &journal),
            };
            let written = place.and_then(|place| match place {
                Place::Named(path) => self.write_file(entry, &path, &journal),
                Place::Itself(file) => self.write_itself(entry, file),
                Place::Nowhere => Ok(()),
            });
            let failed = |source| MappedError::File { what: "write", path, source };
            outcome = outcome.and(written.map_err(failed));
            done += entry.len;
            progress(done, total);
        }
        outcome
    }

    /// Where a file is that an earlier host served. What others have put in its place is left.
    fn place_again(&self, entry: &Entry, path: &Path, journal: &Journal) -> io::Result<Place> {
        if entry.path.is_empty() {
            return Ok(Place::Nowhere);
        }
        let found = |path: &Path| fs::symlink_metadata(path).ok();
        // An earlier run may have written it already.
        let is_it = |found: &fs::Metadata| {
            let found = Identity::of(found);
            found == entry.identity || journal.has_written(&entry.identity, &found)
        };
        let now = match found(path).filter(is_it) {
            Some(_) => Some(path.to_owned()),
            None => find(&self.dir, &entry.identity),
        };
        if let Some(now) = now {
            return match found(&now) {
                Some(found) if found.nlink() > 1 => {
                    File::options().read(true).write(true).open(&now).map(Place::Itself)
                }
                _ => Ok(Place::Named(now)),
            };
        }
        if found(path).is_none() {
            return Ok(Place::Named(path.to_owned()));
        }
        let names = (1_u64..).map(|nth| {
            let mut name = path.as_os_str().to_owned();
            name.push(RECOVERED);
            if nth > 1 {
                name.push(format!("-{nth}"));
            }
            PathBuf::from(name)
        });
        // What an earlier recovery put beside a file of this name stays, too.
        let mut free = names.filter(|name| found(name).is_none_or(|it| is_it(&it)));
        let beside = free.next().ok_or(io::ErrorKind::AlreadyExists)?;
        tracing::warn!(
            path = %path.display(),
            recovered = %beside.display(),
            "another file has this name now; what a program had stored in the former one is \
             beside it"
        );
        Ok(Place::Named(beside))
    }

    fn write_file(&self, entry: &Entry, path: &Path, journal: &Journal) -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder)?;
        let mut new = tempfile::Builder::new().prefix(".perdura-").tempfile_in(folder)?;
        // Whenever this is killed, the next run knows the new file for its own.
        let identity = Identity::of(&new.as_file().metadata()?);
        journal.note(&entry.identity, &identity, new.path())?;
        self.copy(entry, new.as_file_mut())?;
        if let Ok(old) = fs::metadata(path) {
            // Only root may give a file away; for others it is their own already.
            let _ = std::os::unix::fs::fchown(new.as_file(), Some(old.uid()), Some(old.gid()));
            // Behind the owner, whose change takes capabilities and some bits of the mode away.
            attributes::copy(path, new.as_file());
            new.as_file().set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
        }
        new.as_file().sync_all()?;
        new.persist(path)?;
        File::open(folder)?.sync_all()
    }

    /// Writes a file that has several names.
    fn write_itself(&self, entry: &Entry, mut file: File) -> io::Result<()> {
        file.rewind()?;
        self.copy(entry, &mut file)?;
        file.sync_all()
    }

    /// Writes what memory has of a file.
    fn copy(&self, entry: &Entry, to: &mut File) -> io::Result<()> {
        let memory = self.memory().map_err(io::Error::other)?;
        let mut bytes = vec![0; COPY_BYTES];
        let mut left = entry.len;
        for (offset, len) in &entry.pieces {
            let mut at = *offset;
            while at < offset + len && left > 0 {
                let part = left.min(COPY_BYTES as u64).min(offset + len - at);
                let bytes = &mut bytes[..part as usize];
                memory.read(at, bytes);
                to.write_all(bytes)?;
                (at, left) = (at + part, left - part);
            }
        }
        // A file that grew by its length alone has no memory for the rest.
        to.set_len(entry.len)
    }
}

fn known(files: &Files, number: u64) -> Result<usize, MappedError> {
    let known = usize::try_from(number).ok().filter(|number| *number < files.served.len());
    known.ok_or(MappedError::Strange("a file that is not served"))
}

/// Where an open file is to be written, whose name is `path`.
fn place_of(file: &File, path: PathBuf) -> io::Result<Place> {
    match file.metadata()?.nlink() {
        0 => Ok(Place::Nowhere),
        1 if is_at(file, &path) => Ok(Place::Named(path)),
        _ => file.try_clone().map(Place::Itself),
    }
}

/// The name of a file in a directory or below it.
fn find(dir: &Path, identity: &Identity) -> Option<PathBuf> {
    for entry in fs::read_dir(dir).ok()?.flatten() {
        // Of a link, the link's own.
        let Ok(found) = entry.metadata() else { continue };
        if found.is_dir() && entry.file_name() != REGION_NAME {
            if let Some(path) = find(&entry.path(), identity) {
                return Some(path);
            }
        } else if Identity::of(&found) == *identity {
            return Some(entry.path());
        }
    }
    None
}

/// Whether this is the file at a path.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |own: fs::Metadata, found: fs::Metadata| {
        (own.dev(), own.ino()) == (found.dev(), found.ino())
    };
    file.metadata().is_ok_and(|own| fs::metadata(path).is_ok_and(|found| same(own, found)))
}

/// The path of an open file.
fn path_of(fd: &impl AsRawFd) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default()
}

fn read_up_to(file: &mut File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        match file.read(&mut bytes[got..])? {
            0 => break,
            more => got += more,
        }
    }
    Ok(got)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use perdura_media::sim::SimDevice;

    use super::*;
    use crate::testing::region_on;

    #[test]
    fn a_length_that_cannot_be_noted_is_not_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        fs::create_dir(place.join(REGION_NAME)).unwrap();
        fs::write(place.join("file"), [b'a'; 5000]).unwrap();
        let host = Host::new(region_on(&SimDevice::new(0, 0)), place.clone()).unwrap();
        let number = host.serve(File::open(place.join("file")).unwrap().into()).unwrap();
        host.set_len(number, 4500).unwrap();
        // As after a warning.
        host.region().close(1).unwrap();
        assert!(host.set_len(number, 9000).is_err());
        host.write_files(&|_, _| {}).unwrap();
        assert_eq!(fs::read(place.join("file")).unwrap(), [b'a'; 4500]);
    }
}
