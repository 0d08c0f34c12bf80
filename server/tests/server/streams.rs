//! Clients that wait for entries of streams, on one loop and on several.

use std::time::{Duration, Instant};

use perdura_server::ServerConfig;

use crate::running::{Client, Running, config, start};

fn server(threads: usize) -> Running {
    start(ServerConfig { threads, ..config() })
}

/// Lets a client wait with this command, behind those that wait already.
fn block(client: &mut Client, line: &str, other: &mut Client, count: usize) {
    assert!(client.write(line));
    let began = Instant::now();
    while !other.call("INFO clients").contains(&format!(" blocked_clients:{count} ")) {
        assert!(began.elapsed() < Duration::from_secs(20), "{count} clients should wait");
        std::thread::yield_now();
    }
}

/// The reply with one entry of one stream.
fn one_entry(stream: &str, id: &str, name: &str, value: &str) -> String {
    let bulk = |text: &str| format!("${} {text}", text.len());
    let pair = format!("*2 {} {}", bulk(name), bulk(value));
    format!("*1 *2 {} *1 *2 {} {pair}", bulk(stream), bulk(id))
}

#[test]
fn all_who_read_get_an_entry_and_of_a_group_only_the_first() {
    for threads in [1, 3] {
        let server = server(threads);
        let mut clients: Vec<_> = (0..6).map(|_| server.client()).collect();
        let mut writer = server.client();
        assert_eq!(writer.call("XADD s 5-0 old entry"), "$3 5-0");
        assert_eq!(writer.call("XGROUP CREATE s g $"), "+OK");
        for (at, client) in clients.iter_mut().enumerate() {
            let line = match at {
                0 | 3 => "XREAD BLOCK 0 STREAMS other s $ $".to_owned(),
                1 => "XREAD BLOCK 0 STREAMS s 5".to_owned(),
                _ => format!("XREADGROUP GROUP g c{at} BLOCK 0 COUNT 1 STREAMS s >"),
            };
            block(client, &line, &mut writer, at + 1);
        }
        // An ID that is the last one when the command begins, and not when it is run again.
        assert_eq!(writer.call("XADD s 6-0 new one"), "$3 6-0");
        for at in [0, 1, 3, 2] {
            assert_eq!(clients[at].reply_text(), one_entry("s", "6-0", "new", "one"), "{at}");
        }
        assert!(clients[4].hears_nothing() && clients[5].hears_nothing());
        assert_eq!(writer.call("MULTI"), "+OK");
        assert_eq!(writer.call("XADD s 7-0 a 1"), "+QUEUED");
        assert_eq!(writer.call("XADD s 8-0 b 2"), "+QUEUED");
        assert_eq!(writer.call("EXEC"), "*2 $3 7-0 $3 8-0");
        assert_eq!(clients[4].reply_text(), one_entry("s", "7-0", "a", "1"));
        assert_eq!(clients[5].reply_text(), one_entry("s", "8-0", "b", "2"));
        let owners = "*3 *2 $2 c2 $1 1 *2 $2 c4 $1 1 *2 $2 c5 $1 1";
        assert_eq!(writer.call("XPENDING s g"), format!("*4 :3 $3 6-0 $3 8-0 {owners}"));
    }
}

#[test]
fn who_reads_for_a_group_hears_of_its_end() {
    let server = server(2);
    let (mut one, mut two, mut writer) = (server.client(), server.client(), server.client());
    let no_group = "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option";
    for end in ["XGROUP DESTROY s g", "DEL s", "RENAME s t"] {
        assert_eq!(writer.call("XGROUP CREATE s g $ MKSTREAM"), "+OK");
        block(&mut one, "XREADGROUP GROUP g me BLOCK 0 STREAMS s >", &mut writer, 1);
        block(&mut two, "XREAD BLOCK 0 STREAMS s $", &mut writer, 2);
        writer.call(end);
        assert_eq!(one.reply_text(), no_group, "{end}");
        assert!(two.hears_nothing());
        assert_eq!(writer.call("XADD s 1-1 f v"), "$3 1-1");
        assert_eq!(two.reply_text(), one_entry("s", "1-1", "f", "v"));
        writer.call("DEL s t");
    }
    assert_eq!(writer.call("XGROUP CREATE s g $ MKSTREAM"), "+OK");
    block(&mut one, "XREADGROUP GROUP g me BLOCK 0 STREAMS s >", &mut writer, 1);
    assert_eq!(writer.call("SET s string"), "+OK");
    assert!(one.reply_text().starts_with("-WRONGTYPE"));
}

#[test]
fn a_wait_for_entries_ends_with_its_time_and_is_none_inside_exec() {
    let server = server(1);
    let mut client = server.client();
    assert_eq!(client.call("XGROUP CREATE s g $ MKSTREAM"), "+OK");
    assert_eq!(client.call("XREAD BLOCK 10 STREAMS s $"), "*-1");
    assert_eq!(client.call("XREADGROUP GROUP g me BLOCK 10 STREAMS s >"), "*-1");
    assert_eq!(client.call("XREADGROUP GROUP g me BLOCK 0 STREAMS s 0"), "*1 *2 $1 s *0");
    client.call("MULTI");
    client.call("XREAD BLOCK 0 STREAMS s $");
    client.call("XREADGROUP GROUP g you BLOCK 0 STREAMS s >");
    assert_eq!(client.call("EXEC"), "*2 *-1 *-1");
    assert!(client.call("XINFO GROUPS s").contains("consumers :2"));
    assert_eq!(
        client.call("COMMAND GETKEYS XREAD COUNT 1 BLOCK 5 STREAMS a b 0 0"),
        "*2 $1 a $1 b"
    );
}
