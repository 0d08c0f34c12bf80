//! Mapped files. Each is opened, mapped, used, unmapped and closed, as the paper describes it.
//!
//! One variant does not wait: stores survive the process, in the page cache. The other waits at the
//! end of each file, which then survives a loss of power.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::access::{Access, Input, ObjectId, Output, Pool, Tally, Usage};
use crate::error::{AppError, Result};
use crate::scratch::Scratch;
use crate::sys::map::Mapping;
use crate::ways::bytes::InMemory;
use crate::ways::folder::Folder;
use crate::ways::free::Room;

const PAGE_BYTES: usize = 4096;
/// First length of a pool's file, which doubles when it is full.
const POOL_BYTES: usize = 1 << 20;

/// Named data in mapped files.
#[derive(Debug)]
pub struct Mapped {
    way: &'static str,
    folder: Folder,
    synced: bool,
    tally: Tally,
}

impl Mapped {
    /// Files in a folder. With `synced`, each is on the device when it is finished.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(path: PathBuf, synced: bool) -> Result<Self> {
        let way = if synced { "mmap-sync" } else { "mmap" };
        Ok(Self { way, folder: Folder::create(path)?, synced, tally: Tally::default() })
    }

    fn map(&self, file: &File, path: &Path, len_bytes: usize, writable: bool) -> Result<Mapping> {
        self.tally.map();
        Mapping::new(file, len_bytes, writable).map_err(AppError::io("map", path))
    }

    fn sync(&self, mapping: &Mapping, path: &Path) -> Result<()> {
        if self.synced {
            self.tally.sync();
            mapping.sync().map_err(AppError::io("sync", path))?;
        }
        Ok(())
    }
}

impl Access for Mapped {
    fn way(&self) -> &'static str {
        self.way
    }

    fn get(&self, name: &str) -> Result<Box<dyn Input + '_>> {
        let (file, len_bytes) = self.folder.open(name, self.way)?;
        self.tally.open();
        // The mapping stays when the descriptor is closed here.
        let mapping = self.map(&file, &self.folder.path(name), len_bytes, false)?;
        Ok(Box::new(InMemory::new(mapping, &self.tally)))
    }

    fn put(&self, name: &str, capacity_bytes: usize) -> Result<Box<dyn Output + '_>> {
        let (file, path) = self.folder.create_file(name)?;
        self.tally.open();
        let grown = Grown::new(self, file, path, capacity_bytes)?;
        Ok(Box::new(MappedOutput { grown, written_bytes: 0 }))
    }

    fn remove(&self, name: &str) -> Result<bool> {
        self.folder.remove(name)
    }

    fn names(&self) -> Result<Vec<String>> {
        self.folder.names()
    }

    fn pool(&self, name: &str) -> Result<Box<dyn Pool + '_>> {
        let (file, path) = self.folder.create_file(name)?;
        self.tally.open();
        let grown = Grown::new(self, file, path, POOL_BYTES)?;
        Ok(Box::new(MappedPool { grown, room: Room::new() }))
    }

    fn scratch(&self) -> Scratch {
        Scratch::default()
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn settle(&self) -> Result<()> {
        self.folder.write_back()
    }

    fn usage(&self) -> Result<Usage> {
        Ok(Usage { file_bytes: self.folder.file_bytes()?, ..Usage::default() })
    }
}

/// A mapped file that grows: it is unmapped, lengthened, and mapped again.
struct Grown<'a> {
    of: &'a Mapped,
    file: File,
    path: PathBuf,
    mapping: Mapping,
}

impl<'a> Grown<'a> {
    fn new(of: &'a Mapped, file: File, path: PathBuf, len_bytes: usize) -> Result<Self> {
        let mapping = Self::sized(of, &file, &path, len_bytes.max(PAGE_BYTES))?;
        Ok(Self { of, file, path, mapping })
    }

    fn sized(of: &Mapped, file: &File, path: &Path, len_bytes: usize) -> Result<Mapping> {
        of.tally.resize();
        file.set_len(len_bytes as u64).map_err(AppError::io("lengthen", path))?;
        of.map(file, path, len_bytes, true)
    }

    fn make_room(&mut self, end_bytes: usize) -> Result<()> {
        let len_bytes = self.mapping.bytes().len();
        if end_bytes > len_bytes {
            let len_bytes = end_bytes.max(2 * len_bytes);
            self.mapping = Self::sized(self.of, &self.file, &self.path, len_bytes)?;
        }
        Ok(())
    }
}

struct MappedOutput<'a> {
    grown: Grown<'a>,
    written_bytes: usize,
}

impl Output for MappedOutput<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.grown.of.tally.write(bytes.len());
        let end = self.written_bytes + bytes.len();
        self.grown.make_room(end)?;
        self.grown.mapping.bytes_mut()[self.written_bytes..end].copy_from_slice(bytes);
        self.written_bytes = end;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let Self { grown: Grown { of, file, path, mapping }, written_bytes } = *self;
        of.sync(&mapping, &path)?;
        drop(mapping);
        of.tally.resize();
        file.set_len(written_bytes as u64).map_err(AppError::io("shorten", &path))?;
        if of.synced {
            of.tally.sync();
            file.sync_all().map_err(AppError::io("sync", &path))?;
        }
        Ok(())
    }
}

struct MappedPool<'a> {
    grown: Grown<'a>,
    room: Room,
}

impl MappedPool<'_> {
    fn outside(&self, id: ObjectId, at: usize, len_bytes: usize) -> AppError {
        AppError::Outside {
            way: self.grown.of.way,
            of: self.grown.path.display().to_string(),
            offset: id + at as u64,
            len_bytes,
            has_bytes: self.grown.mapping.bytes().len() as u64,
        }
    }
}

impl Pool for MappedPool<'_> {
    fn alloc(&mut self, len_bytes: usize) -> Result<ObjectId> {
        let id = self.room.take(len_bytes);
        self.grown.make_room(self.room.end() as usize)?;
        Ok(id)
    }

    fn free(&mut self, id: ObjectId, len_bytes: usize) -> Result<()> {
        self.room.give(id, len_bytes);
        Ok(())
    }

    fn read(&mut self, id: ObjectId, at: usize, len_bytes: usize) -> Result<&[u8]> {
        self.grown.of.tally.read(len_bytes);
        let start = id as usize + at;
        let piece = self.grown.mapping.bytes().get(start..start + len_bytes);
        piece.ok_or_else(|| self.outside(id, at, len_bytes))
    }

    fn write(&mut self, id: ObjectId, at: usize, bytes: &[u8]) -> Result<()> {
        self.grown.of.tally.write(bytes.len());
        let start = id as usize + at;
        match self.grown.mapping.bytes_mut().get_mut(start..start + bytes.len()) {
            Some(into) => into.copy_from_slice(bytes),
            None => return Err(self.outside(id, at, bytes.len())),
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.grown.of.sync(&self.grown.mapping, &self.grown.path)
    }
}
