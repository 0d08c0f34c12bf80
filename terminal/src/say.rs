//! Lines on standard output, and errors on standard error.

use std::fmt::{self, Display, Formatter};
use std::io::{self, Write};
use std::sync::OnceLock;

use anyhow::{Result, bail};

/// The error for which a line could not be printed, unless the reader had gone away.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Prints a line. A reader that has gone away (`perdura drill | head -1`) must not end a command in
/// the middle of its work, and even less a server, so a failure is only noted.
pub fn say(line: impl Display) {
    if let Err(error) = writeln!(io::stdout(), "{}", Shown(line))
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        // Only the first error is kept.
        let _ = FAILED.set(error);
    }
}

/// Fails if a line could not be printed, on a full disk for example. This is for commands whose
/// only result is what they print.
pub fn all_said() -> Result<()> {
    match FAILED.get() {
        None => Ok(()),
        Some(error) => bail!("standard output: {error}"),
    }
}

/// Prints on standard error why a program fails.
pub fn complain(program: &str, error: &anyhow::Error) {
    eprintln!("{program}: {}", Shown(once(error)));
}

/// The error and its causes as one line, with each text once: many errors of the libraries contain
/// the text of their cause.
pub fn once(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if !text.contains(&cause) {
            if !text.is_empty() {
                text += ": ";
            }
            text += &cause;
        }
    }
    text
}

/// Text for a terminal, with control characters escaped: anybody may have chosen the names of files
/// and volumes in it.
pub struct Shown<T>(pub T);

impl<T: Display> Display for Shown<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        fmt::write(&mut Escaping(f), format_args!("{}", self.0))
    }
}

struct Escaping<'a, 'f>(&'a mut Formatter<'f>);

impl fmt::Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
        for piece in text.split_inclusive(steers) {
            match piece.chars().next_back().filter(|last| steers(*last)) {
                Some(last) => {
                    self.0.write_str(&piece[..piece.len() - last.len_utf8()])?;
                    write!(self.0, "{}", last.escape_default())?;
                }
                None => self.0.write_str(piece)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_steer_a_terminal_is_escaped() {
        let shown = Shown(format_args!("{}\n\t{}", "a\x1b[2J\r", "\u{9b}\u{e9}")).to_string();
        assert_eq!(shown, "a\\u{1b}[2J\\r\n\t\\u{9b}\u{e9}");
    }
}
