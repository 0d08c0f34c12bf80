//! A file whose creation is a warning. Scripts of a UPS can create it, and so can agents that ask a
//! cloud's metadata service for notices.

use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::error::WarningError;
use crate::source::{Warning, WarningSource};

/// Room for several events with names of any length.
const EVENTS_BYTES: usize = 4096;

/// A file whose creation is a warning.
#[derive(Debug)]
pub struct CreatedFile {
    directory: PathBuf,
    name: OsString,
    events: OwnedFd,
}

impl CreatedFile {
    /// Watches for the creation of `path`. Its directory must exist, the file must not.
    ///
    /// # Errors
    /// The file exists already, or its directory cannot be watched.
    pub fn open(path: &Path) -> Result<Box<dyn WarningSource>, WarningError> {
        let no_name = || WarningError::NoFileName { path: path.to_owned() };
        let name = path.file_name().ok_or_else(no_name)?.to_owned();
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let refused =
            |errno: Errno| WarningError::system(format!("watch {}", directory.display()), errno);
        let events =
            inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(refused)?;
        let created = WatchFlags::CREATE | WatchFlags::MOVED_TO;
        let gone = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        let flags = created | gone | WatchFlags::ONLYDIR;
        inotify::add_watch(&events, &directory, flags).map_err(refused)?;
        // The look comes after the watch, so that a file created after the look is an event.
        match path.try_exists() {
            Ok(false) => Ok(Box::new(Self { directory, name, events })),
            Ok(true) => Err(WarningError::ExistsAlready { path: path.to_owned() }),
            Err(error) => Err(WarningError::system(format!("look for {}", path.display()), error)),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }
}

impl WarningSource for CreatedFile {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn take(&mut self) -> Result<Option<Warning>, WarningError> {
        let mut buffer = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut events = Reader::new(&self.events, &mut buffer);
        let mut is_created = false;
        loop {
            match events.next() {
                Ok(event) => {
                    let ends = ReadFlags::DELETE_SELF
                        | ReadFlags::MOVE_SELF
                        | ReadFlags::IGNORED
                        | ReadFlags::UNMOUNT;
                    if event.events().intersects(ends) {
                        return Err(WarningError::PlaceGone { path: self.directory.clone() });
                    }
                    // After an overflow of the queue the names are unknown, so the file itself is
                    // looked for.
                    is_created |= match event.file_name() {
                        Some(name) => name.to_bytes() == self.name.as_bytes(),
                        None => self.path().exists(),
                    };
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    let what = format!("watch {}", self.directory.display());
                    return Err(WarningError::system(what, errno));
                }
            }
        }
        let told_by = || format!("{} was created", self.path().display());
        Ok(is_created.then(|| Warning { told_by: told_by() }))
    }
}
