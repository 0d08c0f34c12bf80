// The cases, included once for each event queue: `config` is the including module's.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use crate::running::{Client, frame, start};
use perdura_server::{Durability, Ended, Listener, ServerConfig, StartError};

/// Repeats `check` until it is true; the server's loop decides when.
fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !check() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn commands_may_arrive_in_any_pieces() {
    let server = start(config());
    let mut client = server.client();
    let input =
        [frame(&[b"SET", b"k", b"v\r\n*1"]), b"GET k\r\n\r\n".to_vec(), frame(&[b"PING"])].concat();
    for byte in input.chunks(1) {
        client.stream.write_all(byte).unwrap();
    }
    assert_eq!(client.reply(), b"+OK\r\n");
    assert_eq!(client.reply(), b"$5\r\nv\r\n*1\r\n");
    assert_eq!(client.reply(), b"+PONG\r\n");
}

#[test]
fn a_pipeline_is_answered_in_order() {
    let server = start(config());
    let mut client = server.client();
    let many: Vec<u8> = (0..20_000).flat_map(|n| format!("ECHO {n}\r\n").into_bytes()).collect();
    let mut writer = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || writer.write_all(&many).unwrap());
    for n in 0..20_000 {
        let text = n.to_string();
        assert_eq!(client.reply(), format!("${}\r\n{text}\r\n", text.len()).into_bytes());
    }
    sender.join().unwrap();
}

#[test]
fn large_values_pass_through() {
    let server = start(config());
    let mut client = server.client();
    let value: Vec<u8> = (0..3_000_000u32).map(|n| n as u8).collect();
    assert_eq!(client.call_bytes(&[b"SET", b"big", &value]), b"+OK\r\n");
    let reply = client.call_bytes(&[b"GET", b"big"]);
    assert_eq!(reply.len(), value.len() + b"$3000000\r\n\r\n".len());
    assert!(reply.windows(value.len()).any(|w| w == value));
}

#[test]
fn a_protocol_error_is_told_and_ends_the_connection() {
    let server = start(config());
    let mut client = server.client();
    client.stream.write_all(b"PING\r\n*1\r\n:3\r\nPING\r\n").unwrap();
    assert_eq!(client.rest(), "+PONG\r\n-ERR Protocol error: expected '$', got ':'\r\n");
}

#[test]
fn http_is_not_executed() {
    let server = start(config());
    let mut client = server.client();
    client.stream.write_all(b"POST / HTTP/1.1\r\nHost: x\r\n\r\nSET evil 1\r\n").unwrap();
    assert_eq!(client.rest(), "");
    assert_eq!(server.client().call("EXISTS evil"), ":0");
}

#[test]
fn a_half_closed_peer_still_gets_its_replies() {
    let server = start(config());
    let mut client = server.client();
    client.stream.write_all(b"PING\r\nECHO a\r\nGET unfini").unwrap();
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.rest(), "+PONG\r\n$1\r\na\r\n");
}

#[test]
fn a_half_closed_peer_gets_replies_that_had_to_wait() {
    // Replies wait for the peer to read, for a group commit, and for the end of a pause.
    let fsync = ServerConfig { durability: Durability::Fsync, ..config() };
    let slow = ServerConfig { output_pause_bytes: 64 << 10, ..config() };
    for config in [slow, fsync] {
        let server = start(config);
        let mut client = server.client();
        client.call_bytes(&[b"SET", b"big", &vec![b'x'; 1 << 20]]);
        let asked = b"GET big\r\nINCR asked\r\n".repeat(50);
        client.stream.write_all(&asked).unwrap();
        client.stream.shutdown(Shutdown::Write).unwrap();
        // The client reads nothing before it has sent everything and the server has seen the end.
        let mut other = server.client();
        eventually("the first is executed", || other.call("EXISTS asked") == ":1");
        for n in 1..=50 {
            assert_eq!(client.reply().len(), (1 << 20) + 12);
            assert_eq!(client.reply_text(), format!(":{n}"));
        }
        assert_eq!(client.rest(), "");
    }
    let server = start(config());
    let (mut paused, mut other) = (server.client(), server.client());
    assert_eq!(other.call("CLIENT PAUSE 60000 WRITE"), "+OK");
    paused.stream.write_all(b"SET a 1\r\nGET a\r\nGET unfini").unwrap();
    paused.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(other.call("GET a"), "$-1");
    assert_eq!(other.call("CLIENT UNPAUSE"), "+OK");
    assert_eq!(paused.rest(), "+OK\r\n$1\r\n1\r\n");
    eventually("its place is free", || other.call("CLIENT LIST").matches("id=").count() == 1);
}

