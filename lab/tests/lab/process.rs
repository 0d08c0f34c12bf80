//! Starts and ends the program under test.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub const LAB: &str = env!("CARGO_BIN_EXE_perdura-lab");
const NOBODY: u32 = 65534;

/// Runs the laboratory's program to its end.
pub fn lab(words: &[&str]) -> Output {
    Command::new(LAB).args(words).stdin(Stdio::null()).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn signal_process(pid: u32, signal: &str) {
    let status =
        Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -{signal} {pid}");
}

/// `program` as a user without root's rights runs it. If root runs the test, the program is copied
/// to `folder` when only root can reach it.
pub fn unprivileged(program: &Path, folder: &Path) -> Command {
    if !rustix::process::getuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new(for_everybody(program, folder));
    command.uid(NOBODY).gid(NOBODY);
    command
}

/// The file, or a copy of it in `folder` if other users cannot reach the file.
fn for_everybody(file: &Path, folder: &Path) -> PathBuf {
    let may = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o005 == 0o005;
    if file.ancestors().all(may) {
        return file.to_owned();
    }
    let copy = folder.join(file.file_name().unwrap());
    std::fs::copy(file, &copy).unwrap();
    copy
}
