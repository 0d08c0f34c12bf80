//! `perdura export` from a running server: a real Redis loads what was there at one moment.

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::real_redis::{Redis, Talk, everything};
use crate::running::*;

fn export(file: &str, server: &Server) -> Output {
    Command::new(PERDURA)
        .args(["export", file, "--from", &format!("127.0.0.1:{}", server.port)])
        .output()
        .unwrap()
}

#[test]
fn a_real_redis_loads_an_export_of_values_of_every_type() {
    let (dir, data) = (TestDir::new(), tempfile::tempdir().unwrap());
    let server = Server::start(dir.path(), &["--memory", "64MiB", "--grace", "10s"]);
    let mut talk = Talk::try_connect(server.port).unwrap();
    for n in 0..700 {
        talk.send(&["SET", &format!("string:{n}"), &"v".repeat(n % 400)]);
        talk.send(&["RPUSH", &format!("list:{}", n % 7), &format!("{n:060}")]);
        talk.send(&["SADD", &format!("set:{}", n % 5), &n.to_string()]);
        talk.send(&["SADD", "large", &format!("member {n}")]);
        talk.send(&["HSET", &format!("hash:{}", n % 11), &format!("f{n}"), &n.to_string()]);
        talk.send(&["ZADD", &format!("rank:{}", n % 3), &format!("{}.5", n % 50), &n.to_string()]);
        talk.send(&["XADD", "stream", &format!("{}-1", n + 1), "field", &n.to_string()]);
        (0..7).for_each(|_| drop(talk.reply().unwrap()));
    }
    talk.ask("XGROUP CREATE stream readers 0");
    talk.ask("XREADGROUP GROUP readers one COUNT 9 STREAMS stream >");
    talk.ask("PEXPIREAT list:1 4102444800000");
    talk.ask("SELECT 3");
    talk.ask("SET other db");
    for name in ["one", "two"] {
        let register = format!("redis.register_function('{name}', function() return 1 end)");
        let code = format!("#!lua name={name}\n--{}\n{register}", "-".repeat(100));
        assert_eq!(talk.ask_words(&["FUNCTION", "LOAD", &code]), [name]);
    }
    let file = data.path().join("dump.rdb");
    std::fs::write(&file, "what was there before").unwrap();
    let output = export(file.to_str().unwrap(), &server);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("dump.rdb: 729 keys, "), "{text}");
    // Nothing is left beside it.
    assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 1);
    let Some(redis) = Redis::start(data.path(), &[]) else { return };
    for db in [0, 3] {
        let (ours, theirs) = (everything(server.port, db), everything(redis.port, db));
        assert_eq!(ours.len(), theirs.len());
        assert!(ours == theirs, "database {db}");
    }
    let libraries = "FUNCTION LIST WITHCODE";
    let sorted = |mut words: Vec<String>| {
        words.sort();
        words
    };
    assert_eq!(sorted(talk.ask(libraries)), sorted(redis.talk().ask(libraries)));
    assert!(talk.ask(libraries).concat().contains("name=two"));

    let nowhere = export("/nowhere/dump.rdb", &server);
    let text = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(!nowhere.status.success() && text.contains("/nowhere/dump.rdb"), "{text}");
    // Other commands of the protocol.
    assert!(talk.ask("PERDURA EXPORT READ 0 10").concat().contains("there is no dump"));
    assert!(talk.ask("PERDURA EXPORT BOGUS").concat().contains("syntax error"));
    assert_eq!(talk.ask("PERDURA EXPORT STATUS"), ["state:none\\r\\n"]);
}

/// Each transaction writes two keys; a dump of one moment has both or none.
#[test]
fn an_export_under_load_is_of_one_moment() {
    const PAIRS: usize = 1500;
    let (dir, data) = (TestDir::new(), tempfile::tempdir().unwrap());
    let server =
        Server::start(dir.path(), &["--memory", "64MiB", "--grace", "10s", "--threads", "2"]);
    let mut talk = Talk::try_connect(server.port).unwrap();
    for n in 0..PAIRS {
        talk.send(&["MSET", &format!("a:{n}"), "0", &format!("b:{n}"), "0"]);
    }
    (0..PAIRS).for_each(|_| drop(talk.reply().unwrap()));
    let is_over = Arc::new(AtomicBool::new(false));
    let (port, over) = (server.port, Arc::clone(&is_over));
    let writer = std::thread::spawn(move || {
        let mut talk = Talk::try_connect(port).unwrap();
        let mut round = 0u64;
        while !over.load(Relaxed) {
            // One counter before all others, and one behind them: at any moment the first is as
            // large as the last, or larger by one.
            round += 1;
            talk.ask(&format!("SET first {round}"));
            for n in 0..200 {
                let n = (round as usize * 200 + n) % PAIRS;
                talk.send(&[
                    "MSET",
                    &format!("a:{n}"),
                    &round.to_string(),
                    &format!("b:{n}"),
                    &round.to_string(),
                ]);
            }
            (0..200).for_each(|_| drop(talk.reply().unwrap()));
            talk.ask(&format!("SET last {round}"));
        }
        round
    });
    std::thread::sleep(Duration::from_millis(200));
    let file = data.path().join("dump.rdb");
    let output = export(file.to_str().unwrap(), &server);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    is_over.store(true, Relaxed);
    let rounds = writer.join().unwrap();
    let Some(redis) = Redis::start(data.path(), &[]) else { return };
    let all = everything(redis.port, 0);
    let number = |key: &str| all[key][1].parse::<u64>().unwrap();
    let (first, last) = (number("first"), number("last"));
    assert!(first == last || first == last + 1, "{first} and {last}");
    assert!(last < rounds, "{last} of {rounds}");
    for n in 0..PAIRS {
        let (a, b) = (number(&format!("a:{n}")), number(&format!("b:{n}")));
        assert!(a == b && a <= first, "pair {n}: {a} and {b} in round {first}");
    }
    let newest = (0..PAIRS).map(|n| number(&format!("a:{n}"))).max().unwrap();
    assert!(newest >= last, "{newest} of {last}");
}
