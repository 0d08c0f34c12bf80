//! One connection: its socket, its input that is not executed yet, its output that is not sent yet.
//!
//! Invariant: an idle connection owns no buffer. Input is kept only while a command is incomplete
//! or waits, output only while the peer has not taken it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::event::epoll::EventFlags;

use crate::resp::Parser;
use crate::session::Session;
use crate::tls::{Link, PIECE_BYTES};

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*stream).read(buf),
            Self::Unix(stream) => (&*stream).read(buf),
        }
    }

    pub fn write(&self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*stream).write(buf),
            Self::Unix(stream) => (&*stream).write(buf),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

/// What a socket took of some bytes.
enum Written {
    Some(usize),
    Nothing,
    Failed,
}

/// Whether the ring is receiving from a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiving {
    No,
    /// The ring receives until it says that it has ended.
    GoesOn,
    /// The ring has been asked to end the receive, and has not said that it has.
    Ending,
}

/// Received bytes that are not executed yet, and how far they are parsed.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub bytes: Vec<u8>,
    pub parser: Parser,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) stream: Stream,
    pub session: Session,
    /// The layer between the socket and the other fields, if the connection is sealed.
    pub(crate) link: Option<Box<Link>>,
    pub(crate) pending: Option<Box<Pending>>,
    out: Vec<u8>,
    sent: usize,
    /// Bytes that have left `out` so far: where `out` begins in all output of the connection.
    gone: u64,
    /// Output up to this byte, of all that the connection ever gets, may be sent; the rest waits
    /// for a group commit.
    pub(crate) free_to: u64,
    /// Output up to this byte has been assigned to the group commit that it waits for.
    pub(crate) held_to: u64,
    /// Unsent bytes that the ring has; they come before those of `out`.
    pub(crate) in_flight: usize,
    /// The events that epoll watches for.
    pub(crate) interest: EventFlags,
    /// The state of the connection's input in the ring.
    pub(crate) receiving: Receiving,
    /// Number of the last period in which the connection sent a request (`net::load`).
    pub(crate) asked: u32,
    /// Whether the peer has ended its side of the stream.
    pub(crate) input_closed: bool,
    /// Whether whole commands wait in `pending`: for the peer to read, or for CLIENT UNPAUSE.
    pub(crate) stalled: bool,
}

impl Conn {
    pub fn new(stream: Stream, session: Session) -> Self {
        Self {
            stream,
            session,
            link: None,
            pending: None,
            out: Vec::new(),
            sent: 0,
            gone: 0,
            free_to: 0,
            held_to: 0,
            in_flight: 0,
            receiving: Receiving::No,
            asked: 0,
            interest: EventFlags::IN,
            input_closed: false,
            stalled: false,
        }
    }

    pub fn unsent(&self) -> usize {
        self.in_flight + self.out.len() - self.sent + self.sealed()
    }

    /// Sealed bytes that neither the socket nor the ring has been given.
    fn sealed(&self) -> usize {
        self.link.as_ref().map_or(0, |link| link.unsent().len())
    }

    /// Bytes of output that the connection has ever got.
    pub(crate) fn written(&self) -> u64 {
        self.gone + self.out.len() as u64
    }

    /// Where in `out` the output ends that may be sent.
    fn free_end(&self) -> usize {
        (self.free_to - self.gone) as usize
    }

    /// Bytes of output that may be sent and that neither the socket nor the ring has been given.
    pub(crate) fn sendable(&self) -> usize {
        self.free_end().saturating_sub(self.sent) + self.sealed()
    }

    /// Whether output may be sent that neither the socket nor the ring has been given.
    pub(crate) fn is_sendable(&self) -> bool {
        self.sendable() > 0
    }

