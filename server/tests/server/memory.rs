//! Memory that is limited or full, what is evicted then, and what is known of the uses of keys.

use std::time::{Duration, Instant};

use perdura_server::ServerConfig;
use perdura_store::{Eviction, EvictionPolicy};

use crate::check;
use crate::running::{Client, config, start};

const REFUSED: &str = "-OOM command not allowed when used memory > 'maxmemory'.";

fn fill(client: &mut Client, keys: u32) -> String {
    let value = "x".repeat(10_000);
    let mut last = String::new();
    for key in 0..keys {
        last = client.call(&format!("SET key:{key} {value}"));
        if last.starts_with('-') {
            break;
        }
    }
    last
}

fn number_of(info: &str, field: &str) -> u64 {
    let rest = info.split(&format!("{field}:")).nth(1).unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn memory_below_a_limit_is_refused_or_evicted() {
    let server = start(config());
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(fill(&mut client, 200), "+OK");
    check(
        &mut client,
        &[
            ("SET counted 1 EX 1000", "+OK"),
            ("CONFIG SET maxmemory 100000", "+OK"),
            ("CONFIG GET maxmemory", "*2 $9 maxmemory $6 100000"),
            ("SET new x", REFUSED),
            ("LPUSH list x", REFUSED),
            // What needs no memory of its own goes on.
            ("EXPIRE counted 2000", ":1"),
            ("GET counted", "$1 1"),
            ("DEL key:199", ":1"),
            ("MULTI", "+OK"),
            ("SET new x", REFUSED),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ],
    );
    check(&mut other, &[("SET other x", REFUSED), ("PING", "+PONG")]);
    check(&mut client, &[("CONFIG SET maxmemory 0", "+OK"), ("SET new x", "+OK")]);
    // A transaction that was queued while there was room.
    check(&mut client, &[("MULTI", "+OK"), ("SET late x", "+QUEUED")]);
    check(&mut other, &[("CONFIG SET maxmemory 100000", "+OK")]);
    let because = format!("-EXECABORT Transaction discarded because of: {}", &REFUSED[1..]);
    check(&mut client, &[("EXEC", because.as_str()), ("EXEC", "-ERR EXEC without MULTI")]);
    check(&mut client, &[("CONFIG SET maxmemory 0", "+OK"), ("EXISTS late", ":0")]);
    // With a policy keys go until the limit is kept, and writes go on.
    check(
        &mut client,
        &[
            ("CONFIG SET maxmemory-policy volatile-ttl", "+OK"),
            ("CONFIG SET maxmemory 2mb", "+OK"),
            ("GET counted", "$-1"),
            ("EXISTS key:0 key:100 new", ":3"),
        ],
    );
    assert_eq!(number_of(&client.call("INFO stats"), "evicted_keys"), 1);
    check(
        &mut client,
        &[
            ("CONFIG SET maxmemory-policy allkeys-random", "+OK"),
            ("CONFIG SET maxmemory 1999999", "+OK"),
            ("SET new y", "+OK"),
        ],
    );
    let info = client.call("INFO");
    assert!(number_of(&info, "evicted_keys") > 1 && info.contains("maxmemory_policy:allkeys-r"));
}

#[test]
fn a_fast_writer_is_kept_at_the_limit() {
    const LIMIT: u64 = 8 << 20;
    let server = start(config());
    let mut client = server.client();
    let set = format!("CONFIG SET maxmemory {LIMIT} maxmemory-policy allkeys-random");
    check(&mut client, &[(set.as_str(), "+OK")]);
    let value = vec![b'x'; 10_000];
    let mut most = 0;
    for batch in 0..40 {
        for key in 0..100 {
            client.send(&[b"SET", format!("key:{batch}:{key}").as_bytes(), &value]);
        }
        for _ in 0..100 {
            assert_eq!(client.reply_text(), "+OK");
        }
        most = most.max(number_of(&client.call("INFO memory"), "used_memory"));
    }
    // 40 MB were written. One batch may come between two looks.
    assert!((LIMIT / 2..LIMIT + (2 << 20)).contains(&most), "{most} B in use");
}

#[test]
fn no_more_large_values_go_than_the_limit_asks_for() {
    let server = start(config());
    let mut client = server.client();
    for key in 0..20 {
        let fields: Vec<String> = (0..5000).map(|field| format!("field{field} value")).collect();
        client.call(&format!("HSET hash{key} {}", fields.join(" ")));
    }
    let used_bytes = number_of(&client.call("INFO memory"), "used_memory");
    let limit = used_bytes / 4 * 3;
    let set = format!("CONFIG SET maxmemory-policy allkeys-random maxmemory {limit}");
    check(&mut client, &[(set.as_str(), "+OK")]);
    let began = Instant::now();
    while number_of(&client.call("INFO memory"), "used_memory") > limit {
        check(&mut client, &[("SET small x", "+OK")]);
        assert!(began.elapsed() < Duration::from_secs(20), "memory should be freed");
    }
    let evicted = number_of(&client.call("INFO stats"), "evicted_keys");
    assert!((5..=10).contains(&evicted), "{evicted} of 20");
}

#[test]
fn deleted_values_are_freed_while_nobody_asks_for_anything() {
    let server = start(config());
    let mut client = server.client();
    let empty_bytes = number_of(&client.call("INFO memory"), "used_memory");
    for key in 0..10 {
        let fields: Vec<String> = (0..5000).map(|field| format!("field{field} value")).collect();
        client.call(&format!("HSET hash{key} {}", fields.join(" ")));
    }
    let names: String = (0..10).map(|key| format!(" hash{key}")).collect();
    assert_eq!(client.call(&format!("UNLINK{names}")), ":10");
    // A turn frees 512 parts, of which there are over 50,000, and every tenth of a second begins a
    // turn. Those between have no other work.
    let began = Instant::now();
    while number_of(&client.call("INFO memory"), "used_memory") > empty_bytes + (256 << 10) {
        assert!(began.elapsed() < Duration::from_secs(4), "memory should be freed");
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn keys_that_go_are_told_before_the_next_reply() {
    let server = start(config());
    let mut client = server.client();
    for is_silent in [false, true, false] {
        client.call("HELLO 3");
        let used_bytes = number_of(&client.call("INFO memory"), "used_memory");
        let set = format!("CONFIG SET maxmemory {}", used_bytes + 100_000);
        check(
            &mut client,
            &[
                ("CLIENT TRACKING ON NOLOOP", "+OK"),
                (set.as_str(), "+OK"),
                ("CONFIG SET maxmemory-policy volatile-random", "+OK"),
                ("SET goes 1 EX 10000", "+OK"),
                ("GET goes", "$1 1"),
                ("SETBIT large 1600000 0", ":0"),
            ],
        );
        // Memory is not looked at more often than once a millisecond.
        std::thread::sleep(Duration::from_millis(2));
        // Also to a client that wants no reply.
        if is_silent {
            client.send(&[b"CLIENT", b"REPLY", b"SKIP"]);
            client.send(&[b"GETBIT", b"large", b"0"]);
        }
        assert_eq!(client.call("GETBIT large 0"), ">2 $10 invalidate *1 $4 goes");
        assert_eq!(client.reply_text(), ":0");
        check(
            &mut client,
            &[
                ("CONFIG SET maxmemory 0", "+OK"),
                ("CLIENT TRACKING OFF", "+OK"),
                ("EXISTS goes large", ":1"),
                ("FLUSHALL", "+OK"),
            ],
        );
    }
}

#[test]
fn full_memory_evicts_when_it_is_told_to() {
    let server = start(config());
    let mut client = server.client();
    let refused = fill(&mut client, 20_000);
    assert!(refused.starts_with(REFUSED), "{refused}");
    assert_eq!(client.call("CONFIG SET maxmemory-policy allkeys-lru"), "+OK");
    assert_eq!(fill(&mut client, 20_000), "+OK");
    assert!(client.call("GET key:19999").len() > 9000);
    assert!(number_of(&client.call("INFO stats"), "evicted_keys") > 1000);
}

#[test]
fn uses_are_counted_under_a_policy_that_asks_for_it() {
    let policy = EvictionPolicy::AllLeastFrequent;
    let eviction = Eviction { policy, count_log_factor: 0, ..Eviction::default() };
    let server = start(ServerConfig { eviction, ..config() });
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("SET key x", "+OK"),
            ("OBJECT FREQ key", ":5"),
            ("GET key", "$1 x"),
            ("TTL key", ":-1"),
            ("OBJECT FREQ key", ":6"),
            ("CLIENT NO-TOUCH ON", "+OK"),
            ("GET key", "$1 x"),
            ("OBJECT FREQ key", ":6"),
            ("TOUCH key", ":1"),
            ("OBJECT FREQ key", ":7"),
            ("OBJECT FREQ none", "$-1"),
            ("CONFIG SET maxmemory-policy noeviction", "+OK"),
            ("OBJECT IDLETIME key", ":0"),
            ("OBJECT IDLETIME none", "$-1"),
        ],
    );
    assert!(client.call("OBJECT FREQ key").starts_with("-ERR An LFU maxmemory policy is not"));
}

#[test]
fn changes_of_large_values_count_as_uses() {
    let policy = EvictionPolicy::AllLeastFrequent;
    let eviction = Eviction { policy, count_log_factor: 0, ..Eviction::default() };
    let server = start(ServerConfig { eviction, ..config() });
    let mut client = server.client();
    let members: String = (0..600).map(|n| format!(" {n} member:{n}")).collect();
    for command in ["SADD set", "ZADD source", "HSET hash"] {
        client.call(&format!("{command}{members}"));
    }
    // Each member that is added counts as a use of its sorted set.
    assert_eq!(client.call("ZRANGESTORE sorted source 0 -1"), ":600");
    for (key, commands) in [
        ("set", ["SADD set new", "SADD set new", "SPOP set"]),
        ("sorted", ["ZADD sorted 7 new", "ZADD sorted 7 new", "ZPOPMIN sorted"]),
        ("hash", ["HSET hash new x", "HSET hash new y", "HSET hash newer x"]),
    ] {
        for command in commands {
            let uses = |client: &mut Client| client.call(&format!("OBJECT FREQ {key}"));
            let before: u32 = uses(&mut client)[1..].parse().unwrap();
            client.call(command);
            assert_eq!(uses(&mut client), format!(":{}", before + 1), "{command}");
        }
    }
}

#[test]
fn encodings_follow_the_settings() {
    let server = start(config());
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("HSET hash a 1 b 2", ":2"),
            ("ZADD sorted 1 a 2 b", ":2"),
            ("SADD ints 1 2 3", ":3"),
            ("OBJECT ENCODING ints", "$6 intset"),
            (
                "CONFIG SET hash-max-ziplist-entries 1 zset-max-listpack-value 0 \
                 set-max-intset-entries 0 set-max-listpack-entries 2",
                "+OK",
            ),
            ("OBJECT ENCODING hash", "$9 hashtable"),
            ("OBJECT ENCODING sorted", "$8 skiplist"),
            ("SADD names 1 2", ":2"),
            ("OBJECT ENCODING names", "$8 listpack"),
            ("SADD names 3", ":1"),
            ("OBJECT ENCODING names", "$9 hashtable"),
            ("SADD ints 4", ":1"),
            ("OBJECT ENCODING ints", "$9 hashtable"),
            ("SCARD ints", ":4"),
        ],
    );
}

