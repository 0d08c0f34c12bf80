//! Programs that programs with mapped files execute, and what their standard streams are.

use super::{PYTHON, can_run, is_tidy, output, run, text};
use crate::running::*;

/// Each child is another program before the host can know that it has closed its link.
#[test]
fn a_program_with_mapped_files_may_execute_another_as_may_its_forked_children() {
    if !can_run("mmap") {
        return;
    }
    let dir = TestDir::new();
    let program = "
import mmap, os
f = open('file', 'w+b')
f.truncate(1 << 20)
m = mmap.mmap(f.fileno(), 0)
m[:6] = b'stored'
ended = []
for _ in range(50):
    pid = os.fork()
    if pid == 0:
        os.execv('/bin/true', ['true'])
    ended.append(os.waitpid(pid, 0)[1])
assert not any(ended), ended
os.execv('/bin/cat', ['cat', 'file'])
";
    let said = output(dir.path(), &[PYTHON, "-c", program]);
    assert_eq!((said.stdout.len(), &said.stdout[..6]), (1 << 20, &b"stored"[..]));
    assert!(is_tidy(dir.path()));
}

#[test]
fn the_standard_streams_of_a_program_are_served_if_their_files_are() {
    if !can_run("mmap") {
        return;
    }
    let dir = TestDir::new();
    let program = "
import mmap, subprocess
f = open('file', 'w+b')
f.truncate(8)
m = mmap.mmap(f.fileno(), 8)
m[:8] = b'stored..'
def shell(command):
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, check=True)
    return done.stdout
assert shell('/bin/echo appended >> file') == b''
assert shell('/bin/echo first 1<> file') == b''
assert shell('/bin/ls none 2>> file; true') == b''
found = shell('md5sum < file')[:32]
assert found == shell('md5sum file')[:32], found
assert m[:8] == b'first\\n..', m[:8]
found = open('file', 'rb').read()
assert found[8:17] == b'appended\\n' and b'none' in found[17:], found
";
    output(dir.path(), &[PYTHON, "-c", program]);
    let found = std::fs::read(dir.path().join("file")).unwrap();
    assert_eq!(found[..17], *b"first\n..appended\n");
    assert!(is_tidy(dir.path()));
}

#[test]
fn a_directory_within_one_that_is_served_is_served_by_one_run_at_a_time() {
    if !can_run("mmap") {
        return;
    }
    let dir = TestDir::new();
    let inner = dir.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let maps = "
import mmap
f = open('inner/file', 'w+b')
f.truncate(4096)
mmap.mmap(f.fileno(), 4096)
print('mapped')
";
    // As if a run of the inner one were under way.
    std::fs::create_dir(inner.join(".perdura")).unwrap();
    let refused = run(dir.path(), &[PYTHON, "-c", maps]).output().unwrap();
    let error = text(&refused.stderr);
    assert!(!refused.status.success() && error.contains("inner has a run of its own"), "{error}");
    std::fs::remove_dir(inner.join(".perdura")).unwrap();
    assert_eq!(text(&output(dir.path(), &[PYTHON, "-c", maps]).stdout), "mapped\n");
    std::fs::create_dir(dir.path().join(".perdura")).unwrap();
    let refused = run(&inner, &["true"]).output().unwrap();
    let error = text(&refused.stderr);
    assert!(!refused.status.success() && error.contains("has a run of its own"), "{error}");
    assert!(is_tidy(&inner));
}
