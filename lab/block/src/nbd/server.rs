//! Accepts clients, a thread each, until told to stop; then waits until all have been answered.
//!
//! Bounds: the settings name the most connections; one more is closed at once. A thread's stack has
//! [`STACK_BYTES`]. Failure rules: an error of a connection ends only that connection; the server
//! ends early only if it cannot wait for its listeners.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use perdura_media::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connection::{Connection, Ended, Tally};
use super::listen::Listener;
use super::shared::{Export, Settings, Shared};
use super::spin::Spinners;
use super::stop::Stop;

/// Counts of a server from its start until it was stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Connections served.
    pub connections: u64,
    /// Connections refused because there were too many.
    pub turned_away: u64,
    /// Connections that ended because the client violated the protocol.
    pub violations: u64,
    /// The sum of all connections' counts.
    pub tally: Tally,
}

/// Why a server ended before it was stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listeners cannot be waited for.
    #[error("waiting for connections: {0}")]
    Wait(#[source] io::Error),
}

/// The connections that are served now, and the report so far.
#[derive(Default)]
struct AtWork {
    connections: usize,
    report: Report,
}

/// Everything that the threads of a server share.
struct Serving {
    shared: Shared,
    at_work: Mutex<AtWork>,
    one_less: Condvar,
}

/// A server of one export.
pub struct Server {
    serving: Arc<Serving>,
}

impl Server {
    /// Serves `export` until `stop` is set.
    #[must_use]
    pub fn new(export: Export, settings: Settings, clock: Arc<dyn Clock>, stop: Arc<Stop>) -> Self {
        let spinners = Spinners::new(settings.processors);
        let shared = Shared { export, settings, clock, stop, spinners };
        let (at_work, one_less) = (Mutex::default(), Condvar::new());
        Self { serving: Arc::new(Serving { shared, at_work, one_less }) }
    }

    /// Accepts and serves until stopped, removes the sockets, answers the requests under way, and
    /// returns.
    ///
    /// # Errors
    /// The system cannot wait for connections.
    pub fn serve(&self, listeners: Vec<Listener>) -> Result<Report, ServeError> {
        let waited = self.accept_until_stopped(&listeners);
        // From now on no client can connect.
        drop(listeners);
        let mut at_work = self.serving.at_work.lock();
        if waited.is_ok() {
            self.serving.one_less.wait_while(&mut at_work, |at_work| at_work.connections > 0);
        }
        waited.map(|()| at_work.report).map_err(ServeError::Wait)
    }

    fn accept_until_stopped(&self, listeners: &[Listener]) -> io::Result<()> {
        let stop = &*self.serving.shared.stop;
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
            let mut at_work = self.serving.at_work.lock();
            if at_work.connections >= self.serving.shared.settings.connections_max {
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
        let leaving = Leaving(Arc::clone(&self.serving));
        let served = std::thread::Builder::new()
            .name("nbd".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || serve_one(socket, &leaving.0));
        if let Err(error) = served {
            // The closure was dropped, and with it the socket and the connection's place.
            tracing::warn!("a connection was refused: no thread for it: {error}");
        }
    }

    /// Handles a connection that could not be accepted. A client that left early is ignored. After
    /// another error, such as a lack of descriptors, the loop pauses: it lasts until a connection
    /// ends.
    fn not_accepted(&self, error: &io::Error) -> io::Result<()> {
        if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) {
            return Ok(());
        }
        tracing::warn!("a connection could not be accepted: {error}");
        let mut stop = [PollFd::from_borrowed_fd(self.serving.shared.stop.as_fd(), PollFlags::IN)];
        let pause = Timespec { tv_sec: 0, tv_nsec: ACCEPT_PAUSE_NS };
        match poll(&mut stop, Some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn serve_one(socket: OwnedFd, serving: &Serving) {
    let (tally, ended) = Connection::new(socket, &serving.shared).run();
    let violation = matches!(ended, Ended::Handshake(_) | Ended::Request(_));
    match ended {
        // Many clients close without a disconnect request.
        Ended::Goodbye | Ended::Stopped | Ended::Vanished => tracing::debug!("connection: {ended}"),
        Ended::Silent | Ended::Socket(_) => tracing::info!("connection: {ended}"),
        Ended::Handshake(_) | Ended::Request(_) => {
            tracing::warn!("a connection was closed: {ended}");
        }
    }
    let mut at_work = serving.at_work.lock();
    at_work.report.violations += u64::from(violation);
    at_work.report.tally.add(&tally);
}

/// A connection's place in the count, given back however its thread ends.
struct Leaving(Arc<Serving>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.at_work.lock().connections -= 1;
        self.0.one_less.notify_all();
    }
}

/// Stack of a connection's thread. Its large data are in buffers, not on the stack.
pub const STACK_BYTES: usize = 128 << 10;

const ACCEPT_PAUSE_NS: i64 = 50_000_000;
