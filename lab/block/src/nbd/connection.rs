//! One client's connection, on one thread from greeting to end. In each round it receives what has
//! arrived, carries all of it out, sends all replies that are due in one call, and then looks for
//! more.
//!
//! Invariants:
//! - A request takes effect as a whole, once its payload is complete.
//! - A reply is sent when its instant has come, so replies overtake each other.
//! - Nothing is received while one of the bounds below is reached. So a client that sends and does
//!   not read has to wait, and makes the server hold no more memory than that.
//!
//! Failure rules: a wrong request is answered with an error reply; a stream that cannot be parsed
//! ends its own connection and no other.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use perdura_media::emulator::TimingError;
use perdura_media::{DeviceError, Due};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::handshake::{Handshake, Offer, Step, Violation, greeting};
use super::intake::Intake;
use super::request::{NotARequest, Operation, Request, Terms, parse};
use super::shared::Shared;
use super::spin::{GATHERED_MIN, Gathering, Patience};
use super::waiting::Replies;
use super::wire::{ErrorCode, REQUEST_BYTES};
use crate::disk::{Disk, SLEEP_ERROR_NS};

/// Most requests of a connection that are under way at a time.
pub const REQUESTS_MAX: usize = 1024;

/// No further request is begun while so many bytes of replies are under way. The last request begun
/// may exceed the bound.
pub const REPLY_BYTES_MAX: usize = 8 << 20;

/// How a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The client sent a disconnect request.
    #[error("goodbye")]
    Goodbye,
    /// The client closed the socket without a disconnect request. A request that was incomplete
    /// then was not carried out.
    #[error("the client vanished")]
    Vanished,
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopped,
    /// The client chose no export in time, or did not read its last replies.
    #[error("nothing from the client for too long")]
    Silent,
    /// The client violated the protocol's handshake.
    #[error("handshake: {0}")]
    Handshake(#[from] Violation),
    /// The client sent bytes that are no request.
    #[error(transparent)]
    Request(#[from] NotARequest),
    /// A system call on the socket failed.
    #[error("socket: {0}")]
    Socket(#[from] io::Error),
}

/// Counts of one connection, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests carried out.
    pub requests: u64,
    /// Bytes of the export that were sent to the client.
    pub read_bytes: u64,
    /// Bytes that the client wrote to the export.
    pub written_bytes: u64,
    /// Requests refused because they were wrong.
    pub refused: u64,
    /// Requests on which the medium failed.
    pub failed: u64,
    /// Modelled against measured time, from a request's arrival to the instant at which its reply
    /// could go.
    pub timing_error: TimingError,
}

impl Tally {
    /// Adds the counts of another connection.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.refused += other.refused;
        self.failed += other.failed;
        self.timing_error.add(&other.timing_error);
    }
}

/// A refused request whose payload is still arriving and is dropped.
struct Dropping {
    remaining_bytes: u64,
    request: Request,
}

/// The connection of one client.
pub(super) struct Connection<'a> {
    socket: OwnedFd,
    shared: &'a Shared,
    intake: Intake,
    replies: Replies,
    terms: Terms,
    dropping: Option<Dropping>,
    /// Bytes of the first request in the intake, header and payload together.
    whole_bytes: usize,
    patience: Patience,
    gathering: Gathering,
    /// Set when no further request is taken: the reason, and the instant until which replies may be
    /// read.
    ending: Option<(Ended, u64)>,
    tally: Tally,
}

impl<'a> Connection<'a> {
    pub fn new(socket: OwnedFd, shared: &'a Shared) -> Self {
        let disk = &shared.export.disk;
        let terms = Terms {
            capacity_bytes: disk.capacity_bytes(),
            read_only: disk.is_read_only(),
            structured: false,
        };
        Self {
            socket,
            shared,
            intake: Intake::default(),
            replies: Replies::default(),
            terms,
            dropping: None,
            whole_bytes: REQUEST_BYTES,
            patience: Patience::new(shared.settings.spin_ns),
            gathering: Gathering::default(),
            ending: None,
            tally: Tally::default(),
        }
    }

