//! Messages that need no `malloc`: each is a line on the stack, and is written at once.

use std::ffi::c_int;
use std::fmt::{self, Write};
use std::mem::MaybeUninit;

use crate::kernel;

/// A descriptor of this library's own for its last message. Programs close descriptors that they
/// did not open, so it is used only if it still means the same file.
pub struct Kept {
    number: c_int,
    file: (libc::dev_t, libc::ino_t),
}

impl Kept {
    /// Duplicates a descriptor, with a number above those that programs count on; `None` if the
    /// system refuses.
    pub fn of(descriptor: c_int) -> Option<Self> {
        let number = kernel::duplicate(descriptor, 100);
        file_of(number).map(|file| Self { number, file })
    }

    /// Whether the descriptor still means the same file; if not, the number may be the program's.
    pub fn is_same(&self) -> bool {
        file_of(self.number) == Some(self.file)
    }

    /// Writes a line to the descriptor.
    pub fn say(&self, text: fmt::Arguments<'_>) {
        say_to(self.number, text);
    }
}

/// Device and number of a descriptor's file; `None` if the descriptor is closed.
fn file_of(number: c_int) -> Option<(libc::dev_t, libc::ino_t)> {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the call writes to this stack, and all zeros is a valid value.
    unsafe {
        let outcome = libc::fstat(number, found.as_mut_ptr());
        let found = found.assume_init();
        (outcome == 0).then_some((found.st_dev, found.st_ino))
    }
}

/// A line that is being made; text beyond its room is cut off.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // One byte is kept for the end of the line.
        let room = self.bytes.len() - 1 - self.len;
        let taken = text.len().min(room);
        self.bytes[self.len..self.len + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken;
        Ok(())
    }
}

/// Writes a line to standard error.
pub fn say(text: fmt::Arguments<'_>) {
    say_to(2, text);
}

/// Writes a line to a descriptor.
fn say_to(descriptor: c_int, text: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 512], len: 0 };
    let _ = line.write_fmt(format_args!("perdura: {text}"));
    line.bytes[line.len] = b'\n';
    // A failure to write cannot be reported anywhere.
    kernel::write(descriptor, &line.bytes[..=line.len]);
}

/// Ends a process that misuses its memory.
pub fn abort(text: fmt::Arguments<'_>) -> ! {
    say(text);
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

/// Ends a process that cannot get the memory or the files that it was started with.
pub fn refuse(text: fmt::Arguments<'_>) -> ! {
    say(text);
    // SAFETY: ends the process without destructors, before any of its code has run.
    unsafe { libc::_exit(127) }
}
