//! The event loop, which is one thread.
//!
//! In a turn the loop waits, reads from each connection up to a limit, executes the commands,
//! orders a commit if replies wait for one, sends the output that may be sent, and closes the
//! connections that are done. Nothing in a turn waits for a peer.
//!
//! A connection gets one bounded read a turn, so that all get their share. Commands of a peer that
//! does not read its replies are not executed; they stay in the socket, so its memory is bounded as
//! well. A stop is seen at the next turn, and then nothing is waited for.

use std::io;

use perdura_media::Clock;
use perdura_store::{Store, Unreadable};
use rustix::event::epoll::EventFlags;

use super::ahead::Ahead;
use super::committer::Committer;
use super::events::{Event, Events, Tag};
use super::group::Group;
use super::listen::{Listener, Socket};
use super::load::{Load, ONE};
use crate::commands::{Server, index_for};
use crate::config::{ServeError, ServerConfig, StopFlag};
use crate::conn::{Conn, Receiving, drop_taken, keep_spare};
use crate::resp::Parser;
use crate::saving::Saving;
use crate::sys::Several;

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

/// Serves until `stop` is set or a client says SHUTDOWN. Does not flush: the caller does.
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
    let saving = Saving::new(clock.unix_ms());
    let mut server = Server::new(store, clock, &saving, config.clone(), index_for(config));
    server.tcp_port = listener.local_addr().map_or(0, |addr| addr.port());
    let no_thread = |source| ServeError::Events { op: "start of a thread", source };
    let committer = server.holds_replies().then(Committer::new).transpose();
    let committer = committer.map_err(|source| ServeError::Events { op: "eventfd", source })?;
    std::thread::scope(|scope| {
        let _ending = saving.end_when_dropped();
        std::thread::Builder::new()
            .name("perdura-bgsave".into())
            .spawn_scoped(scope, || saving.serve(store, clock))
            .map_err(no_thread)?;
        let orders = committer.as_ref().map(|committer| committer.start(scope, store.region()));
        let group = Group::new(orders.transpose().map_err(no_thread)?);
        let mut serve = Serve::new(listener, server, group, stop)?;
        let ended = serve.until(stop)?;
        serve.end_commits(ended)?;
        let stats = &serve.server.stats;
        Ok(Report {
            ended,
            connections: stats.connections,
            commands: stats.commands,
            latched: serve.server.latched.clone(),
        })
    })
}

/// The state of the loop.
pub(super) struct Serve<'a> {
    pub(super) server: Server<'a>,
    pub(super) events: Events,
    pub(super) sockets: Vec<Socket>,
    /// Listening sockets at which no connection could be accepted, because descriptors are used up.
    /// They are tried again at the next tick.
    pub(super) deaf: Vec<usize>,
    /// Whether the log has said that no connection can be accepted. It says so once until one can.
    pub(super) starved: bool,
    pub(super) conns: Vec<Option<Box<Conn>>>,
    pub(super) free: Vec<u32>,
    pub(super) connected: usize,
    pub(super) next_id: u64,
    /// The read buffer of all connections.
    pub(super) arena: Vec<u8>,
    /// The parser of all connections that have no pending input.
    pub(super) parser: Parser,
    pub(super) ahead: Ahead,
    pub(super) spare: Vec<Vec<u8>>,
    pub(super) group: Group<'a>,
    /// Connections answered since the last wait because a group commit had returned.
    pub(super) committed: usize,
    /// The same of the commit before.
    committed_before: usize,
    load: Load,
    /// Whether the turn is for one connection's request alone.
    is_lone: bool,
    pub(super) stalled: Vec<u32>,
    pub(super) finished: Vec<u32>,
    pub(super) next_tick_ns: u64,
}

