//! Messages without `malloc`: a line on the stack, written at once.

use std::ffi::c_int;
use std::fmt::{self, Write};
use std::mem::MaybeUninit;

/// A descriptor of a library's own for what it says at the end, as long as it means the same file:
/// programs close what they did not open.
pub struct Kept {
    number: c_int,
    file: (libc::dev_t, libc::ino_t),
}

impl Kept {
    /// Another of the same file, out of the way of those that programs count on; `None`: it cannot
    /// be had.
    pub fn of(descriptor: c_int) -> Option<Self> {
        // SAFETY: a new descriptor.
        let number = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 100) };
        file_of(number).map(|file| Self { number, file })
    }

    /// False: there is nobody to tell; the number may be the program's now.
    pub fn is_same(&self) -> bool {
        file_of(self.number) == Some(self.file)
    }

    /// Writes a line to it.
    pub fn say(&self, text: fmt::Arguments<'_>) {
        say_to(self.number, text);
    }
}

/// What tells the file of a descriptor from others.
fn file_of(number: c_int) -> Option<(libc::dev_t, libc::ino_t)> {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: written to this stack; all zeros is a value.
    unsafe {
        let outcome = libc::fstat(number, found.as_mut_ptr());
        let found = found.assume_init();
        (outcome == 0).then_some((found.st_dev, found.st_ino))
    }
}

/// A line being made; what does not fit is cut off.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // One byte is left for the end of the line.
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
    // SAFETY: the bytes are on this stack. If nobody can be told there is nothing left to do about
    // it.
    unsafe { libc::write(descriptor, line.bytes.as_ptr().cast(), line.len + 1) };
}

/// Ends a process that misuses its memory.
#[allow(dead_code)] // of the two libraries that have this file, one keeps memory
pub fn abort(text: fmt::Arguments<'_>) -> ! {
    say(text);
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

/// Ends a process that cannot have what it was started with.
pub fn refuse(text: fmt::Arguments<'_>) -> ! {
    say(text);
    // SAFETY: ends the process, without its destructors: nothing of it ran yet.
    unsafe { libc::_exit(127) }
}
