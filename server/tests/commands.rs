//! What commands do beyond what the differential test can compare.
#![allow(clippy::unwrap_used)] // tests, though not every helper is inside one

mod common;

use common::{Client, config, start};
use perdura_server::ServerConfig;

/// Calls each line and compares its reply, CR LF shown as a blank.
fn check(client: &mut Client, lines: &[(&str, &str)]) {
    for (line, reply) in lines {
        assert_eq!(client.call(line), *reply, "{line}");
    }
}

#[test]
fn resp3_has_its_own_forms() {
    let server = start(config());
    let mut client = server.client();
    assert!(client.call("HELLO 3").starts_with("%7 $6 server $5 redis"));
    check(
        &mut client,
        &[
            ("GET nothing", "_"),
            ("HSET h a 1", ":1"),
            ("HGETALL h", "%1 $1 a $1 1"),
            ("HKEYS h", "*1 $1 a"),
            ("HRANDFIELD h 1 WITHVALUES", "*1 *2 $1 a $1 1"),
            ("CONFIG GET timeout", "%1 $7 timeout $1 0"),
            ("MULTI", "+OK"),
            ("EXEC", "*0"),
            ("ZADD z 1.5 a 2 b", ":2"),
            ("ZSCORE z a", ",1.5"),
            ("ZADD z XX INCR 1 nothing", "_"),
            ("ZRANGE z 0 0 WITHSCORES", "*1 *2 $1 a ,1.5"),
            ("ZPOPMIN z", "*2 $1 a ,1.5"),
            ("ZPOPMIN z 1", "*1 *2 $1 b ,2"),
            ("HELLO 9", "-NOPROTO unsupported protocol version"),
        ],
    );
    assert!(client.call("INFO server").starts_with('='));
    assert!(client.call("HELLO 2").starts_with("*14"));
    assert_eq!(client.call("GET nothing"), "$-1");
}

