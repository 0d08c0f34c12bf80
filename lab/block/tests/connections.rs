//! Connections: many, too many, clients that violate the protocol or vanish, and the server's end.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

mod common;
#[path = "connections/kept_inputs.rs"]
mod kept_inputs;

use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use common::{Served, option_bytes, read_option_reply, request_bytes, until_closed};
use perdura_block::Disk;
use perdura_block::nbd::connection::REQUESTS_MAX;
use perdura_block::nbd::wire::{command, command_flag, option, option_reply};
use perdura_block::nbd::{Address, ListenError, Listener, Settings, Stop};
use perdura_block::scripted::Scripted;
use perdura_media::{DeviceError, Due};

const CAPACITY_BYTES: usize = 1 << 20;
const EINVAL: u32 = 22;

fn disk() -> Arc<Scripted> {
    Arc::new(Scripted::new(CAPACITY_BYTES))
}

fn served(disk: &Arc<Scripted>) -> Served {
    Served::new(Arc::clone(disk) as Arc<dyn Disk>)
}

#[test]
fn garbage_closes_its_own_connection_and_nobody_elses() {
    let disk = disk();
    let served = served(&disk);
    let mut good = served.client();
    let long = [&3u32.to_be_bytes()[..], &option_bytes(option::GO, b"")].concat();
    let mut huge = long.clone();
    let at = huge.len() - 4;
    huge[at..].copy_from_slice(&u32::MAX.to_be_bytes());
    let unknown = [&3u32.to_be_bytes()[..], &option_bytes(option::EXPORT_NAME, b"no")].concat();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], &huge, &unknown] {
        let mut socket = served.socket();
        // The server may close before it has received all of it.
        let _ = socket.write_all(garbage);
        until_closed(&mut socket);
        good.write(0, b"still here").unwrap();
    }
    let mut bad = served.client();
    bad.socket.write_all(&request_bytes(command::READ, 0, 1, 0, 1)).unwrap();
    bad.socket.write_all(b"no request").unwrap();
    // The request before the garbage is still answered.
    assert_eq!(until_closed(&mut bad.socket).len(), 29);
    assert_eq!(good.read(0, 10).unwrap(), b"still here");
    drop(good);
    assert_eq!(served.end().violations, 5);
}

#[test]
fn mistakes_are_answered_and_the_connection_goes_on() {
    let disk = disk();
    let served = served(&disk);
    for mut client in [served.client(), served.simple_client()] {
        let end = CAPACITY_BYTES as u64;
        assert_eq!(client.read(end, 1), Err(EINVAL));
        assert_eq!(client.read(0, u32::MAX), Err(EINVAL));
        assert_eq!(client.read(0, 0), Err(EINVAL));
        assert_eq!(client.write(end - 4, b"12345"), Err(28));
        assert_eq!(client.ask(99, 0, 0, 4096, b""), Err(EINVAL));
        assert_eq!(client.ask(command::WRITE, 1 << 9, 0, 4, b"1234"), Err(EINVAL));
        assert_eq!(client.ask(command::TRIM, 0, u64::MAX, 4096, b""), Err(EINVAL));
        let fast = command_flag::NO_HOLE | command_flag::FAST_ZERO;
        assert_eq!(client.ask(command::WRITE_ZEROES, fast, 0, 4096, b""), Err(95));
        // Longer than a request may be, so the payload is dropped as it arrives.
        let large = vec![7; (32 << 20) + 1];
        assert_eq!(client.write(0, &large), Err(EINVAL));
        assert_eq!(client.read(0, 4).unwrap(), [0; 4]);
        disk.fail(true);
        assert_eq!(client.read(0, 4), Err(5));
        assert_eq!(client.write(0, b"1234"), Err(5));
        assert_eq!(client.ask(command::FLUSH, 0, 0, 0, b""), Err(5));
        disk.fail(false);
        assert_eq!(client.read(0, 4).unwrap(), [0; 4]);
    }
}

#[test]
fn the_largest_request_works() {
    let disk = Arc::new(Scripted::new(40 << 20));
    let served = served(&disk);
    let data: Vec<u8> = (0..32u32 << 18).flat_map(u32::to_le_bytes).collect();
    for mut client in [served.client(), served.simple_client()] {
        client.write(12345, &data).unwrap();
        assert!(client.read(12345, data.len() as u32).unwrap() == data);
    }
}

