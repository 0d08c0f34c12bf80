//! Files with read and write calls: on a RAM disk, or on a device with a wait for it at the end of
//! each file.
//!
//! Small pieces are gathered as C's stdio does, in a buffer of 4 KiB; larger ones and all reads are
//! calls of the length that the application asked for.

use std::cell::RefCell;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::access::{Access, Input, ObjectId, Output, Pool, Tally, Usage};
use crate::error::{AppError, Result};
use crate::scratch::Scratch;
use crate::ways::folder::Folder;
use crate::ways::free::Room;

const BUFFER_BYTES: usize = 4096;

/// Named data in files.
#[derive(Debug)]
pub struct Files {
    way: &'static str,
    folder: Folder,
    on_device: bool,
    tally: Tally,
    /// Kept between files, as in a program that reads file after file.
    buffer: RefCell<Vec<u8>>,
}

impl Files {
    /// Files on a RAM disk: nothing is waited for, and nothing survives a loss of power.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn on_ram_disk(path: PathBuf) -> Result<Self> {
        Self::new("ramdisk", path, false)
    }

    /// Files on a device: each is on the device when it is finished, and is read from the device.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn on_device(path: PathBuf) -> Result<Self> {
        Self::new("block", path, true)
    }

    fn new(way: &'static str, path: PathBuf, on_device: bool) -> Result<Self> {
        let folder = Folder::create(path)?;
        Ok(Self { way, folder, on_device, tally: Tally::default(), buffer: RefCell::default() })
    }

    fn sync(&self, file: &File, path: &std::path::Path) -> Result<()> {
        if self.on_device {
            self.tally.sync();
            file.sync_all().map_err(AppError::io("sync", path))?;
        }
        Ok(())
    }
}

impl Access for Files {
    fn way(&self) -> &'static str {
        self.way
    }

    fn get(&self, name: &str) -> Result<Box<dyn Input + '_>> {
        let (file, len_bytes) = self.folder.open(name, self.way)?;
        self.tally.open();
        let buffer = self.buffer.take();
        Ok(Box::new(FileInput {
            of: self,
            file,
            path: self.folder.path(name),
            len_bytes,
            read_bytes: 0,
            buffer,
        }))
    }

    fn put(&self, name: &str, _capacity_bytes: usize) -> Result<Box<dyn Output + '_>> {
        let (file, path) = self.folder.create_file(name)?;
        self.tally.open();
        Ok(Box::new(FileOutput { of: self, file, path, buffer: Vec::with_capacity(BUFFER_BYTES) }))
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
        Ok(Box::new(FilePool { of: self, file, path, room: Room::new(), buffer: Vec::new() }))
    }

    fn scratch(&self) -> Scratch {
        Scratch::default()
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn settle(&self) -> Result<()> {
        if self.on_device { self.folder.write_back_and_forget() } else { Ok(()) }
    }

    fn usage(&self) -> Result<Usage> {
        Ok(Usage { file_bytes: self.folder.file_bytes()?, ..Usage::default() })
    }
}

struct FileInput<'a> {
    of: &'a Files,
    file: File,
    path: PathBuf,
    len_bytes: usize,
    read_bytes: usize,
    buffer: Vec<u8>,
}

impl FileInput<'_> {
    /// Fills `at..at + bytes` of the buffer, which is long enough, by one call.
    fn call(&mut self, at: usize, bytes: usize) -> Result<()> {
        self.of.tally.read(bytes);
        self.of.tally.system_read();
        let into = &mut self.buffer[at..at + bytes];
        self.file.read_exact(into).map_err(AppError::io("read", &self.path))?;
        self.read_bytes += bytes;
        Ok(())
    }

    fn make_room(&mut self, bytes: usize) {
        if self.buffer.len() < bytes {
            self.buffer.resize(bytes, 0);
        }
    }
}

impl Input for FileInput<'_> {
    fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    fn next(&mut self, bytes: usize) -> Result<&[u8]> {
        let bytes = bytes.min(self.len_bytes - self.read_bytes);
        self.make_room(bytes);
        if bytes > 0 {
            self.call(0, bytes)?;
        }
        Ok(&self.buffer[..bytes])
    }

    fn whole(&mut self, call_bytes: usize) -> Result<&[u8]> {
        let rest = self.len_bytes - self.read_bytes;
        self.make_room(rest);
        for at in (0..rest).step_by(call_bytes.max(1)) {
            self.call(at, call_bytes.min(rest - at))?;
        }
        Ok(&self.buffer[..rest])
    }
}

impl Drop for FileInput<'_> {
    fn drop(&mut self) {
        self.of.buffer.replace(std::mem::take(&mut self.buffer));
    }
}

struct FileOutput<'a> {
    of: &'a Files,
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
}

impl FileOutput<'_> {
    fn call(&mut self, bytes: &[u8]) -> Result<()> {
        self.of.tally.system_write();
        self.file.write_all(bytes).map_err(AppError::io("write", &self.path))
    }

    fn flush(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let gathered = std::mem::take(&mut self.buffer);
        self.call(&gathered)?;
        self.buffer = gathered;
        self.buffer.clear();
        Ok(())
    }
}

impl Output for FileOutput<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.of.tally.write(bytes.len());
        let mut rest = bytes;
        while self.buffer.len() + rest.len() >= BUFFER_BYTES {
            if self.buffer.is_empty() {
                return self.call(rest);
            }
            let (now, later) = rest.split_at(BUFFER_BYTES - self.buffer.len());
            self.buffer.extend_from_slice(now);
            self.flush()?;
            rest = later;
        }
        self.buffer.extend_from_slice(rest);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.flush()?;
        self.of.sync(&self.file, &self.path)
    }
}

struct FilePool<'a> {
    of: &'a Files,
    file: File,
    path: PathBuf,
    room: Room,
    buffer: Vec<u8>,
}

impl Pool for FilePool<'_> {
    fn alloc(&mut self, len_bytes: usize) -> Result<ObjectId> {
        // The file becomes longer when the object is written.
        Ok(self.room.take(len_bytes))
    }

    fn free(&mut self, id: ObjectId, len_bytes: usize) -> Result<()> {
        self.room.give(id, len_bytes);
        Ok(())
    }

    fn read(&mut self, id: ObjectId, at: usize, len_bytes: usize) -> Result<&[u8]> {
        self.of.tally.read(len_bytes);
        self.of.tally.system_read();
        if self.buffer.len() < len_bytes {
            self.buffer.resize(len_bytes, 0);
        }
        let into = &mut self.buffer[..len_bytes];
        let read = self.file.read_exact_at(into, id + at as u64);
        read.map_err(AppError::io("read", &self.path))?;
        Ok(into)
    }

    fn write(&mut self, id: ObjectId, at: usize, bytes: &[u8]) -> Result<()> {
        self.of.tally.write(bytes.len());
        self.of.tally.system_write();
        let written = self.file.write_all_at(bytes, id + at as u64);
        written.map_err(AppError::io("write", &self.path))
    }

    fn sync(&mut self) -> Result<()> {
        self.of.sync(&self.file, &self.path)
    }
}