    /// Serves the client until the connection ends.
    pub fn run(mut self) -> (Tally, Ended) {
        let ended = match self.shake_hands().and_then(|()| self.serve()) {
            Ok(ended) | Err(ended) => ended,
        };
        self.tally.timing_error = self.replies.timing_error;
        (self.tally, ended)
    }

    fn shake_hands(&mut self) -> Result<(), Ended> {
        let deadline_ns = self.shared.clock.now_ns() + self.shared.settings.handshake_ns;
        let description = self.shared.export.disk.describe();
        let mut handshake = Handshake::default();
        let mut out = greeting().to_vec();
        loop {
            self.send_all(&out, deadline_ns)?;
            out.clear();
            let offer = Offer {
                name: &self.shared.export.name,
                description: &description,
                capacity_bytes: self.terms.capacity_bytes,
                read_only: self.terms.read_only,
                stopping: self.shared.stop.is_set(),
            };
            let (taken, step) = handshake.take(self.intake.bytes(), &offer, &mut out)?;
            self.intake.take(taken);
            match step {
                Step::More if taken > 0 => {}
                Step::More if offer.stopping => return Err(Ended::Stopped),
                Step::More => self.hear(deadline_ns)?,
                Step::Over => {
                    self.send_all(&out, deadline_ns)?;
                    return Err(Ended::Goodbye);
                }
                Step::Transmission { structured } => {
                    self.terms.structured = structured;
                    return self.send_all(&out, deadline_ns);
                }
            }
        }
    }

    /// Waits for bytes of a client that has not chosen its export yet.
    fn hear(&mut self, deadline_ns: u64) -> Result<(), Ended> {
        loop {
            match self.intake.receive(self.socket.as_fd(), REQUEST_BYTES)? {
                Some(0) => return Err(Ended::Vanished),
                Some(_) => return Ok(()),
                None if self.shared.clock.now_ns() >= deadline_ns => return Err(Ended::Silent),
                None if self.shared.stop.is_set() => return Ok(()),
                None => self.sleep(PollFlags::IN, Some(deadline_ns), true)?,
            };
        }
    }

