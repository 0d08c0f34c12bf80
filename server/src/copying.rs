//! A client's copy of everything (SYNC), from the order of its dump to the end of the connection.
//!
//! The dump is a file before its first byte is sent. So neither the snapshot nor memory waits for
//! the client, and the dump's length is known. No changes follow it: the stream ends behind it, and
//! the connection stays only until the client has ended its side, too. If it were closed at once,
//! something that the client sends meanwhile could make the system throw the last bytes away.

use std::io;
use std::sync::Arc;

use crate::export::{Awaited, Dump};

/// Bytes of the dump that are sent at a time; the next ones when fewer are unsent.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes that a client has to take in `repl-timeout`.
const TAKEN_BYTES_LEAST: u64 = 64 << 10;
/// Time between two signs of life while the dump is made.
const BEAT_NS: u64 = 1_000_000_000;

/// A copy that a client gets.
#[derive(Debug)]
pub(crate) struct Copying {
    phase: Phase,
    /// Bytes that the client had taken when it last took enough, and when that was.
    taken: (u64, u64),
    /// When the next sign of life is due.
    beat_ns: u64,
}

#[derive(Debug)]
enum Phase {
    /// The dump is being made.
    Waits(Arc<Awaited>),
    /// The next piece of the dump begins there.
    Sends(Arc<Awaited>, u64),
    /// The stream has ended, and the client is to end its side.
    Leaves,
}

/// The next thing to do for a client that gets a copy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    /// There is new output to be sent.
    Send,
    /// The stream is to be ended.
    End,
    /// The connection may close.
    Close,
    /// The client takes too little: it is to be disconnected.
    GiveUp,
    /// There is no dump, for this reason.
    Fail(String),
}

/// The state of the client's connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Link {
    /// Bytes that the client has taken of all that the connection ever got.
    pub taken: u64,
    pub unsent: usize,
    /// Whether the client has ended its side of the stream.
    pub has_ended: bool,
}

impl Copying {
    pub fn new(dump: Arc<Awaited>, now_ns: u64) -> Self {
        Self { phase: Phase::Waits(dump), taken: (0, now_ns), beat_ns: now_ns + BEAT_NS }
    }

    /// Whether there is something to send or to end, whatever the time.
    pub fn is_ready(&self, unsent: usize) -> bool {
        match &self.phase {
            Phase::Waits(dump) => dump.outcome().is_some(),
            Phase::Sends(dump, at) => match dump.outcome() {
                Some(Ok(dump)) if *at < dump.bytes => unsent < PIECE_BYTES,
                _ => unsent == 0,
            },
            Phase::Leaves => false,
        }
    }

    /// The next step, which the caller takes. Output is added to `out`.
    ///
    /// # Errors
    /// The dump cannot be read.
    pub fn step(
        &mut self,
        link: Link,
        now_ns: u64,
        patience_ns: u64,
        out: &mut Vec<u8>,
    ) -> io::Result<Step> {
        let is_waiting = matches!(self.phase, Phase::Waits(_));
        if is_waiting || link.taken >= self.taken.0 + TAKEN_BYTES_LEAST {
            self.taken = (link.taken, now_ns);
        }
        let is_late = now_ns.saturating_sub(self.taken.1) > patience_ns;
        let is_ready = self.is_ready(link.unsent);
        match &mut self.phase {
            Phase::Waits(dump) => match dump.outcome() {
                None if now_ns < self.beat_ns => Ok(Step::Nothing),
                None => {
                    self.beat_ns = now_ns + BEAT_NS;
                    out.push(b'\n');
                    Ok(Step::Send)
                }
                Some(Err(why)) => Ok(Step::Fail(why.clone())),
                Some(Ok(Dump { bytes, .. })) => {
                    out.extend_from_slice(format!("${bytes}\r\n").as_bytes());
                    self.phase = Phase::Sends(Arc::clone(dump), 0);
                    Ok(Step::Send)
                }
            },
            Phase::Leaves if link.has_ended || is_late => Ok(Step::Close),
            Phase::Leaves => Ok(Step::Nothing),
            Phase::Sends(..) if is_late => Ok(Step::GiveUp),
            Phase::Sends(..) if !is_ready => Ok(Step::Nothing),
            Phase::Sends(dump, at) => match dump.outcome() {
                Some(Ok(dump)) if *at < dump.bytes => {
                    let (begin, len) = (out.len(), PIECE_BYTES.min((dump.bytes - *at) as usize));
                    out.resize(begin + len, 0);
                    dump.read_exact(*at, &mut out[begin..])?;
                    *at += len as u64;
                    Ok(Step::Send)
                }
                _ => {
                    self.phase = Phase::Leaves;
                    self.taken.1 = now_ns;
                    Ok(Step::End)
                }
            },
        }
    }
}
