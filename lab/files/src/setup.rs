//! The settings and the modelled medium of this process.
//!
//! The settings are read once, when the library is loaded. The medium is made when the first
//! served file is opened: a process that has none (a shell that only starts others) costs nothing
//! and leaves the recording to a process that has one.

use std::sync::OnceLock;

use crate::medium::{Medium, Refused};
use crate::say;
use crate::settings::Settings;

static SETTINGS: OnceLock<Settings> = OnceLock::new();
static MEDIUM: OnceLock<Medium> = OnceLock::new();

/// Reads the settings from the environment. A wrong value ends the process.
pub fn read() -> &'static Settings {
    SETTINGS.get_or_init(|| match Settings::of(|name| std::env::var_os(name)) {
        Ok(settings) => settings,
        Err(wrong) => say::refuse(format_args!("{wrong}")),
    })
}

/// The settings; `None` before the library's constructor has read them.
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
