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

use crate::board::Board;
use crate::catalog::{CATALOG_BYTES, Catalog, Entry};
use crate::error::MappedError;
use crate::wire::EXTENTS_MAX;

/// The directory with the region, in the directory whose files are served.
pub const REGION_NAME: &str = ".perdura";
/// Bytes that are copied at a time: a small part of any budget.
const COPY_BYTES: usize = 64 << 10;

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
    identity: (u64, u64),
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
        let file = file.map_err(failed("open"))?;
        let found = file.metadata().map_err(failed("look at"))?;
        let below = path.strip_prefix(&self.dir).ok().filter(|_| found.is_file());
        let below = below.ok_or(MappedError::Strange("a file that is not below the directory"))?;
        let identity = (found.dev(), found.ino());
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
        files.catalog.files.push(Entry { path, len: found.len(), pieces: Vec::new() });
        files.served.push(Some(Served { file, identity }));
        let loaded = self
            .reach(&mut files, number, found.len())
            .and_then(|()| self.load(&mut files, number));
        let loaded = loaded.and_then(|()| files.catalog.write(&self.memory()?));
        if let Err(error) = loaded.and_then(|()| self.board.add(number, identity.1)) {
            // Nobody has seen it yet. What memory it got stays unused.
            files.catalog.files.pop();
            files.served.pop();
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
        let more = more.max(had / 4).next_multiple_of(BLOCK_BYTES);
        let from = files.catalog.free_from;
        let to =
            from.checked_add(more).ok_or(MappedError::Strange("a length beyond all memory"))?;
        if to > self.region.len_bytes() {
            let grown = self.region.grow(to.max(self.region.len_bytes().saturating_mul(2)));
            let grown = grown.or_else(|_| self.region.grow(to));
            grown.map_err(|source| MappedError::NoMemory { len_bytes: more, source })?;
        }
        files.catalog.free_from = to;
        files.catalog.files[number].pieces.push((from, more));
        Ok(())
    }

    /// Copies a file to its memory.
    fn load(&self, files: &mut Files, number: usize) -> Result<(), MappedError> {
        let memory = self.memory()?;
        let pieces = files.catalog.files[number].pieces.clone();
        let Some(served) = &mut files.served[number] else { return Ok(()) };
        let failed = |source| MappedError::System { what: "read a file", source };
        served.file.rewind().map_err(failed)?;
        let mut bytes = vec![0; COPY_BYTES];
        for (offset, len) in pieces {
            for at in (offset..offset + len).step_by(COPY_BYTES) {
                let got = read_up_to(&mut served.file, &mut bytes).map_err(failed)?;
                // Memory that was never used is zero.
                if bytes[..got].iter().any(|byte| *byte != 0) {
                    let prepared = memory.prepare_write(at..at + got as u64)?;
                    memory.write(at, &bytes[..got]);
                    drop(prepared);
                }
                if got < COPY_BYTES {
                    return Ok(());
                }
            }
        }
        Ok(())
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
        self.reach(&mut files, number, len)?;
        let before = std::mem::replace(&mut files.catalog.files[number].len, len);
        if len < before {
            self.zero(&files.catalog.files[number], len, before)?;
        }
        files.catalog.write(&self.memory()?)
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
            let Some(file) = served.as_ref().map(|served| &served.file) else { continue };
            let path = path_of(file);
            match path.strip_prefix(&self.dir).ok().filter(|_| is_at(file, &path)) {
                Some(below) => entry.path = below.as_os_str().as_bytes().to_vec(),
                // It has no name below the directory any more.
                None => entry.path.clear(),
            }
        }
    }

    /// Writes all files again as ordinary ones, each whole or not at all. `progress` is told the
    /// bytes done and the bytes in all.
    ///
    /// # Errors
    /// A file cannot be written. The others may have been; nothing in memory is lost.
    pub fn write_files(&self, progress: &dyn Fn(u64, u64)) -> Result<(), MappedError> {
        let mut files = self.lock();
        self.refresh_names(&mut files);
        let total = files.catalog.files.iter().map(|entry| entry.len).sum();
        let mut done = 0;
        for entry in files.catalog.files.iter().filter(|entry| !entry.path.is_empty()) {
            let path = self.dir.join(OsStr::from_bytes(&entry.path));
            self.write_file(entry, &path).map_err(|source| MappedError::File {
                what: "write",
                path,
                source,
            })?;
            done += entry.len;
            progress(done, total);
        }
        Ok(())
    }

    fn write_file(&self, entry: &Entry, path: &Path) -> io::Result<()> {
        let memory = self.memory().map_err(io::Error::other)?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder)?;
        let mut new = tempfile::Builder::new().prefix(".perdura-").tempfile_in(folder)?;
        let mut bytes = vec![0; COPY_BYTES];
        let mut left = entry.len;
        for (offset, len) in &entry.pieces {
            let mut at = *offset;
            while at < offset + len && left > 0 {
                let part = left.min(COPY_BYTES as u64).min(offset + len - at);
                let bytes = &mut bytes[..part as usize];
                memory.read(at, bytes);
                new.write_all(bytes)?;
                (at, left) = (at + part, left - part);
            }
        }
        // A file that grew by its length alone has no memory for the rest.
        new.as_file().set_len(entry.len)?;
        if let Ok(old) = fs::metadata(path) {
            new.as_file().set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
            // Only root may give a file away; for others it is their own already.
            let _ = std::os::unix::fs::fchown(new.as_file(), Some(old.uid()), Some(old.gid()));
        }
        new.as_file().sync_all()?;
        new.persist(path)?;
        File::open(folder)?.sync_all()
    }
}

fn known(files: &Files, number: u64) -> Result<usize, MappedError> {
    let known = usize::try_from(number).ok().filter(|number| *number < files.served.len());
    known.ok_or(MappedError::Strange("a file that is not served"))
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
