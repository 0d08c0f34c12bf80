//! Looking at a running server: MONITOR, LATENCY, INFO errorstats and latencystats.

use perdura_server::ServerConfig;

use crate::check;
use crate::running::{Client, config, start};

/// The next line that a client that watches is shown, without time and address.
fn line(monitor: &mut Client) -> String {
    let line = monitor.reply_text();
    let (head, rest) = line.split_once("] ").unwrap();
    let (time, place) = head.split_once(" [").unwrap();
    assert!(time.starts_with('+') && time.split_once('.').unwrap().1.len() == 6, "{line}");
    let (db, addr) = place.split_once(' ').unwrap();
    assert!(addr.starts_with("127.0.0.1:"), "{line}");
    format!("{db} {rest}")
}

#[test]
fn who_watches_sees_the_commands_of_all_loops_without_secrets() {
    let server = start(ServerConfig { threads: 3, ..config() });
    let mut monitors = [server.client(), server.client()];
    let (mut one, mut other) = (server.client(), server.client());
    for monitor in &mut monitors {
        check(monitor, &[("MONITOR", "+OK")]);
    }
    assert_eq!(one.call("CLIENT LIST").matches(" flags=O ").count(), 2);
    check(&mut one, &[("SET a \u{1}\"x\\", "+OK")]);
    assert!(one.call_bytes(&[b"GET", b"\r\n\t\x00\xff"]).starts_with(b"$-1"));
    check(&mut other, &[("SELECT 3", "+OK"), ("NOSUCH", NOSUCH)]);
    other.call("AUTH default secret");
    other.call("HELLO 2 AUTH default secret SETNAME me");
    other.call("CONFIG SET timeout 0");
    check(&mut other, &[("MULTI", "+OK"), ("SELECT 4", "+QUEUED"), ("INCR n", "+QUEUED")]);
    check(&mut other, &[("EXEC", "*2 +OK :1"), ("MULTI", "+OK"), ("GET", GET), ("EXEC", ABORTED)]);
    for monitor in &mut monitors {
        let seen: Vec<String> = (0..11).map(|_| line(monitor)).collect();
        let expected = [
            "0 \"SET\" \"a\" \"\\x01\\\"x\\\\\"",
            "0 \"GET\" \"\\r\\n\\t\\x00\\xff\"",
            "3 \"SELECT\" \"3\"",
            "3 \"AUTH\" \"(redacted)\" \"(redacted)\"",
            "3 \"HELLO\" \"2\" \"AUTH\" \"(redacted)\" \"(redacted)\" \"SETNAME\" \"me\"",
            "3 \"MULTI\"",
            "4 \"SELECT\" \"4\"",
            "4 \"INCR\" \"n\"",
            "4 \"EXEC\"",
            "4 \"MULTI\"",
            "4 \"EXEC\"",
        ];
        assert_eq!(seen, expected);
    }
    // One that watches is like a replica, until RESET.
    let [mut first, mut second] = monitors;
    check(&mut first, &[("GET a", "-ERR Replica can't interact with the keyspace")]);
    check(&mut first, &[("RESET", "+RESET"), ("EXISTS a", ":1"), ("PING", "+PONG")]);
    assert_eq!(line(&mut second), "0 \"RESET\"");
    drop(second);
    while one.call("CLIENT LIST").contains(" flags=O ") {}
    check(&mut one, &[("PING", "+PONG")]);
}

const NOSUCH: &str = "-ERR unknown command 'NOSUCH', with args beginning with:";
const GET: &str = "-ERR wrong number of arguments for 'get' command";
const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";

#[test]
fn one_that_watches_and_does_not_read_is_disconnected() {
    let server = start(ServerConfig { output_max_bytes: 100_000, ..config() });
    let (mut monitor, mut client) = (server.client(), server.client());
    check(&mut monitor, &[("MONITOR", "+OK")]);
    let value = "v".repeat(50_000);
    let mut sent = 0;
    while client.call("CLIENT LIST").contains(" flags=O ") {
        check(&mut client, &[(&format!("SET a {value}"), "+OK")]);
        sent += 1;
        assert!(sent < 2_000, "nothing bounds what it has not read");
    }
    assert!(client.call("INFO stats").contains("client_output_buffer_limit_disconnections:1"));
}

#[test]
fn secrets_are_not_in_the_slow_log() {
    let server = start(ServerConfig { slowlog_slower_than_us: 0, ..config() });
    let mut client = server.client();
    client.call("AUTH secret");
    client.call("ACL SETUSER bob >secret");
    client.call("CONFIG SET timeout 1 requirepass secret");
    let log = client.call("SLOWLOG GET -1");
    assert!(log.contains("requirepass $10 (redacted)") && log.contains("timeout $1 1"), "{log}");
    assert!(!log.contains("secret") && !log.contains("bob"), "{log}");
}

