//! Clients that get a copy of everything (SYNC): each gets a piece a turn, as it takes them.

use super::serve::Serve;
use crate::conn::Conn;
use crate::copying::{Link, Step};
use crate::resp::Reply;

impl Serve<'_> {
    /// Notes that a client gets a copy, if it does.
    pub(super) fn note_copy(&mut self, slot: u32, conn: &Conn) {
        if conn.session.copying.is_some() && !self.copies.contains(&slot) {
            self.copies.push(slot);
        }
    }

    /// Whether a client can be given a piece at once.
    pub(super) fn is_copy_ready(&self) -> bool {
        self.copies.iter().any(|slot| {
            let conn = self.conns[*slot as usize].as_ref();
            let copying = conn.and_then(|conn| Some((conn, conn.session.copying.as_ref()?)));
            copying.is_some_and(|(conn, copying)| copying.is_ready(conn.unsent()))
        })
    }

    /// Does the next step for each client that gets a copy.
    pub(super) fn step_copies(&mut self) {
        if self.copies.is_empty() {
            return;
        }
        let mut copies = std::mem::take(&mut self.copies);
        copies.retain(|slot| {
            let place = &mut self.conns[*slot as usize];
            let Some(mut conn) = place.take_if(|conn| conn.session.copying.is_some()) else {
                return false;
            };
            match self.step_copy(&mut conn) {
                Step::Nothing => self.conns[*slot as usize] = Some(conn),
                _ => self.put_back(*slot, conn),
            }
            true
        });
        self.copies.append(&mut copies);
    }

    fn step_copy(&mut self, conn: &mut Conn) -> Step {
        let patience_ns = self.server.config.repl_timeout_s.saturating_mul(1_000_000_000);
        let unsent = conn.unsent();
        let link =
            // Sealed bytes are more than those of the copy that are in them.
            Link {
                taken: conn.written().saturating_sub(unsent as u64),
                unsent,
                has_ended: conn.input_closed,
            };
        let (session, out) = conn.session_and_output();
        let Some(copying) = &mut session.copying else { return Step::Nothing };
        let step = copying.step(link, self.server.now_ns, patience_ns, out);
        let step = step.unwrap_or_else(|error| {
            // The client sees that the dump is cut off.
            tracing::error!(%error, "a dump for a copy cannot be read");
            Step::GiveUp
        });
        let client = session.card.id;
        match &step {
            Step::Nothing | Step::Send => {}
            Step::End => {
                tracing::info!(client, "a client has got a copy");
                conn.say_goodbye();
                let ended = rustix::net::shutdown(&conn.stream, rustix::net::Shutdown::Write);
                conn.session.killed |= ended.is_err();
            }
            Step::Close => conn.session.copying = None,
            Step::GiveUp => {
                tracing::warn!(client, "a client that gets a copy is disconnected");
                conn.session.killed = true;
            }
            Step::Fail(why) => {
                let resp3 = conn.session.resp3;
                let text = format!("ERR no copy can be made: {why}");
                Reply::new(conn.output_mut(), resp3, usize::MAX).error(&text);
                conn.session.copying = None;
            }
        }
        step
    }
}