#[test]
fn watch_sees_the_changes_of_others() {
    let server = start(config());
    let (mut a, mut b) = (server.client(), server.client());
    let changes = [
        "SET k 2",
        "DEL k",
        "EXPIRE k 100",
        "APPEND k x",
        "RENAME k other",
        "HSET h f 2",
        "HDEL h f",
        "SET absent 1",
        // The same value again is a write as well, and so is one that was taken back.
        "SET k 1",
        "HSET h f 1",
        "APPEND k",
        "PERSIST expiring",
        "MULTI;INCR k;DECR k;EXEC",
        "HDEL h f;HSET h f 1",
        "SET absent 1;DEL absent;SET absent 1",
        "FLUSHALL;SET k 1",
        "FLUSHDB",
        "RENAME other k",
        "COPY other k REPLACE",
        "MOVE k 3",
        "GETDEL k",
        "SETRANGE k 0 1",
        "GETEX k EX 100",
        "PEXPIRE k 1",
        "EXPIREAT k 1",
        "HSET big f0 v",
        "HDEL big f1",
        "ZADD z 2 a",
        "ZREM z a",
        "ZPOPMIN z",
        "ZADD huge 7 m7.5",
        "ZADD huge 5 m7",
        "ZREM huge m7",
        "ZREMRANGEBYSCORE huge 3 5",
        "ZUNIONSTORE absent 1 z",
        "ZRANGESTORE z huge 0 3",
    ];
    // What writes nothing.
    let spared = [
        "SET k 2 NX",
        "SETNX k 2",
        "DEL absent",
        "EXPIRE absent 100",
        "PERSIST k",
        "HDEL h nothing",
        "HSETNX h f 2",
        "SETRANGE k 0",
        "RENAME k k",
        "COPY k other",
        "MSETNX k 1 new 2",
        "EXPIRE k 100 XX",
        "GETEX k",
        "GETEX k PERSIST",
        "SET unwatched 1",
        "HDEL big nothing",
        "ZADD z 1 a",
        "ZADD z XX 1 b",
        "ZADD z NX 2 a",
        "ZADD huge 7 m7",
        "ZREM huge nothing",
        "ZADD huge GT 3 m7",
        "ZREMRANGEBYSCORE huge 1000 2000",
        "ZUNIONSTORE other 1 z",
        "SELECT 3;SET k 5",
        "SELECT 3;FLUSHDB",
    ];
    let fields: String = (0..200).map(|n| format!(" f{n} v")).collect();
    let members: String = (0..200).map(|n| format!(" {n} m{n}")).collect();
    for change in changes.into_iter().chain(spared) {
        check(
            &mut a,
            &[
                ("FLUSHALL", "+OK"),
                ("SET k 1", "+OK"),
                ("HSET h f 1 g 1", ":2"),
                (&format!("HSET big{fields}"), ":200"),
                ("SET other 1", "+OK"),
                ("SET expiring 1 EX 100", "+OK"),
                ("ZADD z 1 a", ":1"),
                (&format!("ZADD huge{members}"), ":200"),
                ("WATCH k h absent big expiring z huge", "+OK"),
            ],
        );
        for line in change.split(';') {
            let mut words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            // An empty word cannot stand in a line.
            if matches!((words[0], words.len()), (b"APPEND", 2) | (b"SETRANGE", 3)) {
                words.push(b"");
            }
            let reply = String::from_utf8(b.call_bytes(&words)).unwrap();
            assert!(!reply.starts_with('-'), "{line}: {reply}");
        }
        b.call("SELECT 0");
        let reply = if changes.contains(&change) { "*-1" } else { "*1 +OK" };
        // What goes away in a millisecond goes away, however slow the test is.
        while change.starts_with("PEXPIRE") && a.call("EXISTS k") == ":1" {}
        check(&mut a, &[("MULTI", "+OK"), ("SET k 3", "+QUEUED")]);
        assert_eq!(a.call("EXEC"), reply, "{change}");
        // Once only: EXEC has forgotten what was watched.
        check(&mut a, &[("MULTI", "+OK"), ("SET k 3", "+QUEUED"), ("EXEC", "*1 +OK")]);
    }
    check(
        &mut a,
        &[
            ("WATCH k h", "+OK"),
            ("MULTI", "+OK"),
            ("INCR k", "+QUEUED"),
            ("EXEC", "*1 :4"),
            ("WATCH k", "+OK"),
            ("INCR k", ":5"),
            ("UNWATCH", "+OK"),
            ("MULTI", "+OK"),
            ("WATCH k", "-ERR WATCH inside MULTI is not allowed"),
            ("INCR k", "+QUEUED"),
            ("EXEC", "*1 :6"),
        ],
    );
}

#[test]
fn a_transaction_that_is_tried_again_does_not_take_its_own_write_for_anothers() {
    let server = start(config());
    let mut client = server.client();
    assert_eq!(client.call("SET k 1"), "+OK");
    // Large values are written beside the shard's lock and the attempt is begun again.
    let value = vec![b'v'; 6 << 20];
    check(&mut client, &[("WATCH k absent", "+OK"), ("MULTI", "+OK")]);
    for key in [&b"k"[..], b"absent", b"k"] {
        assert_eq!(client.call_bytes(&[b"SET", key, &value]), b"+QUEUED\r\n");
    }
    check(&mut client, &[("EXEC", "*3 +OK +OK +OK"), ("STRLEN k", ":6291456")]);
}

