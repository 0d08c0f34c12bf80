//! The event queue that the loop waits on: an io_uring, or epoll where the system refuses one.
//!
//! With epoll, a connection that is ready is read and written at once. With the ring, a receive is
//! requested once and continues, and a send is requested after each turn that left output; the call
//! that waits hands both to the kernel, so a turn over many connections costs one system call. A
//! turn with a single request sends its reply by a call of its own. If a connection must not be
//! read any more, its receive is ended: bytes that were not received by then stay in the socket, as
//! with epoll, and the others fit the ring's buffers.
//!
//! No request of the ring names a listening socket. A request keeps its file open until the kernel
//! has ended it, and after a SIGKILL that is some milliseconds later than the end of the process:
//! the server that is started next would find its address taken. An epoll, which keeps no file
//! open, watches the listening sockets, and the ring polls the epoll.
//!
//! A completion names its connection by slot and generation (the lower bits of the client's
//! number), so a completion for a connection that has gone never reaches its successor in the slot.

use std::io;
use std::os::fd::AsFd;

use rustix::event::epoll::{self, EventFlags};

use super::queue::{Queue, failed};
use crate::config::{EventQueue, ServeError};
use crate::conn::{Conn, Receiving};
use crate::sys::{Completion, Filled, Ring, Several};

/// The queue of events from the kernel.
pub(super) enum Events {
    Epoll(Queue),
    Uring { ring: Box<Ring>, listeners: Queue },
}

/// An event that the kernel or another thread reports to the loop.
#[derive(Debug)]
pub(super) enum Event {
    Stop,
    /// Another thread has news: a group is durable, or something was left for the loop.
    Bell,
    Listener(usize),
    /// With epoll: a connection can be read or written.
    Ready {
        slot: u32,
        flags: EventFlags,
    },
    /// With the ring: bytes were received, or a receive is over.
    Received {
        of: Tag,
        result: io::Result<Filled>,
        goes_on: bool,
    },
    /// With the ring: a send is over.
    Sent {
        of: Tag,
        buffer: Vec<u8>,
        from: usize,
        result: io::Result<usize>,
    },
}

/// The name of a connection in completions: its slot, and a generation that its successor in the
/// slot does not share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tag {
    pub slot: u32,
    generation: u32,
}

impl Tag {
    pub fn of(slot: u32, conn: &Conn) -> Self {
        Self { slot, generation: conn.session.card.id as u32 & GENERATION_MAX }
    }

    fn token(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    fn from_token(token: u64) -> Self {
        Self { slot: token as u32, generation: (token >> 32) as u32 }
    }
}

impl Events {
    pub fn new(wanted: EventQueue, turn_bytes_max: usize) -> Result<Self, ServeError> {
        if wanted != EventQueue::Epoll {
            match Ring::new(BUFFERS, BUFFERS_MAX, turn_bytes_max) {
                Ok(ring) => return Self::with_ring(Box::new(ring)),
                Err(source) if wanted == EventQueue::Uring => {
                    return Err(ServeError::Events { op: "io_uring_setup", source });
                }
                Err(error) => tracing::info!(%error, "no io_uring for the event loop; using epoll"),
            }
        }
        Ok(Self::Epoll(Queue::new(EVENTS_MAX)?))
    }

    fn with_ring(mut ring: Box<Ring>) -> Result<Self, ServeError> {
        let listeners = Queue::new(LISTENERS_MAX)?;
        ring.poll(&listeners, LISTENERS).map_err(ring_failed)?;
        Ok(Self::Uring { ring, listeners })
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Epoll(_) => "epoll",
            Self::Uring { .. } => "io_uring",
        }
    }

    /// Watches the stop flag, which can be read once it is set.
    pub fn watch_stop(&mut self, stop: impl AsFd) -> Result<(), ServeError> {
        match self {
            Self::Epoll(queue) => {
                queue.add(stop, STOP, EventFlags::IN).map_err(failed("epoll_ctl"))
            }
            Self::Uring { ring, .. } => ring.poll(stop, STOP).map_err(ring_failed),
        }
    }

