//! The loop turn by turn, with the commits of its committing thread as steps of the caller, so that
//! a simulation decides what comes after what.
//!
//! Everything but the thread is the server's own code: sockets, the event queue, parsing, groups,
//! inline commits, and the release of replies.

use std::io;
use std::os::unix::net::UnixStream;

use super::events::Event;
use super::run::Beside;
use super::serve::Serve;
use crate::commands::Server;
use crate::config::{ServeError, StopFlag};
use crate::conn::Stream;
use crate::session::Peer;

/// A server that is driven turn by turn.
#[doc(hidden)]
pub struct Driven<'s> {
    serve: Serve<'s>,
    happened: Vec<Event>,
    stop: &'s StopFlag,
}

impl<'s> Driven<'s> {
    /// The loop with this number, which calls `helper` again and again where it would wait for a
    /// commit.
    ///
    /// # Errors
    /// The event queue cannot be made.
    pub fn new(
        beside: &'s Beside<'s>,
        number: usize,
        helper: &'s dyn Fn(),
    ) -> Result<Self, ServeError> {
        let server = Server::new(&beside.shared, number);
        let serve = Serve::new(None, server, beside.group(number, Some(helper)), &beside.stop)?;
        Ok(Self { serve, happened: Vec::new(), stop: &beside.stop })
    }

    /// Connects a client, and returns its end of the connection. The client is of the loop that has
    /// the fewest; this one, if several have as few.
    ///
    /// # Errors
    /// The system refuses a pair of sockets.
    pub fn connect(&mut self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        self.serve.welcome(Stream::Unix(ours), Peer::Unix, false);
        Ok(theirs)
    }

    /// Runs one turn, which waits for nothing.
    ///
    /// # Errors
    /// The event queue cannot be waited on.
    pub fn turn(&mut self) -> Result<(), ServeError> {
        self.serve.turn(self.stop, 0, &mut self.happened).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::Arc;

    use perdura_media::{SimClock, SimDevice};
    use perdura_region::{Config, Region};
    use perdura_store::{Heap, Store, StoreOptions};

    use super::*;
    use crate::config::ServerConfig;

    #[test]
    fn who_connects_after_a_password_was_set_must_give_it_in_the_same_turn_already() {
        let clock = Arc::new(SimClock::new(1));
        let config = Config { lanes: Some(3), thread: false, ..Config::new(4 << 20, 1 << 20) };
        let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock.clone(), config).unwrap();
        let heap = Heap::open(region).unwrap();
        let store = Store::open(heap, clock.clone(), StoreOptions::default()).unwrap();
        let config = ServerConfig { threads: 2, ..ServerConfig::default() };
        let beside = Beside::new(&store, &*clock, &config).unwrap();
        let mut driven = Driven::new(&beside, 0, &|| {}).unwrap();
        let reply_to_get = |driven: &mut Driven<'_>| {
            let mut client = driven.connect().unwrap();
            client.set_nonblocking(true).unwrap();
            client.write_all(b"GET a\r\n").unwrap();
            driven.turn().unwrap();
            let mut reply = [0; 100];
            let count = client.read(&mut reply).unwrap();
            // The next client is of this loop again.
            drop(client);
            driven.turn().unwrap();
            String::from_utf8(reply[..count].to_vec()).unwrap()
        };
        assert_eq!(reply_to_get(&mut driven), "$-1\r\n");
        // As a command of the other loop does.
        let mut users = beside.shared.users();
        let secret = users.with_password(Some("secret"));
        beside.shared.set_users(&mut users, secret);
        drop(users);
        let reply = reply_to_get(&mut driven);
        assert!(reply.starts_with("-NOAUTH"), "{reply}");
    }

    /// Otherwise the loop would look at it again and again, and never sleep.
    #[test]
    fn a_client_whose_commands_wait_is_left_alone_until_they_may_go_on() {
        let clock = Arc::new(SimClock::new(1));
        let config = Config { lanes: Some(3), thread: false, ..Config::new(4 << 20, 1 << 20) };
        let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock.clone(), config).unwrap();
        let heap = Heap::open(region).unwrap();
        let store = Store::open(heap, clock.clone(), StoreOptions::default()).unwrap();
        let config = ServerConfig::default();
        let beside = Beside::new(&store, &*clock, &config).unwrap();
        let mut driven = Driven::new(&beside, 0, &|| {}).unwrap();
        let mut client = driven.connect().unwrap();
        client.set_nonblocking(true).unwrap();
        client.write_all(b"CLIENT PAUSE 1000\r\nSET a b\r\n").unwrap();
        driven.turn().unwrap();
        let waits = |serve: &Serve<'_>| {
            let conn = serve.conns[0].as_ref().unwrap();
            (conn.stalled, serve.may_resume(conn))
        };
        assert_eq!(waits(&driven.serve), (true, false));
        clock.advance_ns(999_999_999);
        assert_eq!(waits(&driven.serve), (true, false));
        clock.advance_ns(1);
        assert_eq!(waits(&driven.serve), (true, true));
        // Output that the client does not take holds its commands up, too.
        let pause_bytes = config.output_pause_bytes;
        let output = |driven: &mut Driven<'_>, bytes: usize| {
            let conn = driven.serve.conns[0].as_mut().unwrap();
            conn.output_mut().resize(bytes, b' ');
        };
        output(&mut driven, pause_bytes + 1);
        assert_eq!(waits(&driven.serve), (true, false));
        output(&mut driven, pause_bytes);
        assert_eq!(waits(&driven.serve), (true, true));
        output(&mut driven, 0);
        driven.turn().unwrap();
        assert!(!waits(&driven.serve).0);
        let mut replies = [0; 100];
        let count = client.read(&mut replies).unwrap();
        assert_eq!(&replies[..count], b"+OK\r\n+OK\r\n");
    }

    #[test]
    fn who_is_slow_to_greet_is_disconnected() {
        let clock = Arc::new(SimClock::new(1));
        let config = Config { lanes: Some(3), thread: false, ..Config::new(4 << 20, 1 << 20) };
        let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock.clone(), config).unwrap();
        let heap = Heap::open(region).unwrap();
        let store = Store::open(heap, clock.clone(), StoreOptions::default()).unwrap();
        let mut config = ServerConfig::default();
        let file = |name: &str| {
            let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/certificates");
            Some(std::path::Path::new(dir).join(name))
        };
        config.tls.cert_file = file("server.pem");
        config.tls.key_file = file("server.key");
        config.tls.ca_cert_file = file("authority.pem");
        config.tls.load().unwrap();
        let beside = Beside::new(&store, &*clock, &config).unwrap();
        let mut driven = Driven::new(&beside, 0, &|| {}).unwrap();
        let (ours, mut client) = UnixStream::pair().unwrap();
        for end in [&ours, &client] {
            end.set_nonblocking(true).unwrap();
        }
        driven.serve.welcome(Stream::Unix(ours), Peer::Unix, true);
        // The head of a record, and nothing behind it.
        client.write_all(&[0x16, 3, 1, 1, 0, 1]).unwrap();
        driven.turn().unwrap();
        clock.advance_ns(crate::tls::HANDSHAKE_NS - 1);
        driven.turn().unwrap();
        let mut told = [0; 10];
        assert_eq!(client.read(&mut told).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        clock.advance_ns(200_000_000);
        driven.turn().unwrap();
        driven.turn().unwrap();
        assert_eq!(client.read(&mut told).unwrap(), 0);
    }
}