#[test]
fn a_transaction_works_across_databases_and_walks() {
    let server = start(config());
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("SET a 1", "+OK"),
            ("SET b 2", "+OK"),
            ("MULTI", "+OK"),
            ("SELECT 3", "+QUEUED"),
            ("SET c 3", "+QUEUED"),
            ("SELECT 0", "+QUEUED"),
            ("MOVE a 3", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
            ("SELECT 3", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
            ("INCR a", "+QUEUED"),
            ("HGET a f", "+QUEUED"),
            ("FLUSHDB", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
            ("SAVE", "-ERR Command not allowed inside a transaction"),
            ("DISCARD", "+OK"),
            ("MULTI", "+OK"),
            ("SELECT 3", "+QUEUED"),
            ("SET c 3", "+QUEUED"),
            ("SELECT 0", "+QUEUED"),
            ("MOVE a 3", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
            ("SELECT 3", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
            ("INCR a", "+QUEUED"),
            ("HGET a f", "+QUEUED"),
            ("FLUSHDB", "+QUEUED"),
            ("RANDOMKEY", "+QUEUED"),
            ("INFO keyspace", "+QUEUED"),
        ],
    );
    let reply = client.call("EXEC");
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let begin = format!("*12 +OK +OK +OK :1 :1 +OK :2 :2 {wrong} +OK $-1 $");
    assert!(reply.starts_with(&begin), "{reply}");
    // The connection stays in the database the transaction selected.
    check(&mut client, &[("EXISTS a c", ":0"), ("SELECT 0", "+OK"), ("GET b", "$1 2")]);
}

#[test]
fn databases_are_exchanged_as_a_whole() {
    let server = start(config());
    let (mut client, mut watcher) = (server.client(), server.client());
    check(
        &mut client,
        &[
            ("MSET both 0 only0 0 swapdb x", "+OK"),
            ("EXPIREAT only0 4102444800", ":1"),
            ("SELECT 1", "+OK"),
            ("MSET both 1 only1 1", "+OK"),
            ("HSET hash f v", ":1"),
        ],
    );
    check(&mut watcher, &[("WATCH both neither", "+OK")]);
    check(
        &mut client,
        &[
            ("SWAPDB 0 1", "+OK"),
            ("MGET both only0 only1 swapdb", "*4 $1 0 $1 0 $-1 $1 x"),
            ("EXPIRETIME only0", ":4102444800"),
            ("DBSIZE", ":3"),
            ("SELECT 0", "+OK"),
            ("MGET both only0 only1", "*3 $1 1 $-1 $1 1"),
            ("HGETALL hash", "*2 $1 f $1 v"),
            ("SWAPDB 0 0", "+OK"),
            // Inside EXEC, seen by what follows, and undone with the rest.
            ("MULTI", "+OK"),
            ("SET new 1", "+QUEUED"),
            ("SWAPDB 1 0", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
            ("SELECT 1", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
            ("EXISTS new hash", "+QUEUED"),
            ("EXEC", "*6 +OK +OK :3 +OK :4 :2"),
        ],
    );
    check(&mut watcher, &[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "*-1")]);
    check(&mut watcher, &[("WATCH neither", "+OK")]);
    check(&mut client, &[("SWAPDB 0 1", "+OK")]);
    check(&mut watcher, &[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "*1 +PONG")]);
    // The new records stand beside the old ones until all is done: more than half the memory cannot
    // be exchanged, and is left as it was.
    let value = "v".repeat(1 << 20);
    for n in 0..40 {
        assert_eq!(client.call(&format!("SET large:{n} {value}")), "+OK");
    }
    let before = client.call("DBSIZE");
    let refused = client.call("SWAPDB 0 1");
    assert!(refused.starts_with("-OOM "), "{refused}");
    assert_eq!(client.call("DBSIZE"), before);
    assert_eq!(client.call("STRLEN large:7"), ":1048576");
}

#[test]
fn the_table_describes_itself() {
    let server = start(config());
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("COMMAND GETKEYS MSET a 1 b 2", "*2 $1 a $1 b"),
            ("COMMAND INFO nosuch", "*1 $-1"),
            ("COMMAND LIST FILTERBY PATTERN h*len", "*2 $4 hlen $7 hstrlen"),
            ("OBJECT ENCODING", "-ERR wrong number of arguments for 'object|encoding' command"),
        ],
    );
    let info = client.call("COMMAND INFO get");
    let expected = "*1 *10 $3 get :2 *2 +readonly +fast :1 :1 :1 *3 +@read +@string +@fast *0 *1";
    assert!(info.starts_with(expected), "{info}");
    assert!(client.call("COMMAND DOCS get").contains("Get the value of a key"));
    let count: usize = client.call("COMMAND COUNT")[1..].parse().unwrap();
    assert!(count > 80 && client.call("COMMAND").starts_with(&format!("*{count} ")));
    assert!(client.call("OBJECT HELP").contains("ENCODING"));
}

#[test]
fn encodings_are_named_as_redis_would() {
    let server = start(config());
    let mut client = server.client();
    let long = "x".repeat(45);
    check(
        &mut client,
        &[
            ("SET s 12", "+OK"),
            ("OBJECT ENCODING s", "$3 int"),
            ("SET s abc", "+OK"),
            ("OBJECT ENCODING s", "$6 embstr"),
            (&format!("SET s {long}"), "+OK"),
            ("OBJECT ENCODING s", "$3 raw"),
            ("HSET h f v", ":1"),
            ("OBJECT ENCODING h", "$8 listpack"),
            (&format!("HSET h f {long}{long}"), ":0"),
            ("OBJECT ENCODING h", "$9 hashtable"),
            ("ZADD z 1 m", ":1"),
            ("OBJECT ENCODING z", "$8 listpack"),
            (&format!("ZADD z 1 {long}{long}"), ":1"),
            ("OBJECT ENCODING z", "$8 skiplist"),
            ("ZREMRANGEBYRANK z 1 1", ":1"),
            ("TYPE z", "+zset"),
        ],
    );
    for n in 0..128 {
        assert_eq!(client.call(&format!("ZADD z 2 {n}")), ":1");
    }
    let larger = [("OBJECT ENCODING z", "$8 skiplist"), ("ZREM z m", ":1")];
    check(&mut client, &larger);
    check(&mut client, &[("OBJECT ENCODING z", "$8 listpack"), ("ZCARD z", ":128")]);
}

/// As the YCSB binding for Redis keeps its index: a scan begins at a key's hash.
#[test]
fn an_index_of_keys_is_scanned_by_score() {
    let server = start(config());
    let mut client = server.client();
    // Java's String.hashCode, which is what it takes for a score.
    let hash = |key: &str| {
        key.bytes().fold(0i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()))
    };
    let mut keys: Vec<String> = (0..3_000).map(|n| format!("user{}", n * 7_919)).collect();
    for key in &keys {
        assert_eq!(client.call(&format!("HMSET {key} field0 v")), "+OK");
        assert_eq!(client.call(&format!("ZADD _indices {} {key}", hash(key))), ":1");
    }
    keys.sort_by_key(|key| (hash(key), key.clone()));
    for from in (0..keys.len()).step_by(97) {
        let line = format!("ZRANGEBYSCORE _indices {} inf LIMIT 0 50", hash(&keys[from]));
        let expected: Vec<_> = keys[from..].iter().take(50).collect();
        let shown: String = expected.iter().map(|key| format!(" ${} {key}", key.len())).collect();
        assert_eq!(client.call(&line), format!("*{}{shown}", expected.len()));
    }
    let bytes: u64 = client.call("MEMORY USAGE _indices")[1..].parse().unwrap();
    assert!(bytes > 3_000 * 64 && bytes < 3_000 * 200, "{bytes} bytes");
    check(
        &mut client,
        &[
            ("SCAN 0 TYPE zset COUNT 100000", "*2 $1 0 *1 $8 _indices"),
            ("COPY _indices other", ":1"),
            ("SWAPDB 0 1", "+OK"),
            ("ZCARD other", ":0"),
            ("SELECT 1", "+OK"),
            ("RENAME other _indices", "+OK"),
            ("ZCARD _indices", ":3000"),
            ("FLUSHDB", "+OK"),
            ("ZCARD _indices", ":0"),
        ],
    );
}

