//! `perdura-lab block serve` as a process, with other projects' programs as clients: qemu-io,
//! nbdcopy, fio, a file system.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;

use crate::process::{LAB, signal_process};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A running `perdura-lab block serve`; killed on drop.
struct Block {
    child: Child,
    banner: String,
    uri: String,
    /// The output after the banner.
    rest: Option<JoinHandle<String>>,
}

impl Block {
    fn start(folder: &Path, extra: &[&str]) -> Self {
        let socket = folder.join("socket");
        let mut child = Command::new(LAB)
            .args(["block", "serve", "--listen", &format!("unix:{}", socket.display())])
            .args(extra)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut banner = String::new();
        while !banner.contains("serving;") {
            assert_ne!(lines.read_line(&mut banner).unwrap(), 0, "no banner: {banner}");
        }
        let rest = std::thread::spawn(move || {
            let mut text = String::new();
            lines.read_to_string(&mut text).unwrap();
            text
        });
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        Self { child, banner, uri, rest: Some(rest) }
    }

    /// Sends SIGTERM; returns the exit code and the last output.
    fn stop(mut self) -> (Option<i32>, String) {
        signal_process(self.child.id(), "TERM");
        let code = self.child.wait().unwrap().code();
        (code, self.rest.take().unwrap().join().unwrap())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a program of a Debian package is installed; prints a line if it is not.
fn has(program: &str) -> bool {
    let found = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
    let here = found.iter().any(|folder| Path::new(folder).join(program).exists());
    if !here {
        eprintln!("SKIPPED: no {program} here (cargo xtask deps)");
    }
    here
}

fn output(program: &str, words: &[&str]) -> Output {
    Command::new(program).args(words).output().unwrap()
}

/// Runs a program that must succeed, and returns its output.
fn done(program: &str, words: &[&str]) -> String {
    let output = output(program, words);
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{program} {words:?}: {said}");
    said
}

fn refused(words: &[&str], reasons: &[&str]) {
    let output = Command::new(LAB).args(["block", "serve"]).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "it went on: {said}");
    for reason in reasons {
        assert!(said.contains(reason), "{reason:?} is missing in: {said}");
    }
}

fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Xoshiro256PlusPlus::seed_from_u64(7).fill_bytes(&mut bytes);
    bytes
}

const PCM: [&str; 4] = ["--media", "pcm", "--link", "pcie1x8"];