    /// Gives away the output that may be sent, with the place at which its unsent bytes begin.
    pub(crate) fn take_free(&mut self, spare: &mut Spares) -> (Vec<u8>, usize) {
        if self.link.is_some() {
            self.seal_piece(spare);
            return self.link.as_mut().map(|link| link.take_unsent()).unwrap_or_default();
        }
        let end = self.free_end();
        let mut held = Vec::new();
        if end < self.out.len() {
            held = spare.take().unwrap_or_default();
            held.extend_from_slice(&self.out[end..]);
            self.out.truncate(end);
        }
        self.gone = self.free_to;
        (std::mem::replace(&mut self.out, held), std::mem::take(&mut self.sent))
    }

    /// Replaces all output by what `f` makes of it and of where it begins in all there ever is, and
    /// frees it.
    pub(crate) fn rewrite_output(&mut self, f: impl FnOnce(u64, &[u8]) -> Vec<u8>) {
        self.out = f(self.gone, &self.out);
        self.free_to = self.written();
        self.held_to = self.free_to;
    }

    pub fn pending_bytes(&self) -> usize {
        self.pending.as_ref().map_or(0, |p| p.bytes.len())
    }

    /// Takes an output buffer from the stock, if it has none of its own.
    pub(crate) fn take_buffer(&mut self, spare: &mut Spares) {
        if self.out.capacity() == 0
            && let Some(buffer) = spare.take()
        {
            self.out = buffer;
        }
    }

