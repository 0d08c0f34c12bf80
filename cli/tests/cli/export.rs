//! `perdura export` from a running server, and `SYNC`: a real Redis loads what was there at one
//! moment.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::real_redis::{Redis, Talk, everything};
use crate::running::*;

fn export(file: &str, server: &Server) -> Output {
    Command::new(PERDURA)
        .args(["export", file, "--from", &format!("127.0.0.1:{}", server.port)])
        .output()
        .unwrap()
}

/// Gets a dump by `redis-cli --rdb`, or another option; false where there is none.
fn redis_cli(option: &str, file: &Path, server: &Server) -> bool {
    let tool =
        Command::new("redis-cli").args(["-p", &server.port.to_string(), option]).arg(file).output();
    let Ok(output) = tool else {
        println!("skipped: redis-cli is not installed");
        return false;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

/// 729 keys of every type, and two libraries of functions.
fn fill(talk: &mut Talk) {
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
}

fn libraries(talk: &mut Talk) -> Vec<String> {
    let mut words = talk.ask("FUNCTION LIST WITHCODE");
    words.sort();
    words
}

fn compare(server: &Server, redis: &Redis) {
    for db in [0, 3] {
        let (ours, theirs) = (everything(server.port, db), everything(redis.port, db));
        assert_eq!(ours.len(), theirs.len());
        assert!(ours == theirs, "database {db}");
    }
    let ours = libraries(&mut Talk::try_connect(server.port).unwrap());
    assert_eq!(ours, libraries(&mut redis.talk()));
    assert!(ours.concat().contains("name=two"));
}

#[test]
fn a_real_redis_loads_an_export_of_values_of_every_type() {
    let (dir, data) = (TestDir::new(), tempfile::tempdir().unwrap());
    let server = Server::start(dir.path(), &["--memory", "64MiB", "--grace", "10s"]);
    let mut talk = Talk::try_connect(server.port).unwrap();
    fill(&mut talk);
    let file = data.path().join("dump.rdb");
    std::fs::write(&file, "what was there before").unwrap();
    let output = export(file.to_str().unwrap(), &server);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("dump.rdb: 729 keys, "), "{text}");
    // Nothing is left beside it.
    assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 1);
    let Some(redis) = Redis::start(data.path(), &[]) else { return };
    compare(&server, &redis);

    let nowhere = export("/nowhere/dump.rdb", &server);
    let text = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(!nowhere.status.success() && text.contains("/nowhere/dump.rdb"), "{text}");
    // Other commands of the protocol.
    assert!(talk.ask("PERDURA EXPORT READ 0 10").concat().contains("there is no dump"));
    assert!(talk.ask("PERDURA EXPORT BOGUS").concat().contains("syntax error"));
    assert_eq!(talk.ask("PERDURA EXPORT STATUS"), ["state:none\\r\\n"]);
}

/// `redis-cli --rdb` and a real replica get the same, and the replica is told that nothing follows.
#[test]
fn a_real_redis_gets_a_copy_of_values_of_every_type() {
    let (dir, data, other) =
        (TestDir::new(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::start(dir.path(), &["--memory", "64MiB", "--grace", "10s"]);
    let mut talk = Talk::try_connect(server.port).unwrap();
    fill(&mut talk);
    if !redis_cli("--rdb", &data.path().join("dump.rdb"), &server) {
        return;
    }
    let Some(redis) = Redis::start(data.path(), &[]) else { return };
    compare(&server, &redis);
    assert!(redis_cli("--functions-rdb", &other.path().join("dump.rdb"), &server));
    let log = other.path().join("log");
    let Some(redis) = Redis::start(other.path(), &["--logfile", log.to_str().unwrap()]) else {
        return;
    };
    let mut replica = redis.talk();
    assert_eq!(libraries(&mut replica), libraries(&mut talk));
    assert_eq!(replica.ask("DBSIZE"), ["0"]);
    replica.ask(&format!("REPLICAOF 127.0.0.1 {}", server.port));
    let began = Instant::now();
    let has_heard = || std::fs::read_to_string(&log).unwrap().contains("-NOMASTERLINK this server");
    while !has_heard() {
        assert!(began.elapsed() < Duration::from_secs(20), "the replica hears no answer");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(replica.ask("INFO replication").concat().contains("master_link_status:down"));
    assert_eq!(replica.ask("REPLICAOF NO ONE"), ["OK"]);
    compare(&server, &redis);
    assert!(talk.ask("INFO replication").concat().contains("connected_slaves:0"));
}

#[test]
fn an_export_under_load_is_of_one_moment() {
    is_of_one_moment(|file, server| {
        let output = export(file.to_str().unwrap(), server);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        true
    });
}

#[test]
fn a_copy_under_load_is_of_one_moment() {
    is_of_one_moment(|file, server| redis_cli("--rdb", file, server));
}

/// Each transaction writes two keys; a dump of one moment has both or none.
fn is_of_one_moment(get: fn(&Path, &Server) -> bool) {
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
    let is_there = get(&file, &server);
    is_over.store(true, Relaxed);
    let rounds = writer.join().unwrap();
    if !is_there {
        return;
    }
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