    /// Sends a few bytes, and waits while the socket's buffer is full.
    fn send_all(&mut self, mut bytes: &[u8], deadline_ns: u64) -> Result<(), Ended> {
        while !bytes.is_empty() {
            match rustix::net::send(&self.socket, bytes, SEND) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                    if self.shared.clock.now_ns() >= deadline_ns {
                        return Err(Ended::Silent);
                    }
                    self.sleep(PollFlags::OUT, Some(deadline_ns), false)?;
                }
                Err(error) => return Err(gone(error)),
            }
        }
        Ok(())
    }

    fn serve(&mut self) -> Result<Ended, Ended> {
        // A sleep until a modelled instant must not end up to 50 us late, which is the default.
        rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))
            .map_err(io::Error::from)?;
        loop {
            let stalled = self.carry_out();
            self.replies.ripen(&*self.shared.export.disk);
            if self.gather()? {
                continue;
            }
            let blocked = self.send()?;
            if let Some((_, deadline_ns)) = self.ending {
                if self.replies.is_empty() {
                    break;
                }
                if self.shared.clock.now_ns() >= deadline_ns {
                    return Err(Ended::Silent);
                }
            } else if self.shared.stop.is_set() {
                self.refuse_the_rest();
                continue;
            }
            if stalled && self.has_room() {
                continue;
            }
            if !self.receive()? {
                self.rest(blocked)?;
            }
        }
        Ok(self.ending.take().map_or(Ended::Goodbye, |(ended, _)| ended))
    }

    /// Whether another request may be begun.
    fn has_room(&self) -> bool {
        self.replies.len() < REQUESTS_MAX && self.replies.bytes() < REPLY_BYTES_MAX
    }

    /// Receives bytes that have arrived, if there is room. Returns whether bytes, or the end of the
    /// stream, came.
    fn receive(&mut self) -> Result<bool, Ended> {
        if self.ending.is_some() || !self.has_room() {
            return Ok(false);
        }
        match self.intake.receive(self.socket.as_fd(), self.whole_bytes) {
            Ok(Some(0)) => self.end(Ended::Vanished),
            Ok(Some(_)) => {
                let now_ns = self.shared.clock.now_ns();
                self.patience.came(now_ns);
                self.gathering.came(now_ns);
            }
            Ok(None) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn end(&mut self, ended: Ended) {
        let deadline_ns = self.shared.clock.now_ns() + self.shared.settings.goodbye_ns;
        self.ending = Some((ended, deadline_ns));
    }

    /// Ends the connection because the server stops. Requests that have arrived are refused,
    /// requests under way are answered.
    fn refuse_the_rest(&mut self) {
        if let Err(error) = self.intake.receive(self.socket.as_fd(), self.whole_bytes) {
            return self.end(error.into());
        }
        while let Ok(Some(request)) = parse(self.intake.bytes(), &self.terms) {
            let whole_bytes = REQUEST_BYTES + request.payload_bytes as usize;
            if self.dropping.is_some() || self.intake.bytes().len() < whole_bytes {
                break;
            }
            self.intake.take(whole_bytes);
            if request.asked != Ok(Operation::Disconnect) {
                self.refuse(&request, ErrorCode::Shutdown, "the server is stopping");
            }
        }
        self.end(Ended::Stopped);
    }

    fn refuse(&mut self, request: &Request, code: ErrorCode, text: &str) {
        let mut reply = self.replies.blank();
        reply.error(self.terms.structured, request.cookie, code, text);
        self.replies.push_ready(reply);
        self.tally.refused += 1;
    }

    /// Carries out every complete request that has arrived. Returns true if it stopped for lack of
    /// room.
    fn carry_out(&mut self) -> bool {
        // A thousand requests to write zeros take minutes, so the stop signal is looked at between
        // them.
        while self.ending.is_none() && !self.shared.stop.is_set() {
            if !self.drop_payload() {
                break;
            }
            if !self.has_room() {
                return true;
            }
            let request = match parse(self.intake.bytes(), &self.terms) {
                Ok(Some(request)) => request,
                Ok(None) => {
                    self.whole_bytes = REQUEST_BYTES;
                    break;
                }
                Err(garbage) => {
                    // Requests before the unreadable bytes are still answered.
                    self.end(garbage.into());
                    break;
                }
            };
            let operation = match request.asked {
                Ok(operation) => operation,
                Err(_) => {
                    self.intake.take(REQUEST_BYTES);
                    let remaining_bytes = u64::from(request.payload_bytes);
                    self.dropping = Some(Dropping { remaining_bytes, request });
                    continue;
                }
            };
            self.whole_bytes = REQUEST_BYTES + request.payload_bytes as usize;
            if self.intake.bytes().len() < self.whole_bytes {
                break;
            }
            if operation == Operation::Disconnect {
                self.end(Ended::Goodbye);
                break;
            }
            self.execute(&request, operation);
            self.intake.take(self.whole_bytes);
        }
        false
    }

    /// Drops the part of a refused payload that has arrived. Once that is all of it, answers the
    /// request and returns true.
    fn drop_payload(&mut self) -> bool {
        let Some(dropping) = &mut self.dropping else { return true };
        let here = (self.intake.bytes().len() as u64).min(dropping.remaining_bytes);
        dropping.remaining_bytes -= here;
        self.intake.take(here as usize);
        if dropping.remaining_bytes > 0 {
            self.whole_bytes = REQUEST_BYTES;
            return false;
        }
        let request = dropping.request;
        self.dropping = None;
        if let Err(refusal) = request.asked {
            self.refuse(&request, refusal.code(), &refusal.to_string());
        }
        true
    }

    fn execute(&mut self, request: &Request, operation: Operation) {
        let disk = &*self.shared.export.disk;
        let (at, len) = (request.offset_bytes, request.len_bytes);
        let mut reply = self.replies.blank();
        let began = disk.now();
        let done = match operation {
            Operation::Read => {
                let place = reply.data(self.terms.structured, request.cookie, at, len);
                disk.read(at, place)
            }
            Operation::Write => {
                disk.write(at, &self.intake.bytes()[REQUEST_BYTES..self.whole_bytes])
            }
            Operation::Trim | Operation::WriteZeroes { provisioned: false } => {
                disk.discard(at, u64::from(len))
            }
            Operation::WriteZeroes { provisioned: true } => write_zeros(disk, at, len),
            Operation::Flush | Operation::Disconnect => disk.flush(),
        };
        let durable = request.fua && !request.is_read && operation != Operation::Flush;
        let done = done.and_then(|due| if durable { Ok(due.max(disk.flush()?)) } else { Ok(due) });
        match done {
            Ok(due) => {
                match operation {
                    Operation::Read => self.tally.read_bytes += u64::from(len),
                    Operation::Write => self.tally.written_bytes += u64::from(len),
                    _ => {}
                }
                if !request.is_read {
                    reply.done(request.cookie);
                }
                self.tally.requests += 1;
                self.replies.push(reply, began, due, disk);
            }
            Err(error) => {
                tracing::debug!("{operation:?} of {len} bytes at offset {at}: {error}");
                let structured = self.terms.structured;
                reply.error(structured, request.cookie, ErrorCode::Io, &error.to_string());
                self.tally.failed += 1;
                self.replies.push_ready(reply);
            }
        }
    }

    /// Holds ready replies back for a moment if the client still has earlier ones to read. Returns
    /// whether requests came meanwhile.
    fn gather(&mut self) -> Result<bool, Ended> {
        let few = (1..GATHERED_MIN).contains(&self.replies.ready());
        if !few || self.ending.is_some() {
            return Ok(false);
        }
        let clock = &self.shared.clock;
        let Some(until_ns) = self.gathering.hold_until_ns(clock.now_ns()) else { return Ok(false) };
        while clock.now_ns() < until_ns {
            if self.receive()? {
                return Ok(true);
            }
        }
        self.gathering.in_vain();
        Ok(false)
    }

    /// Sends the ready replies. Returns true if the socket's buffer is full.
    fn send(&mut self) -> Result<bool, Ended> {
        while self.replies.ready() > 0 {
            let (slices, count) = self.replies.gather();
            let mut none = SendAncillaryBuffer::default();
            match sendmsg(&self.socket, &slices[..count], &mut none, SEND) {
                Ok(sent) => {
                    self.replies.advance(sent);
                    self.gathering.sent(self.shared.clock.now_ns());
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(true),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(gone(error)),
            }
        }
        Ok(false)
    }

    /// Waits until there is something to do: first polls for a moment, then sleeps.
    fn rest(&mut self, blocked: bool) -> Result<(), Ended> {
        let receives = self.ending.is_none() && self.has_room();
        if !blocked && self.spin(receives)? {
            return Ok(());
        }
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, receives);
        events.set(PollFlags::OUT, blocked);
        let clock = &self.shared.clock;
        let due_ns = self.replies.next_due().map(|due| {
            let until_ns = self.shared.export.disk.until_due_ns(due);
            clock.now_ns() + until_ns.saturating_sub(SLEEP_ERROR_NS)
        });
        let end_ns = self.ending.as_ref().map(|(_, deadline_ns)| *deadline_ns);
        let until_ns = due_ns.into_iter().chain(end_ns).min();
        if until_ns.is_none() && self.replies.is_empty() {
            // A connection that becomes quiet gives back the memory of its busy time.
            let quiet_ns = clock.now_ns() + QUIET_NS;
            if self.sleep(events, Some(quiet_ns), true)? {
                return Ok(());
            }
            self.intake.release();
            self.replies.release();
        }
        let stoppable = self.ending.is_none();
        let woken = self.sleep(events, until_ns, stoppable)?;
        if woken && !receives && !blocked && until_ns.is_some() {
            // No event but the client's leaving was waited for, so no client is left to answer.
            return if self.shared.stop.is_set() { Ok(()) } else { Err(Ended::Vanished) };
        }
        Ok(())
    }

    /// Polls for bytes and for the next instant, if polling is allowed. Returns whether one of them
    /// came.
    fn spin(&mut self, receives: bool) -> Result<bool, Ended> {
        let disk = &*self.shared.export.disk;
        let near = |due: Option<Due>| due.map(|due| disk.until_due_ns(due));
        let due = self.replies.next_due();
        let soon = near(due).is_some_and(|until_ns| until_ns <= SLEEP_ERROR_NS);
        let spinning = if receives { self.shared.spinners.begin() } else { None };
        if !soon && spinning.is_none() {
            return Ok(false);
        }
        let now_ns = self.shared.clock.now_ns();
        self.patience.idle(now_ns);
        let give_up_ns = now_ns + self.patience.ns();
        loop {
            if receives && self.receive()? {
                return Ok(true);
            }
            if self.shared.stop.is_set() && self.ending.is_none() {
                return Ok(true);
            }
            match (due, near(due)) {
                (Some(due), Some(until_ns)) if until_ns <= FINE_NS => {
                    disk.wait(due);
                    return Ok(true);
                }
                (Some(_), Some(until_ns)) if until_ns <= SLEEP_ERROR_NS => {}
                _ if self.shared.clock.now_ns() >= give_up_ns => break,
                _ => {}
            }
            for _ in 0..PAUSES {
                std::hint::spin_loop();
            }
        }
        Ok(false)
    }

    /// Sleeps until the socket has one of `events`, the server stops (if `stoppable`), or
    /// `until_ns`. Returns false if the time ended the sleep, or a signal.
    fn sleep(
        &self,
        events: PollFlags,
        until_ns: Option<u64>,
        stoppable: bool,
    ) -> Result<bool, Ended> {
        let timeout = until_ns.map(|until_ns| {
            let left = Duration::from_nanos(until_ns.saturating_sub(self.shared.clock.now_ns()));
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        let mut fds = [
            PollFd::new(&self.socket, events),
            PollFd::from_borrowed_fd(self.shared.stop.as_fd(), PollFlags::IN),
        ];
        let watched = if stoppable { 2 } else { 1 };
        match poll(&mut fds[..watched], timeout.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            // An interrupted poll says nothing about the socket: `rest` must not take it for the
            // client's leaving.
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }
}

/// Flags of a send that never waits, and that fails without a signal when the client has left.
const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// When an instant is so near, one more look at the socket would end too late.
const FINE_NS: u64 = 1_000;

/// Pauses of the processor between two looks at the socket.
const PAUSES: u32 = 4;

/// Time without a request after which a connection counts as quiet.
const QUIET_NS: u64 = 1_000_000_000;

fn gone(error: rustix::io::Errno) -> Ended {
    match error {
        rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET => Ended::Vanished,
        other => Ended::Socket(other.into()),
    }
}

/// Writes zeros, so that the range has memory of its own afterwards.
fn write_zeros(disk: &dyn Disk, offset_bytes: u64, len_bytes: u32) -> Result<Due, DeviceError> {
    let end = offset_bytes + u64::from(len_bytes);
    let (mut at, mut due) = (offset_bytes, Due::default());
    while at < end {
        let len = (end - at).min(ZEROS.len() as u64);
        due = due.max(disk.write(at, &ZEROS[..len as usize])?);
        at += len;
    }
    Ok(due)
}

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
