//! How connections are accepted, added to the loop and closed.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::serve::Serve;
use crate::conn::Conn;
use crate::session::Session;

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
            match self.sockets[at].accept(self.server.config.tcp_keepalive_s) {
                Ok((stream, peer)) => {
                    self.server.stats.connections += 1;
                    self.starved = false;
                    if self.connected >= self.server.config.clients_max {
                        self.server.stats.rejected_connections += 1;
                        // If the socket takes not even this, the peer only sees that the connection
                        // is closed.
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

    pub(super) fn add(&mut self, mut conn: Box<Conn>) {
        let slot = self.free.last().copied().unwrap_or(self.conns.len() as u32);
        if let Err(error) = self.events.add(slot, &mut conn) {
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

    pub(super) fn close_finished(&mut self) {
        if std::mem::take(&mut self.server.kills) {
            let killed = |conn: &Option<Box<Conn>>| conn.as_ref().is_some_and(|c| c.session.killed);
            let slots = (0..self.conns.len()).filter(|slot| killed(&self.conns[*slot]));
            self.finished.extend(slots.map(|slot| slot as u32));
        }
        for slot in std::mem::take(&mut self.finished) {
            // Dropping the socket also takes it out of epoll.
            if let Some(conn) = self.conns[slot as usize].take_if(|conn| conn.is_finished()) {
                self.events.forget(&conn);
                self.connected -= 1;
                self.free.push(slot);
                self.stalled.retain(|other| *other != slot);
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
