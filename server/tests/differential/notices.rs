//! Keyspace notifications beside a real Redis: the same commands make the same messages, in the
//! same order. Our subscriber, writer and the client that ends each look are of different loops.

use rand::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::generator::Generator;
use crate::redis::Redis;
use crate::running::{Client, config, start};
use perdura_server::ServerConfig;

/// Commands that make events. Several in one line are sent one after the other; `waits` is a
/// command of the other client, which waits.
const NOTICES: &[&str] = &[
    "set a 1",
    "set a 2 ex 100",
    "set a 3 keepttl",
    "set a 4 nx",
    "set a 5 get",
    "set none 5 xx get",
    "setnx b 1",
    "setex b 100 1",
    "psetex b 100000 2",
    "mset a 1 c 2",
    "msetnx d 1 e 2",
    "getset f 1",
    "getset a 1",
    "getdel f",
    "getdel f",
    "getex a ex 100",
    "getex a persist",
    "getex a persist",
    "getex a exat 1",
    "append a x",
    "append a x",
    "setrange a 3 y",
    "setrange a 3 ",
    "incr n",
    "decrby n 3",
    "incrbyfloat n 1.5",
    "setbit bits 3 1",
    "bitop not bits2 bits",
    "bitop and bits2 none",
    "bitfield bits set u8 0 5",
    "bitfield bits get u8 0",
    "pfadd hll x y",
    "pfadd hll x",
    "pfmerge hll2 hll",
    "get none",
    "mget a none none2",
    "exists none",
    "type none",
    "ttl none",
    "strlen none",
    "hget none f",
    "object encoding none",
    "sinter none none2",
    "multi;get none;set a 1;hget none f;lpush l x;exec",
    "del a b c none",
    "unlink d e",
    "rpush l x y z",
    "lpush l w",
    "lpushx none w",
    "rpushx l v",
    "linsert l before x u",
    "linsert l before none u",
    "lset l 0 t",
    "lrem l 0 x",
    "lrem l 0 none",
    "lmove l m left right",
    "lmove m m left right",
    "rpoplpush m m2",
    "ltrim l 0 1",
    "lpop l",
    "rpop l 5",
    "lmpop 2 l m2 left count 2",
    "rpush l a b",
    "ltrim l 5 6",
    "rpush l 3 1 2",
    "sort l store sorted",
    "sort none store sorted",
    "copy l l2",
    "copy l l2",
    "copy l l2 replace",
    "rename l l3",
    "rename l3 l2",
    "renamenx l2 l4",
    "renamenx l4 l4",
    "move l4 1",
    "set a 1",
    "select 1;set a 2;del l4;move a 0;select 0",
    "swapdb 0 1",
    "swapdb 0 1",
    "sadd s a b c",
    "sadd s a",
    "srem s a none",
    "srem s none",
    "smove s s2 b",
    "smove s s2 none",
    "smove s2 s2 b",
    "sunionstore s3 s s2",
    "sinterstore s3 s s2",
    "sinterstore s3 s s2",
    "sdiffstore s3 s s2",
    "spop s",
    "sadd s a b c d e f g h i j",
    "spop s 9",
    "spop s 0",
    "spop s 5",
    "hset h f 1 g 2",
    "hsetnx h f 1",
    "hsetnx h i 1",
    "hmset h f 1",
    "hincrby h f 2",
    "hincrbyfloat h f 2.5",
    "hdel h none",
    "hdel h f g i",
    "zadd z 1 a 2 b 3 c",
    "zadd z 1 a",
    "zadd z incr 1 a",
    "zincrby z 5 a",
    "zadd z xx 1 none",
    "zrem z none",
    "zrem z a",
    "zunionstore z2 1 z",
    "zinterstore z2 2 z none",
    "zdiffstore z2 1 z",
    "zrangestore z3 z 0 -1",
    "zrangestore z3 z 5 6",
    "zpopmin z2",
    "zpopmax z2",
    "zpopmax z2",
    "zmpop 1 z min count 10",
    "zadd z 1 a 1 b 1 c",
    "zremrangebylex z [a [a",
    "zremrangebyscore z 5 6",
    "zremrangebyrank z 0 -1",
    "geoadd geo 13 38 p 15 37 c",
    "geosearchstore geo2 geo fromlonlat 15 37 byradius 1 km",
    "geosearchstore geo2 geo fromlonlat 50 37 byradius 1 km",
    "georadius geo 15 37 1 km store geo2",
    "xadd x 1-1 f 1",
    "xadd x maxlen 1 1-2 f 1",
    "xadd none nomkstream 1-2 f 1",
    "xtrim x maxlen 0",
    "xtrim x maxlen 0",
    "xadd x 1-3 f 1",
    "xdel x 1-3 1-4",
    "xsetid x 2-0",
    "xgroup create x g $",
    "xgroup create x2 g $ mkstream",
    "xgroup setid x g 0",
    "xgroup createconsumer x g c",
    "xgroup createconsumer x g c",
    "xadd x 3-1 f 1",
    "xreadgroup group g c2 streams x >",
    "xclaim x g c3 0 3-1",
    "xautoclaim x g c4 0 0",
    "xack x g 3-1",
    "xgroup delconsumer x g c4",
    "xgroup delconsumer x g none",
    "xgroup destroy x g",
    "xgroup destroy x g",
    "expire s2 100",
    "persist s2",
    "persist s2",
    "expire s2 -1",
    "expire none 100",
    "pexpireat z3 4102444800000",
    "waits blpop wl 0",
    "lpush wl 1",
    "waits blmove wl wl2 left right 0",
    "rpush wl 1 2",
    "waits bzpopmin wz 0",
    "zadd wz 1 a",
    "waits brpop wm 0",
    "multi;rpush wm 1;rpush wm 2;exec",
    "eval return{redis.call('set',KEYS[1],1),redis.call('incr',KEYS[1])} 1 a",
    "multi;set a 1;discard",
    "multi;set a 1;incr l;lpush a 1;del a;exec",
    "flushdb",
];