#[test]
fn slow_events_are_noted_and_times_counted() {
    let server = start(ServerConfig { threads: 2, debug_enabled: true, ..config() });
    let (mut client, mut other) = (server.client(), server.client());
    check(&mut client, &[("DEBUG SLEEP 0.01", "+OK"), ("LATENCY LATEST", "*0")]);
    assert!(client.call("LATENCY DOCTOR").contains("latency-monitor-threshold"));
    check(&mut client, &[("CONFIG SET latency-monitor-threshold 5", "+OK")]);
    check(&mut other, &[("DEBUG SLEEP 0.03", "+OK")]);
    let latest = client.call("LATENCY LATEST");
    assert!(latest.starts_with("*1 *4 $7 command :"), "{latest}");
    let longest: u64 = latest.rsplit(':').next().unwrap().parse().unwrap();
    assert!((30..5_000).contains(&longest), "{latest}");
    assert!(client.call("LATENCY HISTORY command").starts_with("*1 *2 :"));
    assert!(client.call("LATENCY DOCTOR").contains("command: 1 seconds"));
    let graph = client.call("LATENCY GRAPH command");
    let head =
        format!("command - high {longest} ms, low {longest} ms (all time high {longest} ms)");
    assert!(graph.contains(&head) && graph.contains(&"-".repeat(80)), "{graph}");
    check(&mut client, &[("LATENCY RESET nosuch", ":0"), ("LATENCY RESET", ":1")]);
    check(
        &mut client,
        &[("LATENCY GRAPH command", "-ERR No samples available for event 'command'")],
    );

    check(&mut client, &[("CONFIG RESETSTAT", "+OK"), ("SET a 1", "+OK"), ("GET a", "$1 1")]);
    check(&mut other, &[("SET a 2", "+OK"), ("CLIENT ID", ":2"), ("LPUSH a 1", WRONG)]);
    check(&mut other, &[("NOSUCH", NOSUCH), ("LPUSH a 1", WRONG)]);
    let histogram = client.call("LATENCY HISTOGRAM set client nosuch");
    assert!(histogram.starts_with("*4 $3 set *4 $5 calls :2 $14 histogram_usec *"), "{histogram}");
    assert!(histogram.contains("$9 client|id *4 $5 calls :1 ") && histogram.contains(" :2 $9 "));
    assert!(client.call("LATENCY HISTOGRAM").contains("$16 config|resetstat *4 $5 calls :1 "));
    let info = client.call("INFO everything");
    for field in ["errorstat_WRONGTYPE:count=2", "errorstat_ERR:count=1", "usec_set:p50="] {
        assert!(info.contains(field), "{field} in {info}");
    }
    check(
        &mut client,
        &[("CONFIG SET latency-tracking-info-percentiles 0 latency-tracking no", "+OK")],
    );
    check(&mut client, &[("CONFIG RESETSTAT", "+OK"), ("GET a", "$1 2")]);
    check(&mut client, &[("LATENCY HISTOGRAM get", "*0")]);
    assert!(!client.call("INFO").contains("errorstat_"));
}

const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn who_watches_sees_the_commands_of_a_script_behind_it_and_its_errors_are_counted() {
    let server = start(config());
    let (mut monitor, mut client) = (server.client(), server.client());
    check(&mut monitor, &[("MONITOR", "+OK")]);
    // The key is not named: the script is begun a second time, and shown once.
    assert_eq!(client.call("EVAL redis.call('set','k','v') 0"), "$-1");
    assert!(monitor.reply_text().contains("\"EVAL\""));
    let shown = monitor.reply_text();
    assert!(shown.ends_with("[0 lua] \"set\" \"k\" \"v\""), "{shown}");
    let reply = client.call(r"EVAL return(redis.error_reply('MINE\32words')) 0");
    assert_eq!(reply, "-MINE words");
    assert!(monitor.reply_text().contains("\"EVAL\""));
    // An error is named by a short first word only, in which nothing is that INFO separates by.
    client.call(r"EVAL return(redis.error_reply('A:B\32words')) 0");
    client.call(r"EVAL return(redis.error_reply(string.rep('x',31)..'\32words')) 0");
    let info = client.call("INFO errorstats");
    for field in ["errorstat_MINE:count=1", "errorstat_A_B:count=1", "errorstat_ERR:count=1"] {
        assert!(info.contains(field), "{field} in {info}");
    }
}
