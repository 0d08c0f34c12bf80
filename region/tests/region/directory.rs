//! A region in a directory: a failed open leaves nothing behind, and a holder that flushes is
//! waited for.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use perdura_media::file::{Direct, Engine, FileDevice, OpenMode};
use perdura_media::{Clock, RealClock};
use perdura_region::directory::{
    Claim, Directory, DirectoryError, IMAGE_NAME, Settings, has_image,
};
use perdura_region::holder::SOCKET_NAME;
use perdura_region::{BudgetWish, Config};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};

/// Settings of a small region, without a holder.
pub fn settings(dir: &Path) -> Settings {
    Settings {
        dir: dir.to_owned(),
        config: Config { reserved_bytes: Some(4 << 20), ..Config::new(4 << 20, 1 << 20) },
        wish: BudgetWish::Bytes(1 << 20),
        warning: Duration::from_secs(600),
        reserve: None,
        engine: Engine::Auto,
        direct: Direct::Auto,
        threads: 1,
        holder: None,
        holder_wait: None,
        memory_dir: None,
        prove_again: false,
    }
}

fn open(settings: Settings) -> Result<Directory, DirectoryError> {
    Directory::open(settings, Arc::new(RealClock), &|_, _| {})
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

#[test]
fn a_refused_creation_leaves_nothing_and_a_refused_opening_leaves_everything() {
    let above = tempfile::tempdir().unwrap();
    let dir = above.path().join("a/b");
    // The rate is measured, then the budget is too large: after the reserve of 50 ms, a microsecond
    // of the warning is left.
    let impossible = || Settings { warning: Duration::from_micros(50_001), ..settings(&dir) };
    let error = open(impossible()).err().unwrap();
    assert!(matches!(error, DirectoryError::Promise(_)), "{error}");
    assert!(names(above.path()).is_empty());
    // A folder that existed before stays, with its contents.
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("note"), "mine").unwrap();
    open(impossible()).err().unwrap();
    assert_eq!(names(&dir), [dir.join("note")]);
    // An image that existed before stays.
    drop(open(settings(&dir)).unwrap());
    let before = names(&dir);
    assert_eq!(before.len(), 3);
    open(impossible()).err().unwrap();
    assert_eq!(names(&dir), before);
    drop(open(settings(&dir)).unwrap());
}

#[test]
fn a_disk_too_small_is_told_and_left_empty() {
    let mount = tempfile::tempdir().unwrap();
    let run = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    let mut tmpfs = Command::new("mount");
    tmpfs.args(["-t", "tmpfs", "-o", "size=6m", "perdura-test"]).arg(mount.path());
    if !run(&mut tmpfs) {
        println!("skipped: cannot mount a small tmpfs");
        return;
    }
    let outcome = open(settings(&mount.path().join("dir")));
    let left = names(mount.path());
    assert!(run(Command::new("umount").arg(mount.path())));
    let error = outcome.err().unwrap();
    assert!(error.to_string().contains("no space left"), "{error}");
    assert!(matches!(error, DirectoryError::Image { path, .. } if path.ends_with(IMAGE_NAME)));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    // Permissions do not stop root, but a file system of the kernel does.
    let dir = Path::new("/sys/kernel");
    if !dir.is_dir() {
        println!("skipped: no /sys here");
        return;
    }
    let error = open(settings(dir)).err().unwrap();
    assert!(matches!(&error, DirectoryError::Image { path, .. } if *path == dir.join(IMAGE_NAME)));
    assert!(error.to_string().contains("/sys/kernel/image.perdura"), "{error}");
    let error = open(settings(&dir.join("new"))).err().unwrap();
    assert!(matches!(&error, DirectoryError::File { path, .. } if *path == dir.join("new")));
}

#[test]
fn a_claim_keeps_others_out_and_leaves_nothing_if_it_is_not_used() {
    let above = tempfile::tempdir().unwrap();
    let dir = above.path().join("a/b");
    let claim = || Claim::new(settings(&dir), Arc::new(RealClock));
    let first = claim().unwrap();
    assert!(first.makes_image());
    let image = dir.join(IMAGE_NAME);
    let other = FileDevice::open(&image, OpenMode::Existing, Engine::Auto, Direct::Auto).unwrap();
    assert!(!other.try_lock().unwrap());
    drop(first);
    assert!(names(above.path()).is_empty());
    assert!(!has_image(&dir));
    drop(claim().unwrap().open(&|_, _| {}).unwrap());
    assert!(image.exists() && has_image(&dir));
    assert!(!claim().unwrap().makes_image());
    drop(open(settings(&dir)).unwrap());
}

/// A holder of an earlier run, which has the image's lock and answers like a holder that flushes.
#[test]
fn a_holder_in_the_middle_of_its_flush_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(settings(dir.path())).unwrap());
    let image = dir.path().join(IMAGE_NAME);
    let image = FileDevice::open(&image, OpenMode::Existing, Engine::Auto, Direct::Auto).unwrap();
    assert!(image.try_lock().unwrap());
    let listener =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap();
    bind(&listener, &SocketAddrUnix::new(dir.path().join(SOCKET_NAME)).unwrap()).unwrap();
    listen(&listener, 8).unwrap();
    let visitor = || accept_with(&listener, SocketFlags::CLOEXEC).unwrap();
    let answer = |text: &str| {
        let (visitor, mut question) = (visitor(), [0; 64]);
        rustix::io::read(&visitor, &mut question).unwrap();
        rustix::io::write(&visitor, text.as_bytes()).unwrap();
    };
    let holds = |visits: u64| {
        let opening = |settings| std::thread::spawn(move || open(settings));
        let opened = opening(settings(dir.path()));
        (0..visits).for_each(|_| answer("flushing 30000 4096"));
        opened
    };
    let opened = holds(5);
    // The last visitor comes as the holder leaves, and gets no answer.
    drop(visitor());
    std::fs::remove_file(dir.path().join(SOCKET_NAME)).unwrap();
    drop(image);
    drop(opened.join().unwrap().unwrap());
}

