//! The event loop: one thread, level-triggered epoll.
//!
//! A turn: wait, read what is there (bounded per connection), execute, commit the group if replies
//! are held, send, close who is done. Nothing in a turn waits for a peer.
//!
//! Fairness: a connection gets one bounded read a turn. A peer that does not read its replies is not
//! executed any further (its requests stay in the socket), so its memory is bounded as well.
//! A stop is seen at the next turn; nothing is waited for then.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use perdura_media::Clock;
use perdura_store::Store;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::conn::{Conn, Peers, Pending};
use super::group::Group;
use super::listen::{Listener, Socket};
use crate::commands::{Flow, Server, execute};
use crate::config::{ServeError, ServerConfig, StopFlag};
use crate::resp::{Parser, Reply, Step};
use crate::session::Session;

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
/// # Errors
/// The event queue cannot be made or waited on.
pub fn run(
    listener: Listener,
    store: &Store,
    config: &ServerConfig,
    clock: &dyn Clock,
    stop: &StopFlag,
) -> Result<Report, ServeError> {
    let mut server = Server::new(store, clock, config.clone());
    server.tcp_port = listener.local_addr().map_or(0, |addr| addr.port());
    let mut serve = Serve::new(listener, server, stop)?;
    let ended = serve.until(stop)?;
    let stats = &serve.server.stats;
    Ok(Report {
        ended,
        connections: stats.connections,
        commands: stats.commands,
        latched: serve.server.latched.clone(),
    })
}

