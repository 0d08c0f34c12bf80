//! Accepts clients, a thread each, until told to stop; then waits until each has been answered.
//!
//! Bounds: so many connections as the settings say; one more is closed at once. A thread's stack
//! has [`STACK_BYTES`]. Failure rules: a connection's end is its own; only a listener that cannot
//! be waited for ends the server.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use parking_lot::{Condvar, Mutex};
use perdura_media::Clock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::connection::{Connection, Ended, Tally};
use super::listen::Listener;
use super::spin::Spinners;
use crate::disk::Disk;

/// What is served, under which name.
#[derive(Clone)]
pub struct Export {
    /// The name; clients may also leave it empty.
    pub name: String,
    /// Its bytes.
    pub disk: Arc<dyn Disk>,
}

/// How to serve.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most connections at once.
    pub connections_max: usize,
    /// How long a connection looks for the next request before it sleeps, at most; 0: it sleeps at
    /// once.
    pub spin_ns: u64,
    /// A client must have chosen its export within this time.
    pub handshake_ns: u64,
    /// At the end a client has this time to read its replies.
    pub goodbye_ns: u64,
    /// Processors of the machine: one of them is not for spinning.
    pub processors: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            spin_ns: 100_000,
            handshake_ns: 30_000_000_000,
            goodbye_ns: 5_000_000_000,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// What a server did until it was stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Connections served.
    pub connections: u64,
    /// Connections refused because there were too many.
    pub turned_away: u64,
    /// Connections that ended because of what their client sent.
    pub violations: u64,
    /// The sum over connections.
    pub tally: Tally,
}

/// Why serving ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listeners cannot be waited for.
    #[error("waiting for connections: {0}")]
    Wait(#[source] io::Error),
}

/// Tells a server to stop; once, for ever.
#[derive(Debug)]
pub struct Stop {
    set: AtomicBool,
    event: OwnedFd,
}

impl Stop {
    /// Not stopped.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { set: AtomicBool::new(false), event })
    }

    /// Stops what looks at it.
    ///
    /// # Errors
    /// Never seen: writing 8 bytes to a descriptor made for it.
    pub fn set(&self) -> io::Result<()> {
        self.set.store(true, SeqCst);
        rustix::io::write(&self.event, &1u64.to_ne_bytes())?;
        Ok(())
    }

    /// Whether it was told to.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.set.load(SeqCst)
    }
}

impl AsFd for Stop {
    /// Readable from the moment on that it is set.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// What all connections share.
pub(super) struct Shared {
    pub export: Export,
    pub settings: Settings,
    pub clock: Arc<dyn Clock>,
    pub stop: Arc<Stop>,
    pub spinners: Spinners,
    at_work: Mutex<AtWork>,
    one_less: Condvar,
}

#[derive(Default)]
struct AtWork {
    connections: usize,
    report: Report,
}

/// A server of one export.
pub struct Server {
    shared: Arc<Shared>,
}

impl Server {
    /// Of that export, until `stop`.
    #[must_use]
    pub fn new(export: Export, settings: Settings, clock: Arc<dyn Clock>, stop: Arc<Stop>) -> Self {
        let spinners = Spinners::new(settings.processors);
        let (at_work, one_less) = (Mutex::default(), Condvar::new());
        let shared = Shared { export, settings, clock, stop, spinners, at_work, one_less };
        Self { shared: Arc::new(shared) }
    }

    /// Accepts and serves until stopped, removes the sockets, answers what is under way, and
    /// returns.
    ///
    /// # Errors
    /// The system cannot wait for connections.
    pub fn serve(&self, listeners: Vec<Listener>) -> Result<Report, ServeError> {
        let waited = self.accept_until_stopped(&listeners);
        // From now on nobody finds the way here.
        drop(listeners);
        let mut at_work = self.shared.at_work.lock();
        if waited.is_ok() {
            self.shared.one_less.wait_while(&mut at_work, |at_work| at_work.connections > 0);
        }
        waited.map(|()| at_work.report).map_err(ServeError::Wait)
    }

    fn accept_until_stopped(&self, listeners: &[Listener]) -> io::Result<()> {
        let stop = &*self.shared.stop;
        while !stop.is_set() {
            let mut fds = vec![PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
            fds.extend(listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let ready = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>();
            for (listener, _) in listeners.iter().zip(ready).filter(|(_, ready)| *ready) {
                match listener.accept() {
                    Ok(socket) => self.admit(socket),
                    Err(error) => self.not_accepted(&error)?,
                }
            }
        }
        Ok(())
    }

    /// Serves the client on a thread of its own, or closes the connection.
    fn admit(&self, socket: OwnedFd) {
        {
            let mut at_work = self.shared.at_work.lock();
            if at_work.connections >= self.shared.settings.connections_max {
                at_work.report.turned_away += 1;
                tracing::warn!(
                    "a connection was refused: {} are served already (--connections)",
                    at_work.connections
                );
                return;
            }
            at_work.connections += 1;
            at_work.report.connections += 1;
        }
        let leaving = Leaving(Arc::clone(&self.shared));
        let served = std::thread::Builder::new()
            .name("nbd".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || serve_one(socket, &leaving.0));
        if let Err(error) = served {
            // The closure is gone, and with it the socket and the place.
            tracing::warn!("a connection was refused: no thread for it: {error}");
        }
    }

    /// A client that left before it was accepted is nothing; a lack of descriptors lasts until
    /// somebody leaves.
    fn not_accepted(&self, error: &io::Error) -> io::Result<()> {
        if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) {
            return Ok(());
        }
        tracing::warn!("a connection could not be accepted: {error}");
        let mut stop = [PollFd::from_borrowed_fd(self.shared.stop.as_fd(), PollFlags::IN)];
        let pause = Timespec { tv_sec: 0, tv_nsec: ACCEPT_PAUSE_NS };
        match poll(&mut stop, Some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn serve_one(socket: OwnedFd, shared: &Shared) {
    let (tally, ended) = Connection::new(socket, shared).run();
    let violation = matches!(ended, Ended::Handshake(_) | Ended::Request(_));
    match ended {
        // Many clients just close.
        Ended::Goodbye | Ended::Stopped | Ended::Vanished => tracing::debug!("connection: {ended}"),
        Ended::Silent | Ended::Socket(_) => tracing::info!("connection: {ended}"),
        Ended::Handshake(_) | Ended::Request(_) => {
            tracing::warn!("a connection was closed: {ended}");
        }
    }
    let mut at_work = shared.at_work.lock();
    at_work.report.violations += u64::from(violation);
    at_work.report.tally.add(&tally);
}

/// A place among the connections, given back however the thread ends.
struct Leaving(Arc<Shared>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.at_work.lock().connections -= 1;
        self.0.one_less.notify_all();
    }
}

/// What a connection's thread needs is in buffers, not on its stack.
pub const STACK_BYTES: usize = 128 << 10;

const ACCEPT_PAUSE_NS: i64 = 50_000_000;
