//! Which format a trace has, by its first lines.

use super::input::Input;
use super::text::fields::shown;
use super::text::{is_nothing, msr};
use super::{Format, TraceError, native};

/// Lines looked at.
const LINES: usize = 32;

/// How a line of each format looks. Where several fit, the first that fits most lines is it.
const LOOKS: &[(Format, fn(&[u8]) -> bool)] = &[(Format::Msr, msr::looks)];

/// The format of a line by itself.
pub(crate) fn of_line(line: &[u8]) -> Option<Format> {
    LOOKS.iter().find(|(_, looks)| looks(line)).map(|&(format, _)| format)
}

/// The format of a trace.
pub(crate) fn of(input: &Input, file: &str) -> Result<Format, TraceError> {
    if native::looks(input.head()) {
        return Ok(Format::Ptrace);
    }
    let lines = first_lines(input);
    let fits = |looks: fn(&[u8]) -> bool| lines.iter().filter(|line| looks(line)).count();
    let mut best = (0, None);
    for &(format, looks) in LOOKS {
        let count = fits(looks);
        if count > best.0 {
            best = (count, Some(format));
        }
    }
    best.1.ok_or_else(|| TraceError::Unknown { file: file.to_owned(), start: shown(input.head()) })
}

/// The first lines that are something; a cut one at the end of what was looked at is left out.
pub(crate) fn first_lines(input: &Input) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = input.head().split(|&byte| byte == b'\n').collect();
    if !input.head_is_all() {
        lines.pop();
    }
    let whole = lines.into_iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    whole.filter(|line| !is_nothing(line)).take(LINES).collect()
}
