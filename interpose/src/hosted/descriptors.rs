//! Which descriptors may be of files below the directory: remembered by number, so that most calls
//! on other files cost a look at a byte.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::hosted::start;
use crate::kernel::{self, Found};

const DESCRIPTORS: usize = 1 << 16;
const UNKNOWN: u8 = 0;
const OTHER: u8 = 1;
const BELOW: u8 = 2;

static KNOWN: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(UNKNOWN) }; DESCRIPTORS];

/// Forgets what a number meant, because it means another file now, or none.
pub fn forget(fd: c_int) {
    if let Some(known) = usize::try_from(fd).ok().and_then(|fd| KNOWN.get(fd)) {
        known.store(UNKNOWN, Relaxed);
    }
}

/// Forgets a range of numbers.
pub fn forget_range(first: u32, last: u32) {
    let last = (last as usize).min(DESCRIPTORS - 1);
    let first = (first as usize).min(DESCRIPTORS);
    KNOWN.get(first..=last).into_iter().flatten().for_each(|known| known.store(UNKNOWN, Relaxed));
}

/// What an open file is, if it is a regular file below the directory.
pub fn below(fd: c_int) -> Option<Found> {
    start::settings()?;
    let known = KNOWN.get(usize::try_from(fd).ok()?)?;
    match known.load(Relaxed) {
        OTHER => return None,
        BELOW => return kernel::look(fd).filter(|found| found.is_file),
        _ => {}
    }
    let found = kernel::look(fd)?;
    let is_below = found.is_file && {
        let mut name = [0; 4096];
        kernel::name_of(fd, &mut name).is_some_and(|len| start::is_below(&name[..len]))
    };
    known.store(if is_below { BELOW } else { OTHER }, Relaxed);
    is_below.then_some(found)
}
