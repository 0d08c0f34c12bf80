//! The server's watch over its holder, which starts the holder and replaces a dead one.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;

use perdura_media::Clock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::error::{LinkError, failed};
use super::link::Link;
use super::program::HolderProgram;
use super::times::Times;

/// Time between attempts to start another holder after one that could not be started.
const RETRY: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };

/// The descriptors that a holder is given, and how it is started.
#[derive(Debug)]
pub struct Supervisor {
    /// Descriptor of the region's memory.
    pub(crate) memory: OwnedFd,
    /// Descriptor of the region's ledger.
    pub(crate) ledger: OwnedFd,
    /// Descriptor of the region's image.
    pub(crate) image: OwnedFd,
    /// The program that is started as a holder.
    pub(crate) program: HolderProgram,
    /// The region's directory, in which the holder makes its socket.
    pub(crate) dir: PathBuf,
    /// Threads that copy and write during an emergency flush.
    pub(crate) threads: usize,
    /// How long the holder's flush may take, and how long it waits for a server.
    pub(crate) times: Times,
    /// The link to a holder that is already at work.
    pub(crate) link: Option<Link>,
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
    /// Starts a holder unless one is at work.
    pub(crate) fn start(&mut self, clock: &dyn Clock) -> Result<(), LinkError> {
        if self.link.is_none() {
            let fds = [self.memory.as_fd(), self.ledger.as_fd(), self.image.as_fd()];
            let program = self.program.command(&self.dir, self.threads);
            self.link = Some(Link::start(program, fds, self.times, clock.unix_ms())?);
        }
        Ok(())
    }

    /// Watches the holder from a new thread, which shares nothing with writers.
    pub(crate) fn watch(mut self, clock: Arc<dyn Clock>) -> Result<Watch, LinkError> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(failed("event descriptor"))?;
        let stop = Arc::new(stop);
        let is_held = Arc::new(AtomicBool::new(self.link.is_some()));
        let (watched, held) = (Arc::clone(&stop), Arc::clone(&is_held));
        let thread = std::thread::Builder::new()
            .name("perdura-watch".into())
            .spawn(move || self.run(&watched, &held, &*clock))
            .map_err(failed("start a thread"))?;
        Ok(Watch { thread, stop, is_held })
    }

    fn run(
        &mut self,
        stop: &OwnedFd,
        is_held: &AtomicBool,
        clock: &dyn Clock,
    ) -> Result<(), LinkError> {
        loop {
            let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
            let link = self.link.as_ref().map(Link::fd);
            if let Some(link) = &link {
                fds.push(PollFd::new(link, PollFlags::IN));
            }
            let timeout = link.is_none().then_some(&RETRY);
            match poll(&mut fds, timeout) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(failed("poll")(errno).into()),
                Ok(_) => {}
            }
            if !fds[0].revents().is_empty() {
                return self.link.take().map_or(Ok(()), Link::goodbye);
            }
            if let Some(dead) = self.link.take() {
                is_held.store(false, Relaxed);
                tracing::error!(
                    "the holder is gone; starting another: nothing is lost, but until it runs a \
                     crash of this process would lose what is not on the SSD"
                );
                dead.reap();
            }
            match self.start(clock) {
                Ok(()) => {
                    is_held.store(true, Relaxed);
                    tracing::info!("memory is held again");
                }
                Err(error) => tracing::error!(%error, "no holder; trying again in 5 s"),
            }
        }
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
    use std::time::Duration;

    use perdura_media::RealClock;

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
            program: HolderProgram::perdura("/dev/null/no-program"),
            dir: PathBuf::new(),
            threads: 1,
            times: Times { grace: Duration::from_secs(1), wait: None },
            link: Some(Link::over(ours)),
        };
        let watch = supervisor.watch(Arc::new(RealClock)).unwrap();
        assert!(watch.is_held());
        drop(theirs);
        while watch.is_held() {
            std::thread::yield_now();
        }
        watch.goodbye().unwrap();
    }
}
