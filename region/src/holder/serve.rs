//! The life of a holder: waiting for a message, a broken link or a warning.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use perdura_media::Clock;
use perdura_warning::{State, Warnings};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::emergency;
use super::error::{HolderError, failed};
use super::isolate::isolate;
use super::socket::{self, SOCKET_NAME, admit, listen_in, peer_pid};
use super::times::Times;
use super::wire::{Message, receive, send};
use crate::attachment::Attachment;

/// Time between two looks of a holder without a server: whether its wait is over, and whether the
/// image still has a name.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Settings of a holder.
#[derive(Debug, Clone)]
pub struct HolderOptions {
    /// The region's directory, which gets the socket.
    pub dir: PathBuf,
    /// Threads that copy and write during an emergency flush.
    pub threads: usize,
}

/// The event that woke the holder.
#[derive(Debug, Clone, Copy)]
enum Event {
    Link,
    Visitor,
    Warning,
    /// No server is linked, and nothing has happened for [`LOOK_EVERY`].
    Quiet,
}

struct Holder {
    options: HolderOptions,
    memory: OwnedFd,
    ledger: OwnedFd,
    image: OwnedFd,
    attachment: Attachment,
    link: Option<OwnedFd>,
    server_pid: i32,
    times: Times,
    /// When the last server ended, monotonic nanoseconds; not read while one is linked.
    alone_since_ns: u64,
    listener: OwnedFd,
    warnings: Warnings,
}

/// Holds the memory that arrives on `link` until a warning makes this holder flush it, or until the
/// server says goodbye.
pub fn serve(
    link: OwnedFd,
    warnings: Warnings,
    clock: &dyn Clock,
    options: HolderOptions,
) -> Result<(), HolderError> {
    let first = receive(&link).map_err(failed("read from the server"))?;
    let Some((Message::Hold { times, .. }, fds)) = first else {
        return Err(HolderError::NothingToHold(format!("{first:?}")));
    };
    let [memory, ledger, image] = <[OwnedFd; 3]>::try_from(fds)
        .map_err(|fds| HolderError::NothingToHold(format!("{} descriptors", fds.len())))?;
    let copy = |fd: &OwnedFd| fd.try_clone().map_err(failed("copy a descriptor"));
    let attachment = Attachment::new(copy(&memory)?, copy(&ledger)?)?;
    let isolation = isolate(&attachment);
    // For debugging only: most users would see this line before the server's own first words.
    tracing::debug!(%isolation, "holding memory");
    let listener = listen_in(&options.dir)?;
    let server_pid = peer_pid(&link);
    // A server that was killed meanwhile gets no answer, and its memory is held all the same.
    let link = match send(&link, &Message::Ready, &[]) {
        Ok(()) => Some(link),
        Err(error) => {
            tracing::warn!(%error, "the server was gone before its memory was held");
            None
        }
    };
    Holder {
        options,
        memory,
        ledger,
        image,
        attachment,
        link,
        server_pid,
        times,
        alone_since_ns: clock.now_ns(),
        listener,
        warnings,
    }
    .run(clock)
}

impl Holder {
    fn run(mut self, clock: &dyn Clock) -> Result<(), HolderError> {
        loop {
            match self.next_event()? {
                Event::Quiet => {
                    if self.is_removed() {
                        // Nothing is removed: a file with the socket's name would be another's.
                        return Ok(());
                    }
                    if self.has_waited(clock) && self.flushes(clock) {
                        return self.leave();
                    }
                }
                Event::Link => {
                    if self.hear_server(clock) {
                        return self.leave();
                    }
                }
                Event::Visitor => {
                    if self.meet_visitor(clock)? {
                        return self.leave();
                    }
                }
                Event::Warning => {
                    // What is not taken would wake the next wait at once.
                    let Some(reading) = self.warnings.news() else { continue };
                    tracing::warn!(state = reading.state.word(), %reading, "a warning");
                    // A linked server heeds the same sources: it saves all and goes on, until the
                    // end.
                    let least = if self.link.is_some() { State::Ending } else { State::Low };
                    if reading.state >= least && self.heed_warning(clock)? {
                        return self.leave();
                    }
                }
            }
        }
    }

