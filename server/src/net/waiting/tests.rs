//! A push that comes between a client's look at its keys and the moment in which it is noted.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::channel;

use perdura_media::{SimClock, SimDevice};
use perdura_region::{Config, Planted, Region};
use perdura_store::{Heap, Store, StoreOptions};

use super::super::driven::Driven;
use super::super::run::Beside;
use crate::commands::before_noted;
use crate::config::ServerConfig;

/// Turns of a loop after which an answer that has not come does not come.
const TURNS: usize = 50;

fn store(planted: Planted) -> (Store, Arc<SimClock>) {
    let clock = Arc::new(SimClock::new(1));
    let config = Config { lanes: Some(3), thread: false, planted, ..Config::new(4 << 20, 1 << 20) };
    let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock.clone(), config).unwrap();
    let heap = Heap::open(region).unwrap();
    (Store::open(heap, clock.clone(), StoreOptions::default()).unwrap(), clock)
}

/// Sends the lines, and returns what the client hears in some turns.
fn heard(driven: &mut Driven<'_>, client: &mut UnixStream, lines: &str) -> String {
    client.set_nonblocking(true).unwrap();
    client.write_all(lines.as_bytes()).unwrap();
    let mut heard = Vec::new();
    for _ in 0..TURNS {
        driven.turn().unwrap();
        let mut bytes = [0; 1000];
        if let Ok(count) = client.read(&mut bytes) {
            heard.extend_from_slice(&bytes[..count]);
        }
    }
    String::from_utf8(heard).unwrap().replace("\r\n", " ")
}

/// Lets a client of one loop wait, and one of another loop push as soon as the first one's command
/// has found nothing. Returns what both hear.
fn pushed_before_noted(planted: Planted, wait: &str, push: &str) -> (String, String) {
    let (store, clock) = store(planted);
    let config = ServerConfig { threads: 2, ..ServerConfig::default() };
    let beside = &Beside::new(&store, &*clock, &config).unwrap();
    let (has_looked, when_looked) = channel();
    let (has_pushed, when_pushed) = channel();
    let (is_noted, when_noted) = channel::<()>();
    std::thread::scope(|scope| {
        let mut waiting = Driven::new(beside, 0, &|| {}).unwrap();
        let mut client = waiting.connect().unwrap();
        let pusher = scope.spawn(move || {
            let mut pushing = Driven::new(beside, 1, &|| {}).unwrap();
            let mut client = pushing.connect().unwrap();
            when_looked.recv().unwrap();
            let reply = heard(&mut pushing, &mut client, push);
            has_pushed.send(()).unwrap();
            // The loop and its client stay until the other has been answered.
            when_noted.recv().unwrap();
            reply
        });
        before_noted::set(move || {
            has_looked.send(()).unwrap();
            when_pushed.recv().unwrap();
        });
        let reply = heard(&mut waiting, &mut client, wait);
        // A step that was not taken goes, and with it the pusher's wait for it.
        before_noted::set(|| {});
        is_noted.send(()).unwrap();
        (reply, pusher.join().unwrap())
    })
}

/// A command that waits, what is sent meanwhile, the end of its reply, and the reply to who waits.
const WAITS: [(&str, &str, &str, &str); 6] = [
    ("BLPOP none k 0\r\n", "RPUSH k x\r\n", ":1 ", "*2 $1 k $1 x "),
    ("BRPOP k 0\r\n", "MULTI\r\nRPUSH k x\r\nEXEC\r\n", "*1 :1 ", "*2 $1 k $1 x "),
    ("BLMOVE k l LEFT RIGHT 0\r\n", "LPUSH k x\r\n", ":1 ", "$1 x "),
    ("BLMPOP 0 1 k LEFT\r\n", "RPUSH k x\r\n", ":1 ", "*2 $1 k *1 $1 x "),
    ("BZPOPMIN k 0\r\n", "ZADD k 1 x\r\n", ":1 ", "*3 $1 k $1 x $1 1 "),
    // What is last is what was last at the first look.
    (
        "XREAD BLOCK 0 STREAMS k $\r\n",
        "XADD k 1-1 f v\r\n",
        "$3 1-1 ",
        "*1 *2 $1 k *1 *2 $3 1-1 *2 $1 f $1 v ",
    ),
];

#[test]
fn an_element_that_comes_before_the_client_is_noted_is_not_missed() {
    for (wait, push, done, served) in WAITS {
        let (reply, pushed) = pushed_before_noted(Planted::None, wait, push);
        assert_eq!(reply, served, "{wait}, with {push}");
        assert!(pushed.ends_with(done), "{push}: {pushed}");
    }
}

#[test]
fn the_order_of_this_test_shows_a_client_that_is_not_looked_at_again() {
    for (wait, push, done, _) in WAITS {
        let (reply, pushed) = pushed_before_noted(Planted::LookOnce, wait, push);
        assert_eq!(reply, "", "{wait}, with {push}");
        assert!(pushed.ends_with(done), "{push}: {pushed}");
    }
}

#[test]
fn the_time_that_a_client_waits_is_not_its_commands() {
    let (store, clock) = store(Planted::None);
    let config = ServerConfig { slowlog_slower_than_us: 0, ..ServerConfig::default() };
    let config = ServerConfig { latency_threshold_ms: 1, ..config };
    let beside = &Beside::new(&store, &*clock, &config).unwrap();
    let mut driven = Driven::new(beside, 0, &|| {}).unwrap();
    let (mut waiting, mut other) = (driven.connect().unwrap(), driven.connect().unwrap());
    let id = heard(&mut driven, &mut waiting, "CLIENT ID\r\n").replace(':', "");
    let ends = [
        ("BLPOP k 0\r\n", "RPUSH k x\r\n".to_owned(), "*2 $1 k $1 x "),
        ("BLPOP k 2\r\n", "PING\r\n".to_owned(), "*-1 "),
        ("BLPOP k 0\r\n", format!("CLIENT UNBLOCK {id}\r\n"), "*-1 "),
    ];
    for (wait, end, reply) in ends {
        assert_eq!(heard(&mut driven, &mut waiting, wait), "");
        clock.advance_ns(3_000_000_000);
        heard(&mut driven, &mut other, &end);
        assert_eq!(heard(&mut driven, &mut waiting, ""), reply);
    }
    // As in Redis each has its line in the log: if another command has ended the wait, behind that
    // command's, but for CLIENT UNBLOCK, which is still being carried out. The last is the first.
    let log = heard(&mut driven, &mut other, "SLOWLOG GET -1\r\n");
    let times: Vec<(&str, &str)> = log
        .split("*6 ")
        .skip(1)
        .map(|entry| {
            let mut words = entry.split(' ').skip(2);
            let time = words.next().unwrap();
            (words.nth(2).unwrap(), time)
        })
        .collect();
    let names = ["CLIENT", "BLPOP", "PING", "BLPOP", "BLPOP", "RPUSH", "CLIENT"];
    assert_eq!(times, names.map(|name| (name, ":0")), "{log}");
    let stats = heard(&mut driven, &mut other, "INFO commandstats\r\n");
    assert!(stats.contains("cmdstat_blpop:calls=3,usec=0,"), "{stats}");
    let histogram = heard(&mut driven, &mut other, "LATENCY HISTOGRAM blpop\r\n");
    assert!(histogram.contains("$5 calls :3 "), "{histogram}");
    assert_eq!(heard(&mut driven, &mut other, "LATENCY LATEST\r\n"), "*0 ");
}