impl<'a> Serve<'a> {
    pub(super) fn new(
        listener: Listener,
        mut server: Server<'a>,
        group: Group<'a>,
        stop: &StopFlag,
    ) -> Result<Self, ServeError> {
        let turn_bytes_max = server.config.turn_bytes_max.max(1);
        let mut events = Events::new(server.config.events, turn_bytes_max)?;
        server.multiplexing = events.name();
        events.watch_stop(stop)?;
        if let Some(orders) = group.orders() {
            events.watch_commits(orders)?;
        }
        for (at, socket) in listener.sockets.iter().enumerate() {
            events.watch_listener(socket, at)?;
        }
        Ok(Self {
            arena: vec![0; turn_bytes_max],
            server,
            events,
            sockets: listener.sockets,
            deaf: Vec::new(),
            starved: false,
            conns: Vec::new(),
            free: Vec::new(),
            connected: 0,
            next_id: 1,
            parser: Parser::default(),
            ahead: Ahead::default(),
            spare: Vec::new(),
            group,
            committed: 0,
            committed_before: 0,
            load: Load::new(),
            is_lone: false,
            stalled: Vec::new(),
            finished: Vec::new(),
            next_tick_ns: 0,
        })
    }

    fn until(&mut self, stop: &StopFlag) -> Result<Ended, ServeError> {
        let mut happened: Vec<Event> = Vec::new();
        loop {
            if let Some(ended) = self.turn(stop, u32::MAX, &mut happened)? {
                return Ok(ended);
            }
        }
    }

    /// One turn, which waits at most `most_ns` for something to do. `happened` is empty before and
    /// afterwards.
    pub(super) fn turn(
        &mut self,
        stop: &StopFlag,
        most_ns: u32,
        happened: &mut Vec<Event>,
    ) -> Result<Option<Ended>, ServeError> {
        self.wait(most_ns, happened)?;
        if stop.is_set() {
            return Ok(Some(Ended::Stopped));
        }
        self.server.begin_turn();
        self.is_lone = is_lone_request(happened);
        self.look_ahead(happened);
        for event in happened.drain(..) {
            self.handle(event)?;
            if self.server.shutdown || stop.is_set() {
                break;
            }
        }
        self.resume_stalled();
        if stop.is_set() {
            // The final flush writes everything that could be ordered now.
            return Ok(Some(Ended::Stopped));
        }
        self.server.stats.group_writes +=
            self.group.order(self.server.config.group_writes_inline) as u64;
        self.release();
        self.close_finished();
        if self.server.shutdown {
            return Ok(Some(Ended::Shutdown));
        }
        if self.server.now_ns >= self.next_tick_ns {
            self.next_tick_ns = self.server.now_ns + TICK_NS;
            self.tick();
        }
        Ok(None)
    }

    /// Prefetches the memory that received commands will read, before any of them is carried out.
    fn look_ahead(&mut self, happened: &[Event]) {
        let received = happened.iter().filter_map(|event| match event {
            Event::Received { of, result: Ok(filled), .. } => {
                let conn = self.conns[of.slot as usize].as_ref()?;
                conn.pending.is_none().then(|| (&conn.session, filled.bytes()))
            }
            _ => None,
        });
        if happened.len() > 1 {
            self.ahead.look_across(&self.server, &mut self.parser, received);
        }
    }

    fn wait(&mut self, most_ns: u32, happened: &mut Vec<Event>) -> Result<(), ServeError> {
        let committed = std::mem::take(&mut self.committed);
        let before = self.committed_before;
        if committed > 0 {
            self.committed_before = committed;
        }
        let load = self.load.several(self.server.now_ns);
        let is_news = self.group.call_me();
        let timeout_ns = if is_news { 0 } else { self.timeout_ns().min(most_ns) };
        let several = match timeout_ns {
            // The wait is for the clients that the last two commits have answered, so that their
            // next writes share a group: those of the one before may have sent theirs already.
            1.. if committed > 1 => Several { count: committed + before, moment_us: COMMIT_US },
            1.. if !self.group.is_on_its_way() => load,
            _ => ONE,
        };
        self.events.wait(timeout_ns, several, happened)?;
        self.group.awake();
        Ok(())
    }

    fn timeout_ns(&self) -> u32 {
        let ready = self.stalled.iter().any(|slot| {
            self.conns[*slot as usize].as_ref().is_some_and(|conn| self.may_resume(conn))
        });
        if ready {
            return 0;
        }
        let tick_ns = self.next_tick_ns.saturating_sub(self.server.now_ns);
        tick_ns.clamp(1_000_000, TICK_NS) as u32
    }

