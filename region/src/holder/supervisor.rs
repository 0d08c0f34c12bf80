//! The server's watch over its holder, which starts the holder and replaces a dead one; or over its
//! connection to a guard.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::error::{LinkError, failed};
use super::link::Link;
use super::program::HolderProgram;
use super::starter::{Start, Starter};
use super::times::Times;
use super::voice::Voice;
use super::wire::Message;

/// Time between attempts to start another holder after one that could not be started.
const RETRY: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
/// Time between attempts to reach a guard that is lost: writes are refused meanwhile.
const GUARD_RETRY: rustix::event::Timespec =
    rustix::event::Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Who holds a region's memory besides the process that uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldBy {
    /// A holder, which this process starts.
    Holder(HolderProgram),
    /// The guard that listens at this socket, for this region and others.
    Guard(PathBuf),
}

/// One who wants to know what a guard says. It is called from the thread that watches the link, and
/// must not wait.
pub trait Listener: Send {
    /// The guard's sources of warnings say something new, in the form in which guard and server
    /// exchange readings.
    fn warned(&self, reading: &str);

    /// At most so much may be dirty as can be flushed within `share`; `None`: the promise alone
    /// counts. [`Voice::kept`] answers with `serial` when that is so.
    fn shared(&self, serial: u64, share: Option<Duration>);

    /// The region is to be flushed for real, and to go on; `fills`: with a full budget.
    /// [`Voice::drilled`] answers.
    fn drill(&self, fills: bool);

    /// Whether the memory is held: the link was lost, or is there again.
    fn held(&self, is_held: bool);
}

/// The descriptors that a holder or guard is given, and how it is started or reached.
pub struct Supervisor {
    /// Descriptor of the region's memory.
    pub(crate) memory: OwnedFd,
    /// Descriptor of the region's ledger.
    pub(crate) ledger: OwnedFd,
    /// Descriptor of the region's image.
    pub(crate) image: OwnedFd,
    /// Who is to hold the memory.
    pub(crate) by: HeldBy,
    /// The region's directory, in which a holder makes its socket.
    pub(crate) dir: PathBuf,
    /// Threads that copy and write during an emergency flush.
    pub(crate) threads: usize,
    /// How long the holder's flush may take, and how long it waits for a server.
    pub(crate) times: Times,
    /// Proven flush rate of the region, bytes per second.
    pub(crate) rate_bytes_per_s: u64,
    /// Who starts a holder, if this process may not.
    pub(crate) starter: Option<Starter>,
    /// The link to a holder or guard that has the memory already.
    pub(crate) link: Option<Link>,
    /// One who is told what the guard says.
    pub(crate) listener: Option<Box<dyn Listener>>,
    /// The way to answer a guard.
    pub(crate) voice: Voice,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("by", &self.by).finish_non_exhaustive()
    }
}

/// A thread that keeps a holder at work until [`Watch::goodbye`].
#[derive(Debug)]
pub(crate) struct Watch {
    thread: JoinHandle<Result<(), LinkError>>,
    stop: Arc<OwnedFd>,
    /// Whether a holder is at work. It informs, and decides nothing.
    is_held: Arc<AtomicBool>,
}

impl Supervisor {
    /// Lets `listener` know what the guard says from now on.
    pub fn tell(&mut self, listener: Box<dyn Listener>) {
        self.listener = Some(listener);
    }

