//! Files that are written as ordinary ones again, after a kill or in the middle of one.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{PYTHON, can_run, is_tidy, output, run, run_exactly, text};
use crate::running::*;

/// Runs a program until it says a line, and kills `perdura run`.
fn killed_when_ready(dir: &Path, program: &[&str]) {
    kill_when_ready(&mut run(dir, program));
}

fn kill_when_ready(run: &mut Command) {
    let mut child = run.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(line, "ready\n");
}

#[test]
fn a_region_that_is_smaller_than_usual_is_recovered_with_no_size_and_with_its_own() {
    if !can_run("mmap") {
        return;
    }
    for size in [&[][..], &["--size", "16MiB"]] {
        let dir = TestDir::new();
        let program = stores("");
        let stores = [PYTHON, "-c", &program, "a"];
        kill_when_ready(&mut run_exactly(dir.path(), &["--size", "8MiB"], &stores));
        let refused = run_exactly(dir.path(), &["--size", "1GiB"], &["true"]).output().unwrap();
        let said = text(&refused.stderr);
        assert!(
            !refused.status.success() && said.contains("were reserved: ask for less"),
            "{said}"
        );
        let recovered = run_exactly(dir.path(), size, &["true"]).output().unwrap();
        assert!(recovered.status.success(), "{}", text(&recovered.stderr));
        assert_eq!(std::fs::read(dir.path().join("a")).unwrap()[..6], *b"stored");
        assert!(is_tidy(dir.path()));
    }
}

#[test]
fn a_killed_run_leaves_nothing_outside_and_a_deep_directory_is_served() {
    if !can_run("mmap") {
        return;
    }
    let (dir, temporary) = (TestDir::new(), TestDir::new());
    let program = stores("");
    let command = |dir: &Path, program: &[&str]| {
        let mut command = run(dir, program);
        command.env("TMPDIR", temporary.path());
        command
    };
    kill_when_ready(&mut command(dir.path(), &[PYTHON, "-c", &program, "a"]));
    let is_empty = || std::fs::read_dir(temporary.path()).unwrap().next().is_none();
    assert!(is_empty());
    output(dir.path(), &["true"]);
    assert_eq!(std::fs::read(dir.path().join("a")).unwrap()[..6], *b"stored");
    // The path of a socket has 107 bytes at most.
    let deep = dir.path().join("a".repeat(60) + "b").join("c".repeat(60));
    std::fs::remove_file(dir.path().join("a")).unwrap();
    std::fs::create_dir_all(&deep).unwrap();
    let stores = stores("sys.exit()");
    let ended = command(&deep, &[PYTHON, "-c", &stores, "a"]).output().unwrap();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    assert_eq!(std::fs::read(deep.join("a")).unwrap()[..6], *b"stored");
    assert!(is_empty() && is_tidy(&deep));
}

/// A program that stores `stored` in new files of the names that it is given, runs `more` with
/// them, and waits.
fn stores(more: &str) -> String {
    let store = "import mmap, os, sys, time
files = {}
for name in sys.argv[1:]:
    f = files[name] = open(name, 'w+b')
    f.truncate(4096)
    mmap.mmap(f.fileno(), 4096)[:6] = b'stored'
";
    format!("{store}{more}\nprint('ready', flush=True)\ntime.sleep(60)")
}