#[test]
fn parameters_that_change_nothing_are_remembered_and_those_not_honoured_refused() {
    let server = start(config());
    let mut client = server.client();
    let failed = "-ERR CONFIG SET failed (possibly related to argument";
    check(
        &mut client,
        &[
            ("CONFIG SET save 900 hz 100", "+OK"),
            ("CONFIG GET hz", "*2 $2 hz $3 100"),
            ("CONFIG SET slave-priority 7", "+OK"),
            ("CONFIG GET replica-priority", "*2 $16 replica-priority $1 7"),
            ("CONFIG GET rdbcompression", "*2 $14 rdbcompression $3 yes"),
            (
                "CONFIG SET min-replicas-to-write 1",
                &format!("{failed} 'min-replicas-to-write') - there is no replication"),
            ),
            (
                "CONFIG SET hz 20 appendfilename x",
                &format!("{failed} 'appendfilename') - can't set immutable config"),
            ),
            ("CONFIG GET hz", "*2 $2 hz $3 100"),
        ],
    );
}

#[test]
fn restore_says_how_a_key_was_used() {
    let server = start(config());
    let mut client = server.client();
    assert_eq!(client.call("SET key x"), "+OK");
    let dump = client.call_bytes(&[b"DUMP", b"key"]);
    let payload = &dump[dump.iter().position(|byte| *byte == b'\n').unwrap() + 1..dump.len() - 2];
    let mut restore = |options: &[&[u8]]| {
        let words: [&[u8]; 5] = [b"RESTORE", b"copy", b"0", payload, b"REPLACE"];
        let words = [&words[..], options].concat();
        client.call_bytes(&words)
    };
    assert_eq!(restore(&[b"IDLETIME", b"1000"]), b"+OK\r\n");
    assert_eq!(restore(&[b"IDLETIME", b"1000", b"FREQ", b"5"]), b"-ERR syntax error\r\n");
    let mut other = server.client();
    let idle_s: u64 = other.call("OBJECT IDLETIME copy")[1..].parse().unwrap();
    assert!((1000..1010).contains(&idle_s), "{idle_s}");
    assert_eq!(restore(&[b"FREQ", b"77"]), b"+OK\r\n");
    check(
        &mut other,
        &[
            ("CONFIG SET maxmemory-policy allkeys-lfu lfu-decay-time 0", "+OK"),
            ("OBJECT FREQ copy", ":77"),
        ],
    );
}