    pub(crate) fn output_mut(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// The session and the output buffer, which a command works on.
    pub(crate) fn session_and_output(&mut self) -> (&mut Session, &mut Vec<u8>) {
        (&mut self.session, &mut self.out)
    }

    /// Sends as much as the peer takes and returns the bytes sent. A failure ends the connection.
    pub(crate) fn send(&mut self, spare: &mut Spares) -> usize {
        if self.link.is_some() {
            return self.send_sealed(spare);
        }
        let before = self.sent;
        let end = self.free_end();
        while self.sent < end {
            match self.write(&self.out[self.sent..end]) {
                Written::Some(n) => self.sent += n,
                Written::Nothing => break,
                Written::Failed => {
                    self.session.killed = true;
                    break;
                }
            }
        }
        let count = self.sent - before;
        self.drop_sent(spare);
        count
    }

    /// The same for a connection that is sealed.
    fn send_sealed(&mut self, spare: &mut Spares) -> usize {
        let mut count = 0;
        loop {
            self.seal_piece(spare);
            let Some(link) = self.link.as_ref().filter(|link| !link.unsent().is_empty()) else {
                break;
            };
            match self.write(link.unsent()) {
                Written::Some(n) => {
                    count += n;
                    if let Some(link) = &mut self.link {
                        link.note_sent(n, spare);
                    }
                }
                Written::Nothing => break,
                Written::Failed => {
                    self.session.killed = true;
                    break;
                }
            }
        }
        count
    }

    /// Seals the next piece of the output that may be sent, unless sealed bytes are unsent.
    fn seal_piece(&mut self, spare: &mut Spares) {
        let end = self.free_end().min(self.sent + PIECE_BYTES);
        let Some(link) = self.link.as_mut().filter(|link| link.unsent().is_empty()) else { return };
        if self.sent < end {
            if !link.seal(&self.out[self.sent..end], spare) {
                self.session.killed = true;
            }
            self.sent = end;
            self.drop_sent(spare);
        }
    }

    /// Tells a peer that no more comes, if it expects to be told and nothing is unsent. There is no
    /// wait for it to read this.
    pub(crate) fn say_goodbye(&mut self) {
        if let Some(link) = self.link.as_mut().filter(|link| link.unsent().is_empty())
            && self.in_flight == 0
        {
            link.close();
            // Who does not take it has gone, or has no room for it.
            let _ = self.stream.write(link.unsent());
        }
    }

    fn write(&self, bytes: &[u8]) -> Written {
        loop {
            return match self.stream.write(bytes) {
                Ok(0) => Written::Failed,
                Ok(n) => Written::Some(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Written::Nothing,
                Err(_) => Written::Failed,
            };
        }
    }

    /// Frees output that has been sent.
    fn drop_sent(&mut self, spare: &mut Spares) {
        let len = self.out.len();
        if self.sent == len {
            spare.keep(std::mem::take(&mut self.out));
            self.sent = 0;
        } else {
            drop_taken(&mut self.out, &mut self.sent);
        }
        self.gone += (len - self.out.len()) as u64;
    }

    /// Whether nothing is left to do for this peer.
    pub(crate) fn is_finished(&self) -> bool {
        let done = self.session.closing || (self.input_closed && !self.stalled);
        self.session.killed || (done && self.unsent() == 0 && self.session.copying.is_none())
    }

    /// The events that the event queue should watch for now.
    pub(crate) fn wanted_interest(&self) -> EventFlags {
        let mut wanted = EventFlags::empty();
        // A client that waits for data is read on, to learn that it goes; not without a bound.
        let is_full = self.session.waiting.is_some() && self.pending_bytes() > WAITING_BYTES_MAX;
        // A client that gets a copy is read on, too; what it says is not heeded.
        let is_closing = self.session.closing && self.session.copying.is_none();
        if !self.stalled && !is_full && !self.input_closed && !is_closing {
            wanted |= EventFlags::IN;
        }
        if self.is_sendable() {
            wanted |= EventFlags::OUT;
        }
        wanted
    }
}

/// Output buffers for the next connections that need one. Large ones are kept, too: a new one would
/// be memory that the kernel has to clear first.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    buffers: Vec<Vec<u8>>,
    /// Bytes that the buffers have room for.
    bytes: usize,
}

impl Spares {
    /// Takes the buffer that was used last.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let buffer = self.buffers.pop()?;
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    /// Keeps a buffer, if it is worth it and there is room.
    pub fn keep(&mut self, mut buffer: Vec<u8>) {
        let bytes = self.bytes + buffer.capacity();
        let is_kept = self.buffers.len() < SPARE_MAX && bytes <= SPARE_BYTES_MAX;
        if is_kept && buffer.capacity() > 0 {
            self.bytes = bytes;
            buffer.clear();
            self.buffers.push(buffer);
        }
    }
}

/// Frees output that a slow peer has taken, once that is half of the output. If it were freed
/// sooner, the rest of a long reply would be moved for each small piece that the peer takes.
pub(crate) fn drop_taken(out: &mut Vec<u8>, sent: &mut usize) {
    if *sent >= COMPACT_BYTES.max(out.len() / 2) {
        out.drain(..*sent);
        *sent = 0;
    }
}

/// Bytes of input that a client may send while it waits for data, before it is not read any more.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Most output buffers kept for the next connections that need one.
const SPARE_MAX: usize = 64;
/// Bytes that these have room for, all together.
const SPARE_BYTES_MAX: usize = 4 << 20;
const COMPACT_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Card;

    #[test]
    fn an_idle_connection_is_small() {
        // Its place in the table is counted as well; it has no buffers.
        let bytes = size_of::<Conn>() + size_of::<Option<Box<Conn>>>() + size_of::<Card>();
        assert!(bytes < 600, "{bytes}");
    }

    #[test]
    fn a_long_reply_is_not_moved_for_each_piece_that_a_slow_peer_takes() {
        let (ours, peer) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let card = Card::new(1, 0, crate::session::Peer::Unix, 0, 0);
        let users = crate::acl::Users::new(None);
        let session = Session::new(std::sync::Arc::new(card), &users);
        let mut conn = Conn::new(Stream::Unix(ours), session);
        let len = 300 << 20;
        conn.output_mut().resize(len, b'x');
        let (mut taken, mut piece) = (0, vec![0; 64 << 10]);
        let began = std::time::Instant::now();
        while taken < len {
            conn.free_to = conn.written();
            conn.send(&mut Spares::default());
            taken += (&peer).read(&mut piece).unwrap();
        }
        // A tenth of a second, where moving the rest of it each time took over a minute.
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    }
}
