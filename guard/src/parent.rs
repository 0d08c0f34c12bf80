//! The guard's parent: a small process that keeps descriptors, so that memory outlives a guard that
//! is killed.
//!
//! - The parent does nothing but receive descriptors and start the guard again. Everything that
//!   reads what others have made is in its child, the guard itself.
//! - The guard tells its parent of each change before a server is told, so that the next guard
//!   knows at least as much as the servers.
//! - Links are kept, too: servers go on while a guard is started again.
//! - A guard that is not heard for a while hangs, and is killed.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use perdura_media::Clock;
use perdura_region::holder::Times;
use perdura_region::holder::socket::socket_pair;
use perdura_region::holder::wire::{ImageFile, Message, receive, send};
use perdura_warning::{Signals, WarningSource};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::error::{HoldError, failed};
use crate::foreign::{Closings, Foreign};
use crate::held::{Held, State};
use crate::sys::{Process, drop_beside, own_user};

/// A guard that says nothing for this time hangs.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The same from the signal that ends it: the time that is left is short. Once only, so that a slow
/// machine is not kept from saving.
const SILENCE_AT_END_MAX: Duration = Duration::from_secs(3);
/// Time between two looks at the guard's silence.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time in which a guard that was killed must be gone. One whose file does not answer (FUSE, NFS)
/// is not.
const GONE_WITHIN: Duration = Duration::from_secs(2);
/// A guard that ends sooner after its start counts as one that cannot work.
const WORKS_FOR: Duration = Duration::from_secs(5);
/// Most guards in a row that may end that soon. Every other end is followed by a new guard.
const SHORT_RUNS_MAX: u32 = 20;
/// Time between two looks whether a guard has ended.
const END_LOOK_EVERY: Duration = Duration::from_millis(2);
/// How often a guard tries to tell its parent something, and the time in between: two seconds.
const SEND_ATTEMPTS_MAX: u32 = 200;
const SEND_AGAIN: Duration = Duration::from_millis(10);

/// A process that starts guards and keeps their descriptors.
pub struct Parent {
    /// The program that is started as the guard, with the connection to this process as its
    /// standard input. It must call [`crate::Guard::run`].
    pub program: Box<dyn FnMut() -> Command>,
    /// Where servers connect.
    pub listener: OwnedFd,
    /// The signals that end the guard.
    pub signals: Signals,
    /// The clock for the guard's silence.
    pub clock: Arc<dyn Clock>,
    /// Called at each look while the guard is heard, to tell a service manager.
    pub alive: Box<dyn FnMut()>,
}

/// What the parent has when a guard ends, for the next one.
#[derive(Default)]
struct Keeping {
    regions: BTreeMap<ImageFile, Kept>,
    /// When a signal has said that the guard is to end.
    ends_since_ns: Option<u64>,
    /// Whether a guard was killed for its silence since then.
    is_hurried: bool,
    closings: Closings,
    /// What a guard has given up at the end.
    gave_up: Option<String>,
    /// Guards that were killed and are not gone.
    stuck: Vec<Child>,
}

/// What is kept of a region.
struct Kept {
    message: Message,
    /// The descriptors of memory, ledger and image.
    fds: Vec<Foreign>,
    link: Option<Foreign>,
}

/// A guard that runs.
struct Running {
    child: Child,
    socket: OwnedFd,
    heard_ns: u64,
    /// Whether it has said anything: it heeds signals from then on.
    has_spoken: bool,
    is_killed: bool,
}

impl Parent {
    /// Starts guards until one ends well.
    ///
    /// # Errors
    /// Guards end badly right after their start, again and again, and nothing is kept for them.
    pub fn run(mut self) -> Result<(), HoldError> {
        let mut keeping = Keeping::default();
        let mut short_runs = 0;
        loop {
            let began_ns = self.clock.now_ns();
            let outcome = self.run_one(&mut keeping);
            if let (Ok(Some(_)), Some(why)) = (&outcome, keeping.gave_up.clone())
                && keeping.regions.is_empty()
            {
                return Err(HoldError::GuardGaveUp(why));
            }
            let status = match outcome {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => status,
                Ok(None) => {
                    let regions = keeping.regions.len();
                    tracing::error!(
                        regions,
                        "the guard was killed and is not gone, as a file does not answer; starting \
                         another: memory without a server waits for the end of this one"
                    );
                    continue;
                }
                Err(error) if keeping.regions.is_empty() => return Err(error),
                Err(error) => {
                    let regions = keeping.regions.len();
                    tracing::error!(%error, regions, "no guard runs; trying again");
                    self.wait();
                    continue;
                }
            };
            let ran_ns = self.clock.now_ns().saturating_sub(began_ns);
            let is_short = u128::from(ran_ns) < WORKS_FOR.as_nanos();
            short_runs = if is_short { short_runs + 1 } else { 0 };
            if short_runs > SHORT_RUNS_MAX {
                if keeping.regions.is_empty() {
                    let status = status.to_string();
                    return Err(HoldError::KeepsEnding { times: short_runs, status });
                }
                self.wait();
            }
            let regions = keeping.regions.len();
            tracing::error!(%status, regions, "the guard ended; starting another");
        }
    }

