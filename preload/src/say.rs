//! Messages without `malloc`: a line on the stack, written at once.

use std::ffi::c_int;
use std::fmt::{self, Write};

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
pub fn say_to(descriptor: c_int, text: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 512], len: 0 };
    let _ = line.write_fmt(format_args!("perdura: {text}"));
    line.bytes[line.len] = b'\n';
    // SAFETY: the bytes are on this stack. If nobody can be told there is nothing left to do about it.
    unsafe { libc::write(descriptor, line.bytes.as_ptr().cast(), line.len + 1) };
}

/// Ends a process that misuses its memory.
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
