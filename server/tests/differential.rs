//! The same seeded commands to this server and to a real Redis: byte-equal RESP2 replies.
//!
//! Where a reply has no order (HGETALL, KEYS, …) its elements are sorted first. Random replies, times
//! that pass, and what this server answers differently on purpose are not generated.
//! `PERDURA_SEED=n` replays; `PERDURA_COMMANDS=n` goes on for longer.
#![allow(clippy::unwrap_used)] // tests, though not every helper is inside one

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Client, config, start};
use rand::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;

/// A Redis of our own; killed by its id when dropped.
struct Redis {
    child: Child,
    addr: SocketAddr,
}

impl Redis {
    /// None where there is no `redis-server`.
    fn start() -> Option<Self> {
        // A port seen free may be taken by the time Redis binds it: then that Redis ends, and another
        // port is tried.
        for _ in 0..10 {
            match Self::start_once() {
                Ok(Some(redis)) => return Some(redis),
                Ok(None) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
                Err(error) => panic!("redis-server does not start: {error}"),
            }
        }
        panic!("no port for redis-server in 10 attempts")
    }

    /// `Ok(None)`: another try may help; `Err`: there is none to start.
    fn start_once() -> Result<Option<Self>, std::io::Error> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let args = ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port"];
        let child = Command::new("redis-server")
            .args(args)
            .arg(port.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut redis = Self { child, addr: SocketAddr::from(([127, 0, 0, 1], port)) };
        let own = format!("process_id:{}\r\n", redis.child.id());
        let deadline = Instant::now() + Duration::from_secs(20);
        while redis.child.try_wait()?.is_none() {
            assert!(Instant::now() < deadline, "redis-server does not listen");
            if first_reply(redis.addr).is_ok_and(|text| text.contains(&own)) {
                return Ok(Some(redis));
            }
            std::thread::yield_now();
        }
        Ok(None)
    }
}

/// What is first said to INFO at `addr`, by whoever listens there.
fn first_reply(addr: SocketAddr) -> std::io::Result<String> {
    let mut stream = std::net::TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(b"INFO server\r\nQUIT\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Words = Vec<Vec<u8>>;

struct Generator {
    random: Xoshiro256PlusPlus,
    in_multi: bool,
}

const KEYS: [&str; 8] = ["a", "b", "c", "key:1", "key:2", "h1", "h2", ""];
const FIELDS: [&str; 5] = ["f", "g", "field:3", "", "n"];
const VALUES: [&str; 16] = [
    "",
    "0",
    "1",
    "-1",
    "10",
    "9223372036854775807",
    "-9223372036854775808",
    "3.25",
    "0.125",
    "abc",
    "x123456789012345678901234567890123456789012345678901234567890123456789",
    "a b\r\nc",
    "01",
    " 1",
    "1.5",
    "hello",
];
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "2",
    "5",
    "-3",
    "100",
    "9223372036854775807",
    "-9223372036854775808",
    "abc",
    "1.5",
    "",
    "9223372036854775808",
    "-100",
];
const TIMES: [&str; 7] =
    ["4102444800", "4102444801", "4102444899", "abc", "9223372036854775807", "1", "-1"];
// Sums of these are exact in binary: Redis shows the rounding of others, this server does not.
const FLOATS: [&str; 9] = ["0.5", "1", "-2.5", "abc", "3.0e3", "0", "", " 1", "100.125"];

impl Generator {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of.choose(&mut self.random).unwrap()
    }

    /// Words of a template: k key, f field, v value, n number, t unix time (T in ms, u U not past), d float, i index, p pattern.
    fn fill(&mut self, template: &str) -> Words {
        let fill = |word: &str| {
            match word {
                "k" => self.one(&KEYS),
                "f" => self.one(&FIELDS),
                "v" => self.one(&VALUES),
                "n" => self.one(&NUMBERS),
                "t" => self.one(&TIMES),
                "T" => self.one(&["4102444800000", "4102444800999", "1", "abc"]),
                // A key set with a time that is past stays counted in Redis's DBSIZE for a while.
                "u" => self.one(&["4102444800", "4102444801", "abc", "9223372036854775807", "-1"]),
                "U" => self.one(&["4102444800000", "4102444800999", "abc", "-1"]),
                "d" => self.one(&FLOATS),
                "i" => self.one(&["0", "1", "1", "15", "16", "-1", "abc"]),
                "p" => self.one(&["*", "k*", "[ab]", "h?", "", "key:[^1]"]),
                "q" => self.one(&["100000000", "0", "-1", "abc", "9223372036854775807"]),
                "o" => {
                    self.one(&["nx", "XX", "gt", "Lt", "keepttl", "GET", "persist", "ex", "100"])
                }
                "w" => self.one(&[
                    "ohmytext",
                    "mynewtext",
                    "",
                    "abcabcabcabc",
                    "xbcyabz",
                    "aaaa",
                    "aab",
                ]),
                "s" => self.one(&["100", "0", "-1", "abc", "9223372036854775807"]),
                other => other,
            }
            .as_bytes()
            .to_vec()
        };
        template.split(' ').map(fill).collect()
    }

    fn command(&mut self) -> Words {
        if self.in_multi && self.random.random_bool(0.2) {
            self.in_multi = false;
            let end = self.one(&["exec", "exec", "exec", "discard"]);
            return self.fill(end);
        }
        if !self.in_multi && self.random.random_bool(0.02) {
            self.in_multi = true;
            return self.fill("multi");
        }
        let template = loop {
            let template = *TEMPLATES.choose(&mut self.random).unwrap();
            // Inside EXEC replies without an order could not be told apart.
            if !(self.in_multi && is_unordered(template)) {
                break template;
            }
        };
        let mut words = self.fill(template);
        if self.random.random_bool(0.02) {
            words.pop();
        }
        if self.random.random_bool(0.02) {
            words.push(self.one(&VALUES).as_bytes().to_vec());
        }
        if words.is_empty() || is_incomparable(&words) { self.fill("ping") } else { words }
    }
}

