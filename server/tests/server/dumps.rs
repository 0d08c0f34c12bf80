//! DUMP, RESTORE and MIGRATE.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use perdura_rdb::{Encoder, Strings, Value, seal_payload};
use perdura_server::ServerConfig;

use crate::check;
use crate::running::{Client, Running, config, start};

fn body(reply: &[u8]) -> Vec<u8> {
    let head = reply.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    assert_eq!(reply[0], b'$', "{}", String::from_utf8_lossy(reply));
    reply[head..reply.len() - 2].to_vec()
}

fn payload(value: &Value) -> Vec<u8> {
    let mut payload = Vec::new();
    Encoder::new(&mut payload, true).value(value);
    seal_payload(&mut payload);
    payload
}

fn restore(client: &mut Client, key: &str, ttl: &str, payload: &[u8], more: &str) -> String {
    let mut words = vec![&b"RESTORE"[..], key.as_bytes(), ttl.as_bytes(), payload];
    words.extend(more.split_whitespace().map(str::as_bytes));
    String::from_utf8(client.call_bytes(&words)).unwrap().trim_end().to_owned()
}

/// Redis 5 and 6 have no count of what a group has read; it follows from the entries.
#[test]
fn groups_of_an_old_payload_have_read_up_to_their_last_id() {
    let server = start(config());
    let mut client = server.client();
    // The entries 1-0, 2-0 and 3-0 in one node; groups by their last IDs.
    let mut old = b"\x0f\x01\x10\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0".to_vec();
    let mut items: Vec<u8> = Vec::new();
    let mut int = |value: u8| items.extend([value, 1]);
    [3, 0, 1].into_iter().for_each(&mut int);
    items.extend(b"\x81f\x02\0\x01");
    for ms in 0..3 {
        items.extend([2, 1, ms, 1, 0, 1, 0x81, b'v', 2, 4, 1]);
    }
    let count = 5 + 3 * 5;
    let len = (6 + items.len() + 1) as u32;
    old.push(len as u8);
    old.extend(len.to_le_bytes());
    old.extend([count, 0]);
    old.extend(items);
    old.extend([0xff, 3, 3, 0, 4]);
    let groups = [("none", 0), ("one", 1), ("two", 2), ("all", 3)];
    for (name, last_ms) in groups {
        old.push(name.len() as u8);
        old.extend(name.as_bytes());
        old.extend([last_ms, 0, 0, 0]);
    }
    seal_payload(&mut old);
    assert_eq!(restore(&mut client, "x", "0", &old, ""), "+OK");
    client.call("HELLO 3");
    let told = client.call("XINFO GROUPS x");
    for (name, read) in [("none", ":0"), ("one", ":1"), ("two", "_"), ("all", ":3")] {
        let group = told.split("%6").find(|group| group.contains(&format!(" {name} "))).unwrap();
        assert!(group.contains(&format!("entries-read {read}")), "{name}: {told}");
    }
}

#[test]
fn a_value_is_restored_with_its_time_in_place_of_another() {
    let server = start(config());
    let mut client = server.client();
    client.call("RPUSH list a b 3");
    let list = body(&client.call_bytes(&[b"DUMP", b"list"]));
    assert_eq!(
        restore(&mut client, "list", "0", &list, ""),
        "-BUSYKEY Target key name already exists."
    );
    assert_eq!(restore(&mut client, "copy", "100000", &list, "IDLETIME 10"), "+OK");
    assert_eq!(client.call("LRANGE copy 0 -1"), "*3 $1 a $1 b $1 3");
    let ttl: u64 = client.call("PTTL copy")[1..].parse().unwrap();
    assert!((90_000..=100_000).contains(&ttl), "{ttl}");
    assert_eq!(
        restore(&mut client, "copy", "4102444800000", &list, "ABSTTL REPLACE FREQ 9"),
        "+OK"
    );
    assert_eq!(client.call("PEXPIRETIME copy"), ":4102444800000");
    // The time is past: what was there goes, and nothing comes.
    assert_eq!(restore(&mut client, "copy", "1", &list, "ABSTTL REPLACE"), "+OK");
    let number = payload(&Value::String(b"12".to_vec()));
    assert_eq!(restore(&mut client, "n", "0", &number, ""), "+OK");
    check(
        &mut client,
        &[("EXISTS copy", ":0"), ("DUMP copy", "$-1"), ("INCR n", ":13"), ("DBSIZE", ":2")],
    );
    // All or none, as every command of a transaction.
    client.call("MULTI");
    client.send(&[b"RESTORE", b"list", b"0", &number, b"REPLACE"]);
    assert_eq!(client.reply_text(), "+QUEUED");
    client.call("GET list");
    assert_eq!(client.call("EXEC"), "*2 +OK $2 12");
}

