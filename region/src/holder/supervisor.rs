//! The server's supervision of its holder: a holder that dies is replaced; at the end it is told
//! goodbye.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use perdura_media::Clock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::link::{Link, LinkError};
use super::program::HolderProgram;
use super::times::Times;

/// Between attempts to replace a holder that cannot be started.
const RETRY: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };

/// What a holder is given, and how it is started.
#[derive(Debug)]
pub struct Supervisor {
    /// The region's memory.
    pub memory: OwnedFd,
    /// Its ledger.
    pub ledger: OwnedFd,
    /// Its image.
    pub image: OwnedFd,
    /// The program that holds.
    pub program: HolderProgram,
    /// The region's directory.
    pub dir: PathBuf,
    /// Threads of an emergency flush.
    pub threads: usize,
    /// What the holder's flush may take, and how long it waits for a server.
    pub times: Times,
    /// A holder already at work.
    pub link: Option<Link>,
}

/// A thread that keeps a holder at work until [`Watch::goodbye`].
#[derive(Debug)]
pub struct Watch {
    thread: JoinHandle<Result<(), LinkError>>,
    stop: Arc<OwnedFd>,
}

impl Supervisor {
    /// Starts a holder unless there is one.
    pub fn start(&mut self, clock: &dyn Clock) -> Result<(), LinkError> {
        if self.link.is_none() {
            let fds = [self.memory.as_fd(), self.ledger.as_fd(), self.image.as_fd()];
            let program = self.program.command(&self.dir, self.threads);
            self.link = Some(Link::start(program, fds, self.times, clock.unix_ms())?);
        }
        Ok(())
    }

    /// Watches the holder from a thread of its own, which shares nothing with writers.
    pub fn watch(mut self, clock: Arc<dyn Clock>) -> Result<Watch, LinkError> {
        let failed = |what: &str| {
            let what = what.to_owned();
            move |source| LinkError::Io { what, source }
        };
        let stop = eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|errno| failed("event descriptor")(errno.into()))?;
        let stop = Arc::new(stop);
        let watched = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("perdura-watch".into())
            .spawn(move || self.run(&watched, &*clock))
            .map_err(failed("start a thread"))?;
        Ok(Watch { thread, stop })
    }

    fn run(&mut self, stop: &OwnedFd, clock: &dyn Clock) -> Result<(), LinkError> {
        loop {
            let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
            let link = self.link.as_ref().map(Link::fd);
            if let Some(link) = &link {
                fds.push(PollFd::new(link, PollFlags::IN));
            }
            let timeout = link.is_none().then_some(&RETRY);
            match poll(&mut fds, timeout) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => {
                    return Err(LinkError::Io { what: "poll".into(), source: errno.into() });
                }
                Ok(_) => {}
            }
            if !fds[0].revents().is_empty() {
                return self.link.take().map_or(Ok(()), Link::goodbye);
            }
            if let Some(dead) = self.link.take() {
                tracing::error!(
                    "the holder is gone; starting another: nothing is lost, but until it runs a crash of this process would be"
                );
                dead.reap();
            }
            match self.start(clock) {
                Ok(()) => tracing::info!("memory is held again"),
                Err(error) => tracing::error!(%error, "no holder; trying again in 5 s"),
            }
        }
    }
}

impl Watch {
    /// Everything is on the SSD: lets the holder go.
    pub fn goodbye(self) -> Result<(), LinkError> {
        let io = |errno: rustix::io::Errno| LinkError::Io {
            what: "wake the supervisor".into(),
            source: errno.into(),
        };
        rustix::io::write(&*self.stop, &1u64.to_ne_bytes()).map_err(io)?;
        match self.thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