    /// Lets another process start a holder that is to replace a dead one, because this one will be
    /// able to start no program any more. `program` says what that process executes, given what a
    /// holder executes; it calls [`start_holders`](super::start_holders). Without a holder there is
    /// nothing to do.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn leave_starts_to(
        &mut self,
        program: impl FnOnce(&HolderProgram) -> HolderProgram,
    ) -> Result<(), LinkError> {
        if let HeldBy::Holder(holder) = &self.by {
            self.starter = Some(Starter::new(&program(holder), &self.dir, self.threads)?);
        }
        Ok(())
    }

    /// The way to answer the guard.
    pub fn voice(&self) -> Voice {
        self.voice.clone()
    }

    /// Starts a holder, or hands the memory to the guard, unless it is held already.
    pub(crate) fn start(&mut self) -> Result<(), LinkError> {
        if let (Some(link), HeldBy::Guard(_)) = (&self.link, &self.by) {
            link.claim(self.rate_bytes_per_s)?;
        }
        if self.link.is_none() {
            let fds = [self.memory.as_fd(), self.ledger.as_fd(), self.image.as_fd()];
            self.link = Some(match &self.by {
                HeldBy::Holder(program) => {
                    let here = || Start::Here(program.command(&self.dir, self.threads));
                    let start = self.starter.as_mut().map_or_else(here, Start::By);
                    Link::start(start, fds, self.times, self.rate_bytes_per_s)?
                }
                HeldBy::Guard(socket) => {
                    Link::join(socket, fds, self.times, self.rate_bytes_per_s)?
                }
            });
        }
        self.voice.follow(self.link.as_ref());
        Ok(())
    }

    /// Watches the link from a new thread, which shares nothing with writers.
    pub(crate) fn watch(mut self) -> Result<Watch, LinkError> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(failed("event descriptor"))?;
        let stop = Arc::new(stop);
        let is_held = Arc::new(AtomicBool::new(self.link.is_some()));
        let (watched, held) = (Arc::clone(&stop), Arc::clone(&is_held));
        let thread = std::thread::Builder::new()
            .name("perdura-watch".into())
            .spawn(move || self.run(&watched, &held))
            .map_err(failed("start a thread"))?;
        Ok(Watch { thread, stop, is_held })
    }

    fn run(&mut self, stop: &OwnedFd, is_held: &AtomicBool) -> Result<(), LinkError> {
        let retry = match self.by {
            HeldBy::Holder(_) => RETRY,
            HeldBy::Guard(_) => GUARD_RETRY,
        };
        let mut has_failed = false;
        loop {
            let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
            let link = self.link.as_ref().map(Link::fd);
            if let Some(link) = &link {
                fds.push(PollFd::new(link, PollFlags::IN));
            }
            let timeout = link.is_none().then_some(&retry);
            match poll(&mut fds, timeout) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(failed("poll")(errno).into()),
                Ok(_) => {}
            }
            if !fds[0].revents().is_empty() {
                return self.link.take().map_or(Ok(()), Link::goodbye);
            }
            if let Some(said) = self.link.as_ref().map(Link::hear) {
                if let Some(message) = said {
                    self.hear(message);
                    continue;
                }
                is_held.store(false, Relaxed);
                self.note_lost();
                // A guard that is not understood would say the same at once.
                if matches!(self.by, HeldBy::Guard(_)) {
                    continue;
                }
            }
            match self.start() {
                Ok(()) => {
                    is_held.store(true, Relaxed);
                    has_failed = false;
                    tracing::info!("memory is held again");
                    if let Some(listener) = &self.listener {
                        listener.held(true);
                    }
                }
                Err(error) if !std::mem::replace(&mut has_failed, true) => {
                    tracing::error!(%error, "nobody else holds the memory; trying again");
                }
                Err(error) => tracing::debug!(%error, "nobody else holds the memory yet"),
            }
        }
    }

    fn hear(&self, message: Message) {
        match (message, &self.listener) {
            (Message::Warning { reading }, Some(listener)) => listener.warned(&reading),
            (Message::Share { serial, share_us }, Some(listener)) => {
                let share = (share_us != u64::MAX).then(|| Duration::from_micros(share_us));
                listener.shared(serial, share);
            }
            (Message::Drill { fills }, Some(listener)) => listener.drill(fills),
            (Message::Warning { .. } | Message::Share { .. } | Message::Drill { .. }, None) => {}
            // A guard that was started again says that it has the memory.
            (Message::Ready, _) => {}
            (other, _) => tracing::warn!(?other, "an unexpected message on the link"),
        }
    }

    fn note_lost(&mut self) {
        let Some(dead) = self.link.take() else { return };
        self.voice.follow(None);
        match &self.by {
            HeldBy::Holder(_) => tracing::error!(
                "the holder is gone; starting another: nothing is lost, but until it runs a crash \
                 of this process would lose what is not on the SSD"
            ),
            HeldBy::Guard(socket) => tracing::error!(
                socket = %socket.display(),
                "the guard is gone; everything is being saved, and the guard is looked for"
            ),
        }
        if let Some(listener) = &self.listener {
            listener.held(false);
        }
        dead.reap();
    }
}

impl Watch {
    /// Whether a holder is at work, as far as the thread has seen.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Relaxed)
    }

    /// Lets the holder end. Call it when everything is on the SSD.
    pub(crate) fn goodbye(self) -> Result<(), LinkError> {
        rustix::io::write(&*self.stop, &1u64.to_ne_bytes())
            .map_err(failed("wake the supervisor"))?;
        match self.thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::socket::socket_pair;
    use super::*;

    #[test]
    fn a_holder_that_died_and_cannot_be_replaced_holds_nothing() {
        let (ours, theirs) = socket_pair().unwrap();
        let null = || std::fs::File::open("/dev/null").unwrap().into();
        let supervisor = Supervisor {
            memory: null(),
            ledger: null(),
            image: null(),
            by: HeldBy::Holder(HolderProgram::perdura("/dev/null/no-program")),
            dir: PathBuf::new(),
            threads: 1,
            times: Times { grace: Duration::from_secs(1), wait: None },
            starter: None,
            link: Some(Link::over(ours)),
            listener: None,
            rate_bytes_per_s: 1,
            voice: Voice::default(),
        };
        let watch = supervisor.watch().unwrap();
        assert!(watch.is_held());
        drop(theirs);
        while watch.is_held() {
            std::thread::yield_now();
        }
        watch.goodbye().unwrap();
    }
}