#[test]
fn settings_change_all_or_none() {
    let server = start(config());
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("CONFIG GET maxclients", "*2 $10 maxclients $5 10000"),
            ("CONFIG SET maxclients 50 timeout 7", "+OK"),
            ("CONFIG GET timeout maxclients", "*4 $10 maxclients $2 50 $7 timeout $1 7"),
            (
                "CONFIG SET maxclients 60 port 1",
                "-ERR CONFIG SET failed (possibly related to argument 'port') - can't set immutable config",
            ),
            (
                "CONFIG SET nosuch 1",
                "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'",
            ),
            ("CONFIG GET maxclients", "*2 $10 maxclients $2 50"),
            ("CONFIG REWRITE", "-ERR The server is running without a config file"),
            (
                "DEBUG SLEEP 0",
                "-ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local connection, otherwise you need to set this option in the configuration file, and then restart the server.",
            ),
        ],
    );
}

#[test]
fn slow_commands_are_logged() {
    let server = start(ServerConfig { slowlog_slower_than_us: 0, slowlog_len_max: 3, ..config() });
    let mut client = server.client();
    for _ in 0..5 {
        client.call("PING");
    }
    assert_eq!(client.call("SLOWLOG LEN"), ":3");
    let log = client.call("SLOWLOG GET 1");
    assert!(log.contains("SLOWLOG $3 LEN"), "{log}");
    assert_eq!(client.call("SLOWLOG RESET"), "+OK");
}