fn pcm(extra: &[&'static str]) -> Vec<&'static str> {
    [&PCM[..], extra].concat()
}

#[test]
fn qemu_reads_what_it_wrote_and_the_server_says_what_is_modelled() {
    if !has("qemu-io") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let block = Block::start(folder.path(), &pcm(&["--size", "64MiB"]));
    assert!(block.banner.contains("modelled: pcm+pcie1x8"), "{}", block.banner);
    let io = |commands: &[&str]| {
        let mut words = vec!["-f", "raw"];
        words.extend(commands.iter().flat_map(|command| ["-c", *command]));
        words.push(&block.uri);
        output("qemu-io", &words)
    };
    let good = io(&[
        "write -P 0xab 4096 1M",
        "write -f -P 0xcd 8192 512",
        "flush",
        "read -P 0xab 4096 4096",
        "read -P 0xcd 8192 512",
        "read -P 0xab 8704 1000k",
        "discard 4096 1M",
        "write -z 0 64k",
        "read -P 0 0 2M",
    ]);
    let said = String::from_utf8_lossy(&good.stdout);
    assert!(good.status.success() && !said.contains("failed"), "{said}");
    // qemu-io notices wrong bytes: this pattern is not the written one.
    let bad = io(&["write -P 1 0 4096", "read -P 2 0 4096"]);
    assert!(String::from_utf8_lossy(&bad.stdout).contains("verification failed"));
    let (code, said) = block.stop();
    assert_eq!(code, Some(0));
    assert!(said.contains("modelled ") && said.contains("measured"), "{said}");
    assert!(said.contains("modelled energy of the medium: ") && !said.contains(": 0 J"), "{said}");
    assert!(!folder.path().join("socket").exists());
}

#[test]
fn a_copy_in_and_out_is_the_same_and_a_file_keeps_it_through_kill_9() {
    if !has("nbdcopy") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (data, back) = (folder.path().join("data"), folder.path().join("back"));
    let kept = folder.path().join("kept");
    let bytes = noise(16 << 20);
    fs::write(&data, &bytes).unwrap();
    let file = ["--media", "dram", "--file", kept.to_str().unwrap()];
    let mut block = Block::start(folder.path(), &[&file[..], &["--size", "16MiB"]].concat());
    done("nbdcopy", &[data.to_str().unwrap(), &block.uri]);
    block.child.kill().unwrap();
    block.child.wait().unwrap();
    // The killed server's socket file still exists, but nobody listens.
    assert!(folder.path().join("socket").exists());
    let block = Block::start(folder.path(), &file);
    done("nbdcopy", &[&block.uri, back.to_str().unwrap()]);
    assert!(fs::read(&back).unwrap() == bytes);
    // A second server on the same socket is refused, and the first one goes on.
    let socket = format!("unix:{}", folder.path().join("socket").display());
    refused(
        &["--media", "dram", "--size", "1MiB", "--listen", &socket],
        &["listening there already"],
    );
    done("nbdcopy", &[&block.uri, back.to_str().unwrap()]);
    assert_eq!(block.stop().0, Some(0));
    assert!(fs::read(&kept).unwrap() == bytes);
}

#[test]
fn fio_verifies_random_writes_over_several_connections() {
    if !has("fio") || !done("fio", &["--enghelp"]).contains("nbd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let block = Block::start(folder.path(), &pcm(&["--size", "64MiB"]));
    let uri = format!("--uri={}", block.uri);
    let state = format!("--aux-path={}", folder.path().display());
    let words = [
        "--name=verify",
        "--ioengine=nbd",
        "--rw=randwrite",
        "--bs=4k",
        "--size=16M",
        "--numjobs=3",
        "--offset_increment=16M",
        "--iodepth=16",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--thread",
        "--group_reporting",
        "--randseed=7",
        "--verify_state_save=0",
        &uri,
        &state,
    ];
    let said = done("fio", &words);
    assert!(said.contains("err= 0"), "{said}");
    assert_eq!(block.stop().0, Some(0));
}

#[test]
fn a_read_only_export_refuses_writes() {
    if !has("qemu-io") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let words = ["--media", "dram", "--size", "1MiB", "--read-only", "--name", "disk"];
    let block = Block::start(folder.path(), &words);
    let written = output("qemu-io", &["-f", "raw", "-c", "write 0 4096", &block.uri]);
    assert!(!written.status.success());
    let read = done("qemu-io", &["-r", "-f", "raw", "-c", "read -P 0 0 1M", &block.uri]);
    assert!(!read.contains("failed"), "{read}");
    let other = block.uri.replace("///?", "///other?");
    assert!(!output("qemu-io", &["-r", "-f", "raw", "-c", "read 0 1", &other]).status.success());
}

#[test]
fn bad_input_is_refused_with_its_reason_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let socket = format!("unix:{}", path("socket"));
    let with = |words: &[&str], reasons: &[&str]| {
        refused(&[&["--listen", &socket][..], words].concat(), reasons);
        assert!(!folder.path().join("socket").exists(), "a socket was left: {words:?}");
    };
    let sized = |media: &'static str, size: &'static str| ["--media", media, "--size", size];
    with(&sized("dram", "4097"), &["--size", "4097", "multiple of 4096"]);
    with(&sized("dram", "0"), &["--size", "multiple of 4096"]);
    with(&["--media", "dram", "--size=-1GiB"], &["--size", "-1GiB"]);
    with(&sized("nothing", "1MiB"), &["--media", "nothing", "pcm"]);
    with(&[&sized("pcm", "1MiB")[..], &["--link", "rope"]].concat(), &["--link", "rope"]);
    with(&["--media", "dram"], &["--size"]);
    with(&[&sized("dram", "1MiB")[..], &["--connections", "0"]].concat(), &["--connections"]);
    fs::write(folder.path().join("odd"), [0; 5000]).unwrap();
    with(&["--media", "dram", "--file", &path("odd")], &["odd", "5000", "4096"]);
    with(&[&sized("dram", "1MiB")[..], &["--file", &path("odd")]].concat(), &["5000", "--size"]);
    let new = ["--media", "dram", "--file", &path("new")];
    with(&new, &["new", "--size"]);
    with(&[&new[..], &["--size", "900TiB"]].concat(), &["new", "900 TiB"]);
    with(&[&new[..], &["--size", "1MiB", "--fuse", &path("odd")]].concat(), &["--fuse"]);
    assert!(!folder.path().join("new").exists(), "a file was left that nobody had");
    fs::write(folder.path().join("bad.toml"), "[medium]\nread_latency = \"-5ns\"\n").unwrap();
    with(&["--media", &path("bad.toml"), "--size", "1MiB"], &["--media", "bad.toml"]);
    let dram = sized("dram", "1MiB");
    refused(&dram, &["--listen", "--fuse"]);
    refused(&[&dram[..], &["--listen", "tcp:0.0.0.0:0"]].concat(), &["loopback"]);
    refused(&[&dram[..], &["--listen", "nowhere"]].concat(), &["nowhere", "unix:PATH"]);
    refused(&[&dram[..], &["--fuse", &path("odd")]].concat(), &["--fuse", "no directory"]);
    refused(&[&dram[..], &["--fuse", folder.path().to_str().unwrap()]].concat(), &["not empty"]);
}

/// Commands that undo in reverse order what a test has set up; run on drop, also after a failure.
struct Undo(Vec<Vec<String>>);

impl Undo {
    fn push(&mut self, words: &[&str]) {
        self.0.push(words.iter().map(|word| (*word).to_owned()).collect());
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        for words in self.0.iter().rev() {
            let _ = Command::new(&words[0]).args(&words[1..]).output();
        }
    }
}

fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    let kernel = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let ready = root && Path::new("/dev/fuse").exists() && kernel.contains("xfs");
    if !ready {
        eprintln!("SKIPPED: root, /dev/fuse and XFS are needed");
    }
    ready && has("mkfs.xfs") && has("losetup")
}

#[test]
fn a_file_system_lives_on_it_through_a_mounted_file_and_a_loop_device() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (dir, xfs) = (folder.path().join("dir"), folder.path().join("xfs"));
    fs::create_dir(&dir).unwrap();
    fs::create_dir(&xfs).unwrap();
    let (dir, xfs) = (dir.to_str().unwrap(), xfs.to_str().unwrap());
    let words = [&PCM[..], &["--size", "320MiB", "--fuse", dir]].concat();
    let block = Block::start(folder.path(), &words);
    let mut undo = Undo(Vec::new());
    let file = format!("{dir}/disk");
    assert_eq!(fs::metadata(&file).unwrap().len(), 320 << 20);
    the_file_keeps_its_size(&file);

    let device = done("losetup", &["--find", "--show", "--direct-io=on", &file]);
    let device = device.trim();
    undo.push(&["losetup", "-d", device]);
    done("mkfs.xfs", &["-q", "-f", device]);
    done("mount", &[device, xfs]);
    undo.push(&["umount", xfs]);
    let bytes = noise(8 << 20);
    fs::write(format!("{xfs}/data"), &bytes).unwrap();
    done("umount", &[xfs]);
    done("xfs_repair", &["-n", device]);
    done("mount", &[device, xfs]);
    assert!(fs::read(format!("{xfs}/data")).unwrap() == bytes);
    done("umount", &[xfs]);
    done("losetup", &["-d", device]);
    undo.0.clear();
    let (code, said) = block.stop();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("fuse: modelled"), "{said}");
    assert!(!Path::new(&file).exists(), "still mounted");
}