struct Serve<'a> {
    server: Server<'a>,
    epoll: OwnedFd,
    sockets: Vec<Socket>,
    /// Accepting failed for want of descriptors: tried again at the next tick.
    deaf: bool,
    conns: Vec<Option<Box<Conn>>>,
    free: Vec<u32>,
    connected: usize,
    next_id: u64,
    /// The one read buffer.
    arena: Vec<u8>,
    /// The parser of connections without pending input.
    parser: Parser,
    spare: Vec<Vec<u8>>,
    group: Group,
    stalled: Vec<u32>,
    finished: Vec<u32>,
    next_tick_ns: u64,
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

    fn accept(&mut self, at: usize) {
        for _ in 0..ACCEPTS_MAX {
            match self.sockets[at].accept(self.server.config.tcp_keepalive_s) {
                Ok((stream, peer)) => {
                    self.server.stats.connections += 1;
                    if self.connected >= self.server.config.clients_max {
                        self.server.stats.rejected_connections += 1;
                        // If even this does not fit the socket, the peer sees the close alone.
                        let _ = stream.write(b"-ERR max number of clients reached\r\n");
                        continue;
                    }
                    let authenticated = !self.server.needs_password();
                    let fd = stream.as_fd().as_raw_fd();
                    let now_ns = self.server.now_ns;
                    let session = Session::new(self.next_id, fd, peer, authenticated, now_ns);
                    self.next_id += 1;
                    self.add(Box::new(Conn::new(stream, session)));
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    _ => {
                        // No descriptors: being told again and again would only burn time.
                        tracing::warn!(%error, "cannot accept connections for now");
                        return self.listen(false);
                    }
                },
            }
        }
    }

    fn listen(&mut self, on: bool) {
        self.deaf = !on;
        let interest = if on { EventFlags::IN } else { EventFlags::empty() };
        for (at, socket) in self.sockets.iter().enumerate() {
            let data = EventData::new_u64(LISTENERS + at as u64);
            if let Err(error) = epoll::modify(&self.epoll, socket, data, interest) {
                tracing::error!(%error, "cannot change what is listened for");
            }
        }
    }

    fn add(&mut self, conn: Box<Conn>) {
        let slot = self.free.last().copied().unwrap_or(self.conns.len() as u32);
        let data = EventData::new_u64(u64::from(slot));
        if let Err(error) = epoll::add(&self.epoll, &conn.stream, data, conn.interest) {
            tracing::warn!(%error, "cannot watch a connection; it is closed");
            return;
        }
        match self.free.pop() {
            Some(slot) => self.conns[slot as usize] = Some(conn),
            None => self.conns.push(Some(conn)),
        }
        self.connected += 1;
        let seen = &mut self.server.stats.clients_max_seen;
        *seen = (*seen).max(self.connected as u64);
    }

    /// One bounded read, and everything it completes.
    fn receive(&mut self, slot: u32, conn: &mut Conn) {
        let mut arena = std::mem::take(&mut self.arena);
        match conn.stream.read(&mut arena) {
            Ok(0) => conn.input_closed = true,
            Ok(n) => {
                self.server.stats.net_input_bytes += n as u64;
                match conn.pending.take() {
                    None => {
                        let mut parser = std::mem::take(&mut self.parser);
                        let used = self.execute_all(slot, conn, &mut parser, &arena[..n]);
                        if used < n {
                            let bytes = arena[used..n].to_vec();
                            conn.pending = Some(Box::new(Pending { bytes, parser }));
                        } else {
                            self.parser = parser;
                        }
                    }
                    Some(mut pending) => {
                        pending.bytes.extend_from_slice(&arena[..n]);
                        self.execute_pending(slot, conn, pending);
                    }
                }
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                _ => conn.session.killed = true,
            },
        }
        self.arena = arena;
    }

    fn execute_pending(&mut self, slot: u32, conn: &mut Conn, mut pending: Box<Pending>) {
        let Pending { bytes, parser } = &mut *pending;
        let used = self.execute_all(slot, conn, parser, bytes);
        if used < bytes.len() {
            bytes.drain(..used);
            if bytes.capacity() > 4 * bytes.len() + PENDING_SLACK {
                bytes.shrink_to_fit();
            }
            conn.pending = Some(pending);
        }
    }

    /// Executes the whole commands of `buf`; returns the bytes used. Sets `stalled` when it stopped
    /// before a whole command.
    fn execute_all(
        &mut self,
        slot: u32,
        conn: &mut Conn,
        parser: &mut Parser,
        buf: &[u8],
    ) -> usize {
        let mut at = 0;
        conn.stalled = false;
        conn.take_buffer(&mut self.spare);
        loop {
            if conn.session.closing || conn.session.killed || self.server.shutdown {
                // What follows QUIT is never looked at.
                return buf.len();
            }
            if conn.unsent() > self.server.config.output_pause_bytes {
                self.send_unless_held(conn);
                if conn.unsent() > self.server.config.output_pause_bytes {
                    return self.stall(slot, conn, at);
                }
            }
            let mut limits = self.server.config.limits;
            limits.unauthenticated = !conn.session.authenticated && self.server.needs_password();
            let consumed = match parser.step(&buf[at..], &limits) {
                Ok(Step::Incomplete) => return at,
                Ok(Step::Empty { consumed }) => {
                    at += consumed;
                    continue;
                }
                Ok(Step::Command { consumed }) => consumed,
                Err(error) => {
                    let limit = self.server.config.output_max_bytes;
                    let resp3 = conn.session.resp3;
                    let text = format!("ERR {error}");
                    Reply::new(conn.output_mut(), resp3, limit).error(&text);
                    conn.session.closing = true;
                    *parser = Parser::default();
                    return buf.len();
                }
            };
            conn.session.active_ns = self.server.now_ns;
            let args = parser.args(&buf[at..]);
            let start = conn.output_mut().len();
            let peers = Peers { conns: &mut self.conns, connected: self.connected };
            let (session, out) = conn.session_and_output();
            match execute(&mut self.server, session, peers, args, out) {
                Flow::Next { wrote } => {
                    at += consumed;
                    if wrote && self.server.holds_replies() {
                        self.server.uncommitted = true;
                        self.group.note_write(slot, start, conn.output_mut().len());
                    }
                }
                Flow::Paused => return self.stall(slot, conn, at),
                Flow::Close => conn.session.killed = true,
            }
        }
    }

    fn stall(&mut self, slot: u32, conn: &mut Conn, at: usize) -> usize {
        conn.stalled = true;
        self.stalled.push(slot);
        at
    }

    fn may_resume(&self, conn: &Conn) -> bool {
        conn.unsent() <= self.server.config.output_pause_bytes
            && self.server.clock.now_ns() >= self.server.pause.until_ns
    }

    fn resume_stalled(&mut self) {
        let mut waiting = std::mem::take(&mut self.stalled);
        waiting.retain(|slot| {
            let Some(mut conn) = self.conns[*slot as usize].take() else { return false };
            let resume = conn.stalled && self.may_resume(&conn);
            let keep = conn.stalled && !resume;
            if resume {
                if let Some(pending) = conn.pending.take() {
                    self.execute_pending(*slot, &mut conn, pending);
                }
                conn.stalled &= conn.pending.is_some();
            }
            self.put_back(*slot, conn);
            keep
        });
        self.stalled.append(&mut waiting);
    }

    /// Ends a connection's part of a turn: sends or holds its output, watches for what it needs.
    fn put_back(&mut self, slot: u32, mut conn: Box<Conn>) {
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

    fn watch(&mut self, slot: u32, conn: &mut Conn) {
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

    fn send_unless_held(&mut self, conn: &mut Conn) {
        if !conn.held && !self.server.uncommitted {
            self.send(conn);
        }
    }

    fn send(&mut self, conn: &mut Conn) {
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

    fn close_finished(&mut self) {
        if std::mem::take(&mut self.server.kills) {
            let killed = |conn: &Option<Box<Conn>>| conn.as_ref().is_some_and(|c| c.session.killed);
            let slots = (0..self.conns.len()).filter(|slot| killed(&self.conns[*slot]));
            self.finished.extend(slots.map(|slot| slot as u32));
        }
        for slot in std::mem::take(&mut self.finished) {
            // Dropping the socket also takes it out of the event queue.
            if self.conns[slot as usize].take_if(|conn| conn.is_finished()).is_some() {
                self.connected -= 1;
                self.free.push(slot);
                self.stalled.retain(|other| *other != slot);
            }
        }
    }

    /// About ten times a second: expired keys, silent clients.
    fn tick(&mut self) {
        if self.deaf {
            self.listen(true);
        }
        for _ in 0..EXPIRE_ROUNDS_MAX {
            // A failing device refuses deletions as well; reads treat the keys as gone regardless.
            let Ok(deleted) = self.server.store.expire_some(EXPIRE_WORK) else { break };
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
const LISTENERS: u64 = 1 << 32;
const STOP: u64 = u64::MAX;

const EVENTS_MAX: usize = 1024;
const ACCEPTS_MAX: usize = 64;
const TICK_NS: u64 = 100_000_000;
const EXPIRE_WORK: usize = 256;
const EXPIRE_ROUNDS_MAX: usize = 16;
/// Pending input may hold so many bytes of unused capacity.
const PENDING_SLACK: usize = 16 << 10;