/// Cut short or made longer, these have replies that depend on the connection, on chance, on layout or on
/// what else a server does; or they end the server.
fn is_incomparable(words: &Words) -> bool {
    let words: Vec<&str> = words.iter().map(|w| std::str::from_utf8(w).unwrap()).collect();
    match words[..] {
        ["hello"] | ["scan", _] | ["hscan", _, _] => true,
        ["hello", "2" | "3", ref rest @ ..] => {
            !rest.contains(&"bogus") && rest != ["auth", "default"] && rest != ["setname"]
        }
        ["hrandfield", key] => key != "nokey",
        ["hrandfield", key, count] => key != "nokey" && count != "0",
        ["client", "id" | "list" | "info"] | ["command"] | ["command", _] => true,
        ["command", "docs" | "info", ref names @ ..] => names != ["nosuch"],
        ["memory", _] | ["slowlog", "get" | "len"] | ["object", "help"] => true,
        ["memory", "usage", key, ..] if words.len() != 4 => key != "nokey",
        ["info" | "time" | "lastsave" | "save" | "bgsave" | "randomkey" | "shutdown"] => true,
        ["bgsave", "schedule"] | ["shutdown", "save" | "nosave"] => true,
        [.., "count", n] => n != "1000" && n != "0",
        _ => false,
    }
}

fn is_unordered(template: &str) -> bool {
    const NAMES: [&str; 10] = [
        "hgetall",
        "hkeys",
        "hvals",
        "keys",
        "scan",
        "hscan",
        "expiretime",
        "pexpiretime",
        "command",
        "config",
    ];
    NAMES.contains(&template.split(' ').next().unwrap())
}

