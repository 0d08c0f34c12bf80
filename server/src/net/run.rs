//! A server from its start to its end: the loops, and the threads beside them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;

use perdura_media::Clock;
use perdura_region::Region;
use perdura_store::Store;

use super::committer::{Committer, Orders};
use super::group::Group;
use super::listen::Listener;
use super::serve::Serve;
use crate::commands::{Server, index_for};
use crate::config::{Durability, ServeError, ServerConfig, StopFlag};
use crate::look::{Watcher, with_looker};
use crate::shared::Shared;

/// The cause of a server's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The stop flag was set.
    Stopped,
    /// A client sent SHUTDOWN.
    Shutdown,
}

/// The account of a server that has ended. The caller flushes next.
#[derive(Debug, Clone)]
pub struct Report {
    /// The cause of the end.
    pub ended: Ended,
    /// Connections that were accepted.
    pub connections: u64,
    /// Commands that were carried out.
    pub commands: u64,
    /// The first failure of a group commit, if one has failed.
    pub latched: Option<String>,
}

/// What the loops of a server and the threads beside them share.
#[doc(hidden)]
pub struct Beside<'a> {
    pub(super) shared: Shared<'a>,
    committer: Option<Committer>,
    pub(super) stop: StopFlag,
}

impl<'a> Beside<'a> {
    /// # Errors
    /// The system has no event file descriptor left, or the users have mistakes.
    pub fn new(
        store: &'a Store,
        clock: &'a dyn Clock,
        config: &ServerConfig,
    ) -> Result<Self, ServeError> {
        let loops = config.threads.clamp(1, usize::from(store.heap().shards()));
        let commands = index_for(config).specs().len();
        let no_event = |source| ServeError::Events { op: "eventfd", source };
        let users = config.load_users().map_err(ServeError::Users)?;
        let shared = Shared::new(store, clock, config, users, loops, commands).map_err(no_event)?;
        let bells = shared.loops.iter().map(|own| std::sync::Arc::clone(&own.bell));
        let holds_replies = config.durability == Durability::Fsync;
        let committer = holds_replies.then(|| Committer::new(bells));
        Ok(Self { shared, committer, stop: StopFlag::new().map_err(no_event)? })
    }

    /// Number of loops.
    pub fn loops(&self) -> usize {
        self.shared.loops.len()
    }

    /// Makes the group commit that the committing thread would make next. Returns false if none is
    /// ordered, or one has failed.
    pub fn commit(&self, region: &Region) -> bool {
        self.committer.as_ref().is_some_and(|committer| committer.step(region))
    }

    /// The group of the loop with this number.
    pub(super) fn group<'s>(&'s self, number: usize, helper: Option<&'s dyn Fn()>) -> Group<'s> {
        let region = self.shared.store.region();
        let orders: Option<Orders<'s>> =
            self.committer.as_ref().map(|committer| committer.orders(number, region, helper));
        Group::new(orders)
    }
}

/// Serves until `stop` is set or a client says SHUTDOWN. Does not flush: the caller does.
///
/// There are [`ServerConfig::threads`] loops, at most as many as the store has shards. The first is
/// the calling thread; it accepts all connections and gives each to the loop that has the fewest.
///
/// A write may wait inside the store for its budget; `store.region().close(..)` from the thread
/// that sets `stop` ends that wait with an error, so a stop depends on no writer either.
///
/// # Errors
/// The event queue cannot be made or waited on.
pub fn run(
    listener: Listener,
    store: &Store,
    config: &ServerConfig,
    clock: &dyn Clock,
    stop: &StopFlag,
) -> Result<Report, ServeError> {
    let mut beside = Beside::new(store, clock, config)?;
    beside.shared.tcp_port = listener.local_addr().map_or(0, |addr| addr.port());
    beside.shared.tls_port = listener.local_tls_addr().map_or(0, |addr| addr.port());
    let (beside, shared) = (&beside, &beside.shared);
    config.tls.remark(clock.unix_ms());
    if let Some(power) = &config.power {
        power.set_loops(shared.loops.len());
    }
    let no_thread = |source| ServeError::Events { op: "start of a thread", source };
    std::thread::scope(|scope| {
        let _ending = EndThreads(beside, config.watcher.as_deref());
        std::thread::Builder::new()
            .name("perdura-bgsave".into())
            .spawn_scoped(scope, || shared.saving.serve(store, clock))
            .map_err(no_thread)?;
        std::thread::Builder::new()
            .name("perdura-export".into())
            .spawn_scoped(scope, || shared.exporting.serve(store, &shared.functions, clock))
            .map_err(no_thread)?;
        if let Some(watcher) = &config.watcher {
            std::thread::Builder::new()
                .name("perdura-http".into())
                .spawn_scoped(scope, || watch(shared, &**watcher))
                .map_err(no_thread)?;
        }
        if let Some(committer) = &beside.committer {
            committer.start(scope, store.region()).map_err(no_thread)?;
        }
        let mut others = Vec::new();
        let (made, are_made) = channel::<()>();
        for number in 1..shared.loops.len() {
            let thread = std::thread::Builder::new().name(format!("perdura-loop-{number}"));
            let made = made.clone();
            let serve = move || serve(beside, number, None, stop, move || drop(made));
            let thread = thread.spawn_scoped(scope, serve);
            others.push(thread.map_err(no_thread)?);
        }
        drop(made);
        // Clients are accepted once every loop has what it needs of the system, which ends the
        // channel.
        let wait = || while are_made.recv().is_ok() {};
        let mut ended = serve(beside, 0, Some(listener), stop, wait);
        for other in others {
            let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended = ended.and_then(|ended| other.map(|_| ended));
        }
        let (stats, ended) = (shared.stats(), ended?);
        Ok(Report {
            ended,
            connections: stats.connections.get(),
            commands: stats.commands.get(),
            latched: shared.latched.get().cloned(),
        })
    })
}

/// Lets a watcher watch. The server does not end with it, whatever happens to it.
fn watch(shared: &Shared<'_>, watcher: &dyn Watcher) {
    let watch = || with_looker(shared, |looker| watcher.watch(looker));
    if catch_unwind(AssertUnwindSafe(watch)).is_err() {
        tracing::error!("the server is not watched any more; it goes on");
    }
}

/// Runs one loop to its end; `made` is called between its making, or failure, and its first turn.
/// If the loop fails, the others end, too.
fn serve(
    beside: &Beside<'_>,
    number: usize,
    listener: Option<Listener>,
    stop: &StopFlag,
    made: impl FnOnce(),
) -> Result<Ended, ServeError> {
    let failing = FailOthers(&beside.shared);
    let server = Server::new(&beside.shared, number);
    let serve = Serve::new(listener, server, beside.group(number, None), stop);
    made();
    let ended = serve?.until(stop)?;
    std::mem::forget(failing);
    Ok(ended)
}

/// Ends the other loops when a loop ends by an error or a panic.
struct FailOthers<'s>(&'s Shared<'s>);

impl Drop for FailOthers<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Ends the threads beside the loops when it is dropped.
struct EndThreads<'s>(&'s Beside<'s>, Option<&'s dyn Watcher>);

impl Drop for EndThreads<'_> {
    fn drop(&mut self) {
        self.0.shared.end();
        self.0.shared.saving.end();
        self.0.shared.exporting.end();
        if let Some(committer) = &self.0.committer {
            committer.end();
        }
        if let Some(watcher) = self.1 {
            watcher.end();
        }
    }
}
