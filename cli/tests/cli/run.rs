//! `perdura run`: programs that can have their heap moved, and those that are refused before they
//! start.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::running::PERDURA;

/// Runs `perdura run` with the library that was built for this test.
fn run(words: &[&str]) -> Output {
    let library = std::env::current_exe().unwrap().with_file_name("libperdura_interpose.so");
    assert!(library.exists(), "no {}", library.display());
    let mut command = Command::new(PERDURA);
    command.env("PERDURA_INTERPOSE", library).arg("run").args(words).output().unwrap()
}

fn refused(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "it went on: {said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
    }
}

fn script(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_program_runs_with_its_arguments_and_its_exit_status() {
    let output =
        run(&["--report", "--size", "1GiB", "--", "bash", "-c", "echo $0 $1; exit 7", "a", "-b"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(7), &b"a -b\n"[..]),
        "{said}"
    );
    assert!(said.contains("capacity_bytes="), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let path = script(folder.path(), "script", "#!/usr/bin/env cat\n");
    let output = run(&["--report", &path]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.stdout, b"#!/usr/bin/env cat\n", "{said}");
    assert!(said.contains("capacity_bytes="), "{said}");
}

#[test]
fn a_statically_linked_program_is_refused_before_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("static");
    let source = folder.path().join("static.c");
    std::fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"began\"); }\n").unwrap();
    let compiled = Command::new("cc").arg("-static").arg(&source).arg("-o").arg(&program).output();
    if !compiled.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no C compiler, or none that links statically");
        return;
    }
    let program = program.to_str().unwrap();
    refused(&run(&[program]), &[program, "statically linked"]);
    let behind = script(folder.path(), "script", &format!("#!{program} -x\n"));
    refused(&run(&[&behind]), &[program, "statically linked"]);
}

#[test]
fn what_cannot_have_a_library_preloaded_is_refused_before_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &str, mode: u32| {
        let path = folder.path().join(name);
        std::fs::copy("/bin/echo", &path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    refused(&run(&[&copy("set-user", 0o4755)]), &["set-user-ID"]);
    refused(&run(&[&copy("set-group", 0o2755)]), &["set-group-ID"]);
    let text = script(
        folder.path(),
        "text",
        "echo this needs a shell, and names none, in more than sixty-four bytes\n",
    );
    refused(&run(&[&text]), &["neither an ELF program nor a script"]);
    let short = script(folder.path(), "short", "\x7fELF");
    refused(&run(&[&short]), &["too short"]);
    let empty = script(folder.path(), "empty", "#!\n");
    refused(&run(&[&empty]), &["names no interpreter"]);
    let itself = folder.path().join("loop");
    let itself = script(folder.path(), "loop", &format!("#!{}\n", itself.display()));
    refused(&run(&[&itself]), &["scripts interpreted by scripts"]);
    let mut head = std::fs::read("/bin/echo").unwrap();
    head[4] = 1;
    head.truncate(4096);
    let narrow = folder.path().join("narrow");
    std::fs::write(&narrow, head).unwrap();
    refused(&run(&[narrow.to_str().unwrap()]), &["not a 64-bit"]);
    refused(&run(&["no-such-program-anywhere"]), &["no-such-program-anywhere", "PATH"]);
    refused(&run(&["--size", "much", "echo"]), &["--size", "much"]);
    refused(
        &run(&["--size", "1", "echo", "began"]),
        &["a heap of 1 bytes: it must have 1048576 to"],
    );
    refused(&run(&["--capacity", "/nonexistent/folder", "echo"]), &["/nonexistent/folder"]);
    refused(&run(&["--numa-node", "99", "echo", "began"]), &["NUMA node 99"]);
}

#[test]
fn a_program_has_the_signal_of_file_sizes_as_the_caller_has_it() {
    let library = std::env::current_exe().unwrap().with_file_name("libperdura_interpose.so");
    for (trap, is_ignored) in [("trap '' 25", true), ("trap - 25", false)] {
        let output = Command::new("sh")
            .args([
                "-c",
                &format!("{trap}; exec \"$0\" run grep SigIgn: /proc/self/status"),
                PERDURA,
            ])
            .env("PERDURA_INTERPOSE", &library)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let mask = said.split_whitespace().nth(1).and_then(|hex| u64::from_str_radix(hex, 16).ok());
        assert_eq!(mask.map(|mask| mask >> 24 & 1 == 1), Some(is_ignored), "{trap}: {output:?}");
    }
}

#[test]
fn what_env_starts_is_looked_at_and_env_itself_may_not_drop_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let first_line = |name: &str, line: &str| script(folder.path(), name, &format!("{line}\n"));
    let split = first_line("split", "#!/usr/bin/env -S -u FOO -C / A=1 cat");
    for words in [&[split.as_str()][..], &["env", "-u", "FOO", "echo"]] {
        let output = run(&[&["--report"], words].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("capacity_bytes="), "{words:?}: {said}");
    }
    let emptied = first_line("emptied", "#!/usr/bin/env -S -i cat");
    refused(&run(&[&emptied]), &["env -i", "LD_PRELOAD"]);
    refused(&run(&["env", "-i", "echo", "began"]), &["env -i", "LD_PRELOAD"]);
    let other = first_line("other", "#!/usr/bin/env -S LD_PRELOAD= cat");
    refused(&run(&[&other]), &["env changes LD_PRELOAD"]);
    // The error comes from `env` itself.
    let unknown = run(&["env", "--no-such-option", "echo", "began"]);
    let said = String::from_utf8_lossy(&unknown.stderr);
    assert!(!unknown.status.success() && said.starts_with("env: "), "{said}");
}

#[test]
fn a_program_with_capabilities_is_refused_unless_root_starts_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("capable");
    std::fs::copy("/bin/echo", &program).unwrap();
    // Revision 2, effective; CAP_NET_BIND_SERVICE is permitted, nothing is inherited.
    let capability: Vec<u8> =
        [0x0200_0001_u32, 1 << 10, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let flags = rustix::fs::XattrFlags::empty();
    let set = rustix::fs::setxattr(&program, c"security.capability", &capability, flags);
    if let Err(errno) = set {
        eprintln!("skipped: no capabilities can be given to a file here: {errno}");
        return;
    }
    let library = std::env::current_exe().unwrap().with_file_name("libperdura_interpose.so");
    let refusing = crate::running::unprivileged(Path::new(PERDURA), folder.path())
        .env("PERDURA_INTERPOSE", crate::running::for_everybody(&library, folder.path()))
        .arg("run")
        .arg(&program)
        .output()
        .unwrap();
    refused(&refusing, &[program.to_str().unwrap(), "capabilities (setcap)"]);
    let output = run(&["--report", program.to_str().unwrap(), "said"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.stdout == b"said\n" && said.contains("capacity_bytes="), "{said}");
}
