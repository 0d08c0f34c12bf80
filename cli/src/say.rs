//! What a command found, on standard output.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::OnceLock;

use anyhow::{Result, bail};

/// Why a line is missing from what was printed, where somebody was there to read it.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Prints a line. A reader that has gone away (`perdura drill | head -1`) must not end a command in the middle
/// of its work, let alone a server: what it did counts, and its exit status says how it went.
pub fn say(line: impl Display) {
    if let Err(error) = writeln!(io::stdout(), "{line}")
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        // The first says it all.
        let _ = FAILED.set(error);
    }
}

/// Whether all that was to be read could be printed: for commands that do nothing else, on a full disk.
pub fn all_said() -> Result<()> {
    match FAILED.get() {
        None => Ok(()),
        Some(error) => bail!("standard output: {error}"),
    }
}