const TEMPLATES: &[&str] = &[
    "get k",
    "get k",
    "get k",
    "set k v",
    "set k v",
    "set k v",
    "set k v nx",
    "set k v xx",
    "set k v get",
    "set k v nx get",
    "set k v xx keepttl",
    "set k v exat u",
    "set k v pxat U",
    "set k v ex s",
    "set k v keepttl ex 5",
    "set k v nx xx",
    "set k v px q get",
    "SET k v bogus",
    "setnx k v",
    "setex k s v",
    "psetex k q v",
    "getset k v",
    "getdel k",
    "getex k",
    "getex k persist",
    "getex k exat t",
    "getex k pxat T",
    "getex k ex s",
    "getex k ex 5 persist",
    "mget k k k",
    "mset k v k v",
    "mset k v k",
    "msetnx k v k v",
    "incr k",
    "decr k",
    "incrby k n",
    "decrby k n",
    "incrbyfloat fl d",
    "incrbyfloat fl d",
    "incrbyfloat k abc",
    "set fl d",
    "hset hf f d",
    "append k v",
    "strlen k",
    "getrange k n n",
    "substr k n n",
    "setrange k 3 v",
    "setrange k n v",
    "hset k f v",
    "hset k f v f v",
    "hset h1 f v",
    "hset h1 f v f v f v",
    "hset h2 f v",
    "hset k f v f",
    "hmset h1 f v",
    "hmset k f",
    "hsetnx h1 f v",
    "hsetnx k f v",
    "hget h1 f",
    "hget k f",
    "hmget h1 f f f",
    "hmget k f",
    "hdel h1 f",
    "hdel k f f",
    "hexists h1 f",
    "hexists k f",
    "hlen h1",
    "hlen k",
    "hkeys h1",
    "hvals h1",
    "hgetall h1",
    "hgetall k",
    "hgetall h2",
    "hincrby h1 f n",
    "hincrby k n 2",
    "hincrbyfloat hf f d",
    "hincrbyfloat k f abc",
    "hstrlen h1 f",
    "hstrlen k f",
    "hrandfield k 0",
    "hrandfield h1 abc",
    "hrandfield h1 1 bogus",
    "hscan h1 0 count 1000",
    "hscan h1 abc",
    "hscan h1 0 count 0",
    "hscan k 0 match p count 1000",
    "del k",
    "del k k",
    "unlink k k",
    "exists k k k",
    "touch k k",
    "type k",
    "rename k k",
    "renamenx k k",
    "copy k k",
    "copy k k replace",
    "copy k k db i",
    "copy k k db i replace",
    "keys p",
    "scan 0 count 1000",
    "scan 0 match p count 1000",
    "scan 0 type hash count 1000",
    "scan 0 type string count 1000",
    "scan abc",
    "scan 0 count 0",
    "scan 0 bogus",
    "expire k s",
    "expire k 100 nx",
    "expire k 200 xx",
    "expire k 50 gt",
    "expire k 300 lt",
    "expire k 1 nx xx",
    "expire k 1 gt lt",
    "expire k 1 bogus",
    "pexpire k q",
    "expireat k t",
    "expireat k t nx",
    "expireat k t gt",
    "expireat k t lt",
    "pexpireat k T",
    "pexpireat k T xx",
    "ttl nokey",
    "expiretime k",
    "pexpiretime k",
    "persist k",
    "object encoding nokey",
    "object refcount nokey",
    "object bogus k",
    "move k i",
    "dbsize",
    "select i",
    "select 0",
    "select 0",
    "ping",
    "ping v",
    "echo v",
    "exec",
    "discard",
    "watch k",
    "unwatch",
    "bogus",
    "bogus v v",
    "get",
    "client setname ok",
    "client getname",
    "client setname v",
    "client bogus",
    "flushdb bogus",
    "config bogus",
    "reset",
    "hello 4",
    "hello abc",
    "auth x",
    "command getkeys mset a b c d",
    "command getkeys get",
    "command getkeys bogus",
    "wait abc 0",
    "memory bogus",
    "flushdb",
    "set k 12345",
    // Options of SET and GETEX, each with each.
    "set k v o",
    "set k v o o",
    "set k v o o o",
    "getex k o",
    "getex k o o",
    "set k v ex s px q",
    "set k v exat u get",
    "set k v pxat U nx get",
    "getex k px q",
    "expire k s o",
    "expire k n o o",
    "pexpire k q o",
    "expireat k u o",
    "pexpireat k U o o",
    "substr k 0 -1",
    "getrange k 0 -1",
    "lcs k k",
    "lcs k k len",
    "lcs k k idx",
    "lcs k k idx minmatchlen n withmatchlen",
    "lcs k k idx len",
    "lcs k k minmatchlen",
    "lcs la lb idx withmatchlen",
    "lcs la lb",
    "set la w",
    "set lb w",
    "mset la w lb w",
    "append k v",
    "setrange k 536870912 v",
    "setrange k 0 v",
    "incrby k 9223372036854775807",
    "decrby k -9223372036854775808",
    "hset k f v f v f",
    "hrandfield nokey",
    "hrandfield nokey 5 withvalues",
    "hrandfield h1 0 withvalues",
    "hrandfield k -0 withvalues",
    "hrandfield h1 9223372036854775807 withvalues",
    "hscan h1 0 match p count 1000",
    "hscan h1 0 type string",
    "hscan nokey 0",
    "randomkey v",
    "object freq nokey",
    "object idletime nokey",
    "object freq k v",
    "object help v",
    "touch k",
    "unlink k",
    "move k abc",
    "move k 0",
    "copy k k db abc",
    "copy k k db",
    "flushall async",
    "flushall sync",
    "flushall v",
    "flushdb async",
    "keys",
    "dbsize v",
    "multi",
    "client id v",
    "client list id abc",
    "client list type bogus",
    "client list bogus",
    "client kill 1.2.3.4:5",
    "client kill id abc",
    "client kill id 999999999",
    "client kill skipme maybe",
    "client kill id 999999999 skipme",
    "client kill type bogus",
    "client kill type pubsub",
    "client kill user default id 999999999",
    "client kill user bogus",
    "client kill laddr 1.2.3.4:5",
    "client no-evict on",
    "client no-evict off",
    "client no-evict maybe",
    "client pause abc",
    "client pause -1",
    "client pause 0",
    "client pause 0 write",
    "client pause 0 bogus",
    "client unpause",
    "client unpause v",
    "client reply on",
    "client reply bogus",
    "client getredir",
    "client trackinginfo",
    "client unblock n",
    "client unblock 999999999 timeout",
    "client unblock 999999999 bogus",
    "client setname",
    "command count v",
    "command list filterby",
    "command list filterby pattern mset*",
    "command list filterby module none",
    "command list bogus v v",
    "command info nosuch",
    "command docs nosuch",
    "command getkeys set k",
    "command getkeys del k k k",
    "command getkeys mget k k",
    "command getkeys object encoding k",
    "command getkeys memory usage k",
    "command getkeys ping",
    "command bogus",
    "config get",
    "config get nosuch*",
    "config get databases",
    "config get databases maxmemory-policy nosuch",
    "config get DATABASES data*",
    "config set",
    "config set nosuch 1",
    "config set databases 1",
    "config set timeout abc",
    "config set timeout 0 timeout 0",
    "config set slowlog-max-len 100 slowlog-log-slower-than 20000",
    "config get slowlog-max-len slowlog-log-slower-than",
    "config resetstat",
    "config resetstat v",
    "config rewrite",
    "memory usage nokey",
    "memory usage k bogus 1",
    "memory usage k samples abc",
    "memory usage k samples",
    "memory purge",
    "memory doctor v",
    "memory stats v",
    "memory malloc-stats v",
    "slowlog get abc",
    "slowlog get -2",
    "slowlog len v",
    "slowlog bogus",
    "latency reset nosuch",
    "latency latest",
    "latency history nosuch",
    "latency bogus",
    "role",
    "wait 0 0",
    "wait 0 -1",
    "wait 0 abc",
    "wait 0",
    "time v",
    "lastsave v",
    "save v",
    "bgsave v",
    "bgsave schedule v",
    "shutdown bogus v",
    "shutdown abort v",
    "shutdown save nosave v",
    "auth default x",
    "auth bogus x",
    "auth a b c",
    "hello 2 auth default",
    "hello 2 auth bogus x",
    "hello 2 setname",
    "hello 2 bogus",
    "hello 3 setname v auth bogus x",
    "select",
    "echo",
    "echo v v",
    "ping v v",
    "info nosuch",
    "watch k k",
    "watch k",
];

