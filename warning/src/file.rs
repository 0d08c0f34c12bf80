//! A file whose first line says how the power is. Scripts of a UPS can write it, and so can agents
//! that ask a cloud's metadata service for notices.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::error::WarningError;
use crate::reading::{Reading, State};
use crate::source::WarningSource;

/// Room for several events with names of any length.
const EVENTS_BYTES: usize = 4096;
/// Bytes of the file that are read.
const LINE_BYTES: u64 = 256;

/// A file with a [status line](Reading::parse). Where there is no file, nothing threatens; an empty
/// one means that the end is near.
#[derive(Debug)]
pub struct StatusFile {
    directory: PathBuf,
    name: OsString,
    events: OwnedFd,
    /// What the file said at the start, until it is taken.
    first: Option<Reading>,
}

impl StatusFile {
    /// Watches `path`. Its directory must exist.
    ///
    /// # Errors
    /// The file says that the end is near already, or its directory cannot be watched.
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
        // A file that is created to be written is read when its writer has closed it: before that
        // it may be empty.
        let changed = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::CREATE;
        let gone = WatchFlags::DELETE | WatchFlags::MOVED_FROM;
        let ended = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        let flags = changed | gone | ended | WatchFlags::ONLYDIR;
        inotify::add_watch(&events, &directory, flags).map_err(refused)?;
        let mut file = Self { directory, name, events, first: None };
        // The look comes after the watch, so that a change after the look is an event.
        let found = file.read();
        if found.state == State::Ending {
            return Err(WarningError::EndsAlready { path: path.to_owned() });
        }
        file.first = Some(found);
        Ok(Box::new(file))
    }

    fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// Reads the first line. A file that cannot be read, or says nothing known, is a lost source.
    fn read(&self) -> Reading {
        let path = self.path();
        let shown = path.display();
        // A named pipe without a writer would be waited for otherwise.
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        let mut line = Vec::new();
        let read = File::options().read(true).custom_flags(flags).open(&path);
        match read.and_then(|file| file.take(LINE_BYTES).read_to_end(&mut line)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Reading::new(State::Steady, format!("{shown} is not there"))
            }
            Err(error) => Reading::lost(format!("read {shown}: {error}")),
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                let line = text.lines().next().unwrap_or("");
                Reading::parse(line, &shown.to_string())
                    .unwrap_or_else(|error| Reading::lost(error.to_string()))
            }
        }
    }

    /// Whether a file that was just created is about to be written: its writer closes it later.
    fn is_being_written(&self) -> bool {
        std::fs::symlink_metadata(self.path()).is_ok_and(|it| it.is_file() && it.len() == 0)
    }
}

impl WarningSource for StatusFile {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn take(&mut self) -> Result<Option<Reading>, WarningError> {
        let first = self.first.take();
        let mut buffer = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut events = Reader::new(&self.events, &mut buffer);
        let mut is_changed = false;
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
                    let is_created = event.events().contains(ReadFlags::CREATE);
                    is_changed |= match event.file_name() {
                        Some(name) if name.to_bytes() != self.name.as_bytes() => false,
                        Some(_) => !(is_created && self.is_being_written()),
                        // After an overflow of the queue the names are unknown.
                        None => true,
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
        Ok(if is_changed { Some(self.read()) } else { first })
    }
}
