//! `perdura check` as a process: its report and exit code for sound, damaged and absent heaps.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use perdura_heap::{Config, Durability, Heap, Memory};
use rustix::fs::FlockOperation;
use serde_json::Value;

fn check(words: &[&str], place: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_perdura"))
        .arg("check")
        .arg(place)
        .args(words)
        .output()
        .unwrap()
}

fn heap(path: &Path) -> Heap {
    let memory = Memory::file(path, 2 << 20, Durability::Flushed).unwrap();
    Heap::open(memory, Config::default()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Makes an image with an empty store in it.
fn make_store(dir: &Path, region_bytes: u64) {
    use perdura_media::file::{Direct, Engine, OpenMode};
    let mode = OpenMode::Create { capacity_bytes: 64 << 20 };
    let device = perdura_media::FileDevice::open(
        &dir.join("image.perdura"),
        mode,
        Engine::Pwrite,
        Direct::Off,
    )
    .unwrap();
    let config = perdura_region::Config {
        segment_bytes: Some(64 << 10),
        lanes: Some(3),
        thread: false,
        checkpoint_every: None,
        ..perdura_region::Config::new(region_bytes, 1 << 20)
    };
    let clock = std::sync::Arc::new(perdura_media::SimClock::new(1));
    let region = perdura_region::Region::open(std::sync::Arc::new(device), clock, config).unwrap();
    let heap = perdura_slots::Heap::open(region).unwrap();
    heap.region().close(1).unwrap();
}

#[test]
fn a_heap_file_is_checked_and_mended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("heap");
    let open = heap(&path);
    open.persist_alloc_named(100, "mine").unwrap();
    open.persist_alloc_named(200, "yours").unwrap();
    open.persist_alloc(300).unwrap();
    let busy = check(&[], &path);
    assert_eq!(busy.status.code(), Some(2), "{busy:?}");
    assert!(String::from_utf8_lossy(&busy.stderr).contains("in use"), "{busy:?}");
    open.close().unwrap();
    let sound = check(&[], &path);
    assert_eq!(sound.status.code(), Some(0), "{sound:?}");
    let text = String::from_utf8_lossy(&sound.stdout).into_owned();
    assert!(text.contains("leaks: 1 objects") && text.ends_with("sound\n"), "{text}");

    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096 + 3] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let damaged = check(&["--json"], &path);
    assert_eq!(damaged.status.code(), Some(1));
    let found = json(&damaged);
    assert_eq!(found["heap"]["sound"], false);
    assert!(found["heap"]["damage"][0]["what"].as_str().unwrap().contains("root entry 0"));
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "a check changes nothing");
    let mended = check(&["--repair", "--reclaim-leaks", "--json"], &path);
    assert_eq!(mended.status.code(), Some(0), "{mended:?}");
    assert_eq!(json(&mended)["reclaimed_objects"], 2);
    assert_eq!(heap(&path).roots().unwrap().len(), 1);
}

#[test]
fn what_is_not_there_or_no_heap_has_its_own_code() {
    let dir = tempfile::tempdir().unwrap();
    let nothing = check(&[], &dir.path().join("nothing"));
    let said = String::from_utf8_lossy(&nothing.stderr);
    assert!(
        said.contains("cannot open a heap file: No such file") && !said.contains("bytes"),
        "{said}"
    );
    assert_eq!(nothing.status.code(), Some(2));
    let path = dir.path().join("short");
    heap(&path).close().unwrap();
    std::fs::write(&path, &std::fs::read(&path).unwrap()[..10_000]).unwrap();
    let short = check(&[], &path);
    let said = String::from_utf8_lossy(&short.stdout);
    assert!(said.contains("a heap of 10000 bytes: "), "{said}");
    assert_eq!(short.status.code(), Some(1));
    let bare = check(&[], dir.path());
    let said = String::from_utf8_lossy(&bare.stderr);
    assert_eq!(bare.status.code(), Some(2), "a directory without an image");
    assert!(said.contains(&format!("no image in {}", dir.path().display())), "{said}");
    let path = dir.path().join("other");
    for (other, begins) in [
        (vec![], "0x0000000000000000"),
        (vec![7; 10_000], "0x0707070707070707"),
        ("no heap at all\n".repeat(100_000).into_bytes(), "0x2070616568206f6e"),
    ] {
        std::fs::write(&path, &other).unwrap();
        for words in [&[][..], &["--repair"], &["--json"]] {
            let found = check(words, &path);
            let said = String::from_utf8_lossy(&found.stderr);
            assert_eq!(found.status.code(), Some(2), "{said}");
            for part in [path.to_str().unwrap(), "not a Perdura heap", begins, "name a heap file"] {
                assert!(said.contains(part), "{part} in {said}");
            }
            assert!(found.stdout.is_empty(), "{found:?}");
        }
    }
    assert_eq!(check(&["--reclaim-leaks"], &path).status.code(), Some(2), "needs --repair");
    std::fs::write(dir.path().join("image.perdura"), vec![7; 10_000]).unwrap();
    let found = check(&[], dir.path());
    let said = String::from_utf8_lossy(&found.stderr);
    assert_eq!(found.status.code(), Some(2), "{said}");
    assert!(said.contains("not a Perdura image") && said.contains("0x0707"), "{said}");
}

#[test]
fn a_limit_on_file_sizes_is_said_and_no_death() {
    let dir = tempfile::tempdir().unwrap();
    make_store(dir.path(), 64 << 20);
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 100; exec \"$0\" check \"$1\"", crate::running::PERDURA])
        .arg(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{}: {said}", output.status);
    assert!(said.contains("was not checked") && said.contains("File too large"), "{said}");
}

#[test]
fn a_servers_directory_is_checked_with_its_image() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image.perdura");
    make_store(dir.path(), 4 << 20);
    let sound = check(&["--json"], dir.path());
    assert_eq!(sound.status.code(), Some(0), "{sound:?}");
    assert_eq!(json(&sound)["store"]["lanes"], 3);
    assert_eq!(check(&["--repair"], dir.path()).status.code(), Some(2));
    a_check_needs_no_more_than_to_read(dir.path(), &path);
    let mut bytes = std::fs::read(&path).unwrap();
    let len = bytes.len();
    bytes[len / 64..len / 2].fill(0x5a);
    bytes[..16384].iter_mut().skip(4096).for_each(|byte| *byte ^= 0x33);
    std::fs::write(&path, &bytes).unwrap();
    let damaged = check(&[], dir.path());
    assert_eq!(damaged.status.code(), Some(1), "{damaged:?}");
    assert!(String::from_utf8_lossy(&damaged.stdout).contains("image"), "{damaged:?}");
}

/// A user who may not write the image can check it, also while another process reads it, but not
/// while a server has it.
fn a_check_needs_no_more_than_to_read(dir: &Path, image: &Path) {
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(dir, 0o755);
    set(image, 0o444);
    // The mode of a file does not keep root from writing.
    let mut command = crate::running::unprivileged(Path::new(crate::running::PERDURA), dir);
    let reader = std::fs::File::open(image).unwrap();
    rustix::fs::flock(&reader, FlockOperation::NonBlockingLockShared).unwrap();
    let shared = command.arg("check").arg(dir).output().unwrap();
    assert_eq!(shared.status.code(), Some(0), "{shared:?}");
    rustix::fs::flock(&reader, FlockOperation::NonBlockingLockExclusive).unwrap();
    let taken = check(&[], dir);
    let said = String::from_utf8_lossy(&taken.stderr);
    assert!(taken.status.code() == Some(2) && said.contains("in use"), "{taken:?}");
    set(image, 0o644);
}