#[test]
fn full_memory_refuses_nothing_that_frees_memory_or_lets_keys_expire() {
    let server = start(config());
    let mut client = server.client();
    let elements = |n: u32| (n..n + 100).map(|n| format!(" element:{n:030}")).collect::<String>();
    for n in (0..2_000).step_by(100) {
        client.call(&format!("RPUSH list{}", elements(n)));
        client.call(&format!("SADD set{}", elements(n)));
        let pairs: Vec<_> = (n..n + 100).map(|n| format!("{n} element:{n:030}")).collect();
        client.call(&format!("ZADD sorted {}", pairs.join(" ")));
        client.call(&format!("HSET hash {}", pairs.join(" ")));
    }
    (1..200).for_each(|n| drop(client.call(&format!("XADD stream {n}-0 field {n:0100}"))));
    client.call("RPUSH small a b c d");
    client.call("SET lasting x EX 1000");
    let keys = refuse_from_here(&mut client);
    let refused = client.call(&format!("SET more {}", "x".repeat(8_000)));
    assert!(refused.starts_with(REFUSED), "{refused}");
    // Records of small values become 8 B longer.
    let expired = (0..keys).rev().filter(|n| {
        let reply = client.call(&format!("EXPIRE s:{n} 1000"));
        assert!(!reply.starts_with('-'), "{n}: {reply}");
        reply == ":1"
    });
    assert_eq!(expired.take(400).count(), 400);
    check(
        &mut client,
        &[
            ("MULTI", "+OK"),
            ("PEXPIRE s:0 100000", "+QUEUED"),
            ("LPOP small", "+QUEUED"),
            ("EXEC", "*2 :1 $1 a"),
            ("PERSIST s:0", ":1"),
            ("PERSIST lasting", ":1"),
            ("LPOP small", "$1 b"),
            ("RPOP small", "$1 d"),
            ("LPOP list 150", &format!("*150 {}", client_elements(0..150))),
            ("LREM list 0 element:000000000000000000000000001000", ":1"),
            ("SREM set element:000000000000000000000000000007", ":1"),
            ("ZREM sorted element:000000000000000000000000000007", ":1"),
            ("ZREMRANGEBYRANK sorted 10 1000", ":991"),
            ("HDEL hash 7 8 9", ":3"),
            ("XDEL stream 5-0 6-0", ":2"),
            ("XTRIM stream MAXLEN 50", ":147"),
            ("DEL s:0 small", ":2"),
        ],
    );
}

