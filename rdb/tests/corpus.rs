//! What a real Redis writes is read, and what is written here a real Redis loads: the digests of
//! both data sets are equal.

#![allow(clippy::unwrap_used)] // tests, though not every helper is inside one

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use perdura_rdb::{Encoder, Item, Reader, Writer};

struct Redis {
    child: Child,
    conn: TcpStream,
}

impl Redis {
    /// Starts a server in a directory; `None` where none is installed.
    fn start(dir: &Path) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--save", "", "--enable-debug-command", "yes"])
            .args(["--list-max-listpack-size", "8", "--bind", "127.0.0.1", "--dir"])
            .arg(dir)
            .stdout(Stdio::null())
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                println!("skipped: redis-server: {error}");
                return None;
            }
        };
        let until = Instant::now() + Duration::from_secs(20);
        let conn = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(conn) => break conn,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        conn.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut redis = Self { child, conn };
        while redis.ask("PING") != "+PONG\r\n" {
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(redis)
    }

    /// Sends a line with one command, and returns its one-line reply.
    fn ask(&mut self, line: &str) -> String {
        self.conn.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut reply = Vec::new();
        while !reply.ends_with(b"\r\n") {
            let mut byte = [0];
            self.conn.read_exact(&mut byte).unwrap();
            reply.push(byte[0]);
        }
        String::from_utf8(reply).unwrap()
    }

    fn digest(&mut self) -> String {
        let digest = self.ask("DEBUG DIGEST");
        assert!(digest.starts_with('+') && digest.len() > 20, "{digest}");
        digest
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Commands that make values of every type, in every encoding.
fn commands() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let long = "abcdefgh".repeat(40);
    for (n, value) in
        ["", "0", "-129", "70000", "-2147483648", "2147483648", "007", &long].iter().enumerate()
    {
        all.push(format!("SET string:{n} \"{value}\""));
    }
    let sizes = [(1, "small"), (40, "middle"), (700, "large")];
    for (count, name) in sizes {
        let (mut list, mut ints, mut words) = (String::new(), String::new(), String::new());
        let (mut sorted, mut hash) = (String::new(), String::new());
        for n in 0..count {
            let word = if n % 50 == 7 { format!("{n}{long}") } else { format!("word:{n}") };
            write!(list, " {word} {n}").unwrap();
            write!(ints, " {}", n * 1_000_003 - 50).unwrap();
            write!(words, " {word}").unwrap();
            write!(sorted, " {}.{n} {word}", n * 7919 - 3000).unwrap();
            write!(hash, " {n} {word} {word} {n}").unwrap();
        }
        all.push(format!("RPUSH list:{name}{list}"));
        all.push(format!("SADD ints:{name}{ints}"));
        all.push(format!("SADD set:{name}{words}"));
        all.push(format!("ZADD sorted:{name}{sorted} inf infinite -inf \"{name}\" 0.1 tenth"));
        all.push(format!("HSET hash:{name}{hash}"));
        for n in 0..count {
            let more = if n % 3 == 0 { " other value" } else { "" };
            all.push(format!("XADD stream:{name} {}-{} field {n}{more}", n / 4 + 1, n % 4 + 1));
        }
        all.push(format!("XDEL stream:{name} 1-1"));
        all.push(format!("XGROUP CREATE stream:{name} group 2-1"));
        all.push(format!("XGROUP CREATE stream:{name} other 0"));
    }
    let huge = "h".repeat(20_000);
    all.push(format!("RPUSH list:small {huge} 1"));
    all.push("EXPIRE string:1 1000".to_owned());
    all.push("PEXPIREAT hash:small 9999999999999".to_owned());
    all.push("SELECT 9".to_owned());
    all.push("SET elsewhere value".to_owned());
    all
}

/// Reads a dump and writes its keys anew.
fn rewrite(dump: &[u8]) -> (Vec<u8>, u64) {
    let mut reader = Reader::new(dump, 64 << 20).unwrap();
    let mut writer = Writer::new(Vec::new(), &[("redis-ver", "7.0.0".to_owned())]).unwrap();
    let mut keys = 0;
    while let Some(item) = reader.next_item().unwrap() {
        if let Item::Key(item) = item {
            let mut value = Vec::new();
            Encoder::new(&mut value, keys % 2 == 0).value(&item.value);
            writer.key(item.db, &item.key, item.expire_at_ms, &value).unwrap();
            keys += 1;
        }
    }
    (writer.end().unwrap().0, keys)
}

#[test]
fn a_real_server_reads_what_was_read_from_it() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut first) = Redis::start(dir.path()) else { return };
    for command in commands() {
        let reply = first.ask(&command);
        assert!(!reply.starts_with('-'), "{command}: {reply}");
        if let Some(len) = reply.strip_prefix('$') {
            first.conn.read_exact(&mut vec![0; len.trim().parse::<usize>().unwrap() + 2]).unwrap();
        }
    }
    // Pending entries of a consumer; the reply has several lines and is read by its end.
    first.ask("MULTI");
    first.ask("SELECT 0");
    first.ask("XREADGROUP GROUP group one COUNT 9 STREAMS stream:large >");
    first.ask("XREADGROUP GROUP group two COUNT 9 STREAMS stream:large >");
    first.conn.write_all(b"EXEC\r\nECHO the-end\r\n").unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"the-end\r\n") {
        let mut bytes = [0; 4096];
        let len = first.conn.read(&mut bytes).unwrap();
        assert_ne!(len, 0);
        seen.extend_from_slice(&bytes[..len]);
    }
    let digest = first.digest();
    assert_eq!(first.ask("SAVE"), "+OK\r\n");
    let dump = std::fs::read(dir.path().join("dump.rdb")).unwrap();
    let (again, keys) = rewrite(&dump);
    assert_eq!(keys, 27);

    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("dump.rdb"), &again).unwrap();
    let mut second = Redis::start(other.path()).unwrap();
    assert_eq!(second.digest(), digest);

    // Cut anywhere, it is refused.
    for len in (0..dump.len()).step_by(dump.len() / 200 + 1) {
        let read = Reader::new(&dump[..len], 64 << 20).and_then(|mut reader| {
            while reader.next_item()?.is_some() {}
            Ok(())
        });
        assert!(read.is_err(), "cut at {len}");
    }
}