/// The elements of a flat array of bulk strings, sorted; pairs stay pairs where `width` is 2.
fn sorted(reply: &[u8], width: usize) -> Vec<u8> {
    fn bulks(mut rest: &[u8], out: &mut Vec<Vec<u8>>) {
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let head = &rest[..end + 1];
            let number =
                std::str::from_utf8(&head[1..]).unwrap().trim_end().parse().unwrap_or(-1i64);
            let body = if head[0] == b'$' && number >= 0 { number as usize + 2 } else { 0 };
            out.push(rest[..end + 1 + body].to_vec());
            rest = &rest[end + 1 + body..];
        }
    }
    let mut parts = Vec::new();
    bulks(reply, &mut parts);
    // The heads: `*n`, and for SCAN `*2`, the cursor and `*n`.
    let heads =
        parts.iter().rposition(|p| matches!(p[0], b'*' | b'%' | b'~')).map_or(0, |at| at + 1);
    let mut items: Vec<Vec<u8>> = parts[heads..].chunks(width).map(|pair| pair.concat()).collect();
    items.sort();
    [parts[..heads].concat(), items.concat()].concat()
}

fn comparable(words: &Words, reply: Vec<u8>) -> Vec<u8> {
    let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
    match name.as_str() {
        _ if reply.first() == Some(&b'-') || reply.first() == Some(&b'+') => reply,
        "hgetall" | "hscan" | "config" => sorted(&reply, 2),
        // Times counted from now differ by what passed between the two servers.
        "expiretime" | "pexpiretime" if reply.len() > 5 => reply[..7].to_vec(),
        "hkeys" | "hvals" | "keys" | "scan" | "command" => sorted(&reply, 1),
        _ => reply,
    }
}