#[test]
fn nothing_after_quit_is_executed() {
    let server = start(config());
    let mut client = server.client();
    client.stream.write_all(b"QUIT\r\nSET after 1\r\n").unwrap();
    assert_eq!(client.rest(), "+OK\r\n");
    assert_eq!(server.client().call("EXISTS after"), ":0");
}

#[test]
fn a_pipeline_is_carried_out_as_if_nothing_had_been_looked_at() {
    let server = start(config());
    let mut client = server.client();
    let input: &[&[u8]] = &[
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n0\r\nINCR k\r\nGET k\r\n",
        b"SELECT 1\r\nSET k one\r\nSELECT 0\r\nGET k\r\n\r\nMGET k none\r\n",
        b"MULTI\r\nINCR k\r\nGET k\r\nEXEC\r\nget\r\nNOSUCH\r\nDEL k\r\nGET k\r\n",
        b"CONFIG SET proto-max-bulk-len 1048576\r\nGET k\r\n*2\r\n$3\r\nGET\r\n$1048577\r\n",
    ];
    client.stream.write_all(&input.concat()).unwrap();
    let expected = [
        "+OK|:1|$1|1|+OK|+OK|+OK|$1|1|*2|$1|1|$-1|+OK|+QUEUED|+QUEUED|*2|:2|$1|2|",
        "-ERR wrong number of arguments for 'get' command|-ERR unknown command 'NOSUCH', with args \
         beginning with: |",
        ":1|$-1|+OK|$-1|-ERR Protocol error: invalid bulk length|",
    ];
    assert_eq!(client.rest().replace("\r\n", "|"), expected.concat());
}

#[test]
fn a_peer_that_does_not_read_is_not_executed_further() {
    let server = start(ServerConfig { output_pause_bytes: 64 << 10, ..config() });
    let mut slow = server.client();
    let value = vec![b'x'; 1 << 20];
    slow.call_bytes(&[b"SET", b"big", &value]);
    // 300 MiB of replies are asked for; the sockets take a few MiB.
    let asked: Vec<u8> = (0..300).flat_map(|_| b"GET big\r\nINCR asked\r\n".to_vec()).collect();
    slow.stream.write_all(&asked).unwrap();
    let mut other = server.client();
    let mut last = String::new();
    eventually("the slow peer's commands stop", || {
        std::thread::sleep(Duration::from_millis(50));
        let now = other.call("GET asked");
        let stopped = now == last && now != "$-1";
        last = now;
        stopped
    });
    let done: u32 = last.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(done < 250, "{done} of 300 executed");
    // When it reads at last, it gets everything.
    for n in 1..=300 {
        assert_eq!(slow.reply().len(), (1 << 20) + 12);
        assert_eq!(slow.reply_text(), format!(":{n}"));
    }
}

