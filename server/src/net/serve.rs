//! The event loop: one thread, level-triggered epoll.
//!
//! A turn: wait, read what is there (bounded per connection), execute, commit the group if replies
//! are held, send, close who is done. Nothing in a turn waits for a peer.
//!
//! Fairness: a connection gets one bounded read a turn. A peer that does not read its replies is not
//! executed any further (its requests stay in the socket), so its memory is bounded as well.
//! A stop is seen at the next turn; nothing is waited for then.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use perdura_media::Clock;
use perdura_store::{Store, Unreadable};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::conn::Conn;
use super::group::Group;
use super::listen::{Listener, Socket};
use crate::commands::Server;
use crate::config::{ServeError, ServerConfig, StopFlag};
use crate::resp::Parser;
use crate::saving::Saving;

/// Why a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The stop flag was set.
    Stopped,
    /// A client sent SHUTDOWN.
    Shutdown,
}

/// What a server did until it ended. The caller flushes next.
#[derive(Debug, Clone)]
pub struct Report {
    /// Why it ended.
    pub ended: Ended,
    /// Connections accepted.
    pub connections: u64,
    /// Commands carried out.
    pub commands: u64,
    /// The first failure of a group commit, if one failed.
    pub latched: Option<String>,
}

/// Serves until `stop` is set or a client says SHUTDOWN. Does not flush: the caller does.
///
/// A write may wait inside the store for its budget; `store.region().close(..)` from the thread that
/// sets `stop` ends that wait with an error, so a stop depends on no writer either.
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
    let saving = Saving::new(clock.unix_ms());
    let mut server = Server::new(store, clock, &saving, config.clone());
    server.tcp_port = listener.local_addr().map_or(0, |addr| addr.port());
    let mut serve = Serve::new(listener, server, stop)?;
    let ended = std::thread::scope(|scope| {
        let _ending = saving.end_when_dropped();
        std::thread::Builder::new()
            .name("perdura-bgsave".into())
            .spawn_scoped(scope, || saving.serve(store, clock))
            .map_err(|source| ServeError::Events { op: "start of a thread", source })?;
        serve.until(stop)
    })?;
    let stats = &serve.server.stats;
    Ok(Report {
        ended,
        connections: stats.connections,
        commands: stats.commands,
        latched: serve.server.latched.clone(),
    })
}

/// The loop's state.
pub(super) struct Serve<'a> {
    pub(super) server: Server<'a>,
    pub(super) epoll: OwnedFd,
    pub(super) sockets: Vec<Socket>,
    /// Accepting failed for want of descriptors: tried again at the next tick.
    pub(super) deaf: bool,
    /// It has been said in the log; once each time.
    pub(super) starved: bool,
    pub(super) conns: Vec<Option<Box<Conn>>>,
    pub(super) free: Vec<u32>,
    pub(super) connected: usize,
    pub(super) next_id: u64,
    /// The one read buffer.
    pub(super) arena: Vec<u8>,
    /// The parser of connections without pending input.
    pub(super) parser: Parser,
    pub(super) spare: Vec<Vec<u8>>,
    pub(super) group: Group,
    pub(super) stalled: Vec<u32>,
    pub(super) finished: Vec<u32>,
    pub(super) next_tick_ns: u64,
}

