// Connections with TLS, included once for each event queue: `config` is the parent's.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perdura_server::{AuthClients, Durability, Listener, ServerConfig, StopFlag, run};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::config;
use crate::running::{Opened, open};

type Sealed = StreamOwned<ClientConnection, TcpStream>;

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/certificates")).join(name)
}

fn tls_config() -> ServerConfig {
    let mut config = ServerConfig { tls_bind: config().bind, ..config() };
    config.tls.cert_file = Some(file("server.pem"));
    config.tls.key_file = Some(file("server.key"));
    config.tls.ca_cert_file = Some(file("authority.pem"));
    config.tls.load().unwrap();
    config
}

/// Calls `f` with the port of a server that speaks TLS, and with a plain one.
fn with_server(config: ServerConfig, f: impl FnOnce(u16, u16)) {
    let Opened { store, clock, .. } = open();
    let listener = Listener::bind(&config).unwrap();
    let sealed = listener.local_tls_addr().unwrap().port();
    let plain = listener.local_addr().unwrap().port();
    let stop = StopFlag::new().unwrap();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| run(listener, &store, &config, &*clock, &stop));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(sealed, plain)));
        stop.trigger();
        served.join().unwrap().unwrap();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn client_config(identity: Option<&str>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("authority.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    match identity {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let cert = CertificateDer::from_pem_file(file(&format!("{name}.pem"))).unwrap();
            let key = PrivateKeyDer::from_pem_file(file(&format!("{name}.key"))).unwrap();
            builder.with_client_auth_cert(vec![cert], key).unwrap()
        }
    }
}

fn connect_by(port: u16, config: ClientConfig) -> Sealed {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

fn connect(port: u16) -> Sealed {
    connect_by(port, client_config(Some("client")))
}

/// Sends a line and expects a reply.
fn expect(client: &mut Sealed, request: &str, reply: &str) {
    client.write_all(request.as_bytes()).unwrap();
    let mut got = vec![0; reply.len()];
    client.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), reply);
}

