//! An event loop, which is one thread. A server has one or several.
//!
//! In a turn a loop waits, reads from each connection up to a limit, executes the commands,
//! orders a commit if replies wait for one, sends the output that may be sent, and closes the
//! connections that are done. Nothing in a turn waits for a peer.
//!
//! A connection gets one bounded read a turn, so that all get their share. Commands of a peer that
//! does not read its replies are not executed; they stay in the socket, so its memory is bounded as
//! well. A stop is seen at the next turn, and then nothing is waited for.

use std::collections::BTreeMap;
use std::io;

use perdura_store::Unreadable;
use rustix::event::epoll::EventFlags;

use super::ahead::Ahead;
use super::events::{Event, Events, Tag};
use super::group::Group;
use super::listen::{Listener, Socket};
use super::load::{Load, ONE};
use super::run::Ended;
use super::sealed::Sealed;
use crate::commands::Server;
use crate::config::{ServeError, StopFlag};
use crate::conn::{Conn, Receiving, Spares, drop_taken};
use crate::resp::Parser;
use crate::sys::Several;

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
    /// The read buffer of all connections.
    pub(super) arena: Vec<u8>,
    /// The parser of all connections that have no pending input.
    pub(super) parser: Parser,
    pub(super) ahead: Ahead,
    pub(super) sealed: Sealed,
    pub(super) spare: Spares,
    pub(super) group: Group<'a>,
    /// Connections answered since the last wait because a group commit had returned.
    pub(super) committed: usize,
    /// The same of the commit before.
    committed_before: usize,
    load: Load,
    /// Whether the turn is for one connection's request alone.
    is_lone: bool,
    pub(super) stalled: Vec<u32>,
    /// Clients that get a copy of everything.
    pub(super) copies: Vec<u32>,
    /// The ends of the waits for data, with the clients' numbers and slots.
    pub(super) deadlines: BTreeMap<(u64, u64), u32>,
    pub(super) finished: Vec<u32>,
    pub(super) next_tick_ns: u64,
    /// Whether deleted values may wait to be freed. One loop looks ten times a second.
    frees: bool,
    /// Version of the users to which all clients were compared.
    pub(super) users_version: u64,
}

