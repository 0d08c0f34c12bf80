//! A folder with a file for each name.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{AppError, Result};

/// The folder, removed with all files when it is dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Files made since the last write-back.
    made: RefCell<Vec<PathBuf>>,
}

impl Folder {
    /// Makes a folder that must not exist yet.
    pub fn create(path: PathBuf) -> Result<Self> {
        let at = path.clone();
        if let Some(above) = path.parent() {
            fs::create_dir_all(above).map_err(AppError::io("make", above))?;
        }
        fs::create_dir(&path).map_err(AppError::io("make (remove it if nothing uses it)", &at))?;
        Ok(Self { path, made: RefCell::default() })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file for reading; returns its length, too.
    pub fn open(&self, name: &str, way: &'static str) -> Result<(File, usize)> {
        let path = self.path(name);
        let file = File::open(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => AppError::Missing { name: name.to_owned(), way },
            _ => AppError::Io { what: "open", path: path.clone(), source },
        })?;
        let len_bytes = file.metadata().map_err(AppError::io("look at", &path))?.len() as usize;
        Ok((file, len_bytes))
    }

    /// Makes a file for reading and writing. A file of the same name is removed, not emptied, for
    /// it may still be read.
    pub fn create_file(&self, name: &str) -> Result<(File, PathBuf)> {
        let path = self.path(name);
        let create = || OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let made = match create() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.remove(name)?;
                create()
            }
            made => made,
        };
        let file = made.map_err(AppError::io("create", &path))?;
        self.made.borrow_mut().push(path.clone());
        Ok((file, path))
    }

    pub fn remove(&self, name: &str) -> Result<bool> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(AppError::Io { what: "remove", path, source }),
        }
    }

    pub fn names(&self) -> Result<Vec<String>> {
        self.each(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            Ok(name.unwrap_or_default())
        })
    }

    /// Bytes of all files.
    pub fn file_bytes(&self) -> Result<u64> {
        let blocks = self.each(|path| {
            let about = fs::metadata(path).map_err(AppError::io("look at", path))?;
            Ok(about.blocks() * 512)
        });
        Ok(blocks?.iter().sum())
    }

    /// Waits until all files are on the device, then drops them from the page cache.
    pub fn write_back_and_forget(&self) -> Result<()> {
        self.write_back()?;
        self.each(|path| {
            let file = File::open(path).map_err(AppError::io("open", path))?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
                .map_err(AppError::io("drop from the page cache", path))
        })?;
        Ok(())
    }

    /// Waits until all files made since the last time are on the device. Other programs' files are
    /// not waited for.
    pub fn write_back(&self) -> Result<()> {
        for path in self.made.take() {
            match File::open(&path) {
                Ok(file) => file.sync_all().map_err(AppError::io("sync", &path))?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(AppError::Io { what: "open", path, source }),
            }
        }
        Ok(())
    }

    fn each<T>(&self, call: impl Fn(&Path) -> Result<T>) -> Result<Vec<T>> {
        let entries = fs::read_dir(&self.path).map_err(AppError::io("list", &self.path))?;
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(AppError::io("list", &self.path))?;
            found.push(call(&entry.path())?);
        }
        Ok(found)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("perdura-apps: {} stays: {error}", self.path.display());
        }
    }
}
