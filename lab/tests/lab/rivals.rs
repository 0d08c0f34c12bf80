//! `perdura-lab rivals` starts a program that is built apart.

use std::process::{Command, Stdio};

use crate::process::{LAB, text};

#[test]
fn rivals_are_measured_by_a_program_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    // The copy lies away from the source, which may have a built program.
    let lab = dir.path().join("bin/perdura-lab");
    std::fs::create_dir(dir.path().join("bin")).unwrap();
    std::fs::copy(LAB, &lab).unwrap();
    let words = ["rivals", "--records", "7", "--help"];
    let run = || {
        let mut command = Command::new(&lab);
        command.args(words).env("PATH", "").current_dir(&dir).stdin(Stdio::null());
        command.output().unwrap()
    };
    let missing = run();
    assert!(!missing.status.success());
    let said = text(&missing.stderr);
    assert!(said.contains("cargo build --release --manifest-path lab/rivals/Cargo.toml"), "{said}");
    let program = dir.path().join("bin/perdura-rivals");
    std::fs::write(&program, "#!/bin/sh\necho \"$@\"\nexit 3\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let handed = run();
    assert_eq!(text(&handed.stdout), "--records 7 --help\n", "{}", text(&handed.stderr));
    assert_eq!(handed.status.code(), Some(3));
}