#[test]
fn a_flood_that_may_not_be_executed_stays_in_the_sockets() {
    let server = start(config());
    let (mut flood, mut other) = (server.client(), server.client());
    assert_eq!(flood.call("PING"), "+PONG");
    assert_eq!(other.call("CLIENT PAUSE 60000 WRITE"), "+OK");
    let set = frame(&[b"SET", b"k", &[b'x'; 16 << 10]]);
    let mut writer = flood.stream.try_clone().unwrap();
    // This is 64 MiB, of which the sockets take a part.
    let sender = std::thread::spawn(move || writer.write_all(&set.repeat(4096)).unwrap());
    let mut last = 0;
    eventually("the server receives no more", || {
        std::thread::sleep(Duration::from_millis(50));
        let stats = other.call("INFO stats");
        let (_, figure) = stats.split_once("total_net_input_bytes:").unwrap();
        let now: usize = figure.split(' ').next().unwrap().parse().unwrap();
        let before = std::mem::replace(&mut last, now);
        now > 1000 && now - before < 100
    });
    assert!(last < 8 << 20, "{last} bytes received");
    assert_eq!(other.call("CLIENT UNPAUSE"), "+OK");
    for _ in 0..4096 {
        assert_eq!(flood.reply_text(), "+OK");
    }
    sender.join().unwrap();
}

#[test]
fn more_clients_than_there_are_buffers_send_at_once() {
    let server = start(config());
    let together = std::sync::Barrier::new(150);
    std::thread::scope(|scope| {
        for id in 0..150u32 {
            let (mut client, together) = (server.client(), &together);
            scope.spawn(move || {
                let (key, value) = (id.to_be_bytes(), vec![id as u8; 100_000]);
                together.wait();
                for _ in 0..5 {
                    assert_eq!(client.call_bytes(&[b"SET", &key, &value]), b"+OK\r\n");
                    let reply = client.call_bytes(&[b"GET", &key]);
                    assert!(reply.ends_with(&[&value[..], b"\r\n"].concat()));
                }
            });
        }
    });
}

#[test]
fn a_reply_beyond_the_output_limit_ends_the_connection() {
    let server = start(ServerConfig { output_max_bytes: 100_000, ..config() });
    let mut client = server.client();
    client.call_bytes(&[b"SET", b"k", &[b'x'; 60_000]]);
    client.send(&[b"MGET", b"k", b"k"]);
    assert_eq!(client.rest(), "");
    let stats = server.client().call("INFO stats");
    assert!(stats.contains("client_output_buffer_limit_disconnections:1"), "{stats}");
}

#[test]
fn more_clients_than_allowed_are_told_so() {
    let server = start(ServerConfig { clients_max: 2, ..config() });
    let (mut a, mut b) = (server.client(), server.client());
    assert_eq!(a.call("PING"), "+PONG");
    assert_eq!(b.call("PING"), "+PONG");
    assert_eq!(server.client().rest(), "-ERR max number of clients reached\r\n");
    drop(b);
    eventually("a place is free again", || {
        let mut c = server.client();
        let _ = c.stream.write_all(b"PING\r\n");
        c.rest_of_one().starts_with("+PONG")
    });
    assert_eq!(a.call("PING"), "+PONG");
}

#[test]
fn silent_clients_are_disconnected_after_the_timeout() {
    let server = start(ServerConfig { timeout_s: 1, ..config() });
    let mut silent = server.client();
    assert_eq!(silent.call("PING"), "+PONG");
    let began = Instant::now();
    assert_eq!(silent.rest(), "");
    assert!(began.elapsed() >= Duration::from_millis(900));
}