#[test]
fn info_has_every_section() {
    let server = start(config());
    let mut client = server.client();
    client.call("SET a 1");
    client.call("GET a");
    let info = client.call("INFO everything");
    for text in [
        "# Server",
        "# Clients",
        "# Memory",
        "# Persistence",
        "# Stats",
        "# Replication",
        "# CPU",
        "# Modules",
        "# Commandstats",
        "# Cluster",
        "# Keyspace",
        "# Perdura",
        "db0:keys=1",
        "cmdstat_get:calls=1",
        "keyspace_hits:1",
        "role:master",
        "connected_slaves:0",
        "cluster_enabled:0",
        "lazyfreed_objects:0",
        "blocked_clients:0",
        "rdb_changes_since_last_save:1",
        "connected_clients:1",
        "durability:warned",
        "budget_bytes:",
        "dirty_bytes:",
        "stalls:",
    ] {
        assert!(info.contains(text), "{text} in {info}");
    }
    assert!(!client.call("INFO").contains("# Commandstats"));
    assert!(client.call("INFO keyspace").ends_with("db0:keys=1,expires=0,avg_ttl=0"));
}

#[test]
fn every_figure_of_the_region_is_shown_and_documented() {
    let server = start(config());
    let mut client = server.client();
    for n in 0..200 {
        client.call(&format!("SET key:{n} {}", "v".repeat(100)));
    }
    assert_eq!(client.call("SAVE"), "+OK");
    check(&mut client, &[("MULTI", "+OK"), ("SET multi 12345", "+QUEUED"), ("EXEC", "*1 +OK")]);
    let info = client.call("INFO perdura persistence");
    let fields: std::collections::BTreeMap<&str, &str> =
        info.split(' ').filter_map(|word| word.split_once(':')).collect();
    let number = |name: &str| fields[name].parse::<u64>().unwrap();
    for (name, _) in server.store.region().stats().fields() {
        assert!(fields.contains_key(name), "{name} in {info}");
    }
    let document = include_str!("../../docs/server.md");
    for name in fields.keys() {
        assert!(document.contains(&format!("`{name}`")), "docs/server.md lacks `{name}`");
    }
    // key:0 to key:199, their values, and what EXEC wrote.
    let names: u64 = (0..200).map(|n| format!("key:{n}").len() as u64).sum();
    assert_eq!(number("user_bytes"), names + 200 * 100 + "multi12345".len() as u64);
    assert!(number("device_bytes") > 200 * 100 && number("checkpoints") > 0);
    assert!(number("dirty_bytes_max") <= number("budget_bytes"));
    let ratio = number("device_bytes") as f64 / number("user_bytes") as f64;
    let shown: f64 = fields["device_bytes_per_user_byte"].parse().unwrap();
    assert!(shown > 1.0 && (shown - ratio).abs() < 0.01, "{shown} {ratio}");
    // Counted since start: RESETSTAT would make the ratio wrong.
    client.call("CONFIG RESETSTAT");
    assert!(client.call("INFO perdura").contains(&format!("user_bytes:{}", number("user_bytes"))));

    let stats = client.call("PERDURA STATS");
    assert!(stats.contains("drained_bytes :") && stats.contains("stall_ns_max :0"), "{stats}");
    assert!(client.call("PERDURA HELP").contains("+STATS"));
    client.call("HELLO 3");
    assert!(client.call("PERDURA STATS").starts_with('%'));
}

