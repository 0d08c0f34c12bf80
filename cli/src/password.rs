//! The password of a server: from a file or from the environment, as every command takes it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The environment variable with the password, which no process that a command starts may inherit.
pub const PASSWORD_VARIABLE: &str = "PERDURA_PASSWORD";

/// The environment variable with the password of a server from which data are taken.
const SOURCE_VARIABLE: &str = "PERDURA_SOURCE_PASSWORD";

/// The first line of the file, or the environment's password where no file is given. Both keep the
/// password from the other users of the machine, who read the words of a command in `ps`.
pub fn password(file: &Option<PathBuf>) -> Result<Option<String>> {
    match file {
        None => Ok(std::env::var(PASSWORD_VARIABLE).ok()),
        Some(path) => first_line("password-file", path).map(Some),
    }
}

/// The password of the server from which an import takes data: the first line of the file, or the
/// environment's.
pub fn source_password(file: &Option<PathBuf>) -> Result<Option<String>> {
    match file {
        None => Ok(std::env::var(SOURCE_VARIABLE).ok()),
        Some(path) => first_line("source-password-file", path).map(Some),
    }
}

/// The password in the file of an option.
pub fn first_line(option: &str, path: &Path) -> Result<String> {
    let place = || format!("--{option} {}", path.display());
    let text = std::fs::read_to_string(path).with_context(place)?;
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => Ok(line.to_owned()),
        None => bail!("{}: the first line is empty, expected a password", place()),
    }
}
