//! What the environment says, and the handlers of forks.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::served;
use crate::wire::{DIR_VARIABLE, SOCKET_VARIABLE};

/// The directory of the region, which is not served.
const REGION_NAME: &[u8] = b".perdura";

/// What the environment says.
pub struct Settings {
    pub socket: PathBuf,
    /// The directory, with a slash at its end.
    dir: Vec<u8>,
}

static SETTINGS: OnceLock<Option<Settings>> = OnceLock::new();

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = start;

extern "C" fn start() {
    if settings().is_some() {
        // SAFETY: the handlers are functions of this library, which is never unloaded.
        unsafe {
            libc::pthread_atfork(
                Some(served::before_fork),
                Some(served::in_parent),
                Some(served::in_child),
            );
        }
    }
}

/// The settings; `None`: there is no host.
pub fn settings() -> Option<&'static Settings> {
    let read = || {
        let socket = std::env::var_os(SOCKET_VARIABLE)?;
        let mut dir = std::env::var_os(DIR_VARIABLE)?.into_vec();
        if dir.last() != Some(&b'/') {
            dir.push(b'/');
        }
        Some(Settings { socket: socket.into(), dir })
    };
    SETTINGS.get_or_init(read).as_ref()
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