#[test]
fn values_of_any_size_are_restored_and_the_larger_ones_in_parts() {
    let server = start(config());
    let mut client = server.client();
    for count in [1, 20, 200, 20_000] {
        let names: Vec<String> = (0..count).map(|n| format!("name {n}")).collect();
        let strings: Strings = names.iter().collect();
        let pairs: Strings = names.iter().flat_map(|name| [name, name]).collect();
        let scores: Vec<f64> = (0..count).map(|n| f64::from(n % 700) / 4.0).collect();
        let values = [
            Value::List(strings.clone()),
            Value::Set(strings.clone()),
            Value::Sorted(strings, scores),
            Value::Hash(pairs),
        ];
        for (number, value) in values.iter().enumerate() {
            let key = format!("k{number}");
            assert_eq!(restore(&mut client, &key, "0", &payload(value), "REPLACE"), "+OK");
        }
        let (last, len) = (count - 1, format!(":{count}"));
        let asked = [
            ("LLEN k0".to_owned(), len.clone()),
            ("SCARD k1".to_owned(), len.clone()),
            ("ZCARD k2".to_owned(), len.clone()),
            ("HLEN k3".to_owned(), len),
            (format!("LINDEX k0 {last}"), bulk(&format!("name {last}"))),
        ];
        for (command, reply) in asked {
            assert_eq!(client.call(&command), reply, "{command}");
        }
    }
    let long = Value::String((0..3u32 << 20).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect());
    assert_eq!(restore(&mut client, "k0", "0", &payload(&long), "REPLACE"), "+OK");
    assert_eq!(client.call("STRLEN k0"), format!(":{}", 3 << 20));
    let again = body(&client.call_bytes(&[b"DUMP", b"k0"]));
    assert_eq!(again, payload(&long));
}

fn bulk(text: &str) -> String {
    format!("${} {text}", text.len())
}

#[test]
fn hostile_payloads_are_refused_and_change_nothing() {
    let server = start(config());
    let mut client = server.client();
    client.call("SET k before");
    let (foot, data) = ("-ERR DUMP payload version or checksum are wrong", "-ERR Bad data format");
    let good = payload(&Value::List(["a", "b"].iter().collect()));
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 4;
        assert_eq!(restore(&mut client, "k", "0", &bad, "REPLACE"), foot, "byte {at}");
    }
    for bad in [&b""[..], b"x", &good[..good.len() - 1]] {
        assert_eq!(restore(&mut client, "k", "0", bad, "REPLACE"), foot);
    }
    let sealed = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        seal_payload(&mut bytes);
        bytes
    };
    let huge = [0x81, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff];
    for kind in 0..30 {
        let bad = sealed(&[&[kind], &huge[..]].concat());
        let reply = restore(&mut client, "k", "0", &bad, "REPLACE");
        assert_eq!(reply, data, "{kind}");
    }
    for empty in [&[1, 0][..], &[2, 0], &[4, 0], &[5, 0], &[1, 1, 1, b'a', 0]] {
        assert_eq!(restore(&mut client, "k", "0", &sealed(empty), "REPLACE"), data);
    }
    assert_eq!(client.call("GET k"), "$6 before");
}

fn migrate(client: &mut Client, to: &Running, rest: &str) -> String {
    client.call(&format!("MIGRATE 127.0.0.1 {} {rest}", to.addr.port()))
}