#[test]
fn replies_equal_those_of_redis() {
    compare(false);
}

#[test]
fn replies_equal_those_of_redis_in_resp3() {
    compare(true);
}

fn compare(resp3: bool) {
    let Some(redis) = Redis::start() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let from_env = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seed = from_env("PERDURA_SEED").unwrap_or(1);
    let count = from_env("PERDURA_COMMANDS").unwrap_or(20_000);
    let server = start(config());
    let (mut ours, mut theirs) = (server.client(), Client::connect(redis.addr));
    if resp3 {
        ours.call("HELLO 3");
        theirs.call("HELLO 3");
    }
    let random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut generator = Generator { random, in_multi: false };
    let mut recent: Vec<String> = Vec::new();
    let mut differences = Vec::new();
    for step in 0..count {
        let mut words = generator.command();
        if resp3 && words[0] == b"reset" {
            words = vec![b"discard".to_vec()];
        }
        if matches!(words[0].to_ascii_lowercase().as_slice(), b"exec" | b"discard" | b"reset") {
            generator.in_multi = false;
        }
        generator.in_multi |= words.len() == 1 && words[0] == b"multi";
        let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let shown = String::from_utf8_lossy(&words.join(&b' ')).into_owned();
        recent.push(shown.clone());
        recent.drain(..recent.len().saturating_sub(40));
        let our = comparable(&words, ours.call_bytes(&args));
        let their = comparable(&words, theirs.call_bytes(&args));
        if our != their {
            differences.push(format!(
                "step {step}: {recent:?}\n  ours   {:?}\n  redis  {:?}",
                String::from_utf8_lossy(&our),
                String::from_utf8_lossy(&their)
            ));
            if differences.len() == 10 {
                break;
            }
        }
    }
    assert!(
        differences.is_empty(),
        "PERDURA_SEED={seed} cargo test -p perdura-server --test differential\n{}",
        differences.join("\n")
    );
}

/// `docs/server.md` names what is not offered: each of Redis's commands is either in our table or there.
#[test]
fn what_is_not_offered_is_named() {
    let document = include_str!("../../docs/server.md");
    let table = document.split("\n## ").find(|part| part.starts_with("Not offered")).unwrap();
    let cells = table.lines().filter_map(|line| line.strip_prefix('|')?.split('|').nth(1));
    let names: std::collections::BTreeSet<String> = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(|name| name.to_ascii_lowercase().replace(' ', "|"))
        .collect();
    assert!(names.len() > 100, "{names:?}");
    let server = start(config());
    let mut ours = server.client();
    for name in &names {
        let reply = ours.call(&name.replace('|', " "));
        assert!(reply.contains("unknown "), "{name} is offered: {reply}");
    }
    let Some(redis) = Redis::start() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let mut theirs = Client::connect(redis.addr);
    if !theirs.call("INFO server").contains("redis_version:7.0.") {
        println!("skipped: another version of redis-server has other commands");
        return;
    }
    let every = |client: &mut Client| -> std::collections::BTreeSet<String> {
        let (list, table) = (client.call("COMMAND LIST"), client.call("COMMAND"));
        let plain =
            |word: &&str| word.bytes().all(|b| b.is_ascii_lowercase() || b"|-_".contains(&b));
        let subs = table.split(' ').filter(plain).filter(|word| word.contains('|'));
        list.split(' ').filter(plain).chain(subs).map(str::to_owned).collect()
    };
    let offered = every(&mut ours);
    for name in every(&mut theirs) {
        let container = name.split('|').next().unwrap();
        let named = names.contains(&name) || names.contains(container);
        assert!(named != offered.contains(&name), "{name}: named {named}, or not");
    }
}