/// Files that others have changed since a run was killed.
#[test]
fn what_others_have_put_in_the_place_of_a_file_stays_and_a_renamed_file_is_found() {
    if !can_run("mmap") {
        return;
    }
    let (dir, other) = (TestDir::new(), TestDir::new());
    let program = "import mmap, os, sys, time
for name in 'same', 'renamed', 'replaced', 'removed', 'outside', 'elsewhere':
    f = open(name, 'w+b')
    f.truncate(4096)
    mmap.mmap(f.fileno(), 4096)[:6] = b'stored'
os.rename('outside', sys.argv[1] + '/outside')
os.link('elsewhere', sys.argv[1] + '/elsewhere')
os.unlink('elsewhere')
print('ready', flush=True)
time.sleep(60)";
    killed_when_ready(dir.path(), &[PYTHON, "-c", program, other.path().to_str().unwrap()]);
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("below")).unwrap();
    std::fs::rename(at("renamed"), at("below/elsewhere")).unwrap();
    std::fs::write(at("new"), "newer").unwrap();
    std::fs::rename(at("new"), at("replaced")).unwrap();
    std::fs::remove_file(at("removed")).unwrap();
    output(dir.path(), &["true"]);
    let read = |name: &str| std::fs::read(at(name)).unwrap();
    for name in ["same", "below/elsewhere", "replaced.perdura-recovered", "removed"] {
        assert_eq!(read(name)[..7], *b"stored\0", "{name}");
    }
    assert!(read("replaced") == b"newer" && !at("renamed").exists());
    // Where the last name was made known to nobody, the former one has the bytes.
    let outside = std::fs::read(other.path().join("outside")).unwrap();
    assert!(outside[..7] == *b"stored\0" && !at("outside").exists());
    assert_eq!(read("elsewhere")[..7], *b"stored\0");
    assert!(is_tidy(dir.path()));
}

#[test]
fn names_modes_and_owners_outlive_a_kill_and_what_was_removed_stays_removed() {
    if !can_run("mmap") {
        return;
    }
    let dir = TestDir::new();
    let program = stores(
        "os.link('linked', 'linked-too')
os.fchmod(files['moded'].fileno(), 0o640)
os.setxattr('moded', 'user.perdura', b'of a user')
os.fchown(files['owned'].fileno(), 12, 34)
os.fchmod(files['owned'].fileno(), 0o6751)
os.unlink('removed', dir_fd=os.open('.', os.O_RDONLY))
unnamed = os.open('.', os.O_TMPFILE | os.O_RDWR)
os.ftruncate(unnamed, 4096)
mmap.mmap(unnamed, 4096)[:6] = b'stored'",
    );
    let names = ["linked", "moded", "owned", "reused", "removed"];
    killed_when_ready(dir.path(), &[&[PYTHON, "-c", &program], &names[..]].concat());
    let at = |name: &str| dir.path().join(name);
    let look = |name: &str| std::fs::metadata(at(name)).unwrap();
    // What others add to a file that keeps its place is replaced.
    let mut linked = std::fs::File::options().append(true).open(at("linked-too")).unwrap();
    linked.write_all(b"more").unwrap();
    // Most file systems give one of the next files the inode that was let go.
    let inode = look("reused").ino();
    std::fs::remove_file(at("reused")).unwrap();
    let others: Vec<_> = (0..200).map(|number| format!("other-{number}")).collect();
    let reuses = |name: &&String| {
        std::fs::write(at(name), "another").unwrap();
        look(name).ino() == inode
    };
    let other = others.iter().find(reuses).unwrap_or(&others[0]);
    std::fs::rename(at(other), at("reused")).unwrap();
    others.iter().for_each(|name| std::fs::remove_file(at(name)).unwrap_or_default());
    output(dir.path(), &["true"]);
    for name in ["linked", "linked-too", "moded", "owned", "reused.perdura-recovered"] {
        let found = std::fs::read(at(name)).unwrap();
        assert_eq!((found.len(), &found[..7]), (4096, &b"stored\0"[..]), "{name}");
    }
    assert_eq!(look("linked").ino(), look("linked-too").ino());
    assert_eq!(look("moded").mode() & 0o7777, 0o640);
    let mut attribute = [0; 9];
    assert_eq!(rustix::fs::getxattr(at("moded"), "user.perdura", &mut attribute), Ok(9));
    assert_eq!(&attribute, b"of a user");
    let owned = look("owned");
    assert_eq!((owned.mode() & 0o7777, owned.uid(), owned.gid()), (0o6751, 12, 34));
    assert_eq!(std::fs::read(at("reused")).unwrap(), b"another");
    assert!(is_tidy(dir.path()));
    let names = names_in(dir.path());
    let all = ["linked", "linked-too", "moded", "owned", "reused", "reused.perdura-recovered"];
    assert_eq!(names, all);
}

