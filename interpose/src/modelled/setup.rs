//! The settings and the modelled medium of this process.
//!
//! The settings are read once, when the library is loaded. The medium is made when the first
//! served file is opened: a process that has none (a shell that only starts others) costs nothing
//! and leaves the recording to a process that has one.

use std::ffi::OsStr;
use std::sync::OnceLock;

use crate::environment::Environment;

use crate::modelled::medium::{Medium, Refused};
use crate::modelled::settings::Settings;
use crate::say;

static SETTINGS: OnceLock<Settings> = OnceLock::new();
static MEDIUM: OnceLock<Medium> = OnceLock::new();

/// Reads the settings from the environment; `None`: no files are served. A wrong value ends the
/// process.
pub fn read(environment: &Environment) -> Option<&'static Settings> {
    let get = |name: &str| environment.get(name).map(OsStr::to_owned);
    let settings = match Settings::of(get) {
        Ok(settings) if settings.at.is_empty() => return None,
        Ok(settings) => settings,
        Err(wrong) => say::refuse(format_args!("{wrong}")),
    };
    Some(SETTINGS.get_or_init(|| settings))
}

/// The settings; `None`: no files are served, or the start has not read them yet.
#[inline]
pub fn settings() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// The medium. The first call makes it.
pub fn medium(settings: &Settings) -> &'static Medium {
    MEDIUM.get_or_init(|| match Medium::new(settings) {
        Ok(medium) => medium,
        Err(Refused::Emulator(error)) => say::refuse(format_args!("no modelled medium: {error}")),
        Err(Refused::Recording(error)) => say::refuse(format_args!("{error}")),
    })
}

/// The medium; `None` while no served file has been opened.
#[inline]
pub fn medium_made() -> Option<&'static Medium> {
    MEDIUM.get()
}