    fn next_event(&self) -> Result<Event, HolderError> {
        loop {
            // In order of importance: a broken link is noted before anything else.
            let link = self.link.iter().map(|link| (link.as_fd(), Event::Link));
            let warnings = self.warnings.descriptors().map(|fd| (fd, Event::Warning));
            let visitors = [(self.listener.as_fd(), Event::Visitor)];
            let watched: Vec<_> = link.chain(warnings).chain(visitors).collect();
            let readable = |(fd, _): &(_, _)| PollFd::from_borrowed_fd(*fd, PollFlags::IN);
            let mut fds: Vec<_> = watched.iter().map(readable).collect();
            let timeout = self.link.is_none().then_some(&LOOK_EVERY);
            match poll(&mut fds, timeout) {
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(failed("poll")(errno).into()),
                Ok(0) => return Ok(Event::Quiet),
                Ok(_) => {}
            }
            let is_ready = fds.iter().position(|fd| !fd.revents().is_empty());
            if let Some(index) = is_ready {
                return Ok(watched[index].1);
            }
        }
    }

    /// Reads what the linked server says, or notes its end. Returns whether everything is on the
    /// SSD: the server said goodbye, or it ended while the power was low, and this process flushed.
    fn hear_server(&mut self, clock: &dyn Clock) -> bool {
        match self.link.as_ref().map(receive) {
            Some(Ok(Some((Message::Goodbye, _)))) => return true,
            Some(Ok(Some((other, _)))) => {
                tracing::warn!(?other, "unexpected message from the server");
            }
            _ => {
                self.link = None;
                self.note_alone(clock);
                return self.warnings.look().state >= State::Low && self.flushes(clock);
            }
        }
        false
    }

    /// Answers a visitor. Returns whether the holder may end, because everything is on the SSD or
    /// nothing can be kept any more.
    fn meet_visitor(&mut self, clock: &dyn Clock) -> Result<bool, HolderError> {
        let Some(visitor) = admit(&self.listener) else { return Ok(false) };
        let Ok(Some((message, _))) = receive(&visitor) else { return Ok(false) };
        if let Some(link) = &self.link {
            let _ = send(&visitor, &Message::Busy { pid: self.pid_of(link) }, &[]);
            return Ok(false);
        }
        if self.is_removed() {
            // A visitor that asks again finds no holder, and makes a new image.
            return Ok(true);
        }
        match message {
            Message::TakeOver { times } => {
                let held = Message::Held { used_bytes: self.attachment.used_bytes() };
                let fds = [self.memory.as_fd(), self.ledger.as_fd(), self.image.as_fd()];
                if send(&visitor, &held, &fds).is_ok() {
                    self.server_pid = peer_pid(&visitor);
                    self.times = times;
                    socket::never_time_out(&visitor);
                    self.link = Some(visitor);
                }
                Ok(false)
            }
            Message::Flush => match self.flush(clock) {
                Ok(flushed) => {
                    let _ = send(&visitor, &flushed, &[]);
                    Ok(true)
                }
                Err(error) => {
                    let _ = send(&visitor, &Message::Failed { why: error.to_string() }, &[]);
                    tracing::error!(%error, "still holding");
                    Ok(false)
                }
            },
            other => {
                let why = format!("not for a holder: {other:?}");
                let _ = send(&visitor, &Message::Failed { why }, &[]);
                Ok(false)
            }
        }
    }

    fn note_alone(&mut self, clock: &dyn Clock) {
        self.alone_since_ns = clock.now_ns();
        tracing::warn!(
            dir = %self.options.dir.display(),
            pid = self.server_pid,
            dirty_bytes = self.attachment.used_bytes(),
            wait = %self.times.wait.map_or("without end".into(), |wait| format!("{wait:?}")),
            "the server is gone; holding its memory until a server comes back or the wait is over"
        );
    }

    /// Whether the wait for a server is over. The next wait begins then, in case the flush fails.
    fn has_waited(&mut self, clock: &dyn Clock) -> bool {
        let now_ns = clock.now_ns();
        let alone = Duration::from_nanos(now_ns.saturating_sub(self.alone_since_ns));
        if self.times.wait.is_none_or(|wait| alone < wait) {
            return false;
        }
        self.alone_since_ns = now_ns;
        tracing::warn!(
            dir = %self.options.dir.display(),
            waited = ?alone,
            "no server came back; flushing, then letting the memory go"
        );
        true
    }

