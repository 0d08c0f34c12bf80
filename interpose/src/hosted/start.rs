//! What the environment says, and the handlers of forks.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::environment::Environment;
use crate::hosted::wire::{DIR_VARIABLE, SOCKET_VARIABLE};
use crate::hosted::{fork, streams};

/// The directory of the region, which is not served.
const REGION_NAME: &[u8] = b".perdura";

/// What the environment says.
pub struct Settings {
    pub socket: PathBuf,
    /// The directory, with a slash at its end.
    dir: Vec<u8>,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// Begins, if the environment names a host.
pub fn start(environment: &Environment) {
    let word = |name: &str| environment.get(name).filter(|word| !word.is_empty());
    let (Some(socket), Some(dir)) = (word(SOCKET_VARIABLE), word(DIR_VARIABLE)) else { return };
    let mut dir = dir.as_bytes().to_vec();
    if dir.last() != Some(&b'/') {
        dir.push(b'/');
    }
    let _ = SETTINGS.set(Settings { socket: socket.into(), dir });
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    unsafe {
        libc::pthread_atfork(Some(fork::before_fork), Some(fork::in_parent), Some(fork::in_child));
    }
    streams::serve_standard();
}

/// The settings; `None`: there is no host.
pub fn settings() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// Whether a path is below the directory, and not of the region in it.
pub fn is_below(path: &[u8]) -> bool {
    let Some(settings) = settings() else { return false };
    let below = path.strip_prefix(settings.dir.as_slice());
    below.is_some_and(|below| below.split(|byte| *byte == b'/').next() != Some(REGION_NAME))
}

impl Settings {
    /// The directory, for messages.
    pub fn dir(&self) -> std::borrow::Cow<'_, str> {
        std::ffi::OsStr::from_bytes(&self.dir).to_string_lossy()
    }
}