    /// Waits before another attempt: to give up would lose what is kept.
    fn wait(&mut self) {
        (self.alive)();
        std::thread::sleep(LOOK_EVERY);
    }

    /// Runs one guard until it has ended; `None`: it was killed, runs no more, and is not gone.
    fn run_one(&mut self, keeping: &mut Keeping) -> Result<Option<ExitStatus>, HoldError> {
        let mut guard = self.start(keeping)?;
        let attended = self.attend(&mut guard, keeping);
        let ended = attended.and_then(|()| self.await_end(&mut guard, keeping));
        if ended.is_err() {
            guard.kill()?;
        }
        if !matches!(ended, Ok(Some(_))) {
            keeping.leave_to(guard.child);
        }
        ended
    }

    /// Waits for the end of a guard that says nothing any more. One that goes on without its parent
    /// is killed: the next one has all that is kept.
    fn await_end(
        &mut self,
        guard: &mut Running,
        keeping: &mut Keeping,
    ) -> Result<Option<ExitStatus>, HoldError> {
        let mut since_ns = self.clock.now_ns();
        loop {
            if let Some(status) = guard.child.try_wait().map_err(failed("wait for the guard"))? {
                return Ok(Some(status));
            }
            (self.alive)();
            self.pass_on_signal(guard, keeping)?;
            let waited_ns = u128::from(self.clock.now_ns().saturating_sub(since_ns));
            if guard.is_killed && waited_ns > GONE_WITHIN.as_nanos() {
                return Ok(None);
            }
            if !guard.is_killed && waited_ns > SILENCE_MAX.as_nanos() {
                tracing::error!("the guard goes on without its parent; killing it");
                guard.kill()?;
                since_ns = self.clock.now_ns();
            }
            std::thread::sleep(END_LOOK_EVERY);
        }
    }

    fn start(&mut self, keeping: &Keeping) -> Result<Running, HoldError> {
        let (ours, theirs) = socket_pair().map_err(failed("socket pair"))?;
        let mut program = (self.program)();
        program.stdin(Stdio::from(theirs));
        let child = program.spawn().map_err(failed("start the guard"))?;
        // This process must close its copy of the guard's end, or it would not notice the end.
        drop(program);
        let heard_ns = self.clock.now_ns();
        let running =
            Running { child, socket: ours, heard_ns, has_spoken: false, is_killed: false };
        for Kept { message, fds, link } in keeping.regions.values() {
            let fds: Vec<_> = fds.iter().chain(link).map(AsFd::as_fd).collect();
            if send(&running.socket, message, &fds).is_err() {
                // The guard is gone already, and the next one is told everything again.
                return Ok(running);
            }
        }
        // As above.
        let _ = send(&running.socket, &Message::Ready, &[self.listener.as_fd()]);
        Ok(running)
    }

    /// Keeps what the guard says until it is gone.
    fn attend(&mut self, guard: &mut Running, keeping: &mut Keeping) -> Result<(), HoldError> {
        loop {
            let timeout = Timespec { tv_sec: LOOK_EVERY.as_secs() as i64, tv_nsec: 0 };
            let mut fds = [
                PollFd::new(&guard.socket, PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.descriptor(), PollFlags::IN),
            ];
            match poll(&mut fds, Some(&timeout)) {
                Err(Errno::INTR) => continue,
                outcome => outcome.map_err(failed("poll"))?,
            };
            let [speaks, signalled] = fds.map(|fd| !fd.revents().is_empty());
            if signalled {
                self.pass_on_signal(guard, keeping)?;
            }
            if speaks {
                match receive(&guard.socket) {
                    Ok(Some((message, fds))) => {
                        guard.heard_ns = self.clock.now_ns();
                        let is_first = !std::mem::replace(&mut guard.has_spoken, true);
                        if is_first && keeping.ends_since_ns.is_some() {
                            guard.tell_end();
                        }
                        keeping.note(message, fds);
                    }
                    Ok(None) | Err(_) => return Ok(()),
                }
            }
            // What has arrived is heard first: it may be more than one message.
            if speaks {
                (self.alive)();
                continue;
            }
            let now_ns = self.clock.now_ns();
            let silent_ns = now_ns.saturating_sub(guard.heard_ns);
            let ending_ns = keeping.ends_since_ns.map_or(0, |since| now_ns.saturating_sub(since));
            let hurries = !keeping.is_hurried
                && u128::from(silent_ns.min(ending_ns)) >= SILENCE_AT_END_MAX.as_nanos();
            if u128::from(silent_ns) < SILENCE_MAX.as_nanos() && !hurries {
                (self.alive)();
            } else {
                let silent = Duration::from_nanos(silent_ns);
                tracing::error!(?silent, "the guard says nothing; killing it");
                keeping.is_hurried |= hurries;
                guard.kill()?;
                return Ok(());
            }
        }
    }

