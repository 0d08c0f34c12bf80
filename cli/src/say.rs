//! What a command found, on standard output.

use std::fmt::Display;
use std::io::Write;

/// Prints a line. A reader that has gone away (`perdura drill | head -1`) must not end a command in the middle
/// of its work, let alone a server: what it did counts, and its exit status says how it went.
pub fn say(line: impl Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
