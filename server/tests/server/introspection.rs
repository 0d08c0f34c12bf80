//! The server's answers about itself: commands, settings, INFO, clients.

use perdura_server::ServerConfig;

use crate::check;
use crate::running::{config, start};

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
fn a_reset_client_keeps_the_name_of_its_library_only() {
    let server = start(config());
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("CLIENT SETINFO lib-name mine", "+OK"),
            ("CLIENT SETINFO lib-ver 1.2", "+OK"),
            ("CLIENT SETNAME one", "+OK"),
            ("RESET", "+RESET"),
            ("CLIENT GETNAME", "$-1"),
        ],
    );
    let own = client.call("CLIENT INFO");
    assert!(own.contains(" name= ") && own.contains(" lib-name=mine lib-ver=1.2"), "{own}");
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
                "-ERR CONFIG SET failed (possibly related to argument 'port') - can't set \
                 immutable config",
            ),
            (
                "CONFIG SET nosuch 1",
                "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'",
            ),
            ("CONFIG GET maxclients", "*2 $10 maxclients $2 50"),
            ("CONFIG REWRITE", "-ERR The server is running without a config file"),
            (
                "DEBUG SLEEP 0",
                "-ERR DEBUG command not allowed. If the enable-debug-command option is set to \
                 \"local\", you can run it from a local connection, otherwise you need to set this \
                 option in the configuration file, and then restart the server.",
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
    let document = include_str!("../../../docs/info.md");
    for name in fields.keys() {
        assert!(document.contains(&format!("`{name}`")), "docs/info.md lacks `{name}`");
    }
    // key:0 to key:199, their values, and what EXEC wrote.
    let names: u64 = (0..200).map(|n| format!("key:{n}").len() as u64).sum();
    assert_eq!(number("user_bytes"), names + 200 * 100 + "multi12345".len() as u64);
    assert!(number("device_bytes") > 200 * 100 && number("checkpoints") > 0);
    assert!(number("dirty_bytes_max") <= number("budget_bytes"));
    let ratio = number("device_bytes") as f64 / number("user_bytes") as f64;
    let shown: f64 = fields["device_bytes_per_user_byte"].parse().unwrap();
    assert!(shown > 1.0 && (shown - ratio).abs() < 0.01, "{shown} {ratio}");
    // These figures count since the start, because RESETSTAT would make their ratio wrong.
    client.call("CONFIG RESETSTAT");
    assert!(client.call("INFO perdura").contains(&format!("user_bytes:{}", number("user_bytes"))));

    let stats = client.call("PERDURA STATS");
    assert!(stats.contains("drained_bytes :") && stats.contains("stall_ns_max :0"), "{stats}");
    assert!(client.call("PERDURA HELP").contains("+STATS"));
    client.call("HELLO 3");
    assert!(client.call("PERDURA STATS").starts_with('%'));
}

#[test]
fn info_has_the_fields_of_redis() {
    // The fields of a master that has no append-only file and is not being loaded.
    let text = include_str!("../redis_7_2_info_fields.txt");
    let server = start(config());
    let info = server.client().call("INFO everything");
    let has =
        |name: &str| info.contains(&format!(" {name}:")) || info.contains(&format!("\n{name}:"));
    for name in text.lines() {
        assert!(has(name), "INFO lacks {name}: {info}");
    }
}

#[test]
fn turns_and_memory_are_counted() {
    let server = start(config());
    let mut client = server.client();
    for n in 0..100 {
        client.call(&format!("SET key:{n} {}", "v".repeat(1000)));
    }
    let info = client.call("INFO everything");
    let number = |name: &str| {
        let field = info.split([' ', '\n']).find_map(|word| word.strip_prefix(name));
        field.unwrap_or_else(|| panic!("{name} in {info}")).trim().parse::<f64>().unwrap()
    };
    // Each command was sent when the one before had been answered.
    assert!(number("eventloop_cycles:") >= 100.0);
    let (all, commands) = ("eventloop_duration_sum:", "eventloop_duration_cmd_sum:");
    assert!(number(all) >= number(commands) && number(commands) > 0.0, "{info}");
    let allocated = number("allocator_allocated:");
    assert!(allocated >= 100_000.0 && number("allocator_active:") >= allocated, "{info}");
    assert_eq!(number("used_memory:"), allocated);

    let stats = client.call("MEMORY STATS");
    for name in ["startup.allocated :0", "db.0 *6", "keys.count :100", "allocator-rss.ratio"] {
        assert!(stats.contains(name), "{name} in {stats}");
    }
    client.call("HELLO 3");
    assert!(client.call("MEMORY STATS").starts_with("%31 "));
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