#[test]
fn a_flush_beyond_its_grace_is_not_waited_for_for_ever() {
    /// A clock whose sleeps take a second.
    struct Hasty(std::sync::atomic::AtomicU64);
    impl Clock for Hasty {
        fn now_ns(&self) -> u64 {
            self.0.load(std::sync::atomic::Ordering::Relaxed)
        }
        fn unix_ms(&self) -> u64 {
            0
        }
        fn thread_cpu_ns(&self) -> u64 {
            0
        }
        fn sleep_ns(&self, _: u64) {
            self.0.fetch_add(1_000_000_000, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let dir = tempfile::tempdir().unwrap();
    drop(open(settings(dir.path())).unwrap());
    let image = dir.path().join(IMAGE_NAME);
    let image = FileDevice::open(&image, OpenMode::Existing, Engine::Auto, Direct::Auto).unwrap();
    assert!(image.try_lock().unwrap());
    let listener =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap();
    bind(&listener, &SocketAddrUnix::new(dir.path().join(SOCKET_NAME)).unwrap()).unwrap();
    listen(&listener, 8).unwrap();
    let settings = settings(dir.path());
    let opened = std::thread::spawn(move || {
        Directory::open(settings, Arc::new(Hasty(0.into())), &|_, _| {}).map(drop)
    });
    // One a second.
    let mut visits = 0;
    while !opened.is_finished() {
        assert!(visits < 50, "it is waited for beyond its grace");
        let mut fds = [rustix::event::PollFd::new(&listener, rustix::event::PollFlags::IN)];
        let slice = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        if rustix::event::poll(&mut fds, Some(&slice)).unwrap() > 0 {
            let visitor = accept_with(&listener, SocketFlags::CLOEXEC).unwrap();
            let mut question = [0; 64];
            rustix::io::read(&visitor, &mut question).unwrap();
            rustix::io::write(&visitor, b"flushing 20000 4096").unwrap();
            visits += 1;
        }
    }
    let error = opened.join().unwrap().unwrap_err();
    let DirectoryError::StillFlushing { used_bytes: 4096, waited, .. } = error else {
        panic!("{error}")
    };
    assert!(waited > Duration::from_secs(20), "{waited:?}");
}

/// A rate is believed only if it was measured on this device, by so many threads, with at least as
/// many bytes as may be dirty.
#[test]
fn a_rate_on_record_counts_only_for_what_it_was_measured_with() {
    let above = tempfile::tempdir().unwrap();
    let dir = above.path().join("dir");
    let path = dir.join("rate.toml");
    drop(open(settings(&dir)).unwrap());
    let record = std::fs::read_to_string(&path).unwrap();
    // The text of a record with other values, one for each name.
    let with = |changes: &[(&str, &str)]| -> String {
        let line = |line: &str| {
            let name = line.split(" = ").next().unwrap_or_default();
            let change = changes.iter().find(|(changed, _)| *changed == name);
            change.map_or_else(|| line.to_owned(), |(name, value)| format!("{name} = {value}"))
        };
        record.lines().map(|text| line(text) + "\n").collect()
    };
    let value = |name: &str| -> String {
        let text = std::fs::read_to_string(&path).unwrap();
        let found = text.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
        found.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
    };
    let after_opening = |text: &str| {
        std::fs::write(&path, text).unwrap();
        drop(open(settings(&dir)).unwrap());
        std::fs::read_to_string(&path).unwrap()
    };
    let slow = ("rate_bytes_per_s", "1000000");
    let kept = with(&[slow, ("bytes", "1048576")]);
    assert_eq!(after_opening(&kept), kept, "measured with the whole budget");
    // With fewer bytes it is measured again, and the slower rate counts.
    after_opening(&with(&[slow, ("bytes", "1048575")]));
    assert_eq!(value("rate_bytes_per_s"), "1000000");
    assert!(value("bytes").parse::<u64>().unwrap() >= 1 << 20);
    for other in [("device", "\"another device\""), ("threads", "2")] {
        after_opening(&with(&[slow, other]));
        assert_ne!(value("rate_bytes_per_s"), "1000000", "{other:?}");
        assert_eq!(value("threads"), "1");
    }
}

/// It may be another version's or another program's, so it is not replaced.
#[test]
fn a_record_that_cannot_be_read_is_an_error_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rate.toml");
    for text in [&b"\xff"[..], b"rate_bytes_per_s = 1", b"[] = 7"] {
        std::fs::write(&path, text).unwrap();
        let error = open(settings(dir.path())).err().unwrap();
        let named = match &error {
            DirectoryError::File { path, .. } | DirectoryError::Rate { path, .. } => path,
            other => panic!("{other}"),
        };
        assert_eq!(*named, path, "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), text);
        assert_eq!(names(dir.path()), std::slice::from_ref(&path));
    }
}

#[test]
fn a_rate_that_cannot_be_put_on_record_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    // The record goes through a file beside it, in whose place is a folder.
    let beside = dir.path().join("rate.toml.new");
    std::fs::create_dir(&beside).unwrap();
    let error = open(settings(dir.path())).err().unwrap();
    assert!(matches!(error, DirectoryError::File { .. }), "{error}");
    assert_eq!(names(dir.path()), [beside]);
}