    fn handle(&mut self, event: Event) -> Result<(), ServeError> {
        match event {
            Event::Stop => return Ok(()),
            Event::Committed => {
                if let Some(orders) = self.group.orders() {
                    orders.heard();
                    self.events.watch_commits_again(orders)?;
                }
            }
            Event::Listener(at) => self.accept(at),
            Event::Ready { slot, flags } => {
                let Some(mut conn) = self.conns[slot as usize].take() else { return Ok(()) };
                self.ready(slot, &mut conn, flags);
                self.put_back(slot, conn);
            }
            Event::Received { of, result, goes_on } => {
                if let Some(mut conn) = self.take(of) {
                    self.load.note(&mut conn.asked);
                    if !goes_on {
                        conn.receiving = Receiving::No;
                    }
                    let read = match &result {
                        Ok(filled) => Ok(filled.bytes()),
                        Err(error) => Err(error.raw_os_error()),
                    };
                    let read = read.map_err(|os| io::Error::from_raw_os_error(os.unwrap_or(0)));
                    self.received(of.slot, &mut conn, read);
                    self.put_back(of.slot, conn);
                }
                if let Ok(filled) = result {
                    self.events.give_back(filled);
                }
            }
            Event::Sent { of, buffer, from, result } => {
                let Some(mut conn) = self.take(of) else {
                    keep_spare(&mut self.spare, buffer);
                    return Ok(());
                };
                self.sent(of, &mut conn, buffer, from, result);
                self.put_back(of.slot, conn);
            }
        }
        if self.group.is_holding() {
            self.release();
            let writes_max = self.server.config.group_writes_max;
            if self.group.is_full(writes_max) {
                self.server.stats.group_writes += self.group.order(0) as u64;
            }
            while self.group.is_crowded(writes_max) {
                self.wait_for_commit()?;
            }
        }
        Ok(())
    }

    /// Takes the connection that a completion is for out of its place, unless it has gone.
    fn take(&mut self, of: Tag) -> Option<Box<Conn>> {
        self.conns[of.slot as usize].take_if(|conn| Tag::of(of.slot, conn) == of)
    }

