//! Files of a file system that never answers: a guard waits for nobody.

use std::fs::File;
use std::io::{Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::*;

/// A file system in user space with one file. It answers until the file is open, and never again.
struct Hanging {
    dir: tempfile::TempDir,
    /// To close it is to give the file system up: whoever waits for it goes on.
    device: Option<File>,
}

const LOOKUP: u32 = 1;
const GET_ATTRIBUTES: u32 = 3;
const OPEN: u32 = 14;
const INIT: u32 = 26;
const FILE: u64 = 2;

impl Hanging {
    /// `None`: this user may mount nothing.
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let data = std::ffi::CString::new(data).unwrap();
        mount("hanging", dir.path(), "fuse", MountFlags::empty(), Some(&*data)).ok()?;
        Some(Self { dir, device: Some(device) })
    }

    /// Opens the file.
    fn open(&mut self) -> File {
        let path = self.dir.path().join("file");
        let device = self.device.as_mut().unwrap();
        std::thread::scope(|scope| {
            let opened = scope.spawn(|| File::options().read(true).write(true).open(path).unwrap());
            while answer(device) != OPEN {}
            opened.join().unwrap()
        })
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.device = None;
        unmount(self.dir.path(), UnmountFlags::DETACH).unwrap();
    }
}

/// Answers one question, and returns which.
fn answer(device: &mut File) -> u32 {
    let mut asked = [0; 1 << 17];
    let asked_bytes = device.read(&mut asked).unwrap();
    assert!(asked_bytes >= 40, "a header");
    let word = |at: usize| u32::from_ne_bytes(asked[at..at + 4].try_into().unwrap());
    let (question, node) = (word(4), word(16));
    let attributes = |node: u64| {
        let mode: u32 = if node == FILE { 0o100_666 } else { 0o040_777 };
        let mut attributes = node.to_ne_bytes().to_vec();
        // Sizes and times.
        attributes.extend([0; 52]);
        attributes.extend(mode.to_ne_bytes());
        attributes.extend(1_u32.to_ne_bytes());
        attributes.extend([0; 20]);
        attributes
    };
    let body = match question {
        // Version 7.31, and writes of a page.
        INIT => [7_u32, 31, 0, 0, 0, 4096]
            .into_iter()
            .flat_map(u32::to_ne_bytes)
            .chain([0; 40])
            .collect(),
        // What it says is out of date at once.
        LOOKUP => [FILE, 0, 0, 0, 0]
            .into_iter()
            .flat_map(u64::to_ne_bytes)
            .chain(attributes(FILE))
            .collect(),
        GET_ATTRIBUTES => [0; 16].into_iter().chain(attributes(node.into())).collect(),
        OPEN => vec![0; 16],
        _ => Vec::new(),
    };
    let refused = if body.is_empty() { -38_i32 } else { 0 };
    let mut answer = (16 + body.len() as u32).to_ne_bytes().to_vec();
    answer.extend(refused.to_ne_bytes());
    answer.extend(&asked[8..16]);
    answer.extend(body);
    device.write_all(&answer).unwrap();
    question
}

#[test]
fn a_file_system_that_never_answers_delays_nobody_and_its_user_is_sent_away() {
    let Some(mut hanging) = Hanging::mount() else {
        return println!("skipped: this user may mount no file system in user space");
    };
    let (dir, one) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (parent, mut guard) = guard(dir.path(), 8);
    let [memory, ledger, _] = left(one.path());
    // To close it here would wait, too.
    let file = ManuallyDrop::new(hanging.open());
    let hold = Message::Hold { times: TIMES, rate_bytes_per_s: RATE };
    let began = Instant::now();
    // Held and let go, refused, and not asked for.
    let fds = [memory.as_fd(), ledger.as_fd(), file.as_fd()];
    let server = connect_to(&dir.path().join("sock")).unwrap().unwrap();
    send(&server, &hold, &fds).unwrap();
    until(&mut guard, |guard| guard.held.len() == 1);
    assert_eq!(super::answer(&server), Message::Ready);
    send(&server, &Message::Kept { serial: 0 }, &fds[2..]).unwrap();
    guard.turn().unwrap();
    send(&server, &Message::Goodbye, &[]).unwrap();
    until(&mut guard, |guard| guard.held.is_empty());
    let user = own_user();
    assert!(guard.closings.are_few(user));
    while guard.closings.are_few(user) {
        let visitor = connect_to(&dir.path().join("sock")).unwrap().unwrap();
        send(&visitor, &Message::Look, &fds[2..]).unwrap();
        guard.turn().unwrap();
        guard.turn().unwrap();
    }
    let visitor = connect_to(&dir.path().join("sock")).unwrap().unwrap();
    guard.turn().unwrap();
    assert!(guard.visitors.are_none(), "it is welcome");
    drop(visitor);
    assert!(began.elapsed() < Duration::from_secs(5), "somebody has waited");
    drop(hanging);
    let ended = |guard: &Holding| guard.closings.are_few(user);
    until(&mut guard, ended);
    drop((parent, ManuallyDrop::into_inner(file)));
}