#[test]
fn a_password_is_asked_for_first() {
    let server = start(ServerConfig { requirepass: Some("secret".into()), ..config() });
    let mut client = server.client();
    assert_eq!(client.call("GET a"), "-NOAUTH Authentication required.");
    assert!(client.call("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert!(client.call("AUTH wrong").starts_with("-WRONGPASS"));
    assert!(client.call("AUTH other secret").starts_with("-WRONGPASS"));
    assert_eq!(client.call("AUTH default secret"), "+OK");
    assert_eq!(client.call("GET a"), "$-1");
    assert_eq!(client.call("RESET"), "+RESET");
    assert_eq!(client.call("GET a"), "-NOAUTH Authentication required.");
    assert!(client.call("HELLO 3 AUTH default secret").starts_with("%7"));
    let mut large = server.client();
    large.stream.write_all(b"*1\r\n$20000\r\n").unwrap();
    assert_eq!(large.rest(), "-ERR Protocol error: unauthenticated bulk length\r\n");
    let mut many = server.client();
    many.stream.write_all(b"*11\r\n").unwrap();
    assert_eq!(many.rest(), "-ERR Protocol error: unauthenticated multibulk length\r\n");
    // Nothing of this holds for a client that gave the password.
    let value = "v".repeat(20_000);
    client.stream.write_all(&frame(&[b"SET", b"a", value.as_bytes()])).unwrap();
    assert_eq!(client.reply_text(), "+OK");
    let names = [b"a".as_slice(); 11];
    client.stream.write_all(&frame(&[&[b"DEL".as_slice()], &names[..]].concat())).unwrap();
    assert_eq!(client.reply_text(), ":1");
}

#[test]
fn an_open_address_without_a_password_is_not_bound() {
    let open = ServerConfig { bind: vec!["0.0.0.0:0".parse().unwrap()], ..config() };
    assert!(matches!(Listener::bind(&open), Err(StartError::Unprotected { .. })));
}

#[test]
fn a_stop_waits_for_nobody() {
    let server = start(config());
    let mut clients: Vec<Client> = (0..50).map(|_| server.client()).collect();
    for client in &mut clients {
        client.stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk").unwrap();
    }
    assert_eq!(server.client().call("PING"), "+PONG");
    let began = Instant::now();
    let report = server.stop();
    assert!(began.elapsed() < Duration::from_secs(2));
    assert_eq!(report.ended, Ended::Stopped);
    assert_eq!(report.connections, 51);
}

#[test]
fn shutdown_ends_the_server_and_nosave_is_refused() {
    let server = start(config());
    let mut client = server.client();
    assert!(client.call("SHUTDOWN NOSAVE").starts_with("-ERR SHUTDOWN NOSAVE is refused"));
    client.send(&[b"SHUTDOWN"]);
    assert_eq!(client.rest(), "");
    assert_eq!(server.join().ended, Ended::Shutdown);
}

#[test]
fn clients_see_and_end_each_other() {
    let server = start(config());
    let (mut a, mut b) = (server.client(), server.client());
    assert_eq!(a.call("CLIENT SETNAME alice"), "+OK");
    assert_eq!(b.call("CLIENT SETNAME bob"), "+OK");
    let list = a.call("CLIENT LIST");
    assert!(list.contains("name=alice") && list.contains("name=bob"), "{list}");
    let id = b.call("CLIENT ID").trim_start_matches(':').to_owned();
    assert_eq!(a.call(&format!("CLIENT KILL ID {id}")), ":1");
    assert_eq!(b.rest(), "");
    assert_eq!(a.call("CLIENT KILL 1.2.3.4:5"), "-ERR No such client");
    assert!(!a.call("CLIENT LIST").contains("bob"));
}

#[test]
fn replies_can_be_switched_off() {
    let server = start(config());
    let mut client = server.client();
    client.stream.write_all(b"CLIENT REPLY SKIP\r\nSET a 1\r\nGET a\r\n").unwrap();
    assert_eq!(client.reply_text(), "$1 1");
    client
        .stream
        .write_all(b"CLIENT REPLY OFF\r\nSET a 2\r\nbogus\r\nCLIENT REPLY ON\r\n")
        .unwrap();
    assert_eq!(client.reply_text(), "+OK");
    assert_eq!(client.call("GET a"), "$1 2");
    client.stream.write_all(b"CLIENT REPLY SKIP\r\nCLIENT REPLY ON\r\nGET a\r\n").unwrap();
    assert_eq!(client.reply_text(), "+OK");
    assert_eq!(client.reply_text(), "$1 2");
}

#[test]
fn a_pause_holds_writes_until_it_ends() {
    let server = start(config());
    let (mut a, mut b) = (server.client(), server.client());
    assert_eq!(a.call("CLIENT PAUSE 60000 WRITE"), "+OK");
    b.send(&[b"SET", b"k", b"v"]);
    b.send(&[b"GET", b"k"]);
    assert_eq!(a.call("GET k"), "$-1");
    assert_eq!(a.call("CLIENT UNPAUSE"), "+OK");
    assert_eq!(b.reply_text(), "+OK");
    assert_eq!(b.reply_text(), "$1 v");
}

#[test]
fn a_pause_of_writes_holds_what_may_tell_others_and_scripts_that_may_write() {
    let server = start(config());
    let (mut a, mut b) = (server.client(), server.client());
    let say = |client: &mut Client, words: &[&str]| {
        client.send(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
        client.reply_text()
    };
    a.call("PFADD h x");
    let readers = ["#!lua flags=no-writes\nreturn 1", "return 1"];
    let library = "#!lua name=l\nredis.register_function{function_name='f', flags={'no-writes'}, \
                   callback=function() return 3 end}";
    assert_eq!(say(&mut a, &["FUNCTION", "LOAD", library]), "$1 l");
    for held in [&["PUBLISH", "c", "m"][..], &["PFCOUNT", "h"], &["EVAL", readers[1], "0"]] {
        assert_eq!(a.call("CLIENT PAUSE 60000 WRITE"), "+OK");
        b.send(&held.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
        while !a.call("INFO clients").contains("blocked_clients:1") {}
        assert_eq!(say(&mut a, &["EVAL", readers[0], "0"]), ":1", "{held:?}");
        assert_eq!(say(&mut a, &["EVAL_RO", readers[1], "0"]), ":1");
        assert_eq!(say(&mut a, &["FCALL", "f", "0"]), ":3");
        a.call("MULTI");
        assert_eq!(say(&mut a, &["EVAL", readers[0], "0"]), "+QUEUED");
        assert_eq!(a.call("EXEC"), "*1 :1");
        assert_eq!(a.call("CLIENT UNPAUSE"), "+OK");
        assert!(b.reply_text().starts_with(':'), "{held:?}");
    }
}

#[test]
fn watching_many_keys_does_not_hold_up_the_others() {
    let server = start(config());
    let mut client = server.client();
    let names: Vec<Vec<u8>> = (0..200_000).map(|n: u32| n.to_string().into_bytes()).collect();
    let mut words: Vec<&[u8]> = vec![b"WATCH"];
    words.extend(names.iter().map(Vec::as_slice));
    let began = Instant::now();
    assert_eq!(client.call_bytes(&words), b"+OK\r\n");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(server.client().call("SET 77 x"), "+OK");
    assert_eq!(client.call("MULTI"), "+OK");
    assert_eq!(client.call("GET 77"), "+QUEUED");
    assert_eq!(client.call("EXEC"), "*-1");
}

#[test]
fn a_unix_socket_serves_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perdura.sock");
    let server = start(ServerConfig { unix_socket: Some(path.clone()), ..config() });
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"PING\r\nQUIT\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "+PONG\r\n+OK\r\n");
    server.stop();
    assert!(!path.exists());
}

#[test]
fn idle_clients_own_no_buffers() {
    // cli/tests/idle_clients.rs tests the memory that ten thousand idle clients cost.
    let server = start(config());
    let mut clients: Vec<Client> = (0..300).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.call("PING"), "+PONG");
    }
    let list = clients[0].call("CLIENT LIST");
    let sizes = list.split(' ').filter_map(|w| w.strip_prefix("tot-mem="));
    for size in sizes {
        assert!(size.parse::<usize>().unwrap() < 1024, "{size}");
    }
}

#[test]
fn a_reply_that_the_limit_would_cut_off_is_not_gathered_first() {
    let server = start(ServerConfig { output_max_bytes: 1 << 20, ..config() });
    let mut client = server.client();
    client.call_bytes(&[b"HSET", b"h", b"field", &[b'x'; 64 << 10]]);
    let before = memory_peak_kib();
    client.send(&[b"HRANDFIELD", b"h", b"-16384", b"WITHVALUES"]);
    assert_eq!(client.rest(), "");
    // This would take 1 GiB if every pick were copied.
    let grown = memory_peak_kib() - before;
    assert!(grown < 500 << 10, "{grown} KiB for a reply of at most 1 MiB");
}

/// The most memory that this process has had.
fn memory_peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}
