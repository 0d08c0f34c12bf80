//! Replies that wait for a group commit (`durability = fsync`).
//!
//! Invariants: a reply to a write, and every reply made after it in the same group, is sent only
//! after the commit has returned. When the commit fails, each write's reply becomes an error, replies
//! to reads stay, and the server accepts no more writes.

use super::conn::Conn;
use crate::commands::CommandError;
use crate::resp::Reply;

/// The replies held back in this turn.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Connections with held output.
    pub slots: Vec<u32>,
    writes: Vec<HeldWrite>,
}

/// The place of one write's reply in its connection's output.
#[derive(Debug, Clone, Copy)]
struct HeldWrite {
    slot: u32,
    start: usize,
    end: usize,
}

impl Group {
    /// The reply to a write is at `start..end` of the output of `slot`.
    pub fn note_write(&mut self, slot: u32, start: usize, end: usize) {
        self.writes.push(HeldWrite { slot, start, end });
    }

    /// Writes held.
    pub fn writes(&self) -> usize {
        self.writes.len()
    }

    /// Forgets the writes: they are durable, or have been answered with an error.
    pub fn clear_writes(&mut self) {
        self.writes.clear();
    }

    /// Replaces the held write replies of one connection by an error.
    pub fn fail(&self, slot: u32, conn: &mut Conn, why: &str) {
        let resp3 = conn.session.resp3;
        let old = std::mem::take(conn.output_mut());
        let mut new = Vec::with_capacity(old.len());
        let mut from = 0;
        for write in self.writes.iter().filter(|w| w.slot == slot && w.start < w.end) {
            new.extend_from_slice(&old[from..write.start]);
            let error = CommandError::NotCommitted(why.to_owned());
            Reply::new(&mut new, resp3, usize::MAX).error(&error);
            from = write.end;
        }
        new.extend_from_slice(&old[from..]);
        *conn.output_mut() = new;
    }
}
