// Copies of everything (SYNC), included once for each event queue: `config` is the parent's.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::Path;

use perdura_rdb::{Item, Reader};
use perdura_server::ServerConfig;

use super::{config, eventually};
use crate::running::{Client, Running, start};

/// Bytes that no packing makes shorter.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..bytes / 8).flat_map(|_| next().to_le_bytes()).collect()
}

/// A server with more than sockets take, and the directory of its dumps.
fn start_large() -> (Running, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let spill_dir = Some(dir.path().to_path_buf());
    let server = start(ServerConfig { spill_dir, ..config() });
    let mut client = server.client();
    let value = noise(1 << 20);
    for n in 0..8 {
        client.call_bytes(&[b"SET", format!("key {n}").as_bytes(), &value]);
    }
    (server, dir)
}

/// A client that has said SYNC and has the first byte of the dump's length.
fn reader(server: &Running) -> Client {
    let mut client = server.client();
    rustix::net::sockopt::set_socket_recv_buffer_size(&client.stream, 64 << 10).unwrap();
    assert!(client.write("SYNC"));
    let mut byte = [b'\n'];
    while byte == *b"\n" {
        client.stream.read_exact(&mut byte).unwrap();
    }
    assert_eq!(byte, *b"$");
    client
}

/// Files of dumps that are open.
fn dumps(dir: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    open.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(dir))).count()
}

/// The keys and libraries in a dump whose length is told before it, and nothing behind it.
fn counted(sent: &[u8]) -> (usize, usize) {
    let head = sent.iter().position(|byte| *byte == b'$').unwrap();
    assert!(sent[..head].iter().all(|byte| *byte == b'\n'));
    let (len, dump) =
        sent[head + 1..].split_at(sent[head..].iter().position(|b| *b == b'\r').unwrap());
    let (len, dump) = (&len[..len.len() - 1], &dump[1..]);
    assert_eq!(std::str::from_utf8(len).unwrap(), dump.len().to_string());
    let (mut reader, mut keys, mut libraries) = (Reader::new(dump, 1 << 30).unwrap(), 0, 0);
    while let Some(item) = reader.next_item().unwrap() {
        match item {
            Item::Key(_) => keys += 1,
            Item::Function(_) => libraries += 1,
            _ => {}
        }
    }
    (keys, libraries)
}

fn everything(client: &mut Client) -> Vec<u8> {
    let mut sent = Vec::new();
    client.stream.read_to_end(&mut sent).unwrap();
    sent
}

#[test]
fn a_client_gets_a_copy_and_then_the_end() {
    let server = start(config());
    let mut client = server.client();
    for n in 0..500 {
        client.call(&format!("SET key:{n} {n}"));
    }
    let code = "#!lua name=one\nredis.register_function('one', function() return 1 end)";
    client.call_bytes(&[b"FUNCTION", b"LOAD", code.as_bytes()]);
    // What stands behind SYNC is not carried out.
    let mut one = server.client();
    assert!(one.write("REPLCONF capa eof rdb-only 1\r\nSYNC\r\nPING\r\nSET no 1"));
    let mut sent = everything(&mut one);
    assert_eq!(sent.drain(..5).as_slice(), b"+OK\r\n");
    assert_eq!(counted(&sent), (500, 1));
    // A client that has ended its side gets everything.
    let mut one = server.client();
    assert!(one.write("REPLCONF rdb-filter-only functions\r\nSYNC"));
    one.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(counted(&everything(&mut one)[5..]), (0, 1));
    let mut one = server.client();
    assert!(one.write("PSYNC ? -1"));
    let sent = everything(&mut one);
    let end = sent.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let head = String::from_utf8(sent[..end].to_vec()).unwrap();
    let id = head.strip_prefix("+FULLRESYNC ").and_then(|rest| rest.strip_suffix(" 0\r\n"));
    let id = id.unwrap_or_else(|| panic!("{head}"));
    assert_eq!((id.len(), counted(&sent[end..])), (40, (500, 1)));
    assert!(client.call("INFO replication").contains(&format!("master_replid:{id} ")));
    // Who has the copy is told that nothing follows.
    assert!(client.call(&format!("PSYNC {id} 1")).starts_with("-NOMASTERLINK "));
    assert_eq!(client.call("GET no"), "$-1");
    let stats = client.call("INFO stats");
    assert!(stats.contains("sync_full:3 sync_partial_err:1 "), "{stats}");
    assert!(client.call("INFO replication").contains("connected_slaves:0"));
}