#[test]
fn keys_move_to_another_server_and_are_nowhere_twice() {
    let (here, there) = (start(config()), start(config()));
    let (mut client, mut other) = (here.client(), there.client());
    client.call("MSET a 1 b 2 c 3 d 4");
    client.call("RPUSH list x y z");
    client.call("PEXPIRE list 100000");
    assert_eq!(migrate(&mut client, &there, "list 3 1000"), "+OK");
    assert_eq!(client.call("EXISTS list"), ":0");
    assert_eq!(other.call("SELECT 3"), "+OK");
    assert_eq!(other.call("LRANGE list 0 -1"), "*3 $1 x $1 y $1 z");
    let ttl: u64 = other.call("PTTL list")[1..].parse().unwrap();
    assert!((90_000..=100_000).contains(&ttl), "{ttl}");
    assert_eq!(migrate(&mut client, &there, "a 3 1000 COPY"), "+OK");
    assert_eq!(client.call("GET a"), "$1 1");
    let busy = "-ERR Target instance replied with error: BUSYKEY Target key name already exists.";
    // Those that were taken are gone here, the others are not.
    client.send(&[
        b"MIGRATE",
        b"127.0.0.1",
        there.addr.port().to_string().as_bytes(),
        b"",
        b"3",
        b"1000",
        b"KEYS",
        b"a",
        b"b",
        b"nothing",
        b"c",
    ]);
    assert_eq!(client.reply_text(), busy);
    check(&mut client, &[("EXISTS a", ":1"), ("EXISTS b c", ":0"), ("EXISTS d", ":1")]);
    assert_eq!(migrate(&mut client, &there, "a 3 1000 REPLACE"), "+OK");
    assert_eq!(other.call("MGET a b c"), "*3 $1 1 $1 2 $1 3");
    assert_eq!(migrate(&mut client, &there, "nothing 3 1000"), "+NOKEY");
    assert_eq!(
        migrate(&mut client, &there, "d 99 1000"),
        "-ERR Target instance replied with error: ERR DB index is out of range"
    );
    // To itself, too: the loop is not held up.
    assert_eq!(migrate(&mut client, &here, "d 5 1000"), "+OK");
    assert_eq!(client.call("SELECT 5"), "+OK");
    assert_eq!(client.call("GET d"), "$1 4");
}

#[test]
fn a_password_is_given_to_the_other_server() {
    let secret = ServerConfig { requirepass: Some("secret".to_owned()), ..config() };
    let (here, there) = (start(config()), start(secret));
    let mut client = here.client();
    client.call("SET k v");
    let refused = migrate(&mut client, &there, "k 0 1000");
    assert!(refused.contains("NOAUTH"), "{refused}");
    let refused = migrate(&mut client, &there, "k 0 1000 AUTH wrong");
    assert!(refused.contains("WRONGPASS"), "{refused}");
    assert_eq!(client.call("GET k"), "$1 v");
    assert_eq!(migrate(&mut client, &there, "k 0 1000 AUTH2 default secret"), "+OK");
    client.call("SET k w");
    assert_eq!(migrate(&mut client, &there, "k 0 1000 REPLACE AUTH secret"), "+OK");
    assert_eq!(client.call("EXISTS k"), ":0");
}

/// A server that takes a connection, and answers when the test says so.
struct Slow {
    listener: TcpListener,
}

impl Slow {
    fn new() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").unwrap() }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    fn accept(&self) -> BufReader<TcpStream> {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        BufReader::new(stream)
    }
}

/// Reads a command and answers it; its words with blanks between them, the payload left out.
fn serve(conn: &mut BufReader<TcpStream>, reply: &str) -> String {
    let mut line = Vec::new();
    conn.read_until(b'\n', &mut line).unwrap();
    let count: usize = String::from_utf8_lossy(&line[1..]).trim().parse().unwrap();
    let mut words = Vec::new();
    for word in 0..count {
        line.clear();
        conn.read_until(b'\n', &mut line).unwrap();
        let len: usize = String::from_utf8_lossy(&line[1..]).trim().parse().unwrap();
        let mut bytes = vec![0; len + 2];
        std::io::Read::read_exact(conn, &mut bytes).unwrap();
        if word != 3 {
            words.push(String::from_utf8_lossy(&bytes[..len]).into_owned());
        }
    }
    conn.get_mut().write_all(reply.as_bytes()).unwrap();
    words.join(" ")
}

