//! The program that is started as a holder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program that is started as a holder, which must call [`super::serve`]. It gets the words of
/// `arguments`, then `--dir DIR --threads N`, and its link as standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderProgram {
    /// The file that is executed.
    pub path: PathBuf,
    /// The words before `--dir`; `perdura` wants `holder`.
    pub arguments: Vec<OsString>,
    /// Environment variables that it must not inherit, because they hold secrets.
    pub hidden_variables: Vec<OsString>,
}

impl HolderProgram {
    /// The program `perdura` at `path`.
    pub fn perdura(path: impl Into<PathBuf>) -> Self {
        let arguments = vec!["holder".into()];
        Self { path: path.into(), arguments, hidden_variables: Vec::new() }
    }

    pub(super) fn command(&self, dir: &Path, threads: usize) -> Command {
        let mut command = Command::new(&self.path);
        // What it prints is not the server's answer to anybody.
        command.args(&self.arguments).stdout(Stdio::null());
        command.arg("--dir").arg(dir).arg("--threads").arg(threads.to_string());
        for name in &self.hidden_variables {
            command.env_remove(name);
        }
        command
    }
}