    /// Lets the guard know that it is to end. One that starts just now is told at its first word,
    /// and so is one that takes its place.
    fn pass_on_signal(&mut self, guard: &Running, keeping: &mut Keeping) -> Result<(), HoldError> {
        while self.signals.take()?.is_some() {
            keeping.ends_since_ns.get_or_insert(self.clock.now_ns());
            if guard.has_spoken {
                guard.tell_end();
            }
        }
        Ok(())
    }
}

impl Running {
    fn kill(&mut self) -> Result<(), HoldError> {
        self.is_killed = true;
        self.child.kill().map_err(failed("kill the guard"))
    }

    fn tell_end(&self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // A guard that is gone is started again, and told then.
        let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
    }
}

impl Keeping {
    /// Lets memory without a server be a killed guard's until that is gone: it may have a flush
    /// under way, beside which nobody may write.
    fn leave_to(&mut self, guard: Child) {
        let old = i32::try_from(guard.id()).map_or(Process::of(0), Process::of);
        for kept in self.regions.values_mut().filter(|kept| kept.link.is_none()) {
            if let Message::Keep { pid, started, .. } = &mut kept.message {
                (*pid, *started) = (old.pid, old.started);
            }
        }
        self.stuck.retain_mut(|guard| matches!(guard.try_wait(), Ok(None)));
        self.stuck.push(guard);
    }

    /// Notes what the guard says.
    fn note(&mut self, message: Message, fds: Vec<OwnedFd>) {
        let mut fds = self.closings.take(fds, own_user());
        match message {
            Message::Keep { image, .. } => {
                let link = (fds.len() % 3 == 1).then(|| fds.pop()).flatten();
                match (fds.len(), self.regions.get_mut(&image)) {
                    (3, _) => drop(self.regions.insert(image, Kept { message, fds, link })),
                    (0, Some(kept)) => (kept.message, kept.link) = (message, link),
                    (count, _) => {
                        tracing::error!(?image, count, "the guard sent no memory to keep");
                    }
                }
            }
            Message::Forget { image } => {
                if let Some(Kept { mut fds, link, .. }) = self.regions.remove(&image) {
                    // The image and its lock are free at once. To free memory takes its time, and
                    // this thread must hear the guard meanwhile.
                    fds.truncate(2);
                    drop(link);
                    drop_beside(fds);
                }
            }
            // It is alive.
            Message::Ready => {}
            Message::Failed { why } => self.gave_up = Some(why),
            other => tracing::error!(?other, "an unexpected message from the guard"),
        }
    }
}

/// The guard's connection to its parent.
pub(crate) struct ToParent {
    /// `None`: the parent is gone.
    socket: Option<OwnedFd>,
    said_ns: u64,
}

/// A region that an earlier guard held.
pub(crate) struct Inheritance {
    pub held: Held,
    /// The share that it may have in force, microseconds.
    pub granted_us: u64,
    /// Whether its tenant's programs are trusted.
    pub is_trusted: bool,
}

/// What a guard is told by its parent at the start.
pub(crate) struct Inherited {
    pub parent: ToParent,
    pub listener: OwnedFd,
    pub held: Vec<Inheritance>,
}

