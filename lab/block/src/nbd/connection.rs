//! One client's connection, on one thread from greeting to end: receive all that is there, carry
//! all of it out, send all replies that are due in one call, and only then look whether there is
//! more.
//!
//! Invariants: a request takes effect whole, when its payload is whole; a reply is sent when its
//! instant has come, so replies overtake each other; nothing is received while the bounds below are
//! reached, so a client that sends and does not read waits, and holds no more memory than that.
//! Failure rules: what is wrong with a request is its client's to know, as an error reply; what
//! makes the stream unreadable ends the connection, and no other.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use perdura_media::emulator::Punctuality;
use perdura_media::{DeviceError, Due};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::handshake::{Handshake, Offer, Step, Violation, greeting};
use super::intake::Intake;
use super::request::{NotARequest, Operation, Request, Terms, parse};
use super::server::Shared;
use super::spin::{GATHERED_MIN, Gathering, Patience};
use super::waiting::Replies;
use super::wire::{ErrorCode, REQUEST_BYTES};
use crate::disk::{Disk, SLEEP_ERROR_NS};

/// Most requests of a connection under way.
pub const REQUESTS_MAX: usize = 1024;

/// Once so many bytes of replies are under way, no further request is begun: one may bring them
/// above it.
pub const REPLY_BYTES_MAX: usize = 8 << 20;

/// How a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The client said goodbye.
    #[error("goodbye")]
    Goodbye,
    /// The client closed without a word, perhaps in the middle of a request, which then was not
    /// carried out.
    #[error("the client vanished")]
    Vanished,
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopped,
    /// No choice of an export in time, or replies were not read at the end.
    #[error("nothing from the client for too long")]
    Silent,
    /// Not the protocol's handshake.
    #[error("handshake: {0}")]
    Handshake(#[from] Violation),
    /// Not the protocol's requests.
    #[error(transparent)]
    Request(#[from] NotARequest),
    /// The system's.
    #[error("socket: {0}")]
    Socket(#[from] io::Error),
}

/// What a connection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests carried out.
    pub requests: u64,
    /// Bytes sent of the export.
    pub read_bytes: u64,
    /// Bytes taken into it.
    pub written_bytes: u64,
    /// Requests that were wrong.
    pub refused: u64,
    /// Requests that the medium failed.
    pub failed: u64,
    /// Modelled against measured time: from when a request was here to when its reply could go.
    pub punctuality: Punctuality,
}

impl Tally {
    /// Joins another connection's.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.refused += other.refused;
        self.failed += other.failed;
        self.punctuality.add(&other.punctuality);
    }
}

/// A refused request's payload on its way, to be dropped.
struct Dropping {
    remaining_bytes: u64,
    request: Request,
}

/// One client.
pub(super) struct Connection<'a> {
    socket: OwnedFd,
    shared: &'a Shared,
    intake: Intake,
    replies: Replies,
    terms: Terms,
    dropping: Option<Dropping>,
    /// What the request at the beginning of the intake has in all.
    whole_bytes: usize,
    patience: Patience,
    gathering: Gathering,
    /// No further request is taken, why, and until when replies may still be read.
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

    /// Serves until the end.
    pub fn run(mut self) -> (Tally, Ended) {
        let ended = match self.shake_hands().and_then(|()| self.serve()) {
            Ok(ended) | Err(ended) => ended,
        };
        self.tally.punctuality = self.replies.punctuality;
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

    /// Waits for bytes of a client that has not chosen yet.
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

    /// Sends a few bytes, waiting for the client to take them.
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
        // A sleep until a modelled instant is to end at it, not up to 50 us later.
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

    /// Receives what is there, if it may. Whether something came, be it the end.
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

    /// The server stops: what is here already hears so, however many they are (the intake is
    /// small); what is under way is answered.
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

    /// Carries out every whole request that is here, as long as there is room. Whether the lack of
    /// room stopped it.
    fn carry_out(&mut self) -> bool {
        // A thousand requests to write zeros all over take minutes: the server's end is looked for
        // between them.
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
                    // What came before it is answered still.
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

    /// Drops what has come of a refused payload, and refuses the request when that was all of it.
    /// Whether it was.
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

    /// Holds back what is ready for a moment, if its client is busy with earlier replies. Whether
    /// requests came.
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

    /// Sends what is ready. Whether the client has to read first.
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

    /// Nothing can be done now: until something can, look out without sleeping for a moment, then
    /// sleep.
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
            // Memory of a busy moment is not kept for a quiet one.
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
            // Only the client's leaving wakes who waits for nothing of it: nobody is there to be
            // answered.
            return if self.shared.stop.is_set() { Ok(()) } else { Err(Ended::Vanished) };
        }
        Ok(())
    }

    /// Looks for bytes and for the next instant without sleeping, if it may. Whether there was
    /// something.
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

    /// Sleeps until the socket is as wanted, the server stops (if that is still news), or the time
    /// has come. Whether it was one of the first two.
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
            // Nothing is known of the socket then: `rest` must not take it for the client's
            // leaving.
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }
}

/// Never waits, and says by its result that nobody listens.
const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// An instant so near that one more look at the socket would be too long.
const FINE_NS: u64 = 1_000;

/// Between two looks at the socket.
const PAUSES: u32 = 4;

/// A connection without a request for so long is quiet.
const QUIET_NS: u64 = 1_000_000_000;

fn gone(error: rustix::io::Errno) -> Ended {
    match error {
        rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET => Ended::Vanished,
        other => Ended::Socket(other.into()),
    }
}

/// By writing them, so that the range has memory of its own afterwards.
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
