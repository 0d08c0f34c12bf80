//! How a program is started as a holder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program that is started as a holder, such as `perdura holder`. The program gets the words of
/// `arguments`, then `--dir DIR --threads N`, and the link as its standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderProgram {
    /// Path of the executable file.
    pub path: PathBuf,
    /// The words before `--dir`; `perdura` wants `holder`.
    pub arguments: Vec<OsString>,
    /// Environment variables that the holder must not inherit, because they hold secrets.
    pub hidden_variables: Vec<OsString>,
}

impl HolderProgram {
    /// The program `perdura`, of which `path` is the executable file.
    pub fn perdura(path: impl Into<PathBuf>) -> Self {
        let arguments = vec!["holder".into()];
        Self { path: path.into(), arguments, hidden_variables: Vec::new() }
    }

    pub(super) fn command(&self, dir: &Path, threads: usize) -> Command {
        let mut command = Command::new(&self.path);
        // A reader of the server's output must not find the holder's in it.
        command.args(&self.arguments).stdout(Stdio::null());
        command.arg("--dir").arg(dir).arg("--threads").arg(threads.to_string());
        for name in &self.hidden_variables {
            command.env_remove(name);
        }
        command
    }
}