#[test]
fn who_may_not_and_what_cannot_be_copied_is_refused() {
    let spill_dir = Some("/nowhere".into());
    let server = start(ServerConfig { spill_dir, ..config() });
    let mut client = server.client();
    assert!(
        client.call("EVAL return(redis.call('sync')) 0").starts_with("-ERR This Redis command")
    );
    client.call("ACL SETUSER bob on nopass +@all -@dangerous");
    client.call("AUTH bob x");
    for command in ["SYNC", "PSYNC ? -1", "REPLCONF capa eof"] {
        let reply = client.call(command);
        assert!(reply.starts_with("-NOPERM User bob has no permissions"), "{reply}");
    }
    client.call("AUTH default x");
    client.call("ACL SETUSER bob +sync +psync +replconf");
    client.call("AUTH bob x");
    assert_eq!(
        client.call("REPLCONF rdb-only 2 capa eof"),
        "-ERR value is out of range, value must between 0 and 1"
    );
    assert!(client.write("SYNC"));
    let said = client.rest();
    assert!(said.starts_with("-ERR no copy can be made: /nowhere: "), "{said}");
}

#[test]
fn a_reader_that_takes_nothing_holds_nothing_up_and_is_disconnected() {
    let (server, dir) = start_large();
    let mut client = server.client();
    let mut slow = reader(&server);
    let list = client.call("CLIENT LIST TYPE replica");
    assert!(list.contains("flags=S ") && list.contains("cmd=sync "), "{list}");
    let unsent = list.split_once(" omem=").unwrap().1.split(' ').next().unwrap();
    assert!(unsent.parse::<usize>().unwrap() <= 512 << 10, "{list}");
    assert_eq!(client.call("SAVE"), "+OK");
    assert_eq!(client.call_bytes(&[b"SET", b"key 1", b"x"]), b"+OK\r\n");
    assert_eq!(dumps(dir.path()), 1);
    assert_eq!(client.call("CONFIG SET repl-timeout 1"), "+OK");
    eventually("it is disconnected", || client.call("CLIENT LIST TYPE replica") == "$0");
    assert_eq!(dumps(dir.path()), 0);
    let mut rest = Vec::new();
    let _ = slow.stream.read_to_end(&mut rest);
    assert!(rest.len() < 8 << 20, "{}", rest.len());
}

#[test]
fn copies_are_few_and_those_of_killed_clients_are_freed() {
    let (server, dir) = start_large();
    let mut client = server.client();
    client.call("ACL SETUSER bob on nopass +@all ~*");
    let readers: Vec<Client> = (0..4).map(|_| reader(&server)).collect();
    assert_eq!(dumps(dir.path()), 4);
    let mut fifth = server.client();
    assert!(fifth.call("SYNC").starts_with("-ERR so many copies are being sent"));
    assert_eq!(client.call("CLIENT KILL TYPE replica"), ":4");
    eventually("the files go", || dumps(dir.path()) == 0);
    drop(readers);
    // The fifth can have one now. It goes with its user.
    fifth.call("AUTH bob x");
    assert!(fifth.write("SYNC"));
    eventually("it is being sent", || dumps(dir.path()) == 1);
    client.call("ACL DELUSER bob");
    eventually("the file goes", || dumps(dir.path()) == 0);
    // A client that goes while its dump is being sent.
    drop(reader(&server));
    eventually("the file goes", || dumps(dir.path()) == 0);
}

/// A client that is told of messages and of keys asks for a copy, and goes on saying things.
#[test]
fn nothing_comes_between_the_bytes_of_a_copy() {
    let (server, _dir) = start_large();
    let mut client = server.client();
    let mut listener = server.client();
    listener.call("HELLO 3");
    listener.call("SUBSCRIBE news");
    listener.call("CLIENT TRACKING ON BCAST");
    assert!(listener.write("SYNC"));
    let mut sent = vec![0; 1 << 20];
    listener.stream.read_exact(&mut sent).unwrap();
    for n in 0..100 {
        client.call("PUBLISH news x");
        client.call(&format!("SET other {n}"));
        listener.stream.write_all(b"\nREPLCONF ACK 0\r\n").unwrap();
    }
    listener.stream.read_to_end(&mut sent).unwrap();
    assert_eq!(counted(&sent), (8, 0));
}