#[test]
fn others_are_served_meanwhile_and_what_they_write_is_sent_again() {
    let (server, slow) = (start(ServerConfig { threads: 1, ..config() }), Slow::new());
    let (mut client, mut other) = (server.client(), server.client());
    client.call("MSET written 1 removed 2 still 3");
    let port = slow.port().to_string();
    client.send(&[
        b"MIGRATE",
        b"127.0.0.1",
        port.as_bytes(),
        b"",
        b"0",
        b"20000",
        b"KEYS",
        b"written",
        b"removed",
        b"still",
    ]);
    client.write("PING");
    let mut conn = slow.accept();
    assert_eq!(serve(&mut conn, "+OK\r\n"), "SELECT 0");
    // The loop has one thread, and answers.
    assert_eq!(other.call("INCR written"), ":2");
    assert_eq!(other.call("DEL removed"), ":1");
    assert!(other.call("INFO clients").contains("blocked_clients:1 "));
    for key in ["written", "removed", "still"] {
        assert_eq!(serve(&mut conn, "+OK\r\n"), format!("RESTORE {key} 0"));
    }
    // A second connection brings what has changed.
    let mut conn = slow.accept();
    assert_eq!(serve(&mut conn, "+OK\r\n"), "SELECT 0");
    assert_eq!(serve(&mut conn, "+OK\r\n"), "RESTORE written 0 REPLACE");
    assert_eq!(serve(&mut conn, ":1\r\n"), "DEL removed");
    assert_eq!(client.reply_text(), "+OK");
    assert_eq!(client.reply_text(), "+PONG");
    assert_eq!(client.call("EXISTS written removed still"), ":0");
}

#[test]
fn a_server_that_is_silent_or_gone_costs_the_timeout_and_no_key() {
    let (server, slow) = (start(config()), Slow::new());
    let mut client = server.client();
    client.call("SET k v");
    let port = slow.port();
    let began = Instant::now();
    let reply = client.call(&format!("MIGRATE 127.0.0.1 {port} k 0 200"));
    assert!(reply.starts_with("-IOERR error or timeout reading from target instance"), "{reply}");
    assert!(began.elapsed() < Duration::from_secs(10));
    drop(slow);
    let reply = client.call(&format!("MIGRATE 127.0.0.1 {port} k 0 200"));
    assert!(reply.starts_with("-IOERR error or timeout connecting"), "{reply}");
    assert_eq!(client.call("GET k"), "$1 v");
    // A client that leaves: what it has asked for is done all the same.
    let slow = Slow::new();
    let mut leaving = server.client();
    leaving.write(&format!("MIGRATE 127.0.0.1 {} k 0 20000", slow.port()));
    let mut conn = slow.accept();
    drop(leaving);
    serve(&mut conn, "+OK\r\n");
    serve(&mut conn, "+OK\r\n");
    while client.call("GET k") != "$-1" {
        assert!(began.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn clients_that_wait_for_an_element_get_what_is_restored_or_sorted() {
    let server = start(ServerConfig { threads: 2, ..config() });
    let (mut client, mut other) = (server.client(), server.client());
    let list = payload(&Value::List(["a", "b"].iter().collect()));
    let sorted = payload(&Value::Sorted(["m", "n"].iter().collect(), vec![2.0, 1.0]));
    let blocked = |other: &mut Client, count: &str| {
        while !other.call("INFO clients").contains(&format!("blocked_clients:{count} ")) {}
    };
    client.write("BLPOP list 0");
    blocked(&mut other, "1");
    assert_eq!(restore(&mut other, "list", "0", &list, ""), "+OK");
    assert_eq!(client.reply_text(), "*2 $4 list $1 a");
    client.write("BZPOPMIN sorted 0");
    blocked(&mut other, "1");
    assert_eq!(restore(&mut other, "sorted", "0", &sorted, ""), "+OK");
    assert_eq!(client.reply_text(), "*3 $6 sorted $1 n $1 1");
    client.write("BRPOP stored 0");
    blocked(&mut other, "1");
    other.call("RPUSH numbers 3 1 2");
    assert_eq!(other.call("SORT numbers STORE stored"), ":3");
    assert_eq!(client.reply_text(), "*2 $6 stored $1 3");
}