    /// Whether the image's file was removed. Nobody can ever open it then, so a flush would keep
    /// nothing.
    fn is_removed(&self) -> bool {
        let removed = rustix::fs::fstat(&self.image).is_ok_and(|image| image.st_nlink == 0);
        if removed {
            tracing::warn!(
                dir = %self.options.dir.display(),
                dirty_bytes = self.attachment.used_bytes(),
                "the directory's image was removed, so nothing can be kept; letting the memory go"
            );
        }
        removed
    }

    /// Waits for a linked server to flush and to say goodbye, or flushes without one. Returns
    /// whether everything is on the SSD.
    ///
    /// A server in which nothing moves for a tenth of the grace is ended. A server that waits for
    /// the device is not, as long as the grace lasts: where a file system keeps writes in memory
    /// until then, writing all of them again would take longer.
    fn heed_warning(&mut self, clock: &dyn Clock) -> Result<bool, HolderError> {
        if let Some(link) = self.link.take() {
            let patience_ns = (self.times.grace.as_nanos() as u64 / 10).max(200_000_000);
            let began_ns = clock.now_ns();
            let mut moved = (self.attachment.progress(), began_ns);
            loop {
                let slice = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                let mut fds = [PollFd::new(&link, PollFlags::IN)];
                match poll(&mut fds, Some(&slice)) {
                    Err(Errno::INTR) => continue,
                    Err(errno) => return Err(failed("poll")(errno).into()),
                    Ok(0) => {}
                    Ok(_) => match receive(&link) {
                        Ok(Some((Message::Goodbye, _))) => return Ok(true),
                        Ok(Some(_)) => {}
                        _ => break,
                    },
                }
                let (progress, now_ns) = (self.attachment.progress(), clock.now_ns());
                let in_time = u128::from(now_ns - began_ns) < self.times.grace.as_nanos();
                if progress != moved.0 || (in_time && self.attachment.awaits_device()) {
                    moved = (progress, now_ns);
                } else if now_ns - moved.1 > patience_ns && !end_server(self.pid_of(&link)) {
                    moved.1 = now_ns;
                }
            }
            // If the flush fails, the next wait for a server begins here.
            self.alone_since_ns = clock.now_ns();
        }
        Ok(self.flushes(clock))
    }

    /// Flushes without a server. Returns whether that succeeded; if not, the memory is held on.
    fn flushes(&self, clock: &dyn Clock) -> bool {
        match self.flush(clock) {
            Ok(_) => true,
            Err(error) => {
                tracing::error!(%error, "still holding");
                false
            }
        }
    }

    /// Flushes without a server. Visitors are told meanwhile to wait, and how long.
    fn flush(&self, clock: &dyn Clock) -> Result<Message, HolderError> {
        let wait = self.wait_message();
        emergency::answer_while(&self.listener, &wait, || {
            emergency::flush(&self.attachment, &self.image, self.options.threads, clock)
        })
    }

    fn wait_message(&self) -> Message {
        Message::Flushing {
            grace_ms: self.times.grace.as_millis() as u64,
            used_bytes: self.attachment.used_bytes(),
        }
    }

    /// Process id of the linked server.
    fn pid_of(&self, link: &OwnedFd) -> i32 {
        if self.server_pid > 0 { self.server_pid } else { peer_pid(link) }
    }

    /// Removes the socket, as the last act of a holder.
    fn leave(self) -> Result<(), HolderError> {
        Ok(socket::remove(&self.options.dir.join(SOCKET_NAME))?)
    }
}

/// Kills a server that hangs: as long as it runs it could change the memory that is about to be
/// flushed. Returns whether the signal was sent.
fn end_server(pid: i32) -> bool {
    tracing::error!(pid, "the server does not stop; ending it to flush without it");
    let Some(pid) = rustix::process::Pid::from_raw(pid) else { return false };
    match rustix::process::kill_process(pid, rustix::process::Signal::KILL) {
        Ok(()) => true,
        Err(error) => {
            tracing::error!(%error, "it cannot be ended");
            false
        }
    }
}

#[cfg(test)]
mod tests;
