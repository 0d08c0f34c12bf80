//! Clients that wait for data (BLPOP and its like): their answers, and the ends of their time.

#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering::Relaxed;

use super::events::Tag;
use super::serve::Serve;
use crate::commands::{serve_after_expiry, timeout_reply};
use crate::conn::Conn;

impl Serve<'_> {
    /// Notes until when a client waits.
    pub(super) fn begin_wait(&mut self, slot: u32, conn: &Conn) {
        let waiting = conn.session.waiting.as_ref();
        if let Some(deadline_ns) = waiting.and_then(|waiting| waiting.deadline_ns) {
            self.deadlines.insert((deadline_ns, conn.session.card.id), slot);
        }
    }

    /// Answers the clients of this loop that any loop has served or unblocked.
    pub(super) fn answer_served(&mut self) {
        for served in self.server.own.inbox.take_served() {
            let slot = served.client.slot.load(Relaxed);
            let Some(place) = self.conns.get_mut(slot as usize) else { continue };
            let id = served.client.id;
            let Some(conn) = place.take_if(|conn| conn.session.card.id == id) else { continue };
            self.end_wait(slot, conn, &served.reply, served.wrote);
        }
    }

    /// Answers the clients of this loop whose time is over.
    pub(super) fn end_late_waits(&mut self) {
        let now_ns = self.server.now_ns;
        while let Some(first) = self.deadlines.first_entry() {
            let (deadline_ns, id) = *first.key();
            if deadline_ns > now_ns {
                break;
            }
            let slot = first.remove();
            let Some(waiter) = self.server.shared.waiters.lock().remove(id) else {
                // Another loop has served the client: the answer is on its way.
                continue;
            };
            self.server.count_waiter(&waiter, 0, false);
            let place = &mut self.conns[slot as usize];
            let Some(conn) = place.take_if(|conn| conn.session.card.id == id) else { continue };
            let reply = timeout_reply(conn.session.resp3);
            self.end_wait(slot, conn, &reply, false);
        }
    }

    /// Serves clients whose key may have expired.
    pub(super) fn serve_after_expiry(&mut self) {
        if self.server.holds_replies() {
            self.group.begin_write();
        }
        if serve_after_expiry(&mut self.server) {
            self.group.note_change();
        }
    }

    /// Answers a client that has waited, and goes on with its input.
    fn end_wait(&mut self, slot: u32, mut conn: Box<Conn>, reply: &[u8], wrote: bool) {
        if let Some(waiting) = conn.session.waiting.take() {
            self.forget_deadline(waiting.deadline_ns, &conn);
            conn.take_buffer(&mut self.spare);
            let start = conn.written();
            if !waiting.is_silent {
                conn.output_mut().extend_from_slice(reply);
            }
            if wrote && self.server.holds_replies() {
                // A commit of this loop's group begins after the change, whatever loop has made it.
                self.group.begin_write();
                self.group.note_write(Tag::of(slot, &conn), start, conn.written());
            }
            conn.session.active_ns = self.server.now_ns;
            if let Some(pending) = conn.pending.take() {
                self.execute_pending(slot, &mut conn, pending);
            }
        }
        self.put_back(slot, conn);
    }

    /// Takes a client that has gone off the list of those who wait.
    pub(super) fn give_up_wait(&mut self, conn: &Conn) {
        if let Some(waiting) = &conn.session.waiting {
            self.forget_deadline(waiting.deadline_ns, conn);
            self.server.shared.waiters.lock().remove(conn.session.card.id);
        }
    }

    fn forget_deadline(&mut self, deadline_ns: Option<u64>, conn: &Conn) {
        if let Some(deadline_ns) = deadline_ns {
            self.deadlines.remove(&(deadline_ns, conn.session.card.id));
        }
    }
}