/// A server with its clients.
struct Side {
    writer: Client,
    waiter: Client,
    ender: Client,
    subscriber: Client,
}

impl Side {
    fn new(connect: impl Fn() -> Client, classes: &str) -> Self {
        let [mut writer, waiter, ender, mut subscriber] = [(); 4].map(|()| connect());
        let set = writer.call(&format!("CONFIG SET notify-keyspace-events {classes}"));
        assert_eq!(set, "+OK");
        subscriber.call("PSUBSCRIBE __key*");
        subscriber.call("SUBSCRIBE end");
        Self { writer, waiter, ender, subscriber }
    }

    /// The messages that were published since the last look.
    fn heard(&mut self) -> Vec<String> {
        self.ender.call("PUBLISH end x");
        let mut heard = Vec::new();
        loop {
            match self.subscriber.reply_text() {
                end if end.starts_with("*3 ") => return heard,
                message => heard.push(message),
            }
        }
    }

    fn step(&mut self, line: &str) -> Vec<String> {
        if let Some(line) = line.strip_prefix("waits ") {
            self.waiter.write(line);
            while !self.ender.call("CLIENT LIST").contains("flags=b") {}
            return self.heard();
        }
        let is_for_waiter = self.ender.call("CLIENT LIST").contains("flags=b");
        for line in line.split(';') {
            self.writer.call(line);
        }
        if is_for_waiter {
            self.waiter.reply_text();
        }
        self.heard()
    }
}

fn sides(classes: &str, run: impl FnOnce(&mut Side, &mut Side)) {
    let Some(redis) = Redis::start() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = start(ServerConfig { threads: 3, ..config() });
    let mut ours = Side::new(|| server.client(), classes);
    let mut theirs = Side::new(|| Client::connect(redis.addr), classes);
    run(&mut ours, &mut theirs);
}

#[test]
fn commands_tell_of_the_events_of_redis() {
    sides("KEAnm", |ours, theirs| {
        let mut differences = Vec::new();
        for line in NOTICES {
            let (our, their) = (ours.step(line), theirs.step(line));
            if our != their {
                differences.push(format!("{line}\n  ours   {our:#?}\n  redis  {their:#?}"));
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    });
}

/// Whether the two servers say this at different times: Redis tells that a key has expired when
/// somebody asks for it, and we when it is removed; and Redis 7.0 makes consumers later than 7.2.
fn is_left_out(message: &str) -> bool {
    message.contains("expired") || message.contains("createconsumer")
}

/// Random commands, as replies are compared.
fn compare(templates: &'static [&'static str]) {
    let from_env = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seed = from_env("PERDURA_SEED").unwrap_or(1);
    let count = from_env("PERDURA_COMMANDS").unwrap_or(3_000);
    sides("KEAn", |ours, theirs| {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut generator = Generator { random, in_multi: false, templates, last_ms: 0 };
        let mut recent = Vec::new();
        for step in 0..count {
            let words = generator.command();
            if words[0] == b"client" {
                // It might kill the subscriber.
                continue;
            }
            let name = words[0].to_ascii_lowercase();
            if name == b"exec" || name == b"discard" || name == b"reset" {
                generator.in_multi = false;
            }
            generator.in_multi |= words.len() == 1 && name == b"multi";
            let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            recent.push(String::from_utf8_lossy(&words.join(&b' ')).into_owned());
            recent.drain(..recent.len().saturating_sub(20));
            let [our, their] = [&mut *ours, &mut *theirs].map(|side| {
                side.writer.call_bytes(&args);
                let heard = side.heard().into_iter();
                heard.filter(|message| !is_left_out(message)).collect::<Vec<_>>()
            });
            assert_eq!(our, their, "step {step} of seed {seed}: {recent:#?}");
        }
    });
}

#[test]
fn random_commands_tell_of_the_events_of_redis() {
    compare(crate::TEMPLATES);
}

#[test]
fn random_commands_on_lists_tell_of_the_events_of_redis() {
    compare(crate::LISTS);
}

#[test]
fn random_commands_on_sets_tell_of_the_events_of_redis() {
    compare(crate::SETS);
}

#[test]
fn random_commands_on_sorted_sets_tell_of_the_events_of_redis() {
    compare(crate::SORTED);
}

#[test]
fn random_commands_on_streams_tell_of_the_events_of_redis() {
    compare(crate::STREAMS);
}

#[test]
fn random_commands_on_bits_and_places_tell_of_the_events_of_redis() {
    compare(crate::BITS);
    compare(crate::GEO);
}

#[test]
fn the_letters_of_the_classes_are_those_of_redis() {
    sides("KEA", |ours, theirs| {
        for letters in ["", "KEA", "AKEmn", "Kg$lshzxe", "nmtxK", "dE", "K", "q", "KEq"] {
            for side in [&mut *ours, &mut *theirs] {
                side.writer.send(&[
                    b"config",
                    b"set",
                    b"notify-keyspace-events",
                    letters.as_bytes(),
                ]);
            }
            assert_eq!(ours.writer.reply_text(), theirs.writer.reply_text(), "{letters}");
            let get = "config get notify-keyspace-events";
            assert_eq!(ours.writer.call(get), theirs.writer.call(get), "{letters}");
        }
    });
}