fn the_file_keeps_its_size(file: &str) {
    use std::os::unix::fs::FileExt;
    let opened = fs::File::options().read(true).write(true).open(file).unwrap();
    let size = opened.metadata().unwrap().len();
    assert!(opened.set_len(size / 2).is_err() && opened.set_len(size * 2).is_err());
    opened.set_len(size).unwrap();
    assert_eq!(
        opened.write_at(b"beyond", size).unwrap_err().kind(),
        std::io::ErrorKind::StorageFull
    );
    opened.write_all_at(b"odd place", size - 9).unwrap();
    opened.sync_all().unwrap();
    let mut tail = [1; 20];
    assert_eq!(opened.read_at(&mut tail, size - 9).unwrap(), 9);
    assert_eq!(&tail[..9], b"odd place");
    let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&opened, punch, size - 4096, 4096).unwrap();
    opened.read_exact_at(&mut tail[..9], size - 9).unwrap();
    assert_eq!(&tail[..9], &[0; 9]);
    let folder = PathBuf::from(file).with_file_name("another");
    assert!(fs::write(folder, b"x").is_err() && fs::remove_file(file).is_err());
}

#[test]
fn the_mount_of_a_killed_server_is_named_with_the_way_out() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("dir");
    fs::create_dir(&dir).unwrap();
    let dir = dir.to_str().unwrap();
    let mut undo = Undo(Vec::new());
    undo.push(&["umount", "-l", dir]);
    let words = ["--media", "dram", "--size", "1MiB", "--fuse", dir];
    let mut block = Block::start(folder.path(), &words);
    let other = ["--media", "dram", "--size", "1MiB", "--fuse", dir];
    refused(&other, &["something is mounted there"]);
    block.child.kill().unwrap();
    block.child.wait().unwrap();
    refused(&other, &["server that died", "fusermount3 -u"]);
    done("umount", &[dir]);
    assert_eq!(Block::start(folder.path(), &words).stop().0, Some(0));
}
