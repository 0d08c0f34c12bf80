//! Connections coming and going.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::event::epoll::{self, EventData, EventFlags};

use super::conn::Conn;
use super::serve::{LISTENERS, Serve};
use crate::session::Session;

impl Serve<'_> {
    pub(super) fn accept(&mut self, at: usize) {
        for _ in 0..ACCEPTS_MAX {
            match self.sockets[at].accept(self.server.config.tcp_keepalive_s) {
                Ok((stream, peer)) => {
                    self.server.stats.connections += 1;
                    self.starved = false;
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
                    _ if is_shortage(&error) => {
                        // The connection stays in the queue, and being told of it again and again would
                        // only burn time: listened for again when a client goes, and at the next tick.
                        if !std::mem::replace(&mut self.starved, true) {
                            tracing::warn!(%error, "cannot accept connections for now");
                        }
                        return self.listen(false);
                    }
                    // This one ended before it could be set up; the next may be sound.
                    _ => {}
                },
            }
        }
    }

    pub(super) fn listen(&mut self, on: bool) {
        self.deaf = !on;
        let interest = if on { EventFlags::IN } else { EventFlags::empty() };
        for (at, socket) in self.sockets.iter().enumerate() {
            let data = EventData::new_u64(LISTENERS + at as u64);
            if let Err(error) = epoll::modify(&self.epoll, socket, data, interest) {
                tracing::error!(%error, "cannot change what is listened for");
            }
        }
    }

    pub(super) fn add(&mut self, conn: Box<Conn>) {
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

    pub(super) fn close_finished(&mut self) {
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
                if self.deaf {
                    self.listen(true);
                }
            }
        }
    }
}

/// Descriptors or memory are used up: no connection can be taken until some are free.
fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|e| [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM].contains(&e))
}

/// Connections accepted in one turn from one socket.
const ACCEPTS_MAX: usize = 64;