    /// Watches the loop's bell; the ring tells of it once.
    pub fn watch_bell(&mut self, bell: impl AsFd) -> Result<(), ServeError> {
        match self {
            Self::Epoll(queue) => {
                queue.add(bell, BELL, EventFlags::IN).map_err(failed("epoll_ctl"))
            }
            Self::Uring { ring, .. } => ring.poll(bell, BELL).map_err(ring_failed),
        }
    }

    /// Watches the bell again, after the loop was told of it and has emptied it.
    pub fn watch_bell_again(&mut self, bell: impl AsFd) -> Result<(), ServeError> {
        match self {
            Self::Epoll(_) => Ok(()),
            Self::Uring { .. } => self.watch_bell(bell),
        }
    }

    /// Watches listening socket number `at`, and tells once that a connection waits there.
    pub fn watch_listener(&mut self, socket: impl AsFd, at: usize) -> Result<(), ServeError> {
        let (Self::Epoll(queue) | Self::Uring { listeners: queue, .. }) = self;
        queue.watch_once(socket, LISTENERS + at as u64).map_err(failed("epoll_ctl"))
    }

    /// Waits for events, at most `timeout_ns`, and appends them to `happened`. The ring can wait
    /// until `several` connections have sent something.
    pub fn wait(
        &mut self,
        timeout_ns: u32,
        several: Several,
        happened: &mut Vec<Event>,
    ) -> Result<(), ServeError> {
        match self {
            Self::Epoll(queue) => happened.extend(queue.wait(timeout_ns)?.iter().map(told)),
            Self::Uring { ring, listeners } => {
                ring.wait(timeout_ns, several).map_err(ring_failed)?;
                while happened.len() < EVENTS_MAX
                    && let Some(done) = ring.reap()
                {
                    let event = match done {
                        Completion::Polled { token: STOP } => Event::Stop,
                        Completion::Polled { token: BELL } => Event::Bell,
                        Completion::Polled { .. } => {
                            happened.extend(listeners.wait(0)?.iter().map(told));
                            ring.poll(&*listeners, LISTENERS).map_err(ring_failed)?;
                            continue;
                        }
                        Completion::Received { token, result, goes_on } => {
                            Event::Received { of: Tag::from_token(token), result, goes_on }
                        }
                        Completion::Sent { token, buffer, from, result } => {
                            Event::Sent { of: Tag::from_token(token), buffer, from, result }
                        }
                    };
                    happened.push(event);
                }
            }
        }
        Ok(())
    }

    /// Begins to watch a new connection.
    pub fn add(&mut self, slot: u32, conn: &mut Conn) -> io::Result<()> {
        match self {
            Self::Epoll(queue) => Ok(queue.add(&conn.stream, slot.into(), conn.interest)?),
            Self::Uring { .. } => self.watch(slot, conn),
        }
    }