fn big(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn small_and_large_requests_are_answered_as_without_tls() {
    with_server(tls_config(), |port, plain| {
        let mut client = connect(port);
        expect(&mut client, "SET a b\r\nGET a\r\n", "+OK\r\n$1\r\nb\r\n");
        expect(&mut client, &"GET a\r\n".repeat(10_000), &"$1\r\nb\r\n".repeat(10_000));
        let value = big(2_000_000);
        client.write_all(format!("*3\r\n$3\r\nSET\r\n$1\r\nv\r\n${}\r\n", value.len()).as_bytes()).unwrap();
        client.write_all(&value).unwrap();
        expect(&mut client, "\r\n", "+OK\r\n");
        client.write_all(b"GET v\r\n").unwrap();
        let mut got = vec![0; value.len() + 12];
        client.read_exact(&mut got).unwrap();
        assert_eq!(&got[..10], b"$2000000\r\n");
        assert!(got[10..got.len() - 2] == value[..]);
        expect(&mut client, "PING\r\n", "+PONG\r\n");
        let mut other = crate::running::Client::connect(([127, 0, 0, 1], plain).into());
        assert!(other.call("GET a").contains('b'), "the plain port serves, too");
    });
}

#[test]
fn who_does_not_read_holds_up_nobody_and_gets_all_in_the_end() {
    with_server(tls_config(), |port, _| {
        let (mut slow, mut other) = (connect(port), connect(port));
        let value = "x".repeat(60_000);
        expect(&mut slow, &format!("SET v {value}\r\n"), "+OK\r\n");
        slow.write_all("GET v\r\n".repeat(400).as_bytes()).unwrap();
        slow.flush().unwrap();
        for _ in 0..20 {
            expect(&mut other, "PING\r\n", "+PONG\r\n");
        }
        other.write_all(b"CLIENT LIST\r\n").unwrap();
        let mut list = vec![0; 4096];
        let count = other.read(&mut list).unwrap();
        let list = String::from_utf8_lossy(&list[..count]).into_owned();
        let unsent = |line: &str| {
            let field = line.split(' ').find_map(|field| field.strip_prefix("omem="))?;
            field.parse::<u64>().ok()
        };
        let most = list.lines().filter_map(unsent).max().unwrap();
        assert!(most < 4 << 20, "{most} of 24 MB wait: {list}");
        for _ in 0..400 {
            let expected = format!("$60000\r\n{value}\r\n");
            let mut got = vec![0; expected.len()];
            slow.read_exact(&mut got).unwrap();
            assert!(got == expected.as_bytes());
        }
    });
}

#[test]
fn who_shows_no_good_certificate_or_speaks_no_tls_is_refused_and_others_are_served() {
    with_server(tls_config(), |port, _| {
        let mut before = connect(port);
        expect(&mut before, "PING\r\n", "+PONG\r\n");
        for identity in [None, Some("expired"), Some("foreign")] {
            let mut refused = connect_by(port, client_config(identity));
            let asked = refused.write_all(b"PING\r\n").and_then(|()| {
                let mut reply = [0; 7];
                refused.read_exact(&mut reply)
            });
            assert!(asked.is_err(), "{identity:?}");
        }
        for noise in [&b"PING\r\n"[..], &[0x16, 3, 1, 0xff, 0xff, 1, 2], &[0; 70_000]] {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let _ = stream.write_all(noise);
            let mut told = Vec::new();
            // An alert at most; a connection that is cut has an error.
            let _ = stream.read_to_end(&mut told);
            assert!(told.len() < 10 && told.first().is_none_or(|byte| *byte == 0x15), "{told:?}");
        }
        // Half a greeting waits, and nobody waits for it.
        let mut half = TcpStream::connect(("127.0.0.1", port)).unwrap();
        half.write_all(&[0x16, 3, 1, 1, 0, 1]).unwrap();
        expect(&mut before, "PING\r\n", "+PONG\r\n");
        expect(&mut connect(port), "PING\r\n", "+PONG\r\n");
    });
}

#[test]
fn a_client_may_do_without_a_certificate_where_that_is_said() {
    for (auth_clients, foreign_is_let_in) in [(AuthClients::Optional, false), (AuthClients::No, true)] {
        let mut config = tls_config();
        config.tls.auth_clients = auth_clients;
        config.tls.load().unwrap();
        with_server(config, |port, _| {
            expect(&mut connect_by(port, client_config(None)), "PING\r\n", "+PONG\r\n");
            let mut foreign = connect_by(port, client_config(Some("foreign")));
            let mut reply = [0; 7];
            let answered = foreign.write_all(b"PING\r\n").and_then(|()| foreign.read_exact(&mut reply));
            assert_eq!(answered.is_ok(), foreign_is_let_in, "{auth_clients:?}");
        });
    }
}

#[test]
fn a_new_certificate_is_for_new_connections_and_a_bad_one_changes_nothing() {
    with_server(tls_config(), |port, plain| {
        let shown = |client: &mut Sealed| {
            expect(client, "PING\r\n", "+PONG\r\n");
            client.conn.peer_certificates().unwrap()[0].to_vec()
        };
        let certificate = |name: &str| CertificateDer::from_pem_file(file(name)).unwrap().to_vec();
        let mut old = connect(port);
        assert_eq!(shown(&mut old), certificate("server.pem"));
        let mut admin = crate::running::Client::connect(([127, 0, 0, 1], plain).into());
        let path = |name| file(name).display().to_string();
        for bad in ["renewed.pem", "renewed.key", "no-such-file"] {
            let reply = admin.call(&format!("CONFIG SET tls-cert-file {}", path(bad)));
            assert!(reply.starts_with("-ERR CONFIG SET failed"), "{bad}: {reply}");
            assert_eq!(shown(&mut connect(port)), certificate("server.pem"));
        }
        let (cert, key) = (path("renewed.pem"), path("renewed.key"));
        let reply = admin.call(&format!("CONFIG SET tls-cert-file {cert} tls-key-file {key}"));
        assert_eq!(reply, "+OK");
        assert_eq!(shown(&mut connect(port)), certificate("renewed.pem"));
        expect(&mut old, "PING\r\n", "+PONG\r\n");
    });
}

#[test]
fn replies_that_wait_for_a_commit_come_in_order() {
    let config = ServerConfig { durability: Durability::Fsync, ..tls_config() };
    with_server(config, |port, _| {
        let mut client = connect(port);
        for round in 0..20 {
            let (mut requests, mut replies) = (String::new(), String::new());
            for at in 0..50 {
                requests += &format!("SET k{at} {round}\r\nGET k{at}\r\n");
                replies += &format!("+OK\r\n${}\r\n{round}\r\n", round.to_string().len());
            }
            expect(&mut client, &requests, &replies);
        }
    });
}

#[test]
fn who_sends_no_more_gets_the_replies_and_is_told_of_the_end() {
    with_server(tls_config(), |port, _| {
        let mut client = connect(port);
        expect(&mut client, "SET v 0123456789\r\n", "+OK\r\n");
        client.write_all("GET v\r\n".repeat(1000).as_bytes()).unwrap();
        client.conn.send_close_notify();
        client.flush().unwrap();
        let mut replies = Vec::new();
        // The end of a stream without a word of it would be an error.
        client.read_to_end(&mut replies).unwrap();
        assert_eq!(replies, b"$10\r\n0123456789\r\n".repeat(1000));
        let mut client = connect(port);
        expect(&mut client, "QUIT\r\n", "+OK\r\n");
        assert_eq!(client.read(&mut [0; 10]).unwrap(), 0);
    });
}

#[test]
fn many_connections_and_messages_between_them() {
    with_server(ServerConfig { threads: 2, ..tls_config() }, |port, _| {
        let mut hearer = connect(port);
        expect(&mut hearer, "SUBSCRIBE c\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
        let mut clients: Vec<_> = (0..40).map(|_| connect(port)).collect();
        let began = Instant::now();
        for client in &mut clients {
            expect(client, "PUBLISH c hello\r\n", ":1\r\n");
            expect(&mut hearer, "", "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n");
        }
        assert!(began.elapsed() < Duration::from_secs(10));
    });
}