impl<'a> Serve<'a> {
    fn new(listener: Listener, server: Server<'a>, stop: &StopFlag) -> Result<Self, ServeError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed("epoll_create"))?;
        let watch = |fd: BorrowedFd<'_>, data| {
            epoll::add(&epoll, fd, EventData::new_u64(data), EventFlags::IN)
                .map_err(failed("epoll_ctl"))
        };
        watch(stop.as_fd(), STOP)?;
        for (at, socket) in listener.sockets.iter().enumerate() {
            watch(socket.as_fd(), LISTENERS + at as u64)?;
        }
        Ok(Self {
            arena: vec![0; server.config.turn_bytes_max.max(1)],
            server,
            epoll,
            sockets: listener.sockets,
            deaf: false,
            starved: false,
            conns: Vec::new(),
            free: Vec::new(),
            connected: 0,
            next_id: 1,
            parser: Parser::default(),
            spare: Vec::new(),
            group: Group::default(),
            stalled: Vec::new(),
            finished: Vec::new(),
            next_tick_ns: 0,
        })
    }

    fn until(&mut self, stop: &StopFlag) -> Result<Ended, ServeError> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
        loop {
            let timeout = self.timeout();
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed("epoll_wait")(error)),
            }
            if stop.is_set() {
                return Ok(Ended::Stopped);
            }
            self.server.begin_turn();
            for event in &events {
                self.handle(event);
                if self.server.shutdown || stop.is_set() {
                    break;
                }
            }
            self.resume_stalled();
            self.commit_group();
            self.close_finished();
            if self.server.shutdown {
                return Ok(Ended::Shutdown);
            }
            if self.server.now_ns >= self.next_tick_ns {
                self.next_tick_ns = self.server.now_ns + TICK_NS;
                self.tick();
            }
        }
    }

    fn timeout(&self) -> Timespec {
        let ready = self.stalled.iter().any(|slot| {
            self.conns[*slot as usize].as_ref().is_some_and(|conn| self.may_resume(conn))
        });
        let wait_ns = if ready {
            0
        } else {
            self.next_tick_ns.saturating_sub(self.server.now_ns).clamp(1_000_000, TICK_NS)
        };
        Timespec { tv_sec: 0, tv_nsec: wait_ns as _ }
    }

    fn handle(&mut self, event: &Event) {
        let (data, flags) = (event.data.u64(), event.flags);
        if data == STOP {
            return;
        }
        if data >= LISTENERS {
            return self.accept((data - LISTENERS) as usize);
        }
        let slot = data as u32;
        let Some(mut conn) = self.conns[slot as usize].take() else { return };
        if flags.contains(EventFlags::OUT) && !conn.held {
            self.send(&mut conn);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            if conn.interest.contains(EventFlags::IN) {
                self.receive(slot, &mut conn);
            } else if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                // Gone both ways: nobody will read what this one still waits for.
                conn.session.killed = true;
            }
        }
        self.put_back(slot, conn);
        if self.group.writes() >= self.server.config.group_writes_max {
            self.commit_group();
        }
    }

    /// Ends a connection's part of a turn: sends or holds its output, watches for what it needs.
    pub(super) fn put_back(&mut self, slot: u32, mut conn: Box<Conn>) {
        if self.server.uncommitted && conn.unsent() > 0 {
            if !conn.held {
                conn.held = true;
                self.group.slots.push(slot);
            }
        } else {
            self.send_unless_held(&mut conn);
        }
        self.watch(slot, &mut conn);
        self.conns[slot as usize] = Some(conn);
    }

    pub(super) fn watch(&mut self, slot: u32, conn: &mut Conn) {
        if conn.is_finished() && !conn.held {
            self.finished.push(slot);
            return;
        }
        let wanted = conn.wanted_interest();
        if wanted != conn.interest {
            conn.interest = wanted;
            let data = EventData::new_u64(u64::from(slot));
            if epoll::modify(&self.epoll, &conn.stream, data, wanted).is_err() {
                conn.session.killed = true;
                self.finished.push(slot);
            }
        }
    }

    pub(super) fn send_unless_held(&mut self, conn: &mut Conn) {
        if !conn.held && !self.server.uncommitted {
            self.send(conn);
        }
    }

    pub(super) fn send(&mut self, conn: &mut Conn) {
        self.server.stats.net_output_bytes += conn.send(&mut self.spare) as u64;
    }

    /// Makes the turn's writes durable, then sends what waited for it.
    fn commit_group(&mut self) {
        let mut failure = None;
        if self.server.uncommitted {
            self.server.uncommitted = false;
            match self.server.store.region().commit_group() {
                Ok(_) => {
                    self.server.stats.group_commits += 1;
                    self.server.stats.group_writes += self.group.writes() as u64;
                }
                Err(error) => {
                    tracing::error!(%error, "a group commit failed; no more writes are accepted");
                    failure = Some(error.to_string());
                    self.server.latched.get_or_insert_with(|| error.to_string());
                }
            }
        }
        let mut slots = std::mem::take(&mut self.group.slots);
        for slot in slots.drain(..) {
            let Some(mut conn) = self.conns[slot as usize].take() else { continue };
            if let Some(why) = &failure {
                self.group.fail(slot, &mut conn, why);
            }
            conn.held = false;
            self.send(&mut conn);
            self.watch(slot, &mut conn);
            self.conns[slot as usize] = Some(conn);
        }
        self.group.slots = slots;
        self.group.clear_writes();
    }

    /// About ten times a second: expired keys, silent clients.
    fn tick(&mut self) {
        if self.deaf {
            self.listen(true);
        }
        for _ in 0..EXPIRE_ROUNDS_MAX {
            // A failing device refuses deletions as well; reads treat the keys as gone regardless.
            let expired = Unreadable::catch(|| self.server.store.expire_some(EXPIRE_WORK));
            let Ok(Ok(deleted)) = expired else { break };
            self.server.stats.expired_keys += deleted;
            if deleted < EXPIRE_WORK as u64 / 4 {
                break;
            }
        }
        if self.server.config.timeout_s > 0 {
            let limit_ns = self.server.config.timeout_s.saturating_mul(1_000_000_000);
            for conn in self.conns.iter_mut().flatten() {
                if self.server.now_ns.saturating_sub(conn.session.active_ns) > limit_ns {
                    conn.session.killed = true;
                    self.server.kills = true;
                }
            }
            self.close_finished();
        }
    }
}

fn failed(op: &'static str) -> impl Fn(rustix::io::Errno) -> ServeError {
    move |errno| ServeError::Events { op, source: errno.into() }
}

/// Event data: below `LISTENERS` a connection's slot.
pub(super) const LISTENERS: u64 = 1 << 32;
const STOP: u64 = u64::MAX;

const EVENTS_MAX: usize = 1024;
const TICK_NS: u64 = 100_000_000;
const EXPIRE_WORK: usize = 256;
const EXPIRE_ROUNDS_MAX: usize = 16;
