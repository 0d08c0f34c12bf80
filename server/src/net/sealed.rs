//! Connections with TLS: their input is opened before it is parsed, and their handshakes end in
//! time.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use super::events::Tag;
use super::serve::Serve;
use crate::config::ServerConfig;
use crate::conn::Conn;
use crate::tls::{HANDSHAKE_NS, Link};

/// What a loop keeps for all its connections with TLS.
#[derive(Debug, Default)]
pub(super) struct Sealed {
    buffers: Buffers,
    /// The ends of the handshakes' time, in their order.
    handshakes: VecDeque<(u64, Tag)>,
    /// When the log may speak of a refused connection again, and how many it has not spoken of.
    next_refusal_ns: u64,
    untold: u64,
}

/// Bytes while they are opened, and what was in them.
#[derive(Debug, Default)]
struct Buffers {
    scratch: Vec<u8>,
    plain: Vec<u8>,
}

impl Serve<'_> {
    /// Gives a new connection its layer of TLS. False: it cannot have one.
    pub(super) fn seal(&mut self, conn: &mut Conn) -> bool {
        let link = self.server.config.tls.ready().map(Link::new);
        let Some(Ok(link)) = link else { return false };
        conn.link = Some(Box::new(link));
        true
    }

    /// Gives the handshake of a connection its time.
    pub(super) fn time_handshake(&mut self, slot: u32, conn: &Conn) {
        if conn.link.is_some() {
            let end_ns = self.server.now_ns + HANDSHAKE_NS;
            self.sealed.handshakes.push_back((end_ns, Tag::of(slot, conn)));
        }
    }

    /// Executes the commands in the records that these bytes complete.
    pub(super) fn received_sealed(&mut self, slot: u32, conn: &mut Conn, bytes: &[u8]) {
        let Some(link) = &mut conn.link else { return };
        let Buffers { mut scratch, mut plain } = std::mem::take(&mut self.sealed.buffers);
        let opened = link.open(bytes, &mut scratch, &mut plain);
        let peer_has_closed = link.peer_has_closed();
        if !plain.is_empty() {
            self.heed(slot, conn, &plain);
        }
        scratch.clear();
        plain.clear();
        self.sealed.buffers = Buffers { scratch, plain };
        match opened {
            Ok(()) => conn.input_closed |= peer_has_closed,
            Err(why) => {
                self.note_refusal(conn, &why);
                self.send_now(slot, conn);
                conn.session.killed = true;
            }
        }
    }

    /// Ends the connections whose handshakes take too long.
    pub(super) fn end_late_handshakes(&mut self) {
        let now_ns = self.server.now_ns;
        while let Some((_, of)) = self.sealed.handshakes.pop_front_if(|(end, _)| *end <= now_ns) {
            let Some(conn) = self.conns[of.slot as usize].as_mut() else { continue };
            let is_late = conn.link.as_ref().is_some_and(|link| !link.is_open());
            if is_late && Tag::of(of.slot, conn) == of {
                conn.session.killed = true;
                self.finished.push(of.slot);
            }
        }
    }

    /// Reads the files of TLS again if a signal has asked for it.
    pub(super) fn reload_if_asked(&mut self) {
        let asked = self.server.config.reload.as_ref();
        if !asked.is_some_and(|asked| asked.swap(false, Relaxed)) {
            return;
        }
        let shared = self.server.shared;
        let mut held = shared.config();
        let mut changed = ServerConfig::clone(&held);
        match changed.tls.load() {
            Ok(()) => {
                tracing::info!("the files of TLS were read again: new connections heed them");
                changed.tls.remark(self.server.unix_ms());
                shared.set_config(&mut held, changed);
            }
            Err(error) => tracing::error!(%error, "TLS goes on with what it has"),
        }
    }

    /// Counts a connection that TLS refuses, and logs it. The log speaks of one a second, because
    /// anybody can make them.
    fn note_refusal(&mut self, conn: &Conn, why: &str) {
        let now_ns = self.server.now_ns;
        if now_ns < self.sealed.next_refusal_ns {
            self.sealed.untold += 1;
            return;
        }
        self.sealed.next_refusal_ns = now_ns + REFUSAL_NS;
        let untold = std::mem::take(&mut self.sealed.untold);
        let peer = conn.session.card.peer.to_string();
        tracing::info!(peer, untold, "TLS refuses a connection: {why}");
    }
}

const REFUSAL_NS: u64 = 1_000_000_000;