#[test]
fn keys_end_by_themselves() {
    let server = start(config());
    let mut client = server.client();
    check(&mut client, &[("SET a 1 PX 30", "+OK"), ("SET b 1", "+OK")]);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while client.call("DBSIZE") != ":1" {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    check(&mut client, &[("GET a", "$-1"), ("GET b", "$1 1"), ("TTL a", ":-2")]);
}

#[test]
fn scan_walks_everything_once() {
    let server = start(config());
    let mut client = server.client();
    for n in 0..1000 {
        client.call(&format!("SET key:{n} v"));
        client.call(&format!("HSET hash f{n} v"));
    }
    for (command, expected) in [("SCAN", 1001), ("HSCAN hash", 2000)] {
        let (mut cursor, mut seen) = ("0".to_owned(), std::collections::BTreeSet::new());
        loop {
            let reply = client.call(&format!("{command} {cursor} COUNT 17"));
            let words: Vec<&str> = reply.split(' ').collect();
            cursor = words[2].to_owned();
            let step = if command == "SCAN" { 1 } else { 2 };
            let found: Vec<&&str> = words[4..].iter().skip(1).step_by(2).collect();
            seen.extend(found.iter().step_by(step).map(|w| (**w).to_owned()));
            if cursor == "0" {
                break;
            }
        }
        let expected = if command == "SCAN" { expected } else { expected / 2 };
        assert_eq!(seen.len(), expected, "{command}");
    }
}

/// Fields of Redis's INFO without a true value here, or none that anybody asks for.
const NOT_IN_INFO: [&str; 26] = [
    "redis_build_id",
    "atomicvar_api",
    "gcc_version",
    "used_memory_overhead",
    "used_memory_startup",
    "used_memory_dataset",
    "used_memory_vm",
    "allocator_",
    "used_memory_scripts_",
    "rss_overhead_",
    "mem_total_replication_buffers",
    "used_memory_lua_human",
    "current_cow_",
    "rdb_last_load_keys_",
    "aof_rewrites_consecutive_failures",
    "instantaneous_input_repl_kbps",
    "instantaneous_output_repl_kbps",
    "expired_stale_perc",
    "expired_time_cap_reached_count",
    "expire_cycle_cpu_milliseconds",
    "dump_payload_sanitizations",
    "reply_buffer_",
    "active_defrag_",
    "total_active_defrag_time",
    "io_threaded_",
    "current_active_defrag_time",
];

#[test]
fn info_has_the_fields_of_redis() {
    let text = include_str!("redis_7_0_info_fields.txt");
    let server = start(config());
    let info = server.client().call("INFO everything");
    let has =
        |name: &str| info.contains(&format!(" {name}:")) || info.contains(&format!("\n{name}:"));
    for name in text.lines() {
        let is_left_out = NOT_IN_INFO.iter().any(|out| name.starts_with(out));
        assert!(has(name) || is_left_out, "INFO lacks {name}: {info}");
    }
}

#[test]
fn a_paused_client_counts_as_blocked_and_its_request_and_arguments_are_told() {
    let server = start(config());
    let (mut client, mut paused) = (server.client(), server.client());
    assert_eq!(client.call("CLIENT PAUSE 60000 WRITE"), "+OK");
    paused.send(&[b"SET", b"key", b"value"]);
    let field = |text: &str, name: &str| {
        let word = text.split([' ', '\n']).find_map(|word| word.strip_prefix(name));
        word.unwrap_or_else(|| panic!("{name} in {text}")).to_owned()
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while field(&client.call("INFO clients"), "blocked_clients:") != "1" {
        assert!(std::time::Instant::now() < deadline);
    }
    let list = client.call("CLIENT LIST");
    assert!(list.contains("flags=b") && list.contains(" qbuf=33 "), "{list}");
    let own = client.call("CLIENT INFO");
    // *2 $6 CLIENT $4 INFO, each with its line's end.
    assert_eq!((field(&own, "qbuf="), field(&own, "argv-mem=")), ("26".into(), "10".into()));
    assert_eq!(client.call("CLIENT UNPAUSE"), "+OK");
    assert_eq!(paused.reply(), b"+OK\r\n");
    assert_eq!(field(&client.call("INFO clients"), "blocked_clients:"), "0");
}
