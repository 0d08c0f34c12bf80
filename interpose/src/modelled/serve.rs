//! Decides of each descriptor that a program opens whether its file is served.

use std::ffi::c_int;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering::Relaxed;

use crate::modelled::report::PASSED;
use crate::modelled::setup;
use crate::modelled::table::{is_served, stat_of, turn};

/// Serves a descriptor that was just opened, if its file lies where files are served.
pub fn opened(fd: c_int, flags: c_int) {
    let Some(settings) = setup::settings() else { return };
    if is_served(fd) {
        // The number was closed in a way that this library did not see.
        turn().forget(fd);
    }
    if settings.at.is_empty() || flags & libc::O_PATH != 0 || !lies_there(fd) {
        return;
    }
    let Some(stat) = stat_of(fd) else { return };
    let medium = setup::medium(settings);
    let place_bytes = medium.place_bytes(stat.st_size as u64);
    if !turn().adopt(fd, flags, place_bytes) {
        PASSED.opens.fetch_add(1, Relaxed);
    }
}

/// Whether a descriptor's file lies where files are served.
pub fn lies_there(fd: c_int) -> bool {
    let Some(settings) = setup::settings() else { return false };
    let path = rustix::fs::readlink(format!("/proc/self/fd/{fd}"), Vec::new());
    path.is_ok_and(|path| settings.serves(std::ffi::OsStr::from_bytes(path.as_bytes())))
}
