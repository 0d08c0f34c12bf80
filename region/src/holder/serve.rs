//! The holder's own life: wait for a message, a broken link or a warning.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use perdura_media::{Clock, FileDevice, file::Engine};
use perdura_warning::Warnings;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, accept_with, bind, listen, socket_with, sockopt,
};

use super::link::address;
use super::times::Times;
use super::wire::{Message, SOCKET_NAME, receive, send};
use crate::flush::FlushOptions;
use crate::region::Attachment;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;
/// How often a holder without a server looks whether it still has something to wait for.
const LOOK_EVERY: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };

/// How the holder behaves.
#[derive(Debug, Clone)]
pub struct HolderOptions {
    /// The region's directory: where the socket goes.
    pub dir: PathBuf,
    /// Threads of an emergency flush.
    pub threads: usize,
}

/// Why the holder could not hold, or could not flush.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HolderError {
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The first message was not "hold this".
    #[error("expected memory to hold on standard input, got {0}")]
    NothingToHold(String),
    /// Memory or ledger cannot be used.
    #[error(transparent)]
    Open(#[from] crate::OpenError),
    /// The flush failed; dirty data are still in memory and this process goes on holding them.
    #[error("flush failed with {used_bytes} bytes at risk: {source}")]
    Flush {
        /// Dirty bytes.
        used_bytes: u64,
        /// Why.
        source: crate::RegionError,
    },
}

fn failed(what: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> HolderError {
    move |errno| HolderError::Io { what: what.into(), source: errno.into() }
}

/// What woke the holder.
#[derive(Debug, Clone, Copy)]
enum Event {
    Link,
    Visitor,
    Warning,
    /// Nothing has happened for [`LOOK_EVERY`] while no server is linked.
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
    /// When the last server went, monotonic nanoseconds; not read while one is linked.
    alone_since_ns: u64,
    listener: OwnedFd,
    warnings: Warnings,
}

/// Holds what arrives on `link` until it is flushed or a server says goodbye. A warning makes
/// it flush.
pub fn serve(
    link: OwnedFd,
    warnings: Warnings,
    clock: &dyn Clock,
    options: HolderOptions,
) -> Result<(), HolderError> {
    let first = receive(&link)
        .map_err(|source| HolderError::Io { what: "read from the server".into(), source })?;
    let Some((Message::Hold { times, .. }, fds)) = first else {
        return Err(HolderError::NothingToHold(format!("{first:?}")));
    };
    let [memory, ledger, image] = <[OwnedFd; 3]>::try_from(fds)
        .map_err(|fds| HolderError::NothingToHold(format!("{} descriptors", fds.len())))?;
    let copy = |fd: &OwnedFd| {
        fd.try_clone()
            .map_err(|source| HolderError::Io { what: "copy a descriptor".into(), source })
    };
    let attachment = Attachment::new(copy(&memory)?, copy(&ledger)?)?;
    let isolation = super::isolate::isolate(&attachment);
    // Not for everybody: it would stand before what the server says about itself.
    tracing::debug!(%isolation, "holding memory");
    let listener = listen_in(&options.dir)?;
    let server_pid = peer_pid(&link);
    // A server that was killed meanwhile cannot be answered, and its memory is held all the same.
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

fn listen_in(dir: &Path) -> Result<OwnedFd, HolderError> {
    let path = dir.join(SOCKET_NAME);
    // Whoever starts a holder has the image's lock, so a socket found here is a dead holder's.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(HolderError::Io {
                what: format!("remove {}", path.display()),
                source: error,
            });
        }
        _ => {}
    }
    let (address, _dir) = address(dir).map_err(|error| HolderError::Io {
        what: error.to_string(),
        source: io::ErrorKind::Other.into(),
    })?;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(failed("socket"))?;
    bind(&socket, &address).map_err(failed(format!("bind {}", path.display())))?;
    rustix::fs::chmod(&path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .map_err(failed(format!("chmod {}", path.display())))?;
    listen(&socket, BACKLOG).map_err(failed("listen"))?;
    Ok(socket)
}

fn peer_pid(socket: &OwnedFd) -> i32 {
    sockopt::socket_peercred(socket).map_or(0, |peer| peer.pid.as_raw_nonzero().get())
}

