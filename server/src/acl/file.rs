//! The file with users: a line each, `user NAME RULE …`, in the form of ACL LIST.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::RuleError;
use super::users::{DEFAULT, Users, is_name, merged, nobody};

/// Reads users from a file; all mistakes are told at once, and with one nothing is taken.
///
/// # Errors
/// The file cannot be read, or has mistakes: each with its line.
pub(crate) fn load(path: &Path, all_channels: bool) -> Result<Users, String> {
    let shown = path.display();
    let text = std::fs::read(path).map_err(|error| {
        format!("Error loading ACLs, opening file '{shown}': {}", cause(&error))
    })?;
    let lines = text.split(|byte| *byte == b'\n').zip(1..);
    parse(&shown.to_string(), lines, all_channels).map_err(|mistakes| {
        format!(
            "{mistakes}WARNING: ACL errors detected, no change to the previously active ACL rules \
             was performed"
        )
    })
}

/// The system's words for an error, without its number.
fn cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "No such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "Permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// Makes users of lines, which have their numbers.
///
/// # Errors
/// The mistakes, each with its line.
pub(crate) fn parse<'l>(
    of: &str,
    lines: impl Iterator<Item = (&'l [u8], usize)>,
    all_channels: bool,
) -> Result<Users, String> {
    let mut made = Vec::new();
    let mut mistakes = String::new();
    for (line, number) in lines {
        let mut words =
            line.split(|byte| matches!(byte, b' ' | b'\t' | b'\r')).filter(|word| !word.is_empty());
        let Some(first) = words.next() else { continue };
        let (b"user", Some(name)) = (first, words.next()) else {
            mistakes +=
                &format!("{of}:{number} should start with user keyword followed by the username. ");
            continue;
        };
        let shown = String::from_utf8_lossy(name);
        if !is_name(name) {
            mistakes +=
                &format!("'{of}:{number}: username '{shown}' contains invalid characters. ");
            continue;
        }
        let mut user = nobody(name, all_channels);
        if made.iter().any(|other: &super::User| *other.name == *name) {
            mistakes += &format!("WARNING: Duplicate user '{shown}' found on line {number}. ");
            continue;
        }
        let rules: Vec<&[u8]> = words.collect();
        let Ok(rules) = merged(&rules) else {
            mistakes += &format!("{of}:{number}: Unmatched parenthesis in selector definition. ");
            continue;
        };
        let mut is_first = true;
        for rule in &rules {
            match user.apply(rule, all_channels) {
                Ok(()) => {}
                // What names a command is no secret; anything else may be a password.
                Err(error @ RuleError::Unknown) => {
                    let rule = String::from_utf8_lossy(rule);
                    mistakes +=
                        &format!("{of}:{number}: Error in applying operation '{rule}': {error}. ");
                }
                Err(error) if std::mem::take(&mut is_first) => {
                    mistakes += &format!("{of}:{number}: {error}. ");
                }
                Err(_) => {}
            }
        }
        made.push(user);
    }
    if mistakes.is_empty() { Ok(Users::of(made)) } else { Err(mistakes) }
}

/// Replaces the file by one with these users, which is either the old one or the new one, whole,
/// whatever happens. Nobody but the server's user may read it.
///
/// # Errors
/// The system refuses to write it.
pub(crate) fn save(path: &Path, users: &Users) -> io::Result<()> {
    let mut text = Vec::new();
    for user in users.iter() {
        text.extend_from_slice(b"user ");
        text.extend_from_slice(&user.name);
        text.push(b' ');
        text.extend_from_slice(&user.describe());
        text.push(b'\n');
    }
    // A link to the file stays a link.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut temporary = path.clone().into_os_string();
    temporary.push(format!(".tmp-{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let written = write(&temporary, &text).and_then(|()| std::fs::rename(&temporary, &path));
    if let Err(error) = written {
        // What is left of it is of no use; that it cannot be removed changes nothing.
        let _ = std::fs::remove_file(&temporary);
        return Err(error);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    // One that an earlier process with this number has left may have another mode.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

/// Whether users that a file names have a default user among them.
pub(crate) fn names_default(line: &[u8]) -> bool {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.next() == Some(b"user") && words.next() == Some(DEFAULT)
}
