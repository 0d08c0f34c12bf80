//! Data of earlier versions: an image of each released format, and live memory of an older layout.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::running::*;

/// An image as version 1 of the format has it, made by a server with `--compress lz4`: its length,
/// then each page that it needs, with the page's offset before it. Little-endian.
const IMAGE_V1: &[u8] = include_bytes!("../fixtures/image-v1.sparse");

/// Unpacks an image into a directory.
fn unpack(sparse: &[u8], dir: &Path) {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let image = fs::File::create(dir.join("image.perdura")).unwrap();
    image.set_len(number(sparse)).unwrap();
    for page in sparse[8..].chunks(8 + 4096) {
        image.write_all_at(&page[8..], number(page)).unwrap();
    }
}

fn version_of(dir: &Path) -> [u32; 2] {
    let image = fs::read(dir.join("image.perdura")).unwrap();
    [8, 4096 + 8].map(|at| u32::from_le_bytes(image[at..at + 4].try_into().unwrap()))
}

/// Every value that was in the server when its image was made.
fn check_values(server: &Server) {
    let mut client = server.client();
    let mut is = |words: &[&str], expected: &str| {
        assert_eq!(client.ask(words), expected, "{words:?}");
    };
    is(&["DBSIZE"], ":44");
    is(&["GET", "string"], "hello");
    is(&["GET", "number"], "42");
    is(&["GET", "expires"], "later");
    is(&["STRLEN", "long"], ":5003");
    is(&["GETRANGE", "long", "4999", "-1"], "\0end");
    is(&["HGET", "hash", "b"], "2");
    is(&["SISMEMBER", "set", "y"], ":1");
    is(&["SCARD", "integers"], ":3");
    is(&["ZSCORE", "zset", "two"], "2.5");
    is(&["LINDEX", "list", "-1"], "e");
    is(&["XLEN", "stream"], ":2");
    for n in 1..=200 {
        is(&["HGET", "big", &format!("f{n}")], &format!("v{n}"));
        is(&["ZSCORE", "bigz", &format!("m{n}")], &n.to_string());
        is(&["SISMEMBER", "bigs", &format!("member-{n}")], ":1");
        is(&["LINDEX", "bigl", &(n - 1).to_string()], &format!("element-number-{n}"));
    }
    for n in 1..=30 {
        is(&["GET", &format!("after{n}")], &format!("value{n}"));
    }
}

#[test]
fn an_image_of_version_1_is_read_and_goes_on_as_this_version() {
    let dir = TestDir::new();
    unpack(IMAGE_V1, dir.path());
    assert_eq!(version_of(dir.path()), [1, 1]);
    let checked = std::process::Command::new(PERDURA).arg("check").arg(dir.path()).output();
    assert!(checked.as_ref().unwrap().status.success(), "{checked:?}");
    assert_eq!(version_of(dir.path()), [1, 1], "a check changes nothing");
    let mut server = Server::start(dir.path(), &[]);
    check_values(&server);
    assert_eq!(version_of(dir.path()), [2, 2]);
    // Some frames of the image are old, and others are new.
    assert_eq!(server.client().ask(&["SET", "new", "value"]), "+OK");
    assert_eq!(server.client().ask(&["DEL", "new"]), ":1");
    for signal in ["KILL", "TERM"] {
        server.signal(signal);
        server.wait();
        server = Server::start(dir.path(), &["--compress", "lz4"]);
        check_values(&server);
    }
}

#[test]
fn memory_of_an_older_layout_is_flushed_by_its_holder_and_nothing_is_lost() {
    let dir = TestDir::new();
    let mut server = Server::start(dir.path(), &["--memory", "128MiB", "--budget", "2MiB"]);
    let writing = write_until_cut(server.port, 0);
    std::thread::sleep(std::time::Duration::from_millis(200));
    server.signal("KILL");
    server.wait();
    let acknowledged = writing.join().unwrap();
    assert!(acknowledged > 20, "{acknowledged}");
    let holder = holder_of(dir.path()).unwrap();
    let fds = fs::read_dir(format!("/proc/{holder}/fd")).unwrap().flatten();
    let is_ledger = |path: &Path| {
        fs::read_link(path).is_ok_and(|name| name.to_string_lossy().contains("perdura-ledger"))
    };
    let ledger = fds.map(|fd| fd.path()).find(|path| is_ledger(path)).unwrap();
    let ledger = fs::OpenOptions::new().read(true).write(true).open(ledger).unwrap();
    // The second word is the layout's version.
    ledger.write_all_at(&1u64.to_ne_bytes(), 8).unwrap();
    let server = Server::start(dir.path(), &["--grace", "20s"]);
    assert_ne!(holder_of(dir.path()), Some(holder), "the memory was taken over");
    verify(&server, acknowledged);
}