impl ToParent {
    /// Tells the parent something. The parent always listens, so this waits for a moment at most.
    pub(crate) fn send(&mut self, message: &Message, fds: &[BorrowedFd<'_>]) {
        let Some(socket) = &self.socket else { return };
        for attempt in 1.. {
            let Err(error) = send(socket, message, fds) else { return };
            let is_gone =
                matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
            // Too many descriptors are on their way, for example, until the parent has taken some.
            if !is_gone && attempt < SEND_ATTEMPTS_MAX {
                std::thread::sleep(SEND_AGAIN);
                continue;
            }
            tracing::error!(%error, "the guard's parent does not listen");
            return self.lose();
        }
    }

    /// Shows the parent now and then that the guard is alive.
    pub(crate) fn say_alive(&mut self, now_ns: u64) {
        if u128::from(now_ns.saturating_sub(self.said_ns)) >= LOOK_EVERY.as_nanos() {
            self.said_ns = now_ns;
            self.send(&Message::Ready, &[]);
        }
    }

    /// A descriptor that becomes readable when the parent is gone: it says nothing after the start.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Notes that the parent is gone.
    pub(crate) fn lose(&mut self) {
        self.socket = None;
    }
}

/// Takes over what the parent has kept.
pub(crate) fn inherit(
    socket: OwnedFd,
    closings: &Closings,
    clock: &dyn Clock,
) -> Result<Inherited, HoldError> {
    let mut held = Vec::new();
    loop {
        let (message, fds) = receive(&socket)
            .map_err(failed("read from the guard's parent"))?
            .ok_or_else(|| HoldError::NothingToHold("the end of the connection".into()))?;
        match message {
            Message::Keep {
                owner,
                times,
                pid,
                started,
                rate_bytes_per_s,
                granted_us,
                is_trusted,
                ..
            } => {
                let server = Process { pid, started };
                let fds = closings.take(fds, owner);
                match resume(fds, owner, (times, rate_bytes_per_s), server, clock) {
                    Ok(region) => {
                        held.push(Inheritance { held: region, granted_us, is_trusted });
                    }
                    Err(error) => tracing::error!(
                        %error, owner, pid, "memory that was held cannot be held again"
                    ),
                }
            }
            Message::Ready => {
                let [listener] = <[OwnedFd; 1]>::try_from(fds).map_err(|fds| {
                    HoldError::NothingToHold(format!("{} descriptors of listeners", fds.len()))
                })?;
                let parent = ToParent { socket: Some(socket), said_ns: 0 };
                return Ok(Inherited { parent, listener, held });
            }
            other => return Err(HoldError::NothingToHold(format!("{other:?}"))),
        }
    }
}

fn resume(
    mut fds: Vec<Foreign>,
    owner: u32,
    terms: (Times, u64),
    server: Process,
    clock: &dyn Clock,
) -> Result<Held, HoldError> {
    let link = (fds.len() > 3).then(|| fds.pop()).flatten().and_then(Foreign::into_socket);
    let state = match link {
        Some(link) => State::Linked { link, ending: None },
        None => State::Alone { since_ns: clock.now_ns() },
    };
    let mut held = Held::new(fds, owner, terms, server, state)?;
    held.is_kept = true;
    Ok(held)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_what_the_guard_said_last_or_the_guards_own_if_it_is_not_gone() {
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let image = ImageFile::of(null()).unwrap();
        let keep = |granted_us| Message::Keep {
            image,
            is_trusted: true,
            owner: 1,
            times: Times { grace: Duration::from_secs(1), wait: None },
            pid: 2,
            started: 3,
            rate_bytes_per_s: 4,
            granted_us,
        };
        let mut keeping = Keeping::default();
        let link = || socket_pair().unwrap().0;
        keeping.note(keep(0), vec![link()]);
        keeping.note(keep(0), vec![null(), null()]);
        assert!(keeping.regions.is_empty(), "without descriptors there is nothing to keep");
        for (granted_us, fds) in [
            (1, vec![null(), null(), null(), link()]),
            (2, vec![]),
            (3, vec![link()]),
            (4, vec![null(), null(), null()]),
        ] {
            let is_linked = fds.len() % 3 == 1;
            keeping.note(keep(granted_us), fds);
            let kept = &keeping.regions[&image];
            assert_eq!((&kept.message, kept.fds.len()), (&keep(granted_us), 3));
            assert_eq!(kept.link.is_some(), is_linked);
        }
        // What a killed guard may still write is its own until it is gone.
        let pid_of = |keeping: &Keeping| match keeping.regions[&image].message {
            Message::Keep { pid, started, .. } => (pid, started),
            _ => panic!("something else is kept"),
        };
        let sleeper = || Command::new("sleep").arg("60").spawn().unwrap();
        let old = sleeper();
        let process = Process::of(old.id() as i32);
        keeping.leave_to(old);
        assert_eq!(pid_of(&keeping), (process.pid, process.started));
        assert!(process.end());
        keeping.note(keep(5), vec![link()]);
        let next = sleeper();
        let process = Process::of(next.id() as i32);
        while keeping.stuck[0].try_wait().unwrap().is_none() {}
        keeping.leave_to(next);
        assert_eq!((pid_of(&keeping), keeping.stuck.len()), ((2, 3), 1), "a server has it");
        assert!(process.end());
        keeping.note(Message::Forget { image }, Vec::new());
        assert!(keeping.regions.is_empty());
    }
}