#[test]
fn one_file_that_cannot_be_written_keeps_everything_for_the_next_run() {
    if !can_run("mmap") {
        return;
    }
    let dir = TestDir::new();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("below")).unwrap();
    let names = ["below/first", "second"];
    killed_when_ready(dir.path(), &[&[PYTHON, "-c", &stores("")], &names[..]].concat());
    // A file where the directory was.
    std::fs::rename(at("below"), at("second.d")).unwrap();
    std::fs::remove_dir_all(at("second.d")).unwrap();
    std::fs::write(at("below"), "in the way").unwrap();
    let failed = run(dir.path(), &["true"]).output().unwrap();
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && said.contains("below/first"), "{said}");
    assert_eq!(std::fs::read(at("second")).unwrap()[..7], *b"stored\0");
    std::fs::remove_file(at("below")).unwrap();
    output(dir.path(), &["true"]);
    for name in names {
        assert_eq!(std::fs::read(at(name)).unwrap()[..7], *b"stored\0", "{name}");
    }
    assert!(is_tidy(dir.path()));
}

#[test]
fn what_is_recovered_beside_another_file_takes_the_place_of_none() {
    if !can_run("mmap") {
        return;
    }
    let dir = TestDir::new();
    let at = |name: &str| dir.path().join(name);
    for turn in ["first", "second"] {
        let program =
            stores(&format!("mmap.mmap(files['file'].fileno(), 4096)[:6] = b'{turn:.6}'.ljust(6)"));
        killed_when_ready(dir.path(), &[PYTHON, "-c", &program, "file"]);
        std::fs::write(at("new"), "newer").unwrap();
        std::fs::rename(at("new"), at("file")).unwrap();
        output(dir.path(), &["true"]);
        std::fs::remove_file(at("file")).unwrap();
    }
    let names = names_in(dir.path());
    assert_eq!(names, ["file.perdura-recovered", "file.perdura-recovered-2"]);
    for (name, word) in names.iter().zip([b"first ", b"second"]) {
        assert_eq!(std::fs::read(at(name)).unwrap()[..6], *word, "{name}");
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    let mut names: Vec<_> = entries.map(|it| it.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Each file is on the disk before it gets its name, and the journal's line before that.
#[test]
fn files_are_durable_before_their_names_and_before_the_memory_goes() {
    if !can_run("mmap") || !Path::new("/usr/bin/strace").exists() {
        eprintln!("SKIPPED: no strace");
        return;
    }
    let (dir, place) = (TestDir::new(), tempfile::tempdir().unwrap());
    let log = place.path().join("strace");
    let mut command = Command::new("strace");
    command.arg("-y").arg("-o").arg(&log).args(["-e", "trace=fsync,fdatasync,rename,renameat"]);
    let program = stores("os.link('linked', 'too')").replace("time.sleep(60)", "");
    let program = run(dir.path(), &[PYTHON, "-c", &program, "one", "linked"]);
    command.arg(program.get_program()).args(program.get_args()).current_dir(dir.path());
    for (name, value) in program.get_envs() {
        command.env(name, value.unwrap());
    }
    assert!(command.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success());
    let log = std::fs::read_to_string(&log).unwrap();
    let dir = dir.path().canonicalize().unwrap().display().to_string();
    let first = log.lines().position(|line| line.contains("/.perdura/written>")).unwrap();
    let mut lines = log.lines().skip(first).filter(|line| line.contains('('));
    for (call, what) in [
        ("fdatasync(", "/.perdura/written>"),
        ("fsync(", "/.perdura-"),
        ("rename", "/one\")"),
        ("fsync(", ">"),
        ("fsync(", "/linked>"),
    ] {
        let line = lines.next().unwrap_or_default();
        let is_it = line.starts_with(call) && line.contains(&dir);
        assert!(is_it && line.contains(what), "{call}{what} and not {line}: {log}");
    }
    let rest: Vec<_> = lines.collect();
    let gone = rest.iter().position(|line| line.contains("/.perdura-written\"")).unwrap();
    assert!(rest[gone + 1..].iter().any(|line| line.contains(&format!("<{dir}>"))), "{log}");
}

/// A file of 150 KiB, all of one letter.
fn letters(letter: char) -> String {
    letter.to_string().repeat(150 << 10)
}

/// Runs a program that stores a `b` everywhere in two files of `a`, and kills `perdura run` at the
/// `number`th call, counted from the last, that changes names or makes them durable. Returns
/// whether there was such a call, and the calls.
fn killed_while_writing(dir: &Path, number: usize, calls: &[String]) -> (bool, Vec<String>) {
    const CHANGES: &str = "fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,rmdir,linkat";
    let script = "import mmap
for name in 'one', 'two':
    f = open(name, 'r+b')
    mmap.mmap(f.fileno(), 0)[:] = b'b' * (150 << 10)";
    ["one", "two"].iter().for_each(|name| std::fs::write(dir.join(name), letters('a')).unwrap());
    let log = dir.join("strace");
    let mut command = Command::new("strace");
    command.arg("-o").arg(&log).args(["-e", &format!("trace={CHANGES}")]);
    if let Some(place) = calls.len().checked_sub(number) {
        // strace counts the calls of each name for itself.
        let name = |call: &String| call.split('(').next().unwrap().to_owned();
        let killed = name(&calls[place]);
        let nth = calls[..=place].iter().filter(|call| name(call) == killed).count();
        command.args(["-e", &format!("inject={killed}:signal=KILL:when={nth}")]);
    }
    let program = run(dir, &[PYTHON, "-c", script]);
    command.arg(program.get_program()).args(program.get_args()).current_dir(dir);
    for (name, value) in program.get_envs() {
        command.env(name, value.unwrap());
    }
    let status = command.stdin(Stdio::null()).status().unwrap();
    let calls = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(log).unwrap();
    let is_call = |line: &&str| line.contains('(');
    (!status.success(), calls.lines().filter(is_call).map(str::to_owned).collect())
}

#[test]
fn whenever_the_writing_of_files_is_killed_they_are_written_once_and_never_over_later_ones() {
    if !can_run("mmap") || !Path::new("/usr/bin/strace").exists() {
        eprintln!("SKIPPED: no strace");
        return;
    }
    let dir = TestDir::new();
    let (_, calls) = killed_while_writing(dir.path(), usize::MAX, &[]);
    // From the first durable step of the first file on.
    let renamed = calls.iter().position(|call| call.contains("/one\"")).unwrap();
    let steps = calls.len() - renamed + 1;
    assert!(steps > 6, "{calls:#?}");
    let mut kept = 0;
    for number in 1..=steps {
        let dir = TestDir::new();
        let (was_killed, _) = killed_while_writing(dir.path(), number, &calls);
        let at = &calls[calls.len() - number];
        assert!(was_killed, "{at}");
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let is_written = !dir.path().join(".perdura").exists();
        for name in ["one", "two"] {
            let found = read(name);
            let (old, new) = (letters('a'), letters('b'));
            assert!(found == new || !is_written && found == old, "{name}, killed at {at}");
        }
        if is_written {
            std::fs::write(dir.path().join("one"), "later").unwrap();
            kept += 1;
        }
        output(dir.path(), &["true"]);
        assert!(is_tidy(dir.path()), "killed at {at}");
        let one = if is_written { "later".to_owned() } else { letters('b') };
        assert!(read("one") == one && read("two") == letters('b'), "killed at {at}");
        assert_eq!(names_in(dir.path()), ["one", "two"], "killed at {at}");
    }
    assert!((1..steps).contains(&kept), "{kept} of {steps}: {calls:#?}");
}
