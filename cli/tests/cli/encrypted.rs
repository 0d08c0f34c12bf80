//! A server whose image is encrypted: its life, who is refused, and that nothing of the data lies
//! in its directory.

use std::path::Path;
use std::process::{Command, Output};

use crate::running::*;

const SMALL: [&str; 5] = ["--memory", "128MiB", "--budget", "2MiB", "--key-file"];

fn perdura(words: &[&str]) -> Output {
    Command::new(PERDURA).args(words).output().unwrap()
}

/// Makes a key in a file. Returns the file's name.
fn new_key(dir: &Path, name: &str) -> String {
    let path = dir.join(name).to_str().unwrap().to_owned();
    let made = perdura(&["key", "generate", &path]);
    assert!(made.status.success(), "{made:?}");
    path
}

fn start(dir: &Path, key: &str) -> Server {
    Server::start(dir, &[&SMALL[..], &[key]].concat())
}

/// What a server says that does not start.
fn refused(dir: &Path, words: &[&str]) -> String {
    let dir = dir.to_str().unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--dir", dir];
    let output = perdura(&[&serve, words].concat());
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Whether any file of a directory has these bytes.
fn has(dir: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().flatten().any(|file| {
        std::fs::read(file.path()).is_ok_and(|found| memchr::memmem::find(&found, bytes).is_some())
    })
}

#[test]
fn what_is_written_is_kept_through_kills_and_lies_nowhere_in_the_clear() {
    let (keys, dir) = (tempfile::tempdir().unwrap(), TestDir::new());
    let key_file = new_key(keys.path(), "key");
    let server = start(dir.path(), &key_file);
    assert!(server.banner.contains("encryption       aes-256-gcm"), "{}", server.banner);
    let mut client = server.client();
    assert!(client.ask(&["INFO", "perdura"]).contains("encryption:aes-256-gcm\r\n"));
    let mut acknowledged = 0;
    let mut server = server;
    for _ in 0..3 {
        let writing = write_until_cut(server.port, acknowledged);
        std::thread::sleep(std::time::Duration::from_millis(150));
        server.signal("KILL");
        acknowledged = writing.join().unwrap().max(acknowledged);
        server = start(dir.path(), &key_file);
        acknowledged = verify(&server, acknowledged);
    }
    assert!(acknowledged > 20, "{acknowledged}");
    // The holder flushes with the key that lies in memory.
    server.signal("KILL");
    server.wait();
    let flushed = perdura(&["flush", "--dir", dir.path().to_str().unwrap()]);
    assert!(flushed.status.success(), "{flushed:?}");
    wait_until("the holder's end", || holder_of(dir.path()).is_none());
    let secret = value(3);
    assert!(!has(dir.path(), &secret.as_bytes()[..16]), "a value lies in the clear");
    let mut server = start(dir.path(), &key_file);
    assert_eq!(verify(&server, acknowledged), acknowledged);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    assert!(!has(dir.path(), &secret.as_bytes()[..16]), "a value lies in the clear");
    // The same without a key does lie there, so that the search finds what there is.
    let plain = TestDir::new();
    let mut server = Server::start(plain.path(), &SMALL[..4]);
    assert_eq!(server.client().ask(&["SET", "k", &secret]), "+OK");
    server.signal("TERM");
    server.wait();
    assert!(has(plain.path(), &secret.as_bytes()[..16]), "this test shows nothing");
}

#[test]
fn who_has_not_the_key_is_told_what_to_do_and_changes_nothing() {
    let (keys, dir) = (tempfile::tempdir().unwrap(), TestDir::new());
    let [first, second] = ["first", "second"].map(|name| new_key(keys.path(), name));
    let mut server = start(dir.path(), &first);
    assert_eq!(server.client().ask(&["SET", "k", "v"]), "+OK");
    // A holder keeps the memory, which has the key.
    server.signal("KILL");
    server.wait();
    let wrong = ["--memory", "128MiB", "--key-file", &second];
    for kept in [true, false] {
        let missing = refused(dir.path(), &[]);
        assert!(missing.contains("--key-file"), "{missing}");
        let other = refused(dir.path(), &wrong);
        assert!(other.contains("the key is not the one"), "{other}");
        if kept {
            let flushed = perdura(&["flush", "--dir", dir.path().to_str().unwrap()]);
            assert!(flushed.status.success(), "{flushed:?}");
            wait_until("the holder's end", || holder_of(dir.path()).is_none());
        }
    }
    let place = dir.path().to_str().unwrap();
    let check = |words: &[&str]| perdura(&[&["check", place], words].concat()).status.code();
    assert_eq!(check(&[]), Some(2));
    assert_eq!(check(&["--key-file", &second]), Some(2));
    assert_eq!(check(&["--key-file", &first]), Some(0));
    // Another key: the old one is worth nothing then.
    let change = ["key", "change", "--dir", place, "--key-file", &second, "--new-key-file", &first];
    assert!(!perdura(&change).status.success());
    let change = ["key", "change", "--dir", place, "--key-file", &first, "--new-key-file", &second];
    let changed = perdura(&change);
    assert!(changed.status.success(), "{changed:?}");
    assert_eq!(check(&["--key-file", &first]), Some(2));
    let server = start(dir.path(), &second);
    assert_eq!(server.client().ask(&["GET", "k"]), "v");
    let busy = perdura(&change);
    assert!(String::from_utf8_lossy(&busy.stderr).contains("a process uses it"), "{busy:?}");
    drop(server);
    end_holder(dir.path());
    // What would lie in the clear is refused.
    let device = refused(dir.path(), &["--key-file", &second, "--device", place]);
    assert!(device.contains("--device with a key"), "{device}");
    let memory = refused(dir.path(), &["--key-file", &second, "--memory-dir", "/proc"]);
    assert!(memory.contains("tmpfs"), "{memory}");
    let again = perdura(&["key", "generate", &first]);
    assert!(!again.status.success(), "a key was overwritten");
}

#[test]
fn an_encrypted_image_is_shipped_encrypted_and_restored_by_its_key_only() {
    let (keys, dir, vault) = (tempfile::tempdir().unwrap(), TestDir::new(), TestDir::new());
    let [key_file, other] = ["key", "other"].map(|name| new_key(keys.path(), name));
    let url = vault.path().to_str().unwrap();
    let ship = [&SMALL[..], &[&key_file, "--ship", url, "--ship-every", "30ms"]].concat();
    let mut server = Server::start(dir.path(), &ship);
    let secret = value(5);
    assert_eq!(server.client().ask(&["SET", "k", &secret]), "+OK");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let packs = std::fs::read_dir(vault.path()).unwrap().flatten();
    let packs: Vec<_> = packs.map(|image| image.path().join("packs")).collect();
    assert!(packs.len() == 1 && packs[0].is_dir(), "{packs:?}");
    assert!(!has(&packs[0], &secret.as_bytes()[..16]), "a value lies in the clear");
    let new = TestDir::new();
    let to = new.path().join("data");
    let restore = |words: &[&str]| {
        perdura(&[&["restore", url, "--dir", to.to_str().unwrap()], words].concat())
    };
    for (words, why) in [(&[][..], "--key-file"), (&["--key-file", &other], "the key is not")] {
        let refused = restore(words);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(why), "{said}");
        assert!(!to.join("image.perdura").exists());
    }
    let restored = restore(&["--key-file", &key_file]);
    assert!(restored.status.success(), "{restored:?}");
    let mut server = start(&to, &key_file);
    assert_eq!(server.client().ask(&["GET", "k"]), secret);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}
