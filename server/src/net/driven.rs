//! The loop turn by turn, with the commits of its committing thread as steps of the caller, so that
//! a simulation decides what comes after what.
//!
//! Everything but the thread is the server's own code: sockets, the event queue, parsing, groups,
//! inline commits, and the release of replies.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use perdura_media::Clock;
use perdura_region::Region;
use perdura_store::Store;

use super::committer::Committer;
use super::events::Event;
use super::group::Group;
use super::listen::Listener;
use super::serve::Serve;
use crate::commands::{Server, index_for};
use crate::config::{ServeError, ServerConfig, StopFlag};
use crate::conn::{Conn, Stream};
use crate::saving::Saving;
use crate::session::{Peer, Session};

/// What a loop shares with the threads beside it, which are left out here.
#[doc(hidden)]
#[derive(Debug)]
pub struct Beside {
    committer: Committer,
    saving: Saving,
    stop: StopFlag,
}

impl Beside {
    /// # Errors
    /// The system has no event file descriptor left.
    pub fn new(clock: &dyn Clock) -> io::Result<Self> {
        let saving = Saving::new(clock.unix_ms());
        Ok(Self { committer: Committer::new()?, saving, stop: StopFlag::new()? })
    }

    /// Makes the group commit that the committing thread would make next. Returns false if none is
    /// ordered, or one has failed.
    pub fn commit(&self, region: &Region) -> bool {
        self.committer.step(region)
    }
}

/// A server that is driven turn by turn.
#[doc(hidden)]
pub struct Driven<'s> {
    serve: Serve<'s>,
    happened: Vec<Event>,
    stop: &'s StopFlag,
}

impl<'s> Driven<'s> {
    /// A loop that calls `helper` again and again where it would wait for a commit.
    ///
    /// # Errors
    /// The event queue cannot be made.
    pub fn new(
        beside: &'s Beside,
        store: &'s Store,
        clock: &'s dyn Clock,
        config: &ServerConfig,
        helper: &'s dyn Fn(),
    ) -> Result<Self, ServeError> {
        let Beside { committer, saving, stop } = beside;
        let server = Server::new(store, clock, saving, config.clone(), index_for(config));
        let region = store.region();
        let orders = server.holds_replies().then(|| committer.without_thread(region, helper));
        let nowhere = Listener { sockets: Vec::new() };
        let serve = Serve::new(nowhere, server, Group::new(orders), stop)?;
        Ok(Self { serve, happened: Vec::new(), stop })
    }

    /// Connects a client, and returns its end of the connection.
    ///
    /// # Errors
    /// The system refuses a pair of sockets.
    pub fn connect(&mut self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (fd, now_ns) = (ours.as_fd().as_raw_fd(), self.serve.server.now_ns);
        let session = Session::new(self.serve.next_id, fd, Peer::Unix, true, now_ns);
        self.serve.next_id += 1;
        self.serve.add(Box::new(Conn::new(Stream::Unix(ours), session)));
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
    use perdura_region::Config;
    use perdura_store::{Heap, StoreOptions};

    use super::*;

    /// Otherwise the loop would look at it again and again, and never sleep.
    #[test]
    fn a_client_whose_commands_wait_is_left_alone_until_they_may_go_on() {
        let clock = Arc::new(SimClock::new(1));
        let config = Config { lanes: Some(3), thread: false, ..Config::new(4 << 20, 1 << 20) };
        let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock.clone(), config).unwrap();
        let heap = Heap::open(region).unwrap();
        let store = Store::open(heap, clock.clone(), StoreOptions::default()).unwrap();
        let beside = Beside::new(&*clock).unwrap();
        let config = ServerConfig::default();
        let mut driven = Driven::new(&beside, &store, &*clock, &config, &|| {}).unwrap();
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
}
