//! How connections are accepted, given to a loop and closed.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::serve::Serve;
use crate::commands::{
    Server, end_import, end_monitor, end_tracking, heed_users, may_go_on_listening, write_message,
    write_push,
};
use crate::conn::{Conn, Stream};
use crate::resp::Reply;
use crate::session::{Peer, Session};
use crate::shared::{Card, Message, Push};

impl Serve<'_> {
    pub(super) fn accept(&mut self, at: usize) {
        if self.accept_some(at) {
            self.hear(at);
        } else {
            self.deaf.push(at);
        }
    }

    /// Accepts connections that wait at a listening socket. False: descriptors or memory are used
    /// up, so none can be accepted for now.
    fn accept_some(&mut self, at: usize) -> bool {
        for _ in 0..ACCEPTS_MAX {
            let is_sealed = self.sockets[at].is_sealed();
            match self.sockets[at].accept(self.server.config.tcp_keepalive_s) {
                Ok((stream, peer)) => {
                    self.server.stats.connections.add(1);
                    self.starved = false;
                    let connected = self.server.shared.connected();
                    if connected >= self.server.config.clients_max {
                        self.server.stats.rejected_connections.add(1);
                        // If the socket takes not even this, the peer only sees that the connection
                        // is closed; so does one that waits for TLS.
                        if !is_sealed {
                            let _ = stream.write(b"-ERR max number of clients reached\r\n");
                        }
                        continue;
                    }
                    let seen = &self.server.shared.clients_max_seen;
                    seen.fetch_max(connected as u64 + 1, Relaxed);
                    self.welcome(stream, peer, is_sealed);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return true,
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    _ if is_shortage(&error) => {
                        // The connection stays in the kernel's queue. To be told of it again and
                        // again would only cost time, so the socket is watched again when a client
                        // goes, and at the next tick.
                        if !std::mem::replace(&mut self.starved, true) {
                            tracing::warn!(%error, "cannot accept connections for now");
                        }
                        return false;
                    }
                    // This connection ended before it could be set up; the next may be sound.
                    _ => {}
                },
            }
        }
        true
    }

    /// Watches again the listening sockets at which no connection could be accepted.
    pub(super) fn listen(&mut self) {
        for at in std::mem::take(&mut self.deaf) {
            self.hear(at);
        }
    }

    /// Asks the event queue to tell once of a connection at a listening socket.
    pub(super) fn hear(&mut self, at: usize) {
        if let Err(error) = self.events.watch_listener(&self.sockets[at], at) {
            tracing::error!(%error, "cannot listen any more");
        }
    }

    /// Gives a connection to the loop that has the fewest.
    pub(super) fn welcome(&mut self, stream: Stream, peer: Peer, is_sealed: bool) {
        // The client may have connected because another loop's CONFIG SET requirepass was answered.
        self.server.heed_config();
        let Server { shared, number, now_ns, .. } = self.server;
        let id = shared.next_client.fetch_add(1, Relaxed);
        let connected = |at: usize| shared.loops[at].connected.load(Relaxed);
        // This loop comes first among equals: a single client is not handed on.
        let others = (0..shared.loops.len()).filter(|at| *at != number);
        let of_loop = std::iter::once(number).chain(others).min_by_key(|at| connected(*at));
        let of_loop = of_loop.unwrap_or(number);
        let own = &shared.loops[of_loop];
        let fd = stream.as_fd().as_raw_fd();
        let card = Arc::new(Card::new(id, fd, peer, of_loop, now_ns));
        own.connected.fetch_add(1, Relaxed);
        own.cards().insert(id, Arc::clone(&card));
        let session = Session::new(card, &self.server.users);
        let mut conn = Conn::new(stream, session);
        conn.session.killed = is_sealed && !self.seal(&mut conn);
        if of_loop == number {
            self.add(Box::new(conn));
        } else {
            own.inbox.hand(conn);
            own.bell.ring();
        }
    }

    /// Takes what other loops have left for this one.
    pub(super) fn open_inbox(&mut self) {
        let (conns, messages) = self.server.own.inbox.take_news();
        for mut conn in conns {
            // Somebody may have killed the client before the loop had it.
            conn.session.killed |= conn.session.card.is_killed();
            self.add(Box::new(conn));
        }
        messages.iter().for_each(|message| self.deliver(message));
    }

    /// Writes a message to the output of its receivers.
    fn deliver(&mut self, message: &Message) {
        for card in &message.to {
            self.tell(card, |conn| {
                // The client may have unsubscribed since the message was sent.
                let hears = conn.session.subscribed.has(message.topic, &message.name);
                if hears {
                    let resp3 = conn.session.resp3;
                    write_message(&mut Reply::new(conn.output_mut(), resp3, usize::MAX), message);
                }
            });
        }
    }

    /// Writes what clients are told besides their replies.
    pub(super) fn deliver_pushes(&mut self, pushes: &[Push]) {
        pushes.iter().for_each(|push| self.deliver_push(push));
    }

    /// Writes what a client is told besides its replies.
    fn deliver_push(&mut self, push: &Push) {
        let write = |conn: &mut Conn| {
            let (resp3, hears) = (conn.session.resp3, conn.session.subscribed.is_any());
            write_push(&mut Reply::new(conn.output_mut(), resp3, usize::MAX), push, hears);
        };
        match push {
            Push::Changed { to, .. } | Push::Broken { to, .. } | Push::Line { to, .. } => {
                self.tell(to, write);
            }
        }
    }

    /// Lets `f` write to the output of a client, if it is still there. A client that does not read
    /// what it is told is disconnected.
    fn tell(&mut self, card: &Card, f: impl FnOnce(&mut Conn)) {
        let slot = card.slot.load(Relaxed);
        let Some(place) = self.conns.get_mut(slot as usize) else { return };
        let Some(mut conn) = place.take_if(|conn| conn.session.card.id == card.id) else {
            return;
        };
        if conn.session.copying.is_some() {
            // Nothing may come between the bytes of a copy.
            *place = Some(conn);
            return;
        }
        conn.take_buffer(&mut self.spare);
        f(&mut conn);
        if conn.unsent() > MESSAGE_BYTES_MAX.min(self.server.config.output_max_bytes) {
            self.server.stats.output_limit_disconnections.add(1);
            conn.session.killed = true;
        }
        self.put_back(slot, conn);
    }

    /// Disconnects the clients whose users are gone, and those that listen to what their users may
    /// not hear any more, once after each change of the users.
    pub(super) fn heed_users(&mut self) {
        if self.users_version == self.server.users.version {
            return;
        }
        self.users_version = self.server.users.version;
        for (slot, conn) in self.conns.iter_mut().enumerate() {
            let Some(conn) = conn else { continue };
            let session = &mut conn.session;
            // A client that has removed its own user gets its reply first.
            let may_stay = session.closing && session.copying.is_none()
                || heed_users(&self.server, session) && may_go_on_listening(session);
            if !may_stay {
                session.killed = true;
                self.finished.push(slot as u32);
            }
        }
    }

    fn add(&mut self, mut conn: Box<Conn>) {
        let slot = self.free.last().copied().unwrap_or(self.conns.len() as u32);
        if let Err(error) = self.events.add(slot, &mut conn) {
            tracing::warn!(%error, "cannot watch a connection; it is closed");
            self.forget(&mut conn);
            return;
        }
        if conn.session.killed {
            self.finished.push(slot);
        }
        conn.session.card.slot.store(slot, Relaxed);
        self.time_handshake(slot, &conn);
        match self.free.pop() {
            Some(slot) => self.conns[slot as usize] = Some(conn),
            None => self.conns.push(Some(conn)),
        }
    }

    /// Takes a connection that ends off the list of clients.
    fn forget(&mut self, conn: &mut Conn) {
        self.give_up_wait(conn);
        conn.session.card.leave();
        end_tracking(&self.server, &mut conn.session);
        end_import(&self.server, &mut conn.session);
        end_monitor(&self.server, &mut conn.session);
        self.server.unsubscribe_all(&conn.session);
        self.server.own.cards().remove(&conn.session.card.id);
        self.server.own.connected.fetch_sub(1, Relaxed);
    }

    pub(super) fn close_finished(&mut self) {
        if self.server.own.inbox.take_kills() {
            for (slot, conn) in self.conns.iter_mut().enumerate() {
                let Some(conn) = conn else { continue };
                conn.session.killed |= conn.session.card.is_killed();
                if conn.session.killed {
                    self.finished.push(slot as u32);
                }
            }
        }
        for slot in std::mem::take(&mut self.finished) {
            // Dropping the socket also takes it out of epoll.
            if let Some(mut conn) = self.conns[slot as usize].take_if(|conn| conn.is_finished()) {
                conn.say_goodbye();
                self.events.forget(&conn);
                self.forget(&mut conn);
                self.free.push(slot);
                self.stalled.retain(|other| *other != slot);
                self.copies.retain(|other| *other != slot);
                self.listen();
            }
        }
    }
}

/// Whether the error says that descriptors or memory are used up: no connection can be accepted
/// until some are free.
fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|e| [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM].contains(&e))
}

/// Most connections that one turn accepts from one listening socket, so that clients are served
/// too.
const ACCEPTS_MAX: usize = 64;
/// Unread bytes of a client that has subscribed above which it is disconnected: the limit of
/// Redis' own configuration.
const MESSAGE_BYTES_MAX: usize = 32 << 20;
