//! Watching a server: metrics for Prometheus, and a live page with an hour of history.
//!
//! One thread does it all. It looks at the server once a second, and when somebody asks; it answers
//! HTTP requests, and changes nothing. `fields` reads what INFO says, `status` judges whether the
//! promise holds, `metrics` writes OpenMetrics, `history` keeps an hour, `now` and `page` are the
//! page, `http` and `access` answer or refuse.
#![deny(unsafe_code)]

mod access;
mod devices;
mod fields;
mod history;
mod http;
mod metrics;
mod now;
mod page;
mod station;
mod status;
mod tenants;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use perdura_server::{Looker, Watcher};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub use access::{Readers, Unprotected};
pub use devices::{Device, devices};
pub use fields::{Fields, Parts};
pub use metrics::{ABSENT_IF_NEGATIVE, Format, Kind, LEFT_OUT, ROWS, Row, descriptions};
pub use status::{Status, StatusError};

use access::Access;
use http::Event;
use station::Station;
use tenants::Told;

/// Time between two samples.
const TICK: Duration = Duration::from_secs(1);

/// What to watch, and for whom.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address of the HTTP server.
    pub addr: SocketAddr,
    /// Who may look.
    pub readers: Readers,
    /// Names by which clients call this machine.
    pub names: Vec<String>,
    /// Socket of the guard whose servers are shown, too.
    pub guard: Option<PathBuf>,
}

/// Why a server cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The address would be open to everybody.
    #[error(transparent)]
    Unprotected(#[from] Unprotected),
    /// The system refused the address.
    #[error("cannot listen on {addr} for --http: {source}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The system refused a thread.
    #[error("cannot start a thread that asks the guard: {0}")]
    Thread(#[source] io::Error),
}

impl WatchError {
    /// Whether another socket has the address. It may be that of a process that is about to end.
    pub fn is_address_in_use(&self) -> bool {
        matches!(self, Self::Bind { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
    }
}

/// Watches one server. Its address is taken from the start, and answers while the server serves.
pub struct Watch {
    events: UnboundedSender<Event>,
    /// Taken by the thread that watches.
    start: Mutex<Option<Start>>,
    addr: SocketAddr,
}

struct Start {
    listener: TcpListener,
    access: Access,
    happened: UnboundedReceiver<Event>,
    tenants: Option<Arc<Told>>,
}

impl Watch {
    /// Takes the address.
    ///
    /// # Errors
    /// The address may not be used, or the system refuses it.
    pub fn bind(settings: Settings) -> Result<Self, WatchError> {
        let Settings { addr, readers, names, guard } = settings;
        let access = Access::new(addr, &readers, names)?;
        let bind = || {
            let listener = TcpListener::bind(addr)?;
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        };
        let (addr, listener) = bind().map_err(|source| WatchError::Bind { addr, source })?;
        let tenants = guard.map(tenants::ask).transpose().map_err(WatchError::Thread)?;
        let (events, happened) = unbounded_channel();
        let start = Start { listener, access, happened, tenants };
        Ok(Self { events, start: Mutex::new(Some(start)), addr })
    }

    /// The address; its port is the one that the system has given if none was asked for.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    async fn serve(&self, start: Start, looker: &mut Looker<'_, '_>) -> io::Result<()> {
        let Start { listener, access, mut happened, tenants } = start;
        let ask = self.events.clone();
        tokio::spawn(async move {
            if let Err(error) = http::serve(listener, access, ask).await {
                tracing::error!(%error, "--http does not answer");
            }
        });
        let ticks = self.events.clone();
        tokio::spawn(async move {
            let mut every = tokio::time::interval(TICK);
            every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            while ticks.send(Event::Tick).is_ok() {
                every.tick().await;
            }
        });
        let mut station = Station::new(tenants);
        while let Some(event) = happened.recv().await {
            match event {
                Event::End => break,
                Event::Tick => station.tick(looker),
                // Who has asked may have gone.
                Event::Asked(question, tell) => {
                    let _ = tell.send(station.answer(&question, looker));
                }
            }
        }
        Ok(())
    }
}

impl Watcher for Watch {
    fn watch(&self, looker: &mut Looker<'_, '_>) {
        let start = self.start.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(start) = start else { return };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let served = runtime.and_then(|runtime| runtime.block_on(self.serve(start, looker)));
        if let Err(error) = served {
            tracing::error!(%error, "the server is not watched");
        }
    }

    fn end(&self) {
        // Nobody watches if nobody hears it.
        let _ = self.events.send(Event::End);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("addr", &self.addr).finish_non_exhaustive()
    }
}