impl<'a> Serve<'a> {
    /// The loop that `server` is of. It accepts the connections of `listener`, if it has one.
    pub(super) fn new(
        listener: Option<Listener>,
        mut server: Server<'a>,
        group: Group<'a>,
        stop: &StopFlag,
    ) -> Result<Self, ServeError> {
        let turn_bytes_max = server.config.turn_bytes_max.max(1);
        let mut events = Events::new(server.config.events, turn_bytes_max)?;
        server.multiplexing = events.name();
        events.watch_stop(stop)?;
        events.watch_bell(&*server.own.bell)?;
        let listener = listener.unwrap_or_default();
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
            parser: Parser::default(),
            ahead: Ahead::default(),
            sealed: Sealed::default(),
            spare: Spares::default(),
            group,
            committed: 0,
            committed_before: 0,
            load: Load::new(),
            is_lone: false,
            stalled: Vec::new(),
            copies: Vec::new(),
            deadlines: BTreeMap::new(),
            finished: Vec::new(),
            next_tick_ns: 0,
            frees: false,
            users_version: 0,
        })
    }

    /// Serves until the end, and ends the commits.
    pub(super) fn until(&mut self, stop: &StopFlag) -> Result<Ended, ServeError> {
        let mut happened: Vec<Event> = Vec::new();
        loop {
            if let Some(ended) = self.turn(stop, u32::MAX, &mut happened)? {
                self.end_commits(ended)?;
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
        self.open_inbox();
        self.heed_users();
        // Taken before the answers: what is told behind an answer was left behind it, too.
        let pushes = self.server.own.inbox.take_pushes();
        self.answer_served();
        self.deliver_pushes(&pushes);
        self.end_late_waits();
        self.is_lone = is_lone_request(happened);
        self.look_ahead(happened);
        for event in happened.drain(..) {
            self.handle(event)?;
            if self.server.shared.is_ending() || stop.is_set() {
                break;
            }
        }
        self.resume_stalled();
        self.step_copies();
        self.answer_served();
        if stop.is_set() {
            // The final flush writes everything that could be ordered now.
            return Ok(Some(Ended::Stopped));
        }
        self.order(self.server.config.group_writes_inline);
        self.release();
        self.close_finished();
        if self.server.shared.is_ending() {
            return Ok(Some(Ended::Shutdown));
        }
        self.free_some();
        if self.server.now_ns >= self.next_tick_ns {
            self.next_tick_ns = self.server.now_ns + TICK_NS;
            self.tick();
        }
        let (stats, (began_ns, _)) = (self.server.stats, self.server.turn);
        stats.turns.add(1);
        stats.busy_ns.add(self.server.clock.now_ns().saturating_sub(began_ns));
        Ok(None)
    }

    fn order(&mut self, inline_max: usize) {
        self.server.stats.group_writes.add(self.group.order(inline_max) as u64);
    }

    /// Prefetches the memory that received commands will read, before any of them is carried out.
    fn look_ahead(&mut self, happened: &[Event]) {
        let received = happened.iter().filter_map(|event| match event {
            Event::Received { of, result: Ok(filled), .. } => {
                let conn = self.conns[of.slot as usize].as_ref()?;
                let is_plain = conn.pending.is_none() && conn.link.is_none();
                is_plain.then(|| (&conn.session, filled.bytes()))
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
        let is_news = self.group.call_me() || self.server.own.inbox.has_news();
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
        if ready || self.is_copy_ready() || self.frees && !self.server.is_power_low {
            return 0;
        }
        let deadline_ns = self.deadlines.first_key_value().map_or(u64::MAX, |(first, _)| first.0);
        let tick_ns = self.next_tick_ns.min(deadline_ns).saturating_sub(self.server.now_ns);
        tick_ns.clamp(1_000_000, TICK_NS) as u32
    }

    fn handle(&mut self, event: Event) -> Result<(), ServeError> {
        match event {
            Event::Stop => return Ok(()),
            Event::Bell => {
                let bell = &*self.server.own.bell;
                bell.heard();
                self.events.watch_bell_again(bell)?;
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
                    self.spare.keep(buffer);
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
                self.order(0);
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
                self.server.stats.net_output_bytes.add(count as u64);
                self.server.stats.writes.add(1);
                from += count;
                if from == buffer.len() {
                    return self.spare.keep(buffer);
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
        // Before the reply is sent: who has it may ask another loop about the client.
        conn.session.publish(conn.in_flight, conn.pending_bytes());
        self.send(slot, &mut conn);
        self.watch(slot, &mut conn);
        conn.session.publish_unsent(conn.unsent(), conn.pending_bytes());
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
    /// for the ring, and a send whose end must be waited for costs more than a system call. Much
    /// output goes out at once, too: its buffer serves the next connection while a cache has it.
    pub(super) fn send(&mut self, slot: u32, conn: &mut Conn) {
        if !conn.is_sendable() {
            return;
        }
        match &self.events {
            Events::Epoll(_) => self.write(conn),
            Events::Uring { .. } if conn.in_flight == 0 => {
                if self.is_lone || conn.sendable() >= AT_ONCE_BYTES {
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
        if count > 0 {
            self.server.stats.net_output_bytes.add(count as u64);
            self.server.stats.writes.add(1);
        }
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
            self.server.shared.latched.get_or_init(|| why);
        }
    }

    fn answer(&mut self, of: Tag, mut conn: Box<Conn>) {
        self.committed += 1;
        self.send(of.slot, &mut conn);
        self.watch(of.slot, &mut conn);
        conn.session.publish_unsent(conn.unsent(), conn.pending_bytes());
        self.conns[of.slot as usize] = Some(conn);
    }

    fn wait_for_commit(&mut self) -> Result<(), ServeError> {
        self.group.wait().map_err(|source| ServeError::Events { op: "poll", source })?;
        self.release();
        Ok(())
    }

    /// Ends the loop's group commits; none is on its way afterwards. After a warning no other is
    /// begun, of any loop, and the writes that wait for one are not answered, because the time
    /// belongs to the final flush. A client that said SHUTDOWN waits for one more.
    fn end_commits(&mut self, ended: Ended) -> Result<(), ServeError> {
        match ended {
            Ended::Shutdown => {
                while self.group.is_awaited() {
                    self.wait_for_commit()?;
                }
            }
            Ended::Stopped => self.group.end(),
        }
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
            self.server.stats.expired_keys.add(deleted);
            if deleted < EXPIRE_WORK as u64 / 4 {
                break;
            }
        }
        // Here, too, an error is ignored: the next opening counts what is not saved.
        let _ = Unreadable::catch(|| self.server.store.save_quiet_counts());
    }

    /// Frees a little of what was deleted, as long as there is any: turns without requests follow
    /// at once, and those with requests are hardly longer.
    fn free_some(&mut self) {
        if self.frees && !self.server.is_power_low {
            let freed = Unreadable::catch(|| self.server.store.free_some(FREED_PER_TURN));
            self.frees = freed.is_ok_and(|parts| parts >= FREED_PER_TURN);
        }
    }

    /// Tidies, unless that must not write now, and disconnects silent clients, about ten times a
    /// second.
    fn tick(&mut self) {
        self.end_late_handshakes();
        // One loop does what is to be done once.
        if self.server.number == 0 {
            self.reload_if_asked();
            self.listen();
            self.server.shared.sample(self.server.now_ns);
            let (tracking, keys_max) =
                (&self.server.shared.tracking, self.server.config.tracking_keys_max);
            if tracking.is_on() && keys_max > 0 {
                tracking.shrink(keys_max);
            }
            if let Some(devices) = &self.server.config.devices {
                let (shared, stats) = (self.server.shared, self.server.shared.stats());
                let reads = stats.keyspace_hits.get() + stats.keyspace_misses.get();
                devices.count_requests(reads, shared.changes());
            }
            self.server.store.keep_time();
            if !self.server.is_power_low {
                let began_ns = self.server.clock.now_ns();
                self.tidy();
                self.frees = true;
                let took_ns = self.server.clock.now_ns().saturating_sub(began_ns);
                self.server.stats.expiry_ns.add(took_ns);
                self.server.note_latency("expire-cycle", took_ns);
                let max_bytes = self.server.config.memory_max_bytes;
                self.server.shared.memory_limit.look(self.server.store, max_bytes);
                self.serve_after_expiry();
            }
        }
        if self.server.config.timeout_s > 0 {
            let limit_ns = self.server.config.timeout_s.saturating_mul(1_000_000_000);
            for conn in self.conns.iter_mut().flatten() {
                let is_late = self.server.now_ns.saturating_sub(conn.session.active_ns) > limit_ns;
                let waits = conn.session.waiting.is_some() || conn.session.copying.is_some();
                if is_late && !waits {
                    conn.session.killed = true;
                    self.server.own.inbox.kill();
                }
            }
        }
        self.close_finished();
    }
}

/// Whether a turn is for one connection's request, and for no replies that waited for a commit.
fn is_lone_request(happened: &[Event]) -> bool {
    let is_request = |event: &&Event| matches!(event, Event::Received { .. });
    let is_commit = |event: &Event| matches!(event, Event::Bell);
    happened.iter().filter(is_request).count() == 1 && !happened.iter().any(is_commit)
}

const TICK_NS: u64 = 100_000_000;
/// Approximate time that an SSD needs to make a write durable, microseconds.
const COMMIT_US: u32 = 100;
/// Bytes of output from which on a system call costs little beside the copying.
const AT_ONCE_BYTES: usize = 64 << 10;
/// Parts of deleted values that a turn frees: about 25 us, by the 10 ms that 200,000 took.
const FREED_PER_TURN: u64 = 512;
const EXPIRE_WORK: usize = 256;
const EXPIRE_ROUNDS_MAX: usize = 16;