    /// Watches a connection for the events that it needs now.
    pub fn watch(&mut self, slot: u32, conn: &mut Conn) -> io::Result<()> {
        let wanted = conn.wanted_interest();
        match self {
            Self::Epoll(queue) => {
                if wanted != conn.interest {
                    conn.interest = wanted;
                    queue.change(&conn.stream, slot.into(), wanted)?;
                }
            }
            Self::Uring { ring, .. } => {
                let token = Tag::of(slot, conn).token();
                match (wanted.contains(EventFlags::IN), conn.receiving) {
                    (true, Receiving::No) => {
                        conn.receiving = Receiving::GoesOn;
                        ring.receive(&conn.stream, token)?;
                    }
                    (false, Receiving::GoesOn) => {
                        conn.receiving = Receiving::Ending;
                        ring.end_receive(token)?;
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// With the ring: asks for `buffer[from..]` to be sent.
    pub fn send(&mut self, slot: u32, conn: &mut Conn, buffer: Vec<u8>, from: usize) {
        let Self::Uring { ring, .. } = self else { return };
        conn.in_flight = buffer.len() - from;
        if let Err(error) = ring.send(&conn.stream, Tag::of(slot, conn).token(), buffer, from) {
            tracing::warn!(%error, "cannot send to a connection; it is closed");
            conn.session.killed = true;
        }
    }

    /// With the ring: returns a buffer whose bytes have been used.
    pub fn give_back(&mut self, filled: Filled) {
        if let Self::Uring { ring, .. } = self {
            ring.give_back(filled);
        }
    }

    /// Prepares for the closing of a connection's socket: every request for it reaches the kernel
    /// first, and then ends.
    pub fn forget(&mut self, conn: &Conn) {
        if let Self::Uring { ring, .. } = self
            && (conn.receiving != Receiving::No || conn.in_flight > 0)
        {
            if let Err(error) = ring.submit() {
                tracing::warn!(%error, "io_uring_enter");
            }
            // This is refused only if the peer has gone already.
            let _ = rustix::net::shutdown(&conn.stream, rustix::net::Shutdown::Both);
        }
    }
}

/// The event that an epoll tells of.
fn told(event: &epoll::Event) -> Event {
    match event.data.u64() {
        STOP => Event::Stop,
        BELL => Event::Bell,
        data @ LISTENERS.. => Event::Listener((data - LISTENERS) as usize),
        data => Event::Ready { slot: data as u32, flags: event.flags },
    }
}

fn ring_failed(source: io::Error) -> ServeError {
    ServeError::Events { op: "io_uring_enter", source }
}

/// First event data of a listening socket in an epoll; lower data are slots of connections. In the
/// ring the token of the epoll that watches all listening sockets.
const LISTENERS: u64 = 1 << 32;
const STOP: u64 = (1 << crate::sys::TOKEN_BITS) - 1;
const BELL: u64 = STOP - 1;
const GENERATION_MAX: u32 = (1 << 30) - 1;

const EVENTS_MAX: usize = 1024;
/// Listening sockets that one look beside the ring can tell of; the next look tells of the others.
const LISTENERS_MAX: usize = 64;
/// Buffers that the ring receives into, and so the connections that can be received from in one
/// turn. Few stay in the processor's cache.
const BUFFERS: u16 = 64;
/// Most such buffers, where more connections send at the same time.
const BUFFERS_MAX: u16 = 256;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const ONE: Several = Several { count: 1, moment_us: 0 };
    const LONG_NS: u32 = 900_000_000;

    /// The events of each kind of queue that the system allows.
    fn queues() -> impl Iterator<Item = Events> {
        [EventQueue::Epoll, EventQueue::Uring].into_iter().flat_map(|one| Events::new(one, 4096))
    }

    fn heard(events: &mut Events) -> Vec<usize> {
        let mut happened = Vec::new();
        events.wait(LONG_NS, ONE, &mut happened).unwrap();
        let number = |event| match event {
            Event::Listener(at) => at,
            other => panic!("{other:?}"),
        };
        happened.into_iter().map(number).collect()
    }

    #[test]
    fn a_closed_listening_socket_leaves_its_address_while_the_queue_lives_on() {
        for mut events in queues() {
            let first = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = first.local_addr().unwrap();
            events.watch_listener(&first, 0).unwrap();
            events.wait(0, ONE, &mut Vec::new()).unwrap();
            drop(first);
            let second = TcpListener::bind(address);
            assert!(second.is_ok(), "{}: {address}: {second:?}", events.name());
            // A new socket may have the number of one that was closed.
            let second = second.unwrap();
            events.watch_listener(&second, 0).unwrap();
            let _client = TcpStream::connect(address).unwrap();
            assert_eq!(heard(&mut events), [0], "{}", events.name());
        }
    }

    #[test]
    fn each_listening_socket_is_told_of_once_until_it_is_watched_again() {
        for mut events in queues() {
            let sockets = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
            let mut clients = Vec::new();
            for (at, socket) in sockets.iter().enumerate() {
                events.watch_listener(socket, at).unwrap();
                clients.push(TcpStream::connect(socket.local_addr().unwrap()).unwrap());
            }
            let mut all = Vec::new();
            while all.len() < sockets.len() {
                all.extend(heard(&mut events));
            }
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2], "{}", events.name());
            let mut again = Vec::new();
            events.wait(0, ONE, &mut again).unwrap();
            assert!(again.is_empty(), "{}: {again:?}", events.name());
            // Its connection still waits.
            events.watch_listener(&sockets[1], 1).unwrap();
            assert_eq!(heard(&mut events), [1], "{}", events.name());
        }
    }
}
