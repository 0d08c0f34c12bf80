//! `perdura import` from a real Redis: its dump, its append-only files, and the running server.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::real_redis::{Redis, Talk, everything};
use crate::running::*;

/// Loaded within a transaction, which the server refuses to do.
const LATER_LIBRARY: &str =
    "#!lua name=later\nredis.register_function('later', function() return 7 end)";

fn import(source: &str, server: &Server, more: &[&str]) -> Output {
    Command::new(PERDURA)
        .args(["import", source, "--to", &format!("127.0.0.1:{}", server.port)])
        .args(more)
        .output()
        .unwrap()
}

fn succeeded(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn refused(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn serve(dir: &Path) -> Server {
    Server::start(dir, &["--memory", "64MiB", "--grace", "10s"])
}

/// Values of every type and size, with and without an end.
fn fill(talk: &mut Talk) {
    for n in 0..120 {
        talk.ask(&format!("SET string:{n} {}", "v".repeat(n)));
        talk.ask(&format!("SADD set:{} member{n} {n}", n % 3));
        talk.ask(&format!("RPUSH list:{} element{n}", n % 3));
    }
    // Larger than one step of an import.
    for n in 0..6000 {
        let long = format!("{n:0100}");
        talk.send(&["RPUSH", "large:list", &long]);
        talk.send(&["SADD", "large:set", &long]);
        talk.send(&["HSET", "large:hash", &long, &long]);
        talk.send(&["ZADD", "large:sorted", &format!("{}.25", n * 7 % 100), &long]);
        (0..4).for_each(|_| drop(talk.reply()));
    }
    for n in 1..400 {
        talk.ask(&format!("XADD stream {n}-{n} field {n} other value"));
    }
    talk.ask("XDEL stream 3-3");
    talk.ask("XGROUP CREATE stream readers 0");
    talk.ask("XREADGROUP GROUP readers one COUNT 9 STREAMS stream >");
    talk.ask("ZADD sorted 0.1 a -inf b inf c 3e20 d");
    talk.ask("HSET hash f 1 g 2");
    talk.ask("PEXPIREAT large:hash 4102444800000");
    talk.ask("PEXPIREAT string:7 4102444800001");
    talk.ask("SELECT 3");
    talk.ask("SET other db");
    talk.ask("SELECT 0");
}

fn equal(redis: u16, server: &Server) {
    for db in [0, 3] {
        let (theirs, ours) = (everything(redis, db), everything(server.port, db));
        let missing: Vec<_> = theirs.keys().filter(|key| !ours.contains_key(*key)).collect();
        assert!(missing.is_empty(), "missing in {db}: {missing:?}");
        for (key, value) in &ours {
            let Some(their) = theirs.get(key) else { panic!("{key} of {db} is there alone") };
            let differing = value.iter().zip(their).position(|(a, b)| a != b);
            let shown = differing.map(|at| (at, &value[at..], &their[at..]));
            assert!(value == their, "{key} of {db}: {shown:?}");
        }
    }
}

#[test]
fn a_dump_is_taken_once_and_mixed_only_if_asked_for() {
    let (dir, data) = (TestDir::new(), tempfile::tempdir().unwrap());
    let Some(redis) = Redis::start(data.path(), &["--list-max-listpack-size", "64"]) else {
        return;
    };
    fill(&mut redis.talk());
    assert_eq!(redis.talk().ask("SAVE"), ["OK"]);
    let dump = data.path().join("dump.rdb");
    let dump = dump.to_str().unwrap();
    let server = serve(dir.path());
    let text = succeeded(&import(dump, &server, &[]));
    assert!(text.starts_with("imported 134 keys in "), "{text}");
    equal(redis.port, &server);

    let again = refused(&import(dump, &server, &[]));
    assert!(again.contains("has keys already (133 in database 0, 1 in database 3)"), "{again}");
    let mut client = server.client();
    client.ask(&["SET", "own", "key"]);
    client.ask(&["SET", "hash", "changed"]);
    succeeded(&import(dump, &server, &["--merge"]));
    assert_eq!(client.ask(&["GET", "own"]), "key");
    assert_eq!(client.ask(&["HLEN", "hash"]), ":2");
    succeeded(&import(dump, &server, &["--flush"]));
    equal(redis.port, &server);

    // What is said about the use of a key.
    let idle = data.path().join("idle.rdb");
    let bytes = b"REDIS0009\xf8\x43\xe8\0\x04idle\x01v\xff\0\0\0\0\0\0\0\0";
    std::fs::write(&idle, bytes).unwrap();
    succeeded(&import(idle.to_str().unwrap(), &server, &["--flush"]));
    let seconds: u64 = client.ask(&["OBJECT", "IDLETIME", "idle"])[1..].parse().unwrap();
    assert!((900..1100).contains(&seconds), "{seconds}");

    // A dump that is cut, and a file that is none.
    let bytes = std::fs::read(dump).unwrap();
    let cut = data.path().join("cut.rdb");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let text = refused(&import(cut.to_str().unwrap(), &server, &["--flush"]));
    assert!(text.contains("the dump ends at byte"), "{text}");
    // What is there is said.
    let count = &client.ask(&["DBSIZE"])[1..];
    assert!(text.contains(&format!("has not ended: {count} keys were taken;")), "{count}: {text}");
    std::fs::write(&cut, b"neither dump nor commands\n").unwrap();
    let text = refused(&import(cut.to_str().unwrap(), &server, &["--flush"]));
    assert!(text.contains("expected a command"), "{text}");
    let text = refused(&import("/nowhere/dump.rdb", &server, &["--flush"]));
    assert!(text.contains("/nowhere/dump.rdb") && text.contains("No such file"), "{text}");
}

#[test]
fn append_only_files_are_taken_up_to_their_last_whole_command() {
    let (dir, data) = (TestDir::new(), tempfile::tempdir().unwrap());
    let options = ["--appendonly", "yes", "--appendfsync", "no"];
    let Some(redis) = Redis::start(data.path(), &options) else { return };
    let mut talk = redis.talk();
    fill(&mut talk);
    talk.ask("BGREWRITEAOF");
    wait_until("the rewrite", || {
        let info = redis.talk().ask("INFO persistence").concat();
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
    });
    talk.ask("DEL string:1 hash");
    talk.ask("MULTI");
    talk.ask("INCR counter");
    talk.send(&["FUNCTION", "LOAD", LATER_LIBRARY]);
    talk.reply().unwrap();
    talk.ask("LPUSH list:0 first");
    talk.ask("EXEC");
    talk.ask("SPOP set:1");
    talk.ask("EXPIRE string:2 10000");
    let files = data.path().join("appendonlydir");
    let server = serve(dir.path());
    let text = succeeded(&import(files.to_str().unwrap(), &server, &[]));
    assert!(text.contains("commands behind them"), "{text}");
    equal(redis.port, &server);
    assert!(!text.contains("left out"), "{text}");
    assert_eq!(server.client().ask(&["FCALL", "later", "0"]), ":7");

    // The end of a transaction, and the middle of a command, are missing.
    talk.ask("MULTI");
    talk.ask("SET half yes");
    talk.ask("SET other-half yes");
    talk.ask("EXEC");
    let last = std::fs::read_dir(&files).unwrap().map(|entry| entry.unwrap().path());
    let last = last.filter(|path| path.to_str().unwrap().ends_with(".incr.aof")).max().unwrap();
    let bytes = std::fs::read(&last).unwrap();
    std::fs::write(&last, &bytes[..bytes.len() - 20]).unwrap();
    let text = succeeded(&import(files.to_str().unwrap(), &server, &["--flush"]));
    assert!(text.contains("left out the last "), "{text}");
    let mut client = server.client();
    assert_eq!(client.ask(&["EXISTS", "half", "other-half"]), ":0");
    assert_eq!(client.ask(&["GET", "counter"]), "1");
}

/// The file was written long ago, and the source prolonged a key in time.
#[test]
fn a_key_that_was_prolonged_in_time_is_taken_however_late_it_comes() {
    let dir = TestDir::new();
    let file = dir.path().with_extension("aof");
    let mut text = Vec::new();
    for words in [
        "SET kept v PXAT 1000",
        "SET gone v PXAT 1000",
        "PEXPIREAT kept 2000",
        "APPEND kept w",
        "PEXPIREAT kept 99999999999999",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        write!(text, "*{}\r\n", words.len()).unwrap();
        words.iter().for_each(|word| write!(text, "${}\r\n{word}\r\n", word.len()).unwrap());
    }
    std::fs::write(&file, text).unwrap();
    let server = serve(dir.path());
    succeeded(&import(file.to_str().unwrap(), &server, &[]));
    std::fs::remove_file(&file).unwrap();
    let mut client = server.client();
    wait_until("the end of the import", || client.ask(&["EXISTS", "gone"]) == ":0");
    assert_eq!(client.ask(&["GET", "kept"]), "vw");
}

/// Changes many keys in many ways, until told to stop or cut off.
fn write_all_the_time(port: u16, number: u32, is_over: Arc<AtomicBool>) -> u64 {
    let mut talk = Talk::try_connect(port).unwrap();
    let mut n = 0;
    while !is_over.load(Relaxed) {
        let (key, value) = (n * 7 % 200, n);
        let commands = [
            format!("SET w{number}:{key} {value}"),
            format!("INCR counter:{number}"),
            format!("LPUSH queue:{number} {value}"),
            format!("RPOP queue:{}", n % 2),
            format!("SADD seen:{} {value}", n % 20),
            format!("SPOP seen:{}", n % 19),
            format!("ZADD rank:{number} {} m{key}", n % 1000),
            format!("HINCRBYFLOAT hash:{number} f{key} 0.5"),
            format!("DEL w{number}:{}", (key + 100) % 200),
            "MULTI".to_owned(),
            format!("INCR both:{}", n % 3),
            format!("INCR both:{}", (n + 1) % 3),
            "EXEC".to_owned(),
            format!("PEXPIREAT w{number}:{key} 4102444800000"),
            format!("APPEND text:{} x", n % 50),
            format!("XADD log:{number} MAXLEN 300 * round {n}"),
            format!("XGROUP CREATE log:{number} readers 0"),
            format!("XREADGROUP GROUP readers one COUNT 2 STREAMS log:{number} >"),
            format!("XTRIM log:{number} MAXLEN 200"),
            "SELECT 3".to_owned(),
            format!("SET third:{} {value}", n % 30),
            "SELECT 0".to_owned(),
        ];
        for command in &commands {
            talk.send(&command.split(' ').collect::<Vec<_>>());
        }
        for _ in &commands {
            if talk.reply().is_none() {
                return n;
            }
        }
        // A debug build beside other tests must be able to follow.
        std::thread::sleep(Duration::from_millis(2));
        n += 1;
    }
    n
}

#[test]
fn a_live_server_is_left_with_nothing_missing() {
    for diskless in ["yes", "no"] {
        let (dir, data) = (TestDir::new(), tempfile::tempdir().unwrap());
        let options = ["--repl-diskless-sync", diskless, "--repl-diskless-sync-delay", "0"];
        let Some(redis) = Redis::start(data.path(), &options) else { return };
        let mut talk = redis.talk();
        fill(&mut talk);
        let is_over = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..2)
            .map(|number| {
                let (port, is_over) = (redis.port, Arc::clone(&is_over));
                std::thread::spawn(move || write_all_the_time(port, number, is_over))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        let server = serve(dir.path());
        let source = format!("redis://127.0.0.1:{}", redis.port);
        let text = succeeded(&import(&source, &server, &["--promote", "--pause", "60s"]));
        assert!(text.contains("promoted at offset "), "{text}");
        assert!(text.contains("takes no writes for another "), "{text}");
        // The source's writers are stopped, so both can be compared.
        equal(redis.port, &server);
        is_over.store(true, Relaxed);
        talk.ask("CLIENT UNPAUSE");
        let written: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        assert!(written > 100, "{written} rounds");
    }
}

#[test]
fn following_ends_at_a_signal_and_a_password_is_given() {
    let (dir, data) = (TestDir::new(), tempfile::tempdir().unwrap());
    let options = ["--requirepass", "p@ss", "--repl-diskless-sync-delay", "0"];
    let Some(redis) = Redis::start_with_password(data.path(), &options, "p@ss") else { return };
    let mut talk = redis.talk();
    talk.ask("AUTH p@ss");
    talk.ask("SET before 1");
    let server = serve(dir.path());
    let text = refused(&import(&format!("redis://127.0.0.1:{}", redis.port), &server, &[]));
    assert!(text.contains("the source wants a password"), "{text}");
    let source = format!("redis://127.0.0.1:{}/0", redis.port);
    let mut child = Command::new(PERDURA)
        .env("PERDURA_SOURCE_PASSWORD", "p@ss")
        .args(["import", &source, "--to", &format!("127.0.0.1:{}", server.port)])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut client = server.client();
    wait_until("the full sync", || client.ask(&["GET", "before"]) == "1");
    talk.ask("SET after 2");
    talk.ask("SELECT 5");
    talk.ask("SET elsewhere 3");
    talk.ask("SELECT 0");
    talk.ask("SET last 4");
    wait_until("the last change", || client.ask(&["GET", "last"]) == "4");
    assert_eq!(client.ask(&["GET", "after"]), "2");
    // Another database was not asked for.
    client.ask(&["SELECT", "5"]);
    assert_eq!(client.ask(&["DBSIZE"]), ":0");
    signal_process(child.id(), "INT");
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    assert!(text.contains("stopped at offset "), "{text}");
}

/// A source that gives half a dump and is gone.
#[test]
fn a_source_that_vanishes_is_named_and_nothing_is_mixed_later() {
    let dir = TestDir::new();
    let server = serve(dir.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let source = format!("redis://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let dump = b"REDIS0009\xfe\x00\x00\x01a\x01b\x00\x01c\x05hal";
    let serve = std::thread::spawn(move || {
        for (head, body) in [
            ("+FULLRESYNC abc 100\r\n$500\r\n", &dump[..]),
            ("+FULLRESYNC abc 100\r\n\n\n", b""),
            ("-ERR not now\r\n", b""),
        ] {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 1000];
            let _ = stream.read(&mut asked).unwrap();
            stream.write_all(b"+OK\r\n").unwrap();
            let _ = stream.read(&mut asked).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(body).unwrap();
        }
    });
    let text = refused(&import(&source, &server, &[]));
    assert!(text.contains("gone in the middle of the full sync"), "{text}");
    assert!(text.contains("begin anew with --flush"), "{text}");
    let text = refused(&import(&source, &server, &["--flush"]));
    assert!(text.contains("the source has ended the connection"), "{text}");
    let text = refused(&import(&source, &server, &["--flush"]));
    assert!(text.contains("gives no full sync: ERR not now"), "{text}");
    serve.join().unwrap();
    let text = refused(&import(&source, &server, &["--flush"]));
    assert!(text.contains("no server listens there"), "{text}");
}

/// A source whose last command is late: it was counted when the writers were stopped.
#[test]
fn a_promotion_waits_for_what_was_written_before_the_pause() {
    let dir = TestDir::new();
    let server = serve(dir.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let source = format!("redis://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let thread = std::thread::spawn(move || {
        let early = b"*3\r\n$3\r\nSET\r\n$5\r\nearly\r\n$1\r\n1\r\n";
        let last = b"*3\r\n$3\r\nSET\r\n$4\r\nlast\r\n$1\r\n1\r\n";
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 1000];
        let _ = stream.read(&mut asked).unwrap();
        stream.write_all(b"+OK\r\n").unwrap();
        let _ = stream.read(&mut asked).unwrap();
        // A dump without a length, its mark, and a command, all in one piece.
        let mark = "m".repeat(40);
        let head = format!("+FULLRESYNC abc 100\r\n$EOF:{mark}\r\n").into_bytes();
        let dump = b"REDIS0009\xff\0\0\0\0\0\0\0\0";
        stream.write_all(&[&head[..], dump, mark.as_bytes(), early].concat()).unwrap();
        let (mut control, _) = listener.accept().unwrap();
        let text = format!("master_repl_offset:{}", 100 + early.len() + last.len());
        let mut pauses = 0;
        loop {
            let len = control.read(&mut asked).unwrap();
            if len == 0 {
                return pauses;
            }
            if asked[..len].windows(5).any(|word| word == b"PAUSE") {
                control.write_all(b"+OK\r\n").unwrap();
                pauses += 1;
                continue;
            }
            control.write_all(format!("${}\r\n{text}\r\n", text.len()).as_bytes()).unwrap();
            if pauses == 1 {
                pauses += 1;
                std::thread::sleep(Duration::from_millis(400));
                stream.write_all(last).unwrap();
            }
        }
    });
    let text = succeeded(&import(&source, &server, &["--promote"]));
    assert!(text.contains("promoted at offset 161: "), "{text}");
    assert_eq!(server.client().ask(&["EXISTS", "early", "last"]), ":2");
    assert_eq!(thread.join().unwrap(), 2);
}
