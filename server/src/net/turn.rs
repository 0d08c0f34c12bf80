//! One connection's part of a turn: its bytes are read, whole commands are executed, and the bytes
//! of an incomplete one are kept.

use std::io;

use super::ahead::{Ahead, Looked};
use super::events::Tag;
use super::serve::Serve;
use crate::commands::{Flow, execute, may_write};
use crate::conn::{Conn, Pending};
use crate::resp::{Parser, Reply};

impl Serve<'_> {
    /// Reads a bounded number of bytes once, and executes every command that is whole then.
    pub(super) fn receive(&mut self, slot: u32, conn: &mut Conn) {
        let mut arena = std::mem::take(&mut self.arena);
        let read = conn.stream.read(&mut arena);
        self.server.heed_config();
        self.received(slot, conn, read.map(|n| &arena[..n]));
        self.arena = arena;
    }

    /// Executes the commands that a read has completed. An empty read is the end of the stream.
    pub(super) fn received(&mut self, slot: u32, conn: &mut Conn, read: io::Result<&[u8]>) {
        match read {
            Ok([]) => conn.input_closed = true,
            Ok(bytes) => {
                self.server.stats.net_input_bytes.add(bytes.len() as u64);
                self.server.stats.reads.add(1);
                if conn.link.is_some() {
                    self.received_sealed(slot, conn, bytes);
                } else {
                    self.heed(slot, conn, bytes);
                }
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                // The ring had no buffer left, and has some again at the next request, or the
                // receive was ended.
                _ if error.raw_os_error().is_some_and(|errno| RING_ENDED.contains(&errno)) => {}
                _ => conn.session.killed = true,
            },
        }
    }

    /// Executes the commands that these bytes complete.
    pub(super) fn heed(&mut self, slot: u32, conn: &mut Conn, bytes: &[u8]) {
        if conn.stalled || conn.session.waiting.is_some() {
            // The ring had received the bytes already.
            return conn.pending.get_or_insert_default().bytes.extend_from_slice(bytes);
        }
        match conn.pending.take() {
            None => {
                let mut parser = std::mem::take(&mut self.parser);
                let used = self.execute_all(slot, conn, &mut parser, bytes);
                if used < bytes.len() {
                    let bytes = bytes[used..].to_vec();
                    conn.pending = Some(Box::new(Pending { bytes, parser }));
                } else {
                    self.parser = parser;
                }
            }
            Some(mut pending) => {
                pending.bytes.extend_from_slice(bytes);
                self.execute_pending(slot, conn, pending);
            }
        }
    }

    pub(super) fn execute_pending(
        &mut self,
        slot: u32,
        conn: &mut Conn,
        mut pending: Box<Pending>,
    ) {
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
    pub(super) fn execute_all(
        &mut self,
        slot: u32,
        conn: &mut Conn,
        parser: &mut Parser,
        buf: &[u8],
    ) -> usize {
        let mut ahead = std::mem::take(&mut self.ahead);
        let used = self.execute_looking_ahead(slot, conn, parser, buf, &mut ahead);
        if !ahead.is_done() {
            ahead.clear();
            parser.restart();
        }
        self.ahead = ahead;
        used
    }

    fn execute_looking_ahead(
        &mut self,
        slot: u32,
        conn: &mut Conn,
        parser: &mut Parser,
        buf: &[u8],
        ahead: &mut Ahead,
    ) -> usize {
        let mut at = 0;
        conn.stalled = false;
        conn.session.is_paused = false;
        conn.take_buffer(&mut self.spare);
        // Output of the connection, of all that it ever gets, when it was last sent.
        let mut sent_at = conn.written();
        loop {
            if conn.session.closing || conn.session.killed || self.server.shared.is_ending() {
                // Bytes behind QUIT are never parsed, nor those behind SYNC.
                self.note_copy(slot, conn);
                return buf.len();
            }
            let pause_bytes = self.server.config.output_pause_bytes;
            if conn.written() - sent_at > SENT_BYTES || conn.unsent() > pause_bytes {
                self.send_now(slot, conn);
                if conn.unsent() > pause_bytes {
                    return self.stall(slot, conn, at);
                }
                conn.take_buffer(&mut self.spare);
                sent_at = conn.written();
            }
            if ahead.is_done() {
                match ahead.look(&self.server, &conn.session, parser, buf, at) {
                    Ok(Looked::Commands) => {}
                    Ok(Looked::Incomplete { at }) => return at,
                    Err(error) => {
                        let limit = self.server.config.output_max_bytes;
                        let resp3 = conn.session.resp3;
                        let text = format!("ERR {error}");
                        Reply::new(conn.output_mut(), resp3, limit).error(&text);
                        conn.session.closing = true;
                        *parser = Parser::default();
                        return buf.len();
                    }
                }
            }
            let Some(command) = ahead.current() else { return at };
            at = command.start;
            conn.session.active_ns = self.server.now_ns;
            conn.session.request_bytes = buf.len() - at;
            let args = parser.args_of(command.frame, &buf[at..]);
            let start = conn.written();
            if self.server.holds_replies() && command.found.is_some_and(|(_, spec)| may_write(spec))
            {
                self.group.begin_write();
            }
            let (session, out) = conn.session_and_output();
            match execute(&mut self.server, session, command.found, command.place, args, out) {
                Flow::Next { wrote } => {
                    at = command.end;
                    ahead.advance();
                    if wrote && self.server.holds_replies() {
                        self.group.note_write(Tag::of(slot, conn), start, conn.written());
                    }
                }
                Flow::Waits { wrote } => {
                    if wrote && self.server.holds_replies() {
                        self.group.note_write(Tag::of(slot, conn), start, start);
                    }
                    self.begin_wait(slot, conn);
                    return command.end;
                }
                Flow::Paused => {
                    conn.session.is_paused = true;
                    return self.stall(slot, conn, at);
                }
                Flow::Close { wrote } => {
                    conn.session.killed = true;
                    if wrote && self.server.holds_replies() {
                        self.group.note_write(Tag::of(slot, conn), start, start);
                    }
                }
            }
        }
    }

    pub(super) fn stall(&mut self, slot: u32, conn: &mut Conn, at: usize) -> usize {
        conn.stalled = true;
        self.stalled.push(slot);
        at
    }

    pub(super) fn may_resume(&self, conn: &Conn) -> bool {
        conn.unsent() <= self.server.config.output_pause_bytes
            && conn.session.moving.as_ref().is_none_or(|moving| moving.is_ready())
            && self.server.clock.now_ns() >= self.server.shared.pause.now().0
    }

    pub(super) fn resume_stalled(&mut self) {
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
}

/// Bytes of output that a pipeline gathers before they are sent: few enough to stay in a cache.
const SENT_BYTES: u64 = 256 << 10;
const RING_ENDED: [i32; 2] = [libc::ENOBUFS, libc::ECANCELED];
/// Bytes of unused capacity that a connection's pending input may keep.
const PENDING_SLACK: usize = 16 << 10;