    fn ready(&mut self, slot: u32, conn: &mut Conn, flags: EventFlags) {
        if flags.contains(EventFlags::OUT) {
            self.send(slot, conn);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            if conn.interest.contains(EventFlags::IN) {
                self.receive(slot, conn);
            } else if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                // The connection is closed in both directions: nobody will read its replies.
                conn.session.killed = true;
            }
        }
    }

    /// Notes the bytes of a buffer that the ring has sent, and sends the rest.
    fn sent(
        &mut self,
        of: Tag,
        conn: &mut Conn,
        mut buffer: Vec<u8>,
        mut from: usize,
        result: io::Result<usize>,
    ) {
        conn.in_flight = 0;
        match result {
            Ok(count @ 1..) => {
                self.server.stats.net_output_bytes += count as u64;
                self.server.stats.writes += 1;
                from += count;
                if from == buffer.len() {
                    return keep_spare(&mut self.spare, buffer);
                }
                drop_taken(&mut buffer, &mut from);
                self.events.send(of.slot, conn, buffer, from);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.events.send(of.slot, conn, buffer, from);
            }
            _ => conn.session.killed = true,
        }
    }

    /// Ends a connection's part of a turn: its output is sent or held, and it is watched for the
    /// events that it needs.
    pub(super) fn put_back(&mut self, slot: u32, mut conn: Box<Conn>) {
        self.group.hold(slot, &mut conn);
        self.send(slot, &mut conn);
        self.watch(slot, &mut conn);
        self.conns[slot as usize] = Some(conn);
    }

    pub(super) fn watch(&mut self, slot: u32, conn: &mut Conn) {
        if conn.is_finished() {
            self.finished.push(slot);
            return;
        }
        if self.events.watch(slot, conn).is_err() {
            conn.session.killed = true;
            self.finished.push(slot);
        }
    }

    /// Sends the output that may be sent: with epoll now, with the ring at the end of the turn and
    /// after what is being sent already. Where the turn has one request there is nothing to gather
    /// for the ring, and a send whose end must be waited for costs more than a system call.
    pub(super) fn send(&mut self, slot: u32, conn: &mut Conn) {
        if !conn.is_sendable() {
            return;
        }
        match &self.events {
            Events::Epoll(_) => self.write(conn),
            Events::Uring { .. } if conn.in_flight == 0 => {
                if self.is_lone {
                    self.write(conn);
                }
                if conn.is_sendable() && !conn.session.killed {
                    let (buffer, from) = conn.take_free(&mut self.spare);
                    self.events.send(slot, conn, buffer, from);
                }
            }
            Events::Uring { .. } => {}
        }
    }

    /// Sends what can be sent at once, in the middle of a turn.
    pub(super) fn send_now(&mut self, slot: u32, conn: &mut Conn) {
        self.group.hold(slot, conn);
        if conn.in_flight == 0 {
            self.write(conn);
        }
    }

    fn write(&mut self, conn: &mut Conn) {
        let count = conn.send(&mut self.spare);
        self.server.stats.net_output_bytes += count as u64;
        self.server.stats.writes += u64::from(count > 0);
    }

    /// Sends the replies that waited for commits which have returned.
    fn release(&mut self) {
        if !self.group.look() {
            return;
        }
        while let Some((of, end)) = self.group.next_free() {
            let Some(mut conn) = self.take(of) else { continue };
            conn.free_to = end;
            self.answer(of, conn);
        }
        if let Some(why) = self.group.settle() {
            for of in self.group.take_held() {
                let Some(mut conn) = self.take(of) else { continue };
                self.group.fail(of, &mut conn, &why);
                self.answer(of, conn);
            }
            self.group.forget_writes();
            self.server.latched.get_or_insert(why);
        }
    }

    fn answer(&mut self, of: Tag, mut conn: Box<Conn>) {
        self.committed += 1;
        self.send(of.slot, &mut conn);
        self.watch(of.slot, &mut conn);
        self.conns[of.slot as usize] = Some(conn);
    }

    fn wait_for_commit(&mut self) -> Result<(), ServeError> {
        self.group.wait().map_err(|source| ServeError::Events { op: "poll", source })?;
        self.release();
        Ok(())
    }

    /// Ends group commits; none is on its way afterwards. After a warning no other is begun, and
    /// the writes that wait for one are not answered, because the time belongs to the final flush.
    /// A client that said SHUTDOWN waits for one more.
    fn end_commits(&mut self, ended: Ended) -> Result<(), ServeError> {
        while ended == Ended::Shutdown && self.group.is_on_its_way() {
            self.wait_for_commit()?;
        }
        self.group.end();
        self.release();
        Ok(())
    }

    /// Removes expired keys and saves the number of keys where it does not change.
    fn tidy(&mut self) {
        for _ in 0..EXPIRE_ROUNDS_MAX {
            // An error is ignored: a failing device refuses deletions too, and reads take expired
            // keys for gone.
            let expired = Unreadable::catch(|| self.server.store.expire_some(EXPIRE_WORK));
            let Ok(Ok(deleted)) = expired else { break };
            self.server.stats.expired_keys += deleted;
            if deleted < EXPIRE_WORK as u64 / 4 {
                break;
            }
        }
        // Here, too, an error is ignored: the next opening counts what is not saved.
        let _ = Unreadable::catch(|| self.server.store.save_quiet_counts());
    }

    /// Tidies, unless that must not write now, and disconnects silent clients, about ten times a
    /// second.
    fn tick(&mut self) {
        self.listen();
        self.server.sample();
        if !self.server.is_power_low {
            self.tidy();
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

/// Whether a turn is for one connection's request, and for no replies that waited for a commit.
fn is_lone_request(happened: &[Event]) -> bool {
    let is_request = |event: &&Event| matches!(event, Event::Received { .. });
    let is_commit = |event: &Event| matches!(event, Event::Committed);
    happened.iter().filter(is_request).count() == 1 && !happened.iter().any(is_commit)
}

const TICK_NS: u64 = 100_000_000;
/// Approximate time that an SSD needs to make a write durable, microseconds.
const COMMIT_US: u32 = 100;
const EXPIRE_WORK: usize = 256;
const EXPIRE_ROUNDS_MAX: usize = 16;