#[test]
fn fua_flushes_and_a_flush_waits_for_the_medium() {
    let disk = disk();
    let served = served(&disk);
    let mut client = served.client();
    client.write(0, b"1").unwrap();
    assert_eq!(disk.flushes(), 0);
    client.ask(command::WRITE, command_flag::FUA, 0, 1, b"2").unwrap();
    client.ask(command::TRIM, command_flag::FUA, 0, 1, b"").unwrap();
    client.ask(command::FLUSH, 0, 0, 0, b"").unwrap();
    assert_eq!(disk.flushes(), 3);
    disk.take_ns(0, 30_000_000);
    let began = Instant::now();
    client.ask(command::FLUSH, 0, 0, 0, b"").unwrap();
    assert!(began.elapsed() >= Duration::from_millis(30));
}

#[test]
fn requests_overlap_in_time_and_overtake_each_other() {
    let disk = disk();
    let served = served(&disk);
    let mut client = served.client();
    disk.take_ns(0, 100_000_000);
    let began = Instant::now();
    let slow: Vec<u64> =
        (0..50).map(|at| client.send(command::WRITE, 0, at * 4096, 4, b"slow")).collect();
    let quick = client.send(command::READ, 0, 0, 4, b"");
    assert_eq!(client.answer(0), (quick, Ok(b"slow".to_vec())));
    assert!(began.elapsed() < Duration::from_millis(100), "the read waited for the writes");
    for cookie in slow {
        assert_eq!(client.answer(0), (cookie, Ok(Vec::new())));
    }
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(100) && took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn a_client_that_vanishes_in_a_write_leaves_nothing_of_it() {
    let disk = disk();
    let served = served(&disk);
    for cut in [0, 1, 27, 28, 29, 4096, 65_535 + 28] {
        let mut client = served.client();
        let mut bytes = request_bytes(command::WRITE, 0, 1, 0, 65_536);
        bytes.extend([9; 65_536]);
        client.socket.write_all(&bytes[..cut]).unwrap();
        drop(client);
    }
    let mut other = served.client();
    assert_eq!(other.read(0, 65_536).unwrap(), [0; 65_536]);
    drop(other);
    served.end();
    assert!(disk.snapshot() == vec![0; CAPACITY_BYTES]);
}

#[test]
fn who_asks_and_does_not_read_waits_and_gets_all_of_it_later() {
    let disk = disk();
    let served = served(&disk);
    let mut client = served.client();
    let mut sender = client.socket.try_clone().unwrap();
    let count = 3000u64;
    // 190 MiB of replies: more than the server keeps under way and sockets hold.
    let sending = std::thread::spawn(move || {
        for cookie in 0..count {
            sender.write_all(&request_bytes(command::READ, 0, cookie, 0, 65_536)).unwrap();
        }
    });
    for cookie in 0..count {
        let (of, data) = client.answer(0);
        assert_eq!((of, data.unwrap().len()), (cookie, 65_536));
    }
    sending.join().unwrap();
}

#[test]
fn a_thousand_connections_are_served_at_once() {
    let disk = disk();
    let served = served(&disk);
    let fitting = raise_descriptors();
    if fitting < 2100 {
        println!("skipped: this test needs 2100 descriptors, the system allows {fitting}");
        return;
    }
    let mut clients: Vec<_> = (0..1000).map(|_| served.client()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        client.send(command::WRITE, 0, at as u64 * 512, 8, &at.to_le_bytes());
    }
    for client in &mut clients {
        client.answer(0).1.unwrap();
    }
    for (at, client) in clients.iter_mut().rev().enumerate() {
        let found = client.read(at as u64 * 512, 8).unwrap();
        assert_eq!(found, at.to_le_bytes());
    }
    drop(clients);
    let report = served.end();
    assert_eq!((report.connections, report.turned_away, report.tally.requests), (1000, 0, 2000));
}

#[test]
fn one_connection_too_many_is_closed_and_there_is_room_again_later() {
    let disk = disk();
    let settings = Settings { connections_max: 2, ..Settings::default() };
    let served = Served::with(Arc::clone(&disk) as Arc<dyn Disk>, settings);
    let (mut first, second) = (served.client(), served.client());
    assert_eq!(until_closed(&mut served.socket()), b"");
    first.write(0, b"unharmed").unwrap();
    drop(second);
    // The place is free once the server has seen that the client left.
    let began = Instant::now();
    loop {
        let mut socket = served.socket();
        let mut byte = [0];
        if socket.read(&mut byte).unwrap() == 1 {
            break;
        }
        assert!(began.elapsed() < common::PATIENCE, "the place is never free");
    }
    first.read(0, 8).unwrap();
}

#[test]
fn who_says_nothing_loses_its_place() {
    let disk = disk();
    let settings = Settings { handshake_ns: 50_000_000, ..Settings::default() };
    let served = Served::with(disk as Arc<dyn Disk>, settings);
    let mut silent = served.socket();
    assert_eq!(until_closed(&mut silent).len(), 18);
}

#[test]
fn at_the_end_what_is_under_way_is_answered_and_what_comes_later_is_refused() {
    let disk = disk();
    let served = served(&disk);
    let mut client = served.client();
    let mut choosing = served.socket();
    choosing.read_exact(&mut [0; 18]).unwrap();
    disk.take_ns(0, 100_000_000);
    let under_way = client.send(command::WRITE, 0, 0, 4, b"last");
    // A read on the same connection shows that the write was carried out; it is not due yet.
    client.read(0, 1).unwrap();
    served.stop.set().unwrap();
    assert_eq!(client.answer(0), (under_way, Ok(Vec::new())));
    // The bytes may have arrived before the stop, or may meet a closed socket; the request is
    // refused in either case.
    let late = request_bytes(command::WRITE, 0, 99, 8, 4);
    let _ = client.socket.write_all(&[&late[..], b"late"].concat());
    until_closed(&mut client.socket);
    until_closed(&mut choosing);
    let path = served.path.clone();
    let report = served.end();
    assert_eq!(report.tally.written_bytes, 4);
    assert!(!path.exists(), "the socket's file is still there");
    assert_eq!(disk.snapshot()[..12], *b"last\0\0\0\0\0\0\0\0");
}

#[test]
fn requests_that_wait_when_the_server_stops_hear_so() {
    let disk = disk();
    let served = served(&disk);
    let mut client = served.client();
    disk.take_ns(0, 200_000_000);
    let (under_way, waiting) = (REQUESTS_MAX as u64, 10);
    for at in 0..under_way + waiting {
        client.send(command::WRITE, 0, at, 1, b"x");
    }
    // The connection takes as many requests as may be under way, and leaves the rest.
    while disk.snapshot()[under_way as usize - 1] != b'x' {
        std::thread::yield_now();
    }
    served.stop.set().unwrap();
    let mut answers: Vec<_> = (0..under_way + waiting).map(|_| client.answer(0)).collect();
    answers.sort_by_key(|(cookie, _)| *cookie);
    let (answered, refused) = answers.split_at(REQUESTS_MAX);
    assert!(answered.iter().all(|(_, result)| *result == Ok(Vec::new())));
    assert!(refused.iter().all(|(_, result)| *result == Err(108)), "{refused:?}");
    until_closed(&mut client.socket);
    assert_eq!(disk.snapshot().iter().filter(|byte| **byte == b'x').count(), REQUESTS_MAX);
}

/// A disk that stops its own server in the middle of the third write.
struct Stopping {
    inner: Scripted,
    stop: OnceLock<Arc<Stop>>,
    writes: AtomicU64,
}

impl Disk for Stopping {
    fn capacity_bytes(&self) -> u64 {
        self.inner.capacity_bytes()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn read(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<Due, DeviceError> {
        self.inner.read(offset_bytes, buf)
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<Due, DeviceError> {
        if self.writes.fetch_add(1, SeqCst) == 2 {
            self.stop.get().unwrap().set().unwrap();
        }
        self.inner.write(offset_bytes, bytes)
    }

    fn discard(&self, offset_bytes: u64, len_bytes: u64) -> Result<Due, DeviceError> {
        self.inner.discard(offset_bytes, len_bytes)
    }

    fn flush(&self) -> Result<Due, DeviceError> {
        self.inner.flush()
    }

    fn now(&self) -> Due {
        self.inner.now()
    }

    fn wait(&self, due: Due) {
        self.inner.wait(due);
    }
}

#[test]
fn a_server_that_stops_begins_no_request_that_it_has_already() {
    let disk = Arc::new(Stopping {
        inner: Scripted::new(CAPACITY_BYTES),
        stop: OnceLock::new(),
        writes: AtomicU64::new(0),
    });
    let served = Served::new(Arc::clone(&disk) as Arc<dyn Disk>);
    disk.stop.set(Arc::clone(&served.stop)).unwrap();
    let mut client = served.client();
    // Sent in one piece, so that the server has all of them at once.
    let write = |at: u64| [&request_bytes(command::WRITE, 0, at, at, 1)[..], b"x"].concat();
    client.socket.write_all(&(0..50).flat_map(write).collect::<Vec<_>>()).unwrap();
    let answers: Vec<_> = (0..50).map(|_| client.answer(0)).collect();
    let done = answers.iter().filter(|(_, result)| result.is_ok()).count();
    let refused = answers.iter().filter(|(_, result)| *result == Err(108)).count();
    assert_eq!((done, refused, disk.writes.load(SeqCst)), (3, 47, 3), "{answers:?}");
    until_closed(&mut client.socket);
}

#[test]
fn a_dead_servers_socket_is_replaced_and_a_live_ones_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let address = Address::Unix(path.clone());
    // A socket that nobody listens on any more is left behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let live = Listener::bind(&address, false).unwrap();
    assert!(matches!(Listener::bind(&address, false), Err(ListenError::Live(_))));
    assert!(path.exists(), "the live one's file was touched");
    drop(live);
    assert!(!path.exists());
    std::fs::write(&path, b"precious").unwrap();
    assert!(matches!(Listener::bind(&address, false), Err(ListenError::NotASocket(_))));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let long = Address::Unix(folder.path().join("x".repeat(120)));
    assert!(matches!(Listener::bind(&long, false), Err(ListenError::PathTooLong { .. })));
}

#[test]
fn addresses_are_loopback_or_explicitly_open() {
    let bind = |text: &str, open| Listener::bind(&text.parse::<Address>().unwrap(), open);
    assert!(matches!(bind("tcp:0.0.0.0:0", false), Err(ListenError::Open(_))));
    assert!(bind("tcp:0.0.0.0:0", true).is_ok());
    assert!(
        bind("tcp:[::1]:0", false).is_ok() || !std::path::Path::new("/proc/net/if_inet6").exists()
    );
    let local = bind("tcp:localhost:0", false).unwrap();
    let Some(Address::Tcp(place)) = local.address() else { panic!("no address") };
    assert!(place.ip().is_loopback() && place.port() != 0);
    for wrong in ["", "unix:", "tcp:", "tcp:127.0.0.1", "127.0.0.1:1", "tcp:127.0.0.1:99999"] {
        assert!(matches!(wrong.parse::<Address>(), Err(ListenError::NotAnAddress(_))), "{wrong}");
    }
}

#[test]
fn options_go_over_the_wire_as_they_are_judged() {
    let disk = disk();
    let served = served(&disk);
    let mut socket = served.socket();
    socket.read_exact(&mut [0; 18]).unwrap();
    socket.write_all(&1u32.to_be_bytes()).unwrap();
    // The number of STARTTLS.
    socket.write_all(&option_bytes(5, b"")).unwrap();
    assert_eq!(read_option_reply(&mut socket).0, option_reply::ERR_UNSUP);
    socket.write_all(&option_bytes(option::LIST, b"")).unwrap();
    let (kind, data) = read_option_reply(&mut socket);
    assert_eq!((kind, &data[..8]), (option_reply::SERVER, &b"\0\0\0\x04disk"[..]));
    assert_eq!(read_option_reply(&mut socket).0, option_reply::ACK);
    socket.write_all(&option_bytes(option::ABORT, b"")).unwrap();
    assert_eq!(read_option_reply(&mut socket).0, option_reply::ACK);
    assert_eq!(until_closed(&mut socket), b"");
}

/// Raises the limit of open descriptors as far as the system allows, and returns it.
fn raise_descriptors() -> u64 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    limit.current.unwrap_or(u64::MAX)
}