impl Holder {
    fn run(mut self, clock: &dyn Clock) -> Result<(), HolderError> {
        loop {
            match self.next_event()? {
                Event::Quiet => {
                    if self.is_removed() {
                        // No file is removed: what has the socket's name by now is not ours.
                        return Ok(());
                    }
                    if self.has_waited(clock) && self.flushes(clock) {
                        return self.leave();
                    }
                }
                Event::Link => {
                    let link = self.link.take();
                    let message = link.as_ref().map(receive);
                    match message {
                        Some(Ok(Some((Message::Goodbye, _)))) => return self.leave(),
                        Some(Ok(Some((other, _)))) => {
                            tracing::warn!(?other, "unexpected message from the server");
                            self.link = link;
                        }
                        _ => self.note_alone(clock),
                    }
                }
                Event::Visitor => {
                    if self.meet_visitor(clock)? {
                        return self.leave();
                    }
                }
                Event::Warning => {
                    // Taken off, or it would be seen again at once; more warnings may follow.
                    if let Some(warning) = self.warnings.take() {
                        tracing::warn!(%warning, "a warning");
                        if self.heed_warning(clock)? {
                            return self.leave();
                        }
                    }
                }
            }
        }
    }

    fn next_event(&self) -> Result<Event, HolderError> {
        loop {
            // The order of importance, too: a link that breaks is noted before anything else.
            let link = self.link.iter().map(|link| (link.as_fd(), Event::Link));
            let warnings = self.warnings.descriptors().map(|fd| (fd, Event::Warning));
            let visitors = [(self.listener.as_fd(), Event::Visitor)];
            let watched: Vec<_> = link.chain(warnings).chain(visitors).collect();
            let readable = |(fd, _): &(_, _)| PollFd::from_borrowed_fd(*fd, PollFlags::IN);
            let mut fds: Vec<_> = watched.iter().map(readable).collect();
            let timeout = self.link.is_none().then_some(&LOOK_EVERY);
            match poll(&mut fds, timeout) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(failed("poll")(errno)),
                Ok(0) => return Ok(Event::Quiet),
                Ok(_) => {}
            }
            let is_ready = fds.iter().position(|fd| !fd.revents().is_empty());
            if let Some(index) = is_ready {
                return Ok(watched[index].1);
            }
        }
    }

    /// True: everything is on the SSD and there is nothing left to hold.
    fn meet_visitor(&mut self, clock: &dyn Clock) -> Result<bool, HolderError> {
        let Some(visitor) = self.admit() else { return Ok(false) };
        let Ok(Some((message, _))) = receive(&visitor) else { return Ok(false) };
        if let Some(link) = &self.link {
            let pid = if self.server_pid > 0 { self.server_pid } else { peer_pid(link) };
            let _ = send(&visitor, &Message::Busy { pid }, &[]);
            return Ok(false);
        }
        if self.is_removed() {
            // Who asks again finds nobody, and makes an image of its own.
            return Ok(true);
        }
        match message {
            Message::TakeOver { times } => {
                let held = Message::Held {
                    budget_bytes: self.attachment.budget_bytes(),
                    used_bytes: self.attachment.used_bytes(),
                };
                let fds = [self.memory.as_fd(), self.ledger.as_fd(), self.image.as_fd()];
                if send(&visitor, &held, &fds).is_ok() {
                    self.server_pid = peer_pid(&visitor);
                    self.times = times;
                    let _ = sockopt::set_socket_timeout(&visitor, sockopt::Timeout::Recv, None);
                    self.link = Some(visitor);
                }
                Ok(false)
            }
            Message::Flush => match self.answer_while(|| self.flush(clock)) {
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
                let _ = send(
                    &visitor,
                    &Message::Failed { why: format!("not for a holder: {other:?}") },
                    &[],
                );
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
            wait = ?self.times.wait,
            "the server is gone; holding its memory until a server comes back or the wait is over"
        );
    }

    /// Whether no server came within the wait; the next wait begins then, for a flush that fails.
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

    /// Whether the image has lost its name: then nobody can ever open it, and a flush would keep
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

    /// Accepts a visitor that may speak to us.
    fn admit(&self) -> Option<OwnedFd> {
        let visitor = accept_with(&self.listener, SocketFlags::CLOEXEC).ok()?;
        let allowed = sockopt::socket_peercred(&visitor)
            .is_ok_and(|peer| peer.uid == rustix::process::geteuid() || peer.uid.is_root());
        // A visitor that connects and says nothing must not hold up the holder.
        let patience = Some(Duration::from_millis(500));
        let _ = sockopt::set_socket_timeout(&visitor, sockopt::Timeout::Recv, patience);
        allowed.then_some(visitor)
    }

    /// A linked server flushes itself, and says goodbye; one in which nothing moves for a tenth of
    /// the grace is ended, unless it waits for the device (all of the grace, where a file system
    /// keeps writes in memory until then): to write all again takes longer. True: everything is on
    /// the SSD.
    fn heed_warning(&mut self, clock: &dyn Clock) -> Result<bool, HolderError> {
        if let Some(link) = self.link.take() {
            let patience_ns = (self.times.grace.as_nanos() as u64 / 10).max(200_000_000);
            let began_ns = clock.now_ns();
            let mut moved = (self.attachment.progress(), began_ns);
            loop {
                let slice = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                let mut fds = [PollFd::new(&link, PollFlags::IN)];
                match poll(&mut fds, Some(&slice)) {
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(errno) => return Err(failed("poll")(errno)),
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
                } else if now_ns - moved.1 > patience_ns && !self.end_server(&link) {
                    moved.1 = now_ns;
                }
            }
        }
        Ok(self.flushes(clock))
    }

    /// Flushes without a server. False: it failed, and the memory is held on.
    fn flushes(&self, clock: &dyn Clock) -> bool {
        match self.answer_while(|| self.flush(clock)) {
            Ok(_) => true,
            Err(error) => {
                tracing::error!(%error, "still holding");
                false
            }
        }
    }

    /// Its memory is ours too; as long as it runs it could change it. False: it could not be ended.
    fn end_server(&self, link: &OwnedFd) -> bool {
        let pid = if self.server_pid > 0 { self.server_pid } else { peer_pid(link) };
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

    /// Runs `flush` on a thread of its own and tells visitors meanwhile that they must wait, and
    /// how long. Where there is no thread or descriptor to be had, the flush matters more.
    fn answer_while(
        &self,
        flush: impl Fn() -> Result<Message, HolderError> + Sync,
    ) -> Result<Message, HolderError> {
        let Ok(done) = eventfd(0, EventfdFlags::CLOEXEC) else { return flush() };
        let used_bytes = self.attachment.used_bytes();
        let wait = Message::Flushing { grace_ms: self.times.grace.as_millis() as u64, used_bytes };
        std::thread::scope(|scope| {
            let worker = std::thread::Builder::new().spawn_scoped(scope, || {
                // Told at its end, however it ends.
                let _told = Told(&done);
                flush()
            });
            let Ok(worker) = worker else { return flush() };
            loop {
                let mut fds =
                    [PollFd::new(&done, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
                // Interrupted or failed: the flush matters more than visitors, and is waited for
                // below.
                match poll(&mut fds, None) {
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(_) => break,
                    Ok(_) if !fds[0].revents().is_empty() => break,
                    Ok(_) => {}
                }
                if let Some(visitor) = self.admit() {
                    // Whatever it asks; unread, it would take the answer away when we close.
                    let _ = receive(&visitor);
                    let _ = send(&visitor, &wait, &[]);
                }
            }
            match worker.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    fn flush(&self, clock: &dyn Clock) -> Result<Message, HolderError> {
        let used_bytes = self.attachment.used_bytes();
        let began_ns = clock.now_ns();
        let image = self
            .image
            .try_clone()
            .map_err(|source| HolderError::Io { what: "copy a descriptor".into(), source })?;
        let options = FlushOptions { threads: self.options.threads, unix_ms: clock.unix_ms() };
        let report = FileDevice::from_fd(image, Engine::Auto)
            .map_err(|error| crate::RegionError::Latched { cause: error.to_string() })
            .and_then(|device| self.attachment.flush(&device, options))
            .map_err(|source| HolderError::Flush { used_bytes, source })?;
        let elapsed_ns = clock.now_ns().saturating_sub(began_ns);
        tracing::info!(
            dirty_bytes = report.dirty_bytes,
            elapsed_ms = elapsed_ns / 1_000_000,
            "flushed without the server"
        );
        Ok(Message::Flushed {
            dirty_bytes: report.dirty_bytes,
            device_bytes: report.device_bytes,
            elapsed_ns,
        })
    }

    fn leave(self) -> Result<(), HolderError> {
        let path = self.options.dir.join(SOCKET_NAME);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(HolderError::Io { what: format!("remove {}", path.display()), source: error })
            }
            _ => Ok(()),
        }
    }
}

/// Makes an event descriptor readable when dropped.
struct Told<'a>(&'a OwnedFd);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        // An eventfd at 0 takes any number of ones.
        let _ = rustix::io::write(self.0, &1u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use perdura_media::{RealClock, SimDevice};

    use super::*;
    use crate::Config;
    use crate::Region;
    use crate::holder::LinkError;
    use crate::holder::TakeOver;
    use crate::holder::take_over;

    const TIMES: Times =
        Times { grace: Duration::from_secs(60), wait: Some(Duration::from_secs(600)) };

    fn holder(dir: &Path) -> Holder {
        let config = Config { thread: false, ..Config::new(1 << 20, 256 << 10) };
        let device = Arc::new(SimDevice::new(0, 1));
        let region = Region::open(device, Arc::new(RealClock), config).unwrap();
        let copies = || {
            let (memory, ledger) = region.fds();
            (memory.try_clone_to_owned().unwrap(), ledger.try_clone_to_owned().unwrap())
        };
        let ((memory, ledger), attached) = (copies(), copies());
        Holder {
            options: HolderOptions { dir: dir.to_owned(), threads: 1 },
            memory,
            ledger,
            image: std::fs::File::create(dir.join("image")).unwrap().into(),
            attachment: Attachment::new(attached.0, attached.1).unwrap(),
            link: None,
            server_pid: 0,
            times: TIMES,
            alone_since_ns: 0,
            listener: listen_in(dir).unwrap(),
            warnings: Warnings::by_signals().unwrap(),
        }
    }

    #[test]
    fn a_server_that_takes_over_brings_its_own_times() {
        let dir = tempfile::tempdir().unwrap();
        let mut holder = holder(dir.path());
        let brought = Times { grace: Duration::from_millis(2_500), wait: None };
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| take_over(dir.path(), brought).unwrap());
            assert!(!holder.meet_visitor(&RealClock).unwrap());
            assert!(matches!(taken.join().unwrap(), TakeOver::Held(_)));
        });
        assert_eq!(holder.times, brought);
    }

    #[test]
    fn a_wait_that_is_over_begins_anew_and_one_without_end_is_never_over() {
        let dir = tempfile::tempdir().unwrap();
        let mut holder = holder(dir.path());
        let clock = perdura_media::SimClock::new(0);
        clock.sleep_ns(599_000_000_000);
        assert!(!holder.has_waited(&clock));
        clock.sleep_ns(1_000_000_000);
        assert!(holder.has_waited(&clock));
        assert!(!holder.has_waited(&clock));
        holder.times.wait = None;
        clock.sleep_ns(1 << 62);
        assert!(!holder.has_waited(&clock));
    }

    #[test]
    fn who_visits_a_holder_whose_image_was_removed_is_sent_away_with_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut holder = holder(dir.path());
        std::fs::remove_file(dir.path().join("image")).unwrap();
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| take_over(dir.path(), TIMES));
            assert!(holder.meet_visitor(&RealClock).unwrap(), "it still holds");
            drop(holder);
            assert!(matches!(asked.join().unwrap(), Ok(TakeOver::Unanswered)));
        });
    }

    #[test]
    fn a_server_that_waits_for_the_device_is_not_ended_and_one_that_hangs_is() {
        let dir = tempfile::tempdir().unwrap();
        let mut holder = holder(dir.path());
        for syncing in [1, 0] {
            let (server, link) = crate::holder::link::socket_pair().unwrap();
            let mut process = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
            holder.server_pid = process.id() as i32;
            holder.link = Some(link);
            holder.times.grace = Duration::from_secs(2);
            holder.attachment.ledger.syncing().store(syncing, std::sync::atomic::Ordering::Release);
            std::thread::scope(|scope| {
                // Dropped when an assertion fails: the holder is let go then.
                let server = server;
                let flushed = scope.spawn(|| holder.heed_warning(&RealClock).unwrap());
                if syncing == 0 {
                    // Ended by the holder.
                    process.wait().unwrap();
                } else {
                    // Three times the patience.
                    RealClock.sleep_ns(600_000_000);
                    assert_eq!(process.try_wait().unwrap(), None);
                    process.kill().unwrap();
                    process.wait().unwrap();
                }
                send(&server, &Message::Goodbye, &[]).unwrap();
                assert!(flushed.join().unwrap());
            });
        }
    }

    #[test]
    fn visitors_of_a_holder_that_flushes_are_told_to_wait_and_how_long() {
        let dir = tempfile::tempdir().unwrap();
        let holder = holder(dir.path());
        let (let_go, held_up) = channel::<()>();
        let held_up = parking_lot::Mutex::new(held_up);
        std::thread::scope(|scope| {
            // Dropped when an assertion fails: the flush ends then.
            let let_go = let_go;
            let flushing = scope.spawn(|| {
                holder.answer_while(move || {
                    held_up.lock().recv().unwrap();
                    Ok(Message::Ready)
                })
            });
            for _ in 0..3 {
                match take_over(dir.path(), TIMES).unwrap() {
                    TakeOver::Flushing { grace, used_bytes: 0 } => {
                        assert_eq!(grace, Duration::from_secs(60));
                    }
                    other => panic!("{other:?}"),
                }
            }
            let asked = crate::holder::flush(dir.path());
            assert!(matches!(asked, Err(LinkError::FlushesAlready { used_bytes: 0 })), "{asked:?}");
            let_go.send(()).unwrap();
            assert_eq!(flushing.join().unwrap().unwrap(), Message::Ready);
        });
        drop(holder.listener);
        let asked = take_over(dir.path(), TIMES).unwrap();
        assert!(matches!(asked, TakeOver::Nobody));
    }
}
