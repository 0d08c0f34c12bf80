//! A C compiler, and the library beside this test.
#![allow(dead_code, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// The folder with `libperdura.so`.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().to_owned();
    assert!(folder.join("libperdura.so").exists(), "no libperdura.so in {}", folder.display());
    folder
}

/// The compiler of `language` (`c`, `c++`), if there is one.
pub fn compiler(language: &str) -> Option<&'static str> {
    let names: &[&str] = if language == "c" { &["cc", "gcc", "clang"] } else { &["c++", "g++"] };
    let found = names.iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        eprintln!("skipped: no compiler for {language}; install gcc and g++");
    }
    found.copied()
}

/// A program compiled, in a folder of its own; `None`: no compiler of `language`.
pub fn program(language: &str, source: &str) -> Option<(TempDir, PathBuf)> {
    let compiler = compiler(language)?;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    compile(compiler, language, source, &program);
    Some((folder, program))
}

/// Compiles a program against the header and the library.
pub fn compile(compiler: &str, language: &str, source: &str, to: &Path) {
    let file = to.with_extension(if language == "c" { "c" } else { "cc" });
    std::fs::write(&file, source).unwrap();
    let standard = if language == "c" { "-std=c11" } else { "-std=c++17" };
    let library = library();
    let output = Command::new(compiler)
        .args([standard, "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"])
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg(&file)
        .arg("-o")
        .arg(to)
        .arg("-L")
        .arg(&library)
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .arg("-lperdura")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", file.display());
}

/// Runs it in a folder; what it says.
pub fn run(program: &Path, words: &[&str], folder: &Path) -> Output {
    // Cargo's may name a folder with an older library first.
    Command::new(program)
        .args(words)
        .current_dir(folder)
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap()
}

/// Runs it; it must succeed.
pub fn run_well(program: &Path, words: &[&str], folder: &Path) -> String {
    let output = run(program, words, folder);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words:?}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}
