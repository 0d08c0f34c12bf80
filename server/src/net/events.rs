//! The event queue that the loop waits on: an io_uring, or epoll where the system refuses one.
//!
//! With epoll, a connection that is ready is read and written at once. With the ring, a receive is
//! requested once and continues, and a send is requested after each turn that left output; the call
//! that waits hands both to the kernel, so a turn over many connections costs one system call. If a
//! connection must not be read any more, its receive is ended: bytes that were not received by then
//! stay in the socket, as with epoll, and the others fit the ring's buffers.
//!
//! A completion names its connection by slot and generation (the lower bits of the client's
//! number), so a completion for a connection that has gone never reaches its successor in the slot.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::config::{EventQueue, ServeError};
use crate::conn::{Conn, Receiving};
use crate::sys::{Completion, Filled, Ring, Several};

/// The queue of events from the kernel.
pub(super) enum Events {
    Epoll { queue: OwnedFd, ready: Vec<epoll::Event> },
    Uring(Box<Ring>),
}

/// An event that the kernel or another thread reports to the loop.
#[derive(Debug)]
pub(super) enum Event {
    Stop,
    /// The committing thread has made a group durable, or has failed.
    Committed,
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
        Self { slot, generation: conn.session.id as u32 & GENERATION_MAX }
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
            match Ring::new(BUFFERS, turn_bytes_max) {
                Ok(ring) => return Ok(Self::Uring(Box::new(ring))),
                Err(source) if wanted == EventQueue::Uring => {
                    return Err(ServeError::Events { op: "io_uring_setup", source });
                }
                Err(error) => tracing::info!(%error, "no io_uring for the event loop; using epoll"),
            }
        }
        let queue = epoll::create(CreateFlags::CLOEXEC).map_err(failed("epoll_create"))?;
        Ok(Self::Epoll { queue, ready: Vec::with_capacity(EVENTS_MAX) })
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Epoll { .. } => "epoll",
            Self::Uring(_) => "io_uring",
        }
    }

    /// Watches the stop flag, which can be read once it is set.
    pub fn watch_stop(&mut self, stop: impl AsFd) -> Result<(), ServeError> {
        match self {
            Self::Epoll { queue, .. } => {
                let data = EventData::new_u64(STOP);
                epoll::add(queue, stop, data, EventFlags::IN).map_err(failed("epoll_ctl"))
            }
            Self::Uring(ring) => ring.poll(stop, STOP).map_err(ring_failed),
        }
    }

    /// Watches the committing thread's event descriptor; the ring tells of it once.
    pub fn watch_commits(&mut self, news: impl AsFd) -> Result<(), ServeError> {
        match self {
            Self::Epoll { queue, .. } => {
                let data = EventData::new_u64(COMMITTED);
                epoll::add(queue, news, data, EventFlags::IN).map_err(failed("epoll_ctl"))
            }
            Self::Uring(ring) => ring.poll(news, COMMITTED).map_err(ring_failed),
        }
    }

    /// Watches the committing thread's descriptor again, after the loop was told of it and has read
    /// it.
    pub fn watch_commits_again(&mut self, news: impl AsFd) -> Result<(), ServeError> {
        match self {
            Self::Epoll { .. } => Ok(()),
            Self::Uring(_) => self.watch_commits(news),
        }
    }

    /// Watches listening socket number `at`, and tells once that a connection waits there.
    pub fn watch_listener(&mut self, socket: impl AsFd, at: usize) -> Result<(), ServeError> {
        let data = LISTENERS + at as u64;
        match self {
            Self::Epoll { queue, .. } => {
                let (data, flags) =
                    (EventData::new_u64(data), EventFlags::IN | EventFlags::ONESHOT);
                match epoll::modify(&*queue, &socket, data, flags) {
                    Err(rustix::io::Errno::NOENT) => epoll::add(queue, &socket, data, flags),
                    done => done,
                }
                .map_err(failed("epoll_ctl"))
            }
            Self::Uring(ring) => ring.poll(socket, data).map_err(ring_failed),
        }
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
            Self::Epoll { queue, ready } => {
                ready.clear();
                let timeout = Timespec { tv_sec: 0, tv_nsec: timeout_ns.into() };
                match epoll::wait(queue, spare_capacity(ready), Some(&timeout)) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(failed("epoll_wait")(error)),
                }
                happened.extend(ready.iter().map(|event| match event.data.u64() {
                    STOP => Event::Stop,
                    COMMITTED => Event::Committed,
                    data @ LISTENERS.. => Event::Listener((data - LISTENERS) as usize),
                    data => Event::Ready { slot: data as u32, flags: event.flags },
                }));
            }
            Self::Uring(ring) => {
                ring.wait(timeout_ns, several).map_err(ring_failed)?;
                while happened.len() < EVENTS_MAX
                    && let Some(done) = ring.reap()
                {
                    happened.push(match done {
                        Completion::Polled { token: STOP } => Event::Stop,
                        Completion::Polled { token: COMMITTED } => Event::Committed,
                        Completion::Polled { token } => {
                            Event::Listener(token.saturating_sub(LISTENERS) as usize)
                        }
                        Completion::Received { token, result, goes_on } => {
                            Event::Received { of: Tag::from_token(token), result, goes_on }
                        }
                        Completion::Sent { token, buffer, from, result } => {
                            Event::Sent { of: Tag::from_token(token), buffer, from, result }
                        }
                    });
                }
            }
        }
        Ok(())
    }

    /// Begins to watch a new connection.
    pub fn add(&mut self, slot: u32, conn: &mut Conn) -> io::Result<()> {
        match self {
            Self::Epoll { queue, .. } => {
                let data = EventData::new_u64(u64::from(slot));
                Ok(epoll::add(queue, &conn.stream, data, conn.interest)?)
            }
            Self::Uring(_) => self.watch(slot, conn),
        }
    }

    /// Watches a connection for the events that it needs now.
    pub fn watch(&mut self, slot: u32, conn: &mut Conn) -> io::Result<()> {
        let wanted = conn.wanted_interest();
        match self {
            Self::Epoll { queue, .. } => {
                if wanted != conn.interest {
                    conn.interest = wanted;
                    let data = EventData::new_u64(u64::from(slot));
                    epoll::modify(queue, &conn.stream, data, wanted)?;
                }
            }
            Self::Uring(ring) => {
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
        let Self::Uring(ring) = self else { return };
        conn.in_flight = buffer.len() - from;
        if let Err(error) = ring.send(&conn.stream, Tag::of(slot, conn).token(), buffer, from) {
            tracing::warn!(%error, "cannot send to a connection; it is closed");
            conn.session.killed = true;
        }
    }

    /// With the ring: returns a buffer whose bytes have been used.
    pub fn give_back(&mut self, filled: Filled) {
        if let Self::Uring(ring) = self {
            ring.give_back(filled);
        }
    }

    /// Prepares for the closing of a connection's socket: every request for it reaches the kernel
    /// first, and then ends.
    pub fn forget(&mut self, conn: &Conn) {
        if let Self::Uring(ring) = self
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

fn failed(op: &'static str) -> impl Fn(rustix::io::Errno) -> ServeError {
    move |errno| ServeError::Events { op, source: errno.into() }
}

fn ring_failed(source: io::Error) -> ServeError {
    ServeError::Events { op: "io_uring_enter", source }
}

/// First event data of a listening socket; lower data are slots of connections.
const LISTENERS: u64 = 1 << 32;
const STOP: u64 = (1 << crate::sys::TOKEN_BITS) - 1;
const COMMITTED: u64 = STOP - 1;
const GENERATION_MAX: u32 = (1 << 30) - 1;

const EVENTS_MAX: usize = 1024;
/// Buffers that the ring receives into, and so the connections that can be received from in one
/// turn.
const BUFFERS: u16 = 64;