/// Fills memory with values until none of these sizes finds room in any shard. Returns the number
/// of keys; the last ones are small.
fn refuse_from_here(client: &mut Client) -> u32 {
    let mut keys = 0;
    for size in [8_000, 700, 300, 150, 57, 41] {
        let (value, mut refused) = ("x".repeat(size), 0);
        while refused < 40 {
            let reply = client.call(&format!("SET s:{} {value}", keys + refused));
            (keys, refused) = match reply.starts_with('-') {
                true => (keys, refused + 1),
                false => (keys + refused + 1, 0),
            };
        }
    }
    keys
}

fn client_elements(numbers: std::ops::Range<u32>) -> String {
    let all: Vec<_> = numbers.map(|n| format!("$38 element:{n:030}")).collect();
    all.join(" ")
}

#[test]
fn memory_that_was_freed_can_be_used_at_once() {
    let server = start(config());
    let mut client = server.client();
    let used = number_of(&client.call("INFO memory"), "used_memory");
    client.call(&format!("CONFIG SET maxmemory {}", used + 100_000));
    for freed in ["DEL big", "FLUSHALL"] {
        assert_eq!(client.call("SETRANGE big 200000 x"), ":200001");
        // The limit is looked at ten times a second.
        while client.call("SET a x") == "+OK" {}
        assert_eq!(client.call("SET a x"), REFUSED);
        let script = "EVAL return(redis.call('SET',KEYS[1],'x')) 1 a";
        assert!(client.call(script).starts_with("-OOM"));
        client.call(freed);
        assert_eq!(client.call("SET a x"), "+OK", "{freed}");
        assert_eq!(client.call(script), "+OK");
    }
}
